// Scores become weights: one step of softmax over a page, in powers of two.
#ifndef LIBAVX_OPS_ATTENTION_WEIGHTS_H_
#define LIBAVX_OPS_ATTENTION_WEIGHTS_H_

#include <math.h>

#include "ops_attention_source.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

constexpr double log2_e = 1.4426950408889634;
// Weights are relative to a maximum that may be so many powers of two too small, so that few pages
// raise it.
constexpr float slack = 8.0f;

// 2^x within 1 ulp for x up to 127; 0 below -126, as denormal numbers are slow on some processors.
LIBAVX_INLINE f32x16 power_of_2(f32x16 x)
{
    const f32x16 least = f32_set(-126.0f);
    const mask16 small = compare<_CMP_LT_OQ>(x, least);
    x = max(least, x);  // the second operand wins when one is NaN
    const i32x16 n = round_to_i32(x);
    const f32x16 f = x - to_f32(n);
    const f32x16 p = polynomial(f, f32_set(0x1.41fbbcp-13f), 0x1.5f3e52p-10f, 0x1.3b2d4cp-7f,
                                0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e430p-1f, 1.0f);
    return select(small, f32_zero(), bits_to_f32(bits_of(p) + shl<23>(n)));
}

LIBAVX_INLINE float first_of(f32x16 a)
{
    return _mm_cvtss_f32(_mm256_castps256_ps128(low_half(a)));
}

// Numbers that the keys, and the values, of a page are yet to be multiplied by; NULL: none. Values
// may have some for each group: `groups` times page_keys.
struct Factors {
    const float *keys = nullptr, *values = nullptr;
    int groups = 1;
};

// An item is a query of one row and head.
struct Item {
    float top, total;          // of the split at hand: about the maximum, sum of weights
    float all_top, all_total;  // of all splits merged so far
    int64_t first, last;       // keys that the item sees
    bool some, all_some;       // whether there was a key
};

// Which keys of a page an item sees.
struct Seen {
    int first, last;
    Seen(const Item &item, int64_t key)
        : first(int(item.first > key ? rad_min(item.first - key, page_keys) : 0)),
          last(int(item.last > key ? rad_min(item.last - key, page_keys) : 0))
    {
    }
    bool any() const { return last > first; }
};

// Turn an item's scores of the keys that it sees into weights against a maximum that may rise;
// `weights` has one row for each group of values, `group_step` apart, and may be `scores`. Keys
// that it does not see get weight 0 and are never looked at. Returns the factor for all before.
LIBAVX_INLINE float weigh(const float *scores, const Seen &seen, const Factors &factors,
                          float softcap, Item &item, float *totals, float *weights,
                          int64_t group_step)
{
    f32x16 s[2] = {f32_load(scores), f32_load(scores + 16)};
    if (factors.keys != nullptr)
        LIBAVX_UNROLLED(i, 2) s[i] = s[i] * f32_load(factors.keys + 16 * i);
    if (softcap > 0)
        for (int i = 0; i < 2; i++)
            s[i] = f32_set(softcap * float(log2_e)) * tanh(s[i] / f32_set(softcap));
    const auto visible = uint32_t((uint64_t(1) << seen.last) - (uint64_t(1) << seen.first));
    const mask16 mask[2] = {mask_from(visible & 0xffff), mask_from(visible >> 16)};
    if (visible != ~uint32_t(0))
        LIBAVX_UNROLLED(i, 2) s[i] = select(mask[i], s[i], f32_set(-INFINITY));
    float keep = 1.0f;
    const f32x16 most = max(s[0], s[1]);
    if (bits_of(compare<_CMP_GT_OQ>(most, f32_set(item.top + slack)))) {
        const float was = item.top;
        item.top = largest(most);
        keep = first_of(power_of_2(f32_set(was - item.top)));
    }
    f32x16 w[2];
    LIBAVX_UNROLLED(i, 2) w[i] = power_of_2(s[i] - f32_set(item.top));
    if (visible != ~uint32_t(0))
        LIBAVX_UNROLLED(i, 2) w[i] = select(mask[i], w[i], f32_zero());
    f32_store(totals, fma(f32_load(totals), f32_set(keep), w[0] + w[1]));
    item.some = true;
    for (int g = 0; g < factors.groups; g++)
        LIBAVX_UNROLLED(i, 2)
        {
            const float *by = factors.values + g * page_keys + 16 * i;
            f32_store(weights + g * group_step + 16 * i,
                      factors.values != nullptr ? w[i] * f32_load(by) : w[i]);
        }
    return keep;
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
