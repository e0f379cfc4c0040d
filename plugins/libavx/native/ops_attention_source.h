// Where the keys or the values of one page are read from, sixteen lanes or a group at a time.
//
// A source has `load(j, d, out)`: `step` times sixteen floats of slot j from the d-th sixteen on.
// `grouped` says that what it gives is yet to be multiplied by a scale of each 32 numbers;
// `by_halves` that eight lanes cost half as much as sixteen.
#ifndef LIBAVX_OPS_ATTENTION_SOURCE_H_
#define LIBAVX_OPS_ATTENTION_SOURCE_H_

#include "ops_cache.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

constexpr int page_keys = 32;

// Rows of elements E, `stride` apart.
template <class E, bool has_groups = false>
struct Plain {
    static constexpr int step = 1;
    static constexpr bool grouped = has_groups;
    static constexpr bool by_halves = sizeof(typename E::type) > 1;
    const typename E::type *at;
    int64_t stride;

    void load(int j, int d, f32x16 *out) const { out[0] = E::load(at + j * stride + d * 16); }
};

// Rows of `dim` elements, which is no multiple of 16: the last sixteen are filled up with zeros.
template <class E>
struct Ragged {
    static constexpr int step = 1;
    static constexpr bool grouped = false, by_halves = false;
    const typename E::type *at;
    int64_t stride, dim;

    void load(int j, int d, f32x16 *out) const
    {
        out[0] = load_part<E>(at + j * stride + d * 16, int(rad_min(16, dim - d * 16)));
    }
};

// Integer codes of one half of a page, times `scales` [group][slot]; NULL: as they are.
template <int bits, bool scaled>
struct Integers {
    static constexpr int step = 2;
    static constexpr bool grouped = !scaled, by_halves = false;
    const uint8_t *at;
    int64_t stride;
    const float *scales;

    void load(int j, int d, f32x16 *out) const
    {
        integers_load<bits>(at + j * stride + d / 2 * (cache_group * bits / 8), out);
        if constexpr (scaled) {
            const f32x16 scale = f32_set(scales[d / 2 * page_keys + j]);
            out[0] = out[0] * scale, out[1] = out[1] * scale;
        }
    }
};

// What is read two pages later, to be fetched in 64 parts while a page is worked on: pages lie
// anywhere, so the processor does not foresee them. In ascending order, which keeps the hardware's
// own prefetching going, and into the second cache: what waits for memory would hold up the first.
struct Ahead {
    static constexpr int parts = 64;
    const char *at = nullptr;
    int64_t part_bytes = 0;  // 0: nothing to fetch

    void fetch(int first, int last) const
    {
        const int64_t end = last * part_bytes;
        for (int64_t i = first * part_bytes; i < end; i += 64)
            asm volatile("prefetcht1 %0" : : "m"(at[i]));
    }
    // The half that goes with step `step` of `steps` over the keys, and over the values.
    void fetch_keys(int step, int steps) const
    {
        fetch(parts / 2 * step / steps, parts / 2 * (step + 1) / steps);
    }
    void fetch_values(int step, int steps) const
    {
        fetch(parts / 2 + parts / 2 * step / steps, parts / 2 + parts / 2 * (step + 1) / steps);
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
