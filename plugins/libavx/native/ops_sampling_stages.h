// A row's candidates and the stages that narrow them. Candidates lie in descending order in front;
// dropped ones are (-1, -inf). Probabilities are f64: rows are short, and near ties decide tokens.
#ifndef LIBAVX_OPS_SAMPLING_STAGES_H_
#define LIBAVX_OPS_SAMPLING_STAGES_H_

#include <math.h>

#include "ops_lanes.h"
#include "ops_sampling.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

// One row's candidates with their probabilities.
struct Candidates {
    int32_t *ids;
    float *values;
    double *p;
    int64_t width, count = 0;
    bool nan = false;
    float top = -INFINITY;
    double log_total = 0;

    void look()
    {
        f32x16 most = f32_set(-INFINITY);
        for (; count + 16 <= width; count += 16) {
            const f32x16 v = f32_load(values + count);
            const mask16 holes = compare<_CMP_EQ_OQ>(v, f32_set(-INFINITY));
            if (bits_of(holes) | bits_of(sign_mask(i32_load(ids + count)))) break;
            nan |= bits_of(compare<_CMP_UNORD_Q>(v, v)) != 0;
            most = max(v, most);
        }
        top = largest(most);
        for (; count < width && ids[count] >= 0 && values[count] != -INFINITY; count++) {
            nan |= values[count] != values[count];
            if (values[count] > top) top = values[count];
        }
    }
    // Fill p with the softmax; logits of +inf share everything. `of`: what all candidates weigh,
    // where these are only the first of them.
    void weigh(double of = 0)
    {
        if (top == INFINITY)
            for (int64_t i = 0; i < count; i++) p[i] = values[i] == top ? 1.0 : 0.0;
        else
            for (int64_t i = 0; i < count; i++)
                p[i] = exp_of_minus(double(top) - double(values[i]));
        double totals[8] = {}, total = 0;
        int64_t i = 0;
        for (; i + 8 <= count; i += 8)
            for (int lane = 0; lane < 8; lane++) totals[lane] += p[i + lane];
        for (; i < count; i++) total += p[i];
        for (const double part : totals) total += part;
        if (of > 0) total = of;
        for (i = 0; i < count; i++) p[i] /= total;
        log_total = ::log(total);
    }
    // -log of p[i], without its rounding.
    double surprise(int64_t i) const
    {
        return values[i] == top ? log_total : log_total - (double(values[i]) - double(top));
    }
    template <class Keep>
    void narrow(Keep keep)
    {
        int64_t kept = 0;
        for (int64_t i = 0; i < count; i++) {
            if (!keep(i)) continue;
            ids[kept] = ids[i];
            values[kept++] = values[i];
        }
        for (int64_t i = kept; i < count; i++) ids[i] = -1, values[i] = -INFINITY;
        count = kept;
    }
    // The id that a draw in [0, 1) falls on.
    int32_t at(double u) const
    {
        double cumulative = 0;
        for (int64_t i = 0; i < count; i++) {
            cumulative += p[i];
            if (u < cumulative) return ids[i];
        }
        return ids[count - 1];
    }
};

struct TopP {
    static constexpr int doubles = 1;
    static bool active(const Settings &s) { return s.top_p > 0 && s.top_p < 1; }
    static void narrow(Candidates &c, const Settings &s, double *)
    {
        double before = 0;
        c.narrow([&](int64_t i) {
            const bool keep = before < double(s.top_p);
            before += c.p[i];
            return keep;
        });
    }
};

struct MinP {
    static constexpr int doubles = 1;
    static bool active(const Settings &s) { return s.min_p > 0; }
    static void narrow(Candidates &c, const Settings &s, double *)
    {
        const double least = c.p[0] * double(s.min_p);
        c.narrow([&](int64_t i) { return i == 0 || c.p[i] >= least; });
    }
};

// Nearest to the entropy first until their mass reaches typical_p; as near as the last one kept
// stays too.
struct Typical {
    static constexpr int doubles = 3;
    struct Near {
        double distance, p;
    };
    static bool active(const Settings &s) { return s.typical_p > 0 && s.typical_p < 1; }
    static void narrow(Candidates &c, const Settings &s, double *room)
    {
        auto *near = reinterpret_cast<Near *>(room);
        double entropy = 0;
        for (int64_t i = 0; i < c.count; i++)
            if (c.p[i] > 0) entropy += c.p[i] * c.surprise(i);
        const auto distance = [&](int64_t i) { return ::fabs(c.surprise(i) - entropy); };
        for (int64_t i = 0; i < c.count; i++) near[i] = {distance(i), c.p[i]};
        const double farthest = reach(near, c.count, double(s.typical_p));
        c.narrow([&](int64_t i) { return distance(i) <= farthest; });
    }
    // The least distance within which the mass is at least `wanted`, else the
    // largest: halves that cannot hold it are put aside, so that long rows
    // need no sort. Distances of candidates in order fall and rise again,
    // which makes poor pivots of the ends and the middle, so they are drawn.
    static double reach(Near *a, int64_t n, double wanted)
    {
        double mass = 0, pivot = 0;
        uint64_t drawn = 0;
        for (int64_t lo = 0, hi = n; lo < hi;) {
            const auto any_of = [&] {
                drawn = drawn * 6364136223846793005u + 1442695040888963407u;
                return a[lo + int64_t((drawn >> 33) % uint64_t(hi - lo))].distance;
            };
            const double x = any_of(), y = any_of(), z = any_of();
            pivot = x < y ? (y < z ? y : (x < z ? z : x)) : (x < z ? x : (y < z ? z : y));
            double below = 0, equal = 0;
            int64_t first = lo, last = hi;  // [lo, first) below the pivot, [last, hi) above it
            for (int64_t i = lo; i < last;) {
                const Near moved = a[i];
                if (moved.distance < pivot) {
                    below += moved.p;
                    a[i++] = a[first];
                    a[first++] = moved;
                } else if (moved.distance > pivot) {
                    a[i] = a[--last];
                    a[last] = moved;
                } else {
                    equal += moved.p;
                    i++;
                }
            }
            if (first > lo && mass + below >= wanted) {
                hi = first;
                continue;
            }
            if (mass + below + equal >= wanted) return pivot;
            mass += below + equal;
            lo = last;
        }
        return pivot;
    }
};

// With probability xtc_probability, drop all that reach the threshold but the least likely of them.
struct Xtc {
    static constexpr int doubles = 1;
    static bool active(const Settings &s)
    {
        return s.flags & flag_xtc && uniform(s.seed ^ xtc_stream, s.pos) < s.xtc_probability;
    }
    static void narrow(Candidates &c, const Settings &s, double *)
    {
        int64_t last = -1;
        for (int64_t i = 0; i < c.count; i++)
            if (c.p[i] >= double(s.xtc_threshold)) last = i;
        c.narrow([&](int64_t i) { return i >= last || !(c.p[i] >= double(s.xtc_threshold)); });
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
