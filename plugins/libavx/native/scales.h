// Scales and minima of a row block as floats: per entry of 16 or 32 columns, 16 rows.
#ifndef LIBAVX_SCALES_H_
#define LIBAVX_SCALES_H_

#include "format.h"
#include "simd.h"

namespace libavx::LIBAVX_LEVEL {

// Half of 2^(e - 127), exactly, and NaN for 255. Or'ed with a half, e is a number of its own at
// either end (2^-127, NaN) and 1.5 times too large between them, where the nearest to its third is
// what is wanted.
LIBAVX_INLINE f32x16 e8m0_load_half(const uint8_t *p)
{
    const f32x16 larger = bits_to_f32(shl<23>(u8_load(p)) | i32_set(1 << 22));
    // The second one when either is NaN.
    return max(f32_set(0x1p-128f), larger * f32_set(1 / 3.0f));
}

LIBAVX_INLINE f32x16 load_numbers(Number n, const uint8_t *p, bool high_nibbles)
{
    switch (n) {
        case NF32: {
            float lanes[16];
            memcpy(lanes, p, sizeof lanes);
            return f32_load(lanes);
        }
        case NF16: return f16_load(p);
        case NBF16: return bf16_load(p);
        case E8M0: return e8m0_load_half(p);
        case U4: return to_f32(high_nibbles ? shr<4>(u8_load(p)) : u8_load(p) & i32_set(15));
        case I6:
        case I8: return to_f32(i8_load(p));
        default: return to_f32(u8_load(p));
    }
}

// One entry of level 0 for 16 rows, be it theirs together.
LIBAVX_INLINE f32x16 load_entry(const Format &f, const uint8_t *entry)
{
    alignas(64) uint8_t copies[64];
    if (!f.shared()) return load_numbers(f.number[0], entry, false);
    const int64_t size = Format::number_bytes(f.number[0]);
    for (int64_t i = 0; i < 16; i++) memcpy(copies + i * size, entry, size_t(size));
    return load_numbers(f.number[0], copies, false);
}

// Effective values of `count` sub-groups from sub-group `first` on: level 0 times level 1.
template <Number n0, Number n1>
LIBAVX_INLINE void fill_scales(const Format &f, const uint8_t *block, int64_t cols, int64_t first,
                               int64_t count, float *scale, float *min)
{
    const uint8_t *level0 = block + f.level0_at(cols), *level1 = block + f.level1_at();
    const int64_t step0 = f.entry_bytes(0), step1 = f.entry_bytes(1);
    const int64_t min0 = f.min_step(0), min1 = f.min_step(1), sub = f.sub();
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = (first + i) * sub;
        const uint8_t *at0 = level0 + (column >> f.shift[0]) * step0;
        const uint8_t *at1 = level1 + (column >> f.shift[1]) * step1;
        f32x16 s = load_numbers(n0, at0, false);
        if (n1 != NONE) s = s * load_numbers(n1, at1, false);
        f32_store(scale + 16 * i, s);
        if (!f.min()) continue;
        f32x16 m = load_numbers(n0, at0 + min0, n0 == U4);
        if (n1 != NONE) m = m * load_numbers(n1, at1 + min1, false);
        f32_store(min + 16 * i, m);
    }
}

// The same for a format known at run time; the usual ones have loops of their own.
static inline void decode_scales(const Format &f, const uint8_t *block, int64_t cols, int64_t first,
                                 int64_t count, float *scale, float *min)
{
#define LIBAVX_SCALES(n0, n1)                   \
    if (f.number[0] == n0 && f.number[1] == n1) \
        return fill_scales<n0, n1>(f, block, cols, first, count, scale, min);
    LIBAVX_SCALES(NF16, NONE)
    LIBAVX_SCALES(U6, NF16)
    LIBAVX_SCALES(I8, NF16)
    LIBAVX_SCALES(I6, NF16)
    LIBAVX_SCALES(U4, NF16)
    LIBAVX_SCALES(NBF16, NONE)
    LIBAVX_SCALES(NF32, NONE)
    LIBAVX_SCALES(E8M0, NONE)
#define LIBAVX_SCALES1(n0) LIBAVX_SCALES(n0, NF16) LIBAVX_SCALES(n0, NBF16) LIBAVX_SCALES(n0, NF32)
    LIBAVX_SCALES1(U4)
    LIBAVX_SCALES1(U6)
    LIBAVX_SCALES1(I6)
    LIBAVX_SCALES1(U8)
    LIBAVX_SCALES1(I8)
#undef LIBAVX_SCALES1
#undef LIBAVX_SCALES
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
