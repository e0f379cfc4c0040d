// From one row of logits to a token: what ops_sampling_draw.cpp does for each.
#ifndef LIBAVX_OPS_SAMPLING_ROW_DRAW_H_
#define LIBAVX_OPS_SAMPLING_ROW_DRAW_H_

#include "ops_sampling_largest.h"
#include "ops_sampling_stages.h"
#include "ops_sampling_weight.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr float band = 2;      // logits are listed so much at a time, from the largest down,
constexpr float deepest = 40;  // to here; what is left weighs less than 2^-57 of the first, each.
constexpr int64_t most_listed = 4096;  // More than so many are counted by their size instead,
constexpr int num_bins = 2048;         // in bins,
constexpr int64_t chunk = 512;         // so many at a time.

// One row, and room for its candidates.
struct RowDraw {
    Crested all;
    const Settings &s;
    uint64_t *keys, *spare;  // n of each
    int32_t *ids;
    float *values;
    double *p;

    int32_t draw()
    {
        all.look();
        if (all.nan || all.top == -INFINITY) return -1;
        const double u = double(uniform(s.seed, s.pos));
        if (s.top_k > 0 && s.top_k < all.n) return narrowed(first(s.top_k), 0).at(u);
        const bool by_mass = TopP::active(s), by_share = MinP::active(s);
        if (all.top == INFINITY ||
            (!by_mass && !by_share && (Typical::active(s) || Xtc::active(s))))
            return narrowed(first(all.n), 0).at(u);
        bool sure = true;
        if (!by_mass && by_share) return narrowed(prefix_of({1, 0}, &sure), 0).at(u);
        Weight weight{rough_weight(all), rough_error};
        if (!by_mass) {
            int32_t id = walk(weight, u);
            if (id == unsure) id = walk({exact_weight(all), 0}, u);
            return id >= 0 ? id : find(u);
        }
        int64_t count = prefix_of(weight, &sure);
        if (!sure) weight = {exact_weight(all), 0}, count = prefix_of(weight, &sure);
        return narrowed(count, weight.total * (1 + weight.slack)).at(u);
    }

    // List the k largest logits in order; returns how many there are.
    int64_t first(int64_t k)
    {
        bool cut = false;
        const int64_t count = all.largest_k(k, keys, &cut);
        unpack(sort_keys(keys, spare, count, cut), 0, count);
        return count;
    }
    void unpack(const uint64_t *from, int64_t at, int64_t count)
    {
        for (int64_t i = 0; i < count; i++) {
            const int64_t id = id_of(from[i]);
            ids[at + i] = int32_t(id);
            values[at + i] = all.row[id];
        }
    }
    // Put the probabilities of listed logits into p.
    void weigh(int64_t at, int64_t count, double total)
    {
        probabilities(values + at, p + at, count, total);
    }
    void probabilities(const float *of, double *to, int64_t count, double total) const
    {
        const double top = double(all.top);
        for (int64_t i = 0; i < count; i++) to[i] = exp_of_minus(top - double(of[i])) / total;
    }
    static double sum_of(const double *of, int64_t count)
    {
        double total = 0;
        for (int64_t i = 0; i < count; i++) total += of[i];
        return total;
    }
    // Where the band that begins at `depth` ends.
    float low_of(float depth) const { return depth < deepest ? all.top - depth - band : -INFINITY; }

    // The id at which the probability of those before and its own passes u; `unsure` if that
    // depends on what all weigh more precisely, -1 if it lies behind too many.
    static constexpr int32_t unsure = -2;
    int32_t walk(const Weight &weight, double u)
    {
        const double least = u * (1 - weight.slack), most = u * (1 + weight.slack);
        double before = 0;
        int64_t listed = 0;
        for (float depth = 0, high = all.top; depth < deepest && listed < most_listed;
             depth += band) {
            const float low = low_of(depth);
            const int64_t count = all.list(low, high, keys);
            high = low, listed += count;
            unpack(keys, 0, count);
            weigh(0, count, weight.total);
            const double mass = sum_of(p, count);
            if (before + mass <= least) {
                before += mass;
                continue;
            }
            unpack(sort_keys(keys, spare, count, false), 0, count);
            weigh(0, count, weight.total);
            for (int64_t i = 0; i < count; i++) {
                before += p[i];
                if (before > most) return ids[i];
                if (before > least) return unsure;
            }
        }
        return -1;
    }

    // The same whatever the row is like: logits are put into bins by their size, the bin is found
    // in which u lies, and only it is sorted.
    int32_t find(double u)
    {
        double *const mass = p, *const each = p + num_bins;
        bin();
        memset(mass, 0, num_bins * sizeof *mass);
        for (int64_t i = 0; i < all.n; i += chunk) {
            const int64_t part = rad_min(chunk, all.n - i);
            probabilities(all.row + i, each, part, 1);
            for (int64_t j = 0; j < part; j++) mass[ids[i + j]] += each[j];
        }
        const double goal = u * sum_of(mass, num_bins);
        double before = 0, upto = 0;
        int hit = 0;
        for (int b = 0; b < num_bins && upto <= goal; b++) {
            if (mass[b] == 0) continue;
            before = upto, upto += mass[b], hit = b;
        }
        int64_t count = 0;
        for (int64_t i = 0; i < all.n; i++) {
            keys[count] = key_of(all.row[i], i);
            count += ids[i] == hit && all.row[i] != -INFINITY;
        }
        unpack(sort_keys(keys, spare, count, false), 0, count);
        weigh(0, count, 1);
        for (int64_t i = 0; i < count; i++) {
            before += p[i];
            if (goal < before) return ids[i];
        }
        return ids[count - 1];  // rounding left the sum of all below u
    }
    // Put each logit's bin into ids, the largest logits' first.
    void bin()
    {
        const f32x16 top = f32_set(all.top), none = f32_set(-INFINITY);
        f32x16 deep = f32_zero();
        for (int64_t i = 0; i < all.n; i += 16) {
            const f32x16 v = all.load(i);
            deep = max(select(compare<_CMP_EQ_OQ>(v, none), deep, top - v), deep);
        }
        const float most = num_bins - 1, depth = largest(deep) < deepest ? largest(deep) : deepest;
        const f32x16 scale = f32_set(depth > 0 ? most / depth : 0), last = f32_set(most);
        for (int64_t i = 0; i < all.n; i += 16) {
            const i32x16 at = round_to_i32(min((top - all.load(i)) * scale, last));
            if (i + 16 <= all.n) {
                i32_store(ids + i, at);
                continue;
            }
            int32_t part[16];
            i32_store(part, at);
            memcpy(ids + i, part, size_t(all.n - i) * sizeof *part);
        }
    }
    // List the largest logits, at least those that top-p and min-p leave, in order; returns how
    // many. *sure: whether top-p leaves the same ones whatever all weigh.
    int64_t prefix_of(const Weight &weight, bool *sure)
    {
        const bool by_mass = TopP::active(s);
        const double goal = double(s.top_p);
        const float least = MinP::active(s) ? least_of(s.min_p) : -INFINITY;
        double before = 0;
        int64_t count = 0;
        for (float depth = 0, high = all.top, low = high; low > least; depth += band, high = low) {
            low = by_mass ? low_of(depth) : least;
            if (low < least) low = least;
            const int64_t found = all.list(low, high, keys);
            unpack(sort_keys(keys, spare, found, false), count, found);
            weigh(count, found, weight.total);
            for (const int64_t stop = count + found; count < stop; count++) {
                before += p[count];
                if (!by_mass || before < goal * (1 - weight.slack)) continue;
                *sure = before >= goal * (1 + weight.slack);
                return count + 1;
            }
        }
        return count;
    }

    // A little below what min-p asks, which its stage looks at again.
    float least_of(float min_p) const
    {
        const float below = min_p < 1 ? ::logf(min_p) : 0;
        return all.top + below - 1e-3f * (1 + ::fabsf(all.top));
    }

    // What the stages leave of listed candidates; `weight`: of all, of which these are the first.
    Candidates narrowed(int64_t count, double weight)
    {
        Candidates c{ids, values, p, all.n, count};
        c.top = all.top;
        narrow<TopP>(&c, &weight);
        narrow<MinP>(&c, &weight);
        narrow<Typical>(&c, &weight);
        narrow<Xtc>(&c, &weight);
        c.weigh();
        return c;
    }
    template <class Stage>
    void narrow(Candidates *c, double *weight)
    {
        if (!Stage::active(s)) return;
        c->weigh(*weight);
        Stage::narrow(*c, s, reinterpret_cast<double *>(keys));
        c->top = c->values[0];
        *weight = 0;
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
