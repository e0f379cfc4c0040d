// The norms of one row. Statistics are f32 over sixteen lanes and one tree, so they depend on the
// row alone.
#ifndef LIBAVX_OPS_NORM_H_
#define LIBAVX_OPS_NORM_H_

#include "ops_call.h"
#include "ops_lanes.h"

namespace libavx::LIBAVX_LEVEL {

LIBAVX_INLINE float reciprocal_rms(float sum_of_squares, int64_t n, float eps)
{
    return 1.0f / __builtin_sqrtf(sum_of_squares / float(n) + eps);
}

LIBAVX_INLINE float sum_of_squares(const float *x, int64_t n)
{
    f32x16 acc = f32_zero();
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const f32x16 v = f32_load(x + i);
        acc = fma(v, v, acc);
    }
    if (i < n) {
        const f32x16 v = load_part<F32>(x + i, int(n - i));
        acc = fma(v, v, acc);
    }
    return sum(acc);
}

// y = x * factor * (w + wadd)
template <class W>
LIBAVX_INLINE void apply_gain(const float *x, float factor, const void *gain, float wadd, float *y,
                              int64_t n)
{
    const auto *w = static_cast<const typename W::type *>(gain);
    const f32x16 f = f32_set(factor), add = f32_set(wadd);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) f32_store(y + i, f32_load(x + i) * f * (W::load(w + i) + add));
    if (i < n) {
        const int part = int(n - i);
        store_part<F32>(y + i, load_part<F32>(x + i, part) * f * (load_part<W>(w + i, part) + add),
                        part);
    }
}

LIBAVX_INLINE void rmsnorm_row(const float *x, const Gain &w, float eps, float wadd, float *y,
                               int64_t n)
{
    const float factor = reciprocal_rms(sum_of_squares(x, n), n, eps);
    LIBAVX_WITH_ELEMENT(w.element, W, apply_gain<W>(x, factor, w.data, wadd, y, n));
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
