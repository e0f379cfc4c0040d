// How keys and values become packed slots: in f32 throughout, so that every library and level
// stores the same bytes.
#ifndef LIBAVX_OPS_CACHE_PACK_H_
#define LIBAVX_OPS_CACHE_PACK_H_

#include "ops_cache.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr float most_stored = 65504.0f;  // the range of f16
constexpr int e4m3_bias = 7, e4m3_bits = 3;

// Sixteen numbers within ±448 as E4M3, rounded to nearest even.
LIBAVX_INLINE i32x16 to_e4m3(f32x16 x)
{
    const i32x16 bits = bits_of(x), size = bits & i32_set(0x7fffffff);
    constexpr int dropped = 23 - e4m3_bits;
    const i32x16 odd = shr<dropped>(size) & i32_set(1);
    const i32x16 near = shr<dropped>(size + i32_set((1 << (dropped - 1)) - 1) + odd) -
                        i32_set((127 - e4m3_bias) << e4m3_bits);
    // Below 2^-6 codes count steps of 2^-9, which is the spacing of floats at 2^14.
    const f32x16 steps = bits_to_f32(size) + f32_set(16384.0f);
    const i32x16 small = bits_of(steps) - bits_of(f32_set(16384.0f));
    const mask16 is_small = compare<_CMP_LT_OQ>(bits_to_f32(size), f32_set(0x1p-6f));
    const i32x16 code = bits_of(select(is_small, bits_to_f32(small), bits_to_f32(near)));
    return code | (shr<24>(bits) & i32_set(0x80));
}

// A row padded with zeros to whole lanes, within the range of f16; NaN stays.
LIBAVX_INLINE void clamped(const float *from, int64_t dim, float *x)
{
    for (int64_t d = 0; d < dim; d += 16) {
        const f32x16 y = load_part<F32>(from + d, int(rad_min(16, dim - d)));
        f32_store(x + d, min(f32_set(most_stored), max(f32_set(-most_stored), y)));
    }
}

LIBAVX_INLINE void bytes_store(uint8_t *p, i32x16 a, int64_t n)
{
    int32_t all[16];
    i32_store(all, a);
    for (int64_t i = 0; i < n; i++) p[i] = uint8_t(all[i]);
}

LIBAVX_INLINE void pack_e4m3(const float *x, int64_t dim, uint8_t *codes, uint8_t *scale)
{
    f32x16 most = f32_zero();
    uint32_t lost = 0;
    for (int64_t d = 0; d < dim; d += 16) {
        const f32x16 y = f32_load(x + d);
        lost |= bits_of(compare<_CMP_UNORD_Q>(y, y));
        most = max(most, absolute(y));
    }
    if (lost) {
        *scale = 255;
        memset(codes, 0, size_t(dim));
        return;
    }
    const float top = largest(most);
    uint32_t bits;
    memcpy(&bits, &top, sizeof bits);
    // 448 is 1.75 * 2^8: the power is that of `top` less 8, one more where 1.75 does not suffice.
    int power = int(bits >> 23) - 127 - 8 + ((bits & 0x7fffff) > 0x600000);
    power = power < -126 ? -126 : power;
    *scale = uint8_t(power + 127);
    const uint32_t inverse_bits = uint32_t(127 - power) << 23;
    float inverse;
    memcpy(&inverse, &inverse_bits, sizeof inverse);
    for (int64_t d = 0; d < dim; d += 16)
        bytes_store(codes + d, to_e4m3(f32_load(x + d) * f32_set(inverse)), rad_min(16, dim - d));
}

// One group: 32 numbers to codes from 0 on, of `bits` bits, and an f16 scale.
LIBAVX_INLINE void quantise(const float *x, int bits, int32_t *code, uint8_t *scale)
{
    const int most = 1 << (bits - 1);
    const f32x16 y[2] = {f32_load(x), f32_load(x + 16)};
    const bool lost = bits_of(compare<_CMP_UNORD_Q>(y[0], y[1])) != 0;
    const float high = largest(max(y[0], y[1]));
    const float low = -largest(max(f32_zero() - y[0], f32_zero() - y[1]));
    // The number of largest magnitude gets the one code without an opposite.
    uint16_t stored = lost ? 0x7e00 : _cvtss_sh((high >= -low ? high : low) / float(-most), 0);
    if ((stored & 0x7fff) == 0) stored = 0;
    memcpy(scale, &stored, sizeof stored);
    if (lost || stored == 0) {
        for (int i = 0; i < cache_group; i++) code[i] = most;
        return;
    }
    const f32x16 wide = f32_set(_cvtsh_ss(stored));
    for (int i = 0; i < 2; i++) {
        const f32x16 limited =
            min(f32_set(float(most - 1)), max(f32_set(float(-most)), y[i] / wide));
        i32_store(code + 16 * i, round_to_i32(limited) + i32_set(most));
    }
}

LIBAVX_INLINE void pack_group(const float *x, int bits, uint8_t *codes, uint8_t *scale)
{
    int32_t code[cache_group];
    quantise(x, bits, code, scale);
    for (int i = 0; i < 16; i++) codes[i] = uint8_t((code[i] & 15) | (code[i + 16] & 15) << 4);
    for (int w = 0; bits == 6 && w < 2; w++) {
        uint32_t word = 0;
        for (int i = 0; i < 16; i++) word |= uint32_t(code[16 * w + i] >> 4) << 2 * i;
        memcpy(codes + 16 + 4 * w, &word, sizeof word);
    }
}

// Store one head's key or value at a slot of its page; `x` has room for the row in whole lanes.
LIBAVX_INLINE void pack(const Half &half, const float *from, int64_t dim, int64_t block,
                        int64_t slot, uint8_t *codes, uint8_t *scales, float *x)
{
    clamped(from, dim, x);
    if (half.rotated) rotate(x, dim, dim % 32 == 0 ? 0.125f : dim % 16 == 0 ? 0.25f : 0.5f);
    codes += slot * half.code_bytes(dim);
    if (!half.grouped()) {
        pack_e4m3(x, dim, codes, scales + slot);
        return;
    }
    for (int64_t g = 0; g < dim / cache_group; g++)
        pack_group(x + g * cache_group, half.bits, codes + g * (cache_group * half.bits / 8),
                   scales + 2 * (g * block + slot));
}

// Codes of the group that begins at number `d` to their places in words.
LIBAVX_INLINE void words_store(const Half &half, const int32_t *code, int64_t dim, int64_t block,
                               int64_t slot, int64_t d, uint8_t *codes)
{
    if (half.order == Order::dims) {
        for (int i = 0; i < cache_group; i += 4) {
            const uint32_t word = uint32_t(code[i]) | uint32_t(code[i + 1]) << 8 |
                                  uint32_t(code[i + 2]) << 16 | uint32_t(code[i + 3]) << 24;
            memcpy(codes + (d + i) * block + slot * 4, &word, sizeof word);
        }
    } else if (half.bits == 8) {
        uint8_t *at = codes + (slot / 4 * dim + d) * 4 + slot % 4;
        for (int i = 0; i < cache_group; i++) at[4 * i] = uint8_t(code[i] - 128);
    } else {
        // The other four bits are those of another slot.
        uint8_t *at = codes + (slot / 8 * dim + d) * 4 + slot % 4;
        const int shift = int(slot & 4), kept = 0xf0 >> shift;
        for (int i = 0; i < cache_group; i++)
            at[4 * i] = uint8_t((at[4 * i] & kept) | code[i] << shift);
    }
}

// Store one group of a head's key or value, of a form in words.
LIBAVX_INLINE void pack_words(const Half &half, const float *from, int64_t dim, int64_t block,
                              int64_t slot, int64_t group, uint8_t *codes, uint8_t *scales)
{
    alignas(64) float x[cache_group];
    int32_t code[cache_group];
    const int64_t d = group * cache_group;
    clamped(from + d, cache_group, x);
    if (half.rotated) rotate(x, cache_group, 0.125f);
    quantise(x, half.bits, code, scales + 2 * (group * block + slot));
    words_store(half, code, dim, block, slot, d, codes);
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
