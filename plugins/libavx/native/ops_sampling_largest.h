// A row's largest logits: the heart of sample_topk, of the list that sample_logprobs tells and of
// sample_draw.
#ifndef LIBAVX_OPS_SAMPLING_LARGEST_H_
#define LIBAVX_OPS_SAMPLING_LARGEST_H_

#include <math.h>

#include "ops_lanes.h"
#include "ops_sampling.h"

namespace libavx::LIBAVX_LEVEL {

// A logit and its id as one number that sorts by (logit, lower id first); -0 and +0 are equal.
LIBAVX_INLINE uint64_t key_of(float logit, int64_t id)
{
    const float v = logit + 0.0f;
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return uint64_t(bits) << 32 | uint32_t(~uint32_t(id));
}

LIBAVX_INLINE int64_t id_of(uint64_t key) { return int64_t(uint32_t(~uint32_t(key))); }

LIBAVX_INLINE float value_of(uint64_t key)
{
    const auto bits = uint32_t(key >> 32);
    const uint32_t raw = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
    float value;
    memcpy(&value, &raw, sizeof value);
    return value;
}

// Put the k largest of n distinct keys in front, in no order. Each round splits around the
// median of three; after 64 rounds, which only crafted inputs need, what is left is sorted.
inline void keep_largest(uint64_t *keys, int64_t n, int64_t k)
{
    int64_t lo = 0, hi = n;  // the k-th largest lies in [lo, hi)
    for (int round = 0; hi - lo > 1; round++) {
        if (round == 64) {
            heap_sort(keys + lo, hi - lo, [](uint64_t a, uint64_t b) { return a > b; });
            break;
        }
        const uint64_t a = keys[lo], b = keys[lo + (hi - lo) / 2], c = keys[hi - 1];
        const uint64_t pivot =
            a < b ? (b < c ? b : (a < c ? c : a)) : (a < c ? a : (b < c ? c : b));
        int64_t i = lo, j = hi - 1;
        while (i <= j) {
            while (keys[i] > pivot) i++;
            while (keys[j] < pivot) j--;
            if (i > j) break;
            const uint64_t moved = keys[i];
            keys[i++] = keys[j];
            keys[j--] = moved;
        }
        if (k - 1 <= j) hi = j + 1;
        else if (k - 1 >= i) lo = i;
        else break;
    }
}

LIBAVX_INLINE float least_value(const uint64_t *keys, int64_t n)
{
    uint64_t least = keys[0];
    for (int64_t i = 1; i < n; i++) least = keys[i] < least ? keys[i] : least;
    return value_of(least);
}

// Keys that the search for the k largest needs room for.
LIBAVX_INLINE int64_t pool_size(int64_t k) { return 2 * k + 2048; }

// Sort keys in descending order; `spare` holds n more. Returns where they lie: in keys or in spare.
// `mixed`: ids do not ascend already, so they take part.
LIBAVX_INLINE uint64_t *sort_keys(uint64_t *keys, uint64_t *spare, int64_t n, bool mixed)
{
    if (n >= 512) return mixed ? radix_sort<0>(keys, spare, n) : radix_sort<32>(keys, spare, n);
    heap_sort(keys, n, [](uint64_t a, uint64_t b) { return a > b; });
    return keys;
}

// A row, of which it is known how large each block of logits gets: what is looked for among the
// largest is looked for in few blocks.
struct Crested {
    static constexpr int64_t block = 256;
    static int64_t num_crests(int64_t n) { return rad_blocks(n, block); }

    const float *row;
    int64_t n;
    float *crests;  // num_crests(n) of them
    float top = -INFINITY;
    bool nan = false;

    int64_t blocks() const { return num_crests(n); }

    // Sixteen logits; -inf past the end.
    f32x16 load(int64_t i) const
    {
        if (i + 16 <= n) return f32_load(row + i);
        const f32x16 v = f32_load_part(row + i, int(n - i));
        return select(mask_from((1u << (n - i)) - 1), v, f32_set(-INFINITY));
    }

    void look()
    {
        f32x16 highest = f32_set(-INFINITY);
        uint32_t nans = 0;
        for (int64_t b = 0; b < blocks(); b++) {
            const int64_t end = rad_min((b + 1) * block, n);
            f32x16 most = f32_set(-INFINITY), more = most;
            int64_t i = b * block;
            for (; i + 32 <= end; i += 32) {
                const f32x16 v = f32_load(row + i), w = f32_load(row + i + 16);
                nans |= bits_of(compare<_CMP_UNORD_Q>(v, w));
                most = max(v, most), more = max(w, more);
            }
            for (; i < end; i += 16) {
                const f32x16 v = load(i);
                nans |= bits_of(compare<_CMP_UNORD_Q>(v, v));
                most = max(v, most);
            }
            most = max(most, more);
            highest = max(most, highest);
            crests[b] = largest(most);
        }
        top = largest(highest), nan = nans != 0;
    }

    // Put the logits in (low, high] into `pool`, ids ascending; returns how many.
    int64_t list(float low, float high, uint64_t *pool) const
    {
        int64_t count = 0;
        for (int64_t b = 0; b < blocks(); b++) {
            if (!(crests[b] > low)) continue;
            for (int64_t i = b * block; i < rad_min((b + 1) * block, n); i += 16) {
                const f32x16 v = load(i);
                uint32_t in = bits_of(compare<_CMP_GT_OQ>(v, f32_set(low))) &
                              bits_of(compare<_CMP_LE_OQ>(v, f32_set(high)));
                for (; in; in &= in - 1) {
                    const int64_t id = i + __builtin_ctz(in);
                    pool[count++] = key_of(row[id], id);
                }
            }
        }
        return count;
    }

    // Put the k largest logits into `pool`, which holds pool_size(k) keys. Returns how many there
    // are, none of -inf. *cut: in no order, else by ascending id.
    //
    // As many crests as are wanted logits bound the k-th largest from below. One scan then keeps in
    // the pool the logits above the k-th largest so far; ids ascend, so an equal logit comes too
    // late to matter. A full pool is cut back to k, which raises the bar.
    int64_t largest_k(int64_t k, uint64_t *pool, bool *cut) const
    {
        if (k >= n) return list(-INFINITY, INFINITY, pool);
        const int64_t room = pool_size(k) - 16;
        float bar = bound(k, pool);
        int64_t count = 0;
        bool above = bar == -INFINITY;  // what equals the bar is wanted until the pool was cut
        for (int64_t b = 0; b < blocks(); b++) {
            if (!(above ? crests[b] > bar : crests[b] >= bar)) continue;
            for (int64_t i = b * block; i < rad_min((b + 1) * block, n); i += 16) {
                const f32x16 v = load(i), least = f32_set(bar);
                uint32_t in = above ? bits_of(compare<_CMP_GT_OQ>(v, least))
                                    : bits_of(compare<_CMP_GE_OQ>(v, least));
                if (!in) continue;
                for (; in; in &= in - 1) {
                    const int64_t id = i + __builtin_ctz(in);
                    pool[count++] = key_of(row[id], id);
                }
                if (count <= room) continue;
                keep_largest(pool, count, k);
                count = k;
                *cut = above = true;
                bar = least_value(pool, k);
            }
        }
        if (count <= k) return count;
        keep_largest(pool, count, k);
        *cut = true;
        return k;
    }

    // A logit that at least k others reach, -inf if the crests tell of none.
    float bound(int64_t k, uint64_t *pool) const
    {
        const int64_t known = rad_min(blocks(), pool_size(k));
        if (k < 1 || known < 2 * k) return -INFINITY;
        for (int64_t b = 0; b < known; b++) pool[b] = key_of(crests[b], b);
        keep_largest(pool, known, k);
        return least_value(pool, k);
    }
};

}  // namespace libavx::LIBAVX_LEVEL
#endif
