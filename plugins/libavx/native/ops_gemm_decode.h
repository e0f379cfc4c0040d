// Columns of a weight of any encoding as floats, in a worker's scratch, for ops_gemm.cpp.
#ifndef LIBAVX_OPS_GEMM_DECODE_H_
#define LIBAVX_OPS_GEMM_DECODE_H_

#include "codes.h"
#include "products.h"
#include "scales.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level use for something else

constexpr int64_t few_cols = 256;    // columns decoded at a time for few tokens
constexpr int64_t many_cols = 1024;  // and for many

// 256 times the scale of a column, for fp8_load_small.
LIBAVX_INLINE f32x16 fp8_scale(const Format &f, const uint8_t *scales, int64_t column)
{
    if (f.number[0] == NONE) return f32_set(256.0f);
    return load_entry(f, scales + (column >> f.shift[0]) * f.entry_bytes(0)) * f32_set(256.0f);
}

void decode_fp8(const Format &f, const uint8_t *block, int64_t cols, int64_t first, int64_t count,
                float *out)
{
    const uint8_t *codes = block + f.codes_at(cols) + first * block_rows,
                  *scales = block + f.level0_at(cols);
    const int64_t within = f.shift[0] == whole_row ? -1 : (int64_t(1) << f.shift[0]) - 1;
    f32x16 scale = f32_zero();
    for (int64_t k = 0; k < count; k++) {
        if (k == 0 || ((first + k) & within) == 0) scale = fp8_scale(f, scales, first + k);
        f32_store(out + 16 * k, fp8_load_small(codes + k * block_rows) * scale);
    }
}

template <Codes codes, int q>
LIBAVX_INLINE void decode_quad(const Format &f, const uint8_t *group, const uint8_t *table,
                               const float *scale, const float *min, float *out)
{
    const i32x16 four = as_i32(quad<codes, q>(group, table)), byte = i32_set(0xff),
                 offset = i32_set(f.offset);
    const int64_t at = f.sub() == 16 ? 16 * (q / 4) : 0;
    const f32x16 s = f32_load(scale + at);
    const i32x16 column[4] = {four & byte, shr<8>(four) & byte, shr<16>(four) & byte,
                              shr<24>(four)};
    for (int i = 0; i < 4; i++) {
        const f32x16 code = to_f32(column[i] - offset);
        const f32x16 value = f.min() ? fma(code, s, f32_zero() - f32_load(min + at)) : code * s;
        f32_store(out + 16 * (4 * q + i), value);
    }
    if constexpr (q < 7) decode_quad<codes, q + 1>(f, group, table, scale, min, out);
}

template <Codes codes>
void decode_groups(const Format &f, const uint8_t *in, const uint8_t *table, const float *scale,
                   const float *min, int64_t groups, float *out)
{
    const int64_t step = 16 * (group_cols / f.sub());
    for (int64_t g = 0; g < groups; g++) {
        const uint8_t *group = in + g * 64 * bits_of_codes(codes);
        decode_quad<codes, 0>(f, group, table, scale + g * step, min + g * step, out + g * 512);
    }
}

struct Scratch {
    float *items, *scale, *min, *sums;
    int64_t bytes;
};

Scratch cut_scratch(uint8_t *at, int64_t tokens, int64_t cols)
{
    uint8_t *const begin = at;
    const int64_t chunk = rad_min(cols, tokens <= few_tokens ? few_cols : many_cols) + 31;
    Scratch s;
    s.items = take<float>(&at, 16 * chunk);
    s.scale = take<float>(&at, chunk);
    s.min = take<float>(&at, chunk);
    s.sums = take<float>(&at, 16 * rad_min(tokens, piece_tokens));
    s.bytes = at - begin;
    return s;
}

// Columns [first, first + count) of a block as floats, column by column the 16 rows.
void decode(const Format &f, const uint8_t *block, int64_t cols, int64_t first, int64_t count,
            const Scratch &s)
{
    if (f.kind == FP8) return decode_fp8(f, block, cols, first, count, s.items);
    const uint8_t *in = block + f.codes_at(cols) + first / group_cols * 64 * f.bits;
    const int64_t groups = count / group_cols;
    decode_scales(f, block, cols, first / f.sub(), count / f.sub(), s.scale, s.min);
    if (f.table()) return decode_groups<CTABLE>(f, in, block, s.scale, s.min, groups, s.items);
    switch (f.bits) {
        case 2: return decode_groups<C2>(f, in, block, s.scale, s.min, groups, s.items);
        case 3: return decode_groups<C3>(f, in, block, s.scale, s.min, groups, s.items);
        case 4: return decode_groups<C4>(f, in, block, s.scale, s.min, groups, s.items);
        case 5: return decode_groups<C5>(f, in, block, s.scale, s.min, groups, s.items);
        case 6: return decode_groups<C6>(f, in, block, s.scale, s.min, groups, s.items);
        default: return decode_groups<C8>(f, in, block, s.scale, s.min, groups, s.items);
    }
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
