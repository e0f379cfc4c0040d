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

// One group: 32 numbers to codes of `bits` bits and an f16 scale.
LIBAVX_INLINE void pack_group(const float *x, int bits, uint8_t *codes, uint8_t *scale)
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
    int32_t code[cache_group];
    if (lost || stored == 0) {
        for (int32_t &c : code) c = most;
    } else {
        const f32x16 wide = f32_set(_cvtsh_ss(stored));
        for (int i = 0; i < 2; i++) {
            const f32x16 limited =
                min(f32_set(float(most - 1)), max(f32_set(float(-most)), y[i] / wide));
            i32_store(code + 16 * i, round_to_i32(limited) + i32_set(most));
        }
    }
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

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
