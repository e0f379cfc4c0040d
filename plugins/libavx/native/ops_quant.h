// Grouped codes of one row in one or two int8 planes: scale = amax / most, code =
// round(x * (most / amax)), sum of the codes. Most is 127, or 16256 where a code is
// 128 * high + low, low in -64..63.
#ifndef LIBAVX_OPS_QUANT_H_
#define LIBAVX_OPS_QUANT_H_

#include "ops_call.h"
#include "ops_lanes.h"

namespace libavx::LIBAVX_LEVEL {

LIBAVX_INLINE void store_codes(int8_t *q, i32x16 code, int part)
{
    if (part == 16) i8_store(q, code);
    else i8_store_part(q, code, part);
}

// `low` is where the second plane lies, NULL for one plane.
LIBAVX_INLINE void quantise_group(const float *x, int64_t group, int8_t *q, int8_t *low,
                                  float *scale, int32_t *asum)
{
    // Magnitudes compare as their bits, and so a NaN is the largest and reaches the scale.
    i32x16 top = i32_set(0);
    for (int64_t i = 0; i < group; i += 16)
        top = largest_bits(top,
                           bits_of(absolute(load_part<F32>(x + i, int(rad_min(16, group - i))))));
    const int32_t bits = largest(top);
    float amax;
    memcpy(&amax, &bits, sizeof amax);
    const float top_code = low == nullptr ? 127.0f : 16256.0f;
    *scale = amax / top_code;
    *asum = 0;
    if (amax == 0.0f) {
        memset(q, 0, size_t(group));
        if (low != nullptr) memset(low, 0, size_t(group));
        return;
    }
    const f32x16 factor = f32_set(top_code / amax), most = f32_set(top_code);
    i32x16 total = i32_set(0);
    for (int64_t i = 0; i < group; i += 16) {
        const int part = int(rad_min(16, group - i));
        f32x16 v = load_part<F32>(x + i, part) * factor;
        v = select(compare<_CMP_ORD_Q>(v, v), v, f32_zero());
        const i32x16 code = round_to_i32(max(f32_zero() - most, min(most, v)));
        total = total + code;  // lanes past the end are zero
        if (low == nullptr) {
            store_codes(q + i, code, part);
            continue;
        }
        // A floor of the quotient by a logical shift: 128 *
        // 128 more keeps what is shifted positive.
        const i32x16 high = shr<7>(code + i32_set(64 + 128 * 128)) - i32_set(128);
        store_codes(q + i, high, part);
        store_codes(low + i, code - shl<7>(high), part);
    }
    *asum = sum(total);
}

// The three outputs of every op that ends in codes.
struct Codes {
    Rows2<int8_t> q;
    Rows2<float> scale;
    Rows2<int32_t> asum;
    int64_t group, low_at;  // low_at: columns from a code to its second plane, 0 for one plane

    int bind(const DLTensor *t, int64_t rows, int64_t n, int64_t group_size, int64_t planes)
    {
        group = group_size, low_at = planes == 2 ? n : 0;
        if (planes < 1 || planes > 2) return RAD_INVAL;
        if (group < 1 || n % group != 0) return RAD_SHAPE;
        LIBAVX_TRY(bind_rows(t[0], rows, planes * n, &q));
        LIBAVX_TRY(bind_rows(t[1], rows, n / group, &scale));
        return bind_rows(t[2], rows, n / group, &asum);
    }
    // Write the codes of columns [col, col_end) of a row, x being the first of them.
    void write(int64_t r, const float *x, int64_t col, int64_t col_end) const
    {
        for (int64_t g = col / group; g < col_end / group; g++) {
            int8_t *high = q.row(r) + g * group;
            quantise_group(x + g * group - col, group, high, low_at ? high + low_at : nullptr,
                           scale.row(r) + g, asum.row(r) + g);
        }
    }
};

}  // namespace libavx::LIBAVX_LEVEL
#endif
