// How attention cuts its work, and where a piece keeps what it works on.
#ifndef LIBAVX_OPS_ATTENTION_SHAPE_H_
#define LIBAVX_OPS_ATTENTION_SHAPE_H_

#include "ops_attention_weights.h"
#include "ops_call.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

constexpr int64_t split_keys = 512;
constexpr int64_t block_items = 96;  // items that one reading of a page serves
constexpr int64_t few_items = 4;     // so many read a page as it is stored, more of them widen it
constexpr int64_t max_shared = 64;   // with fewer groups than this, splits are pieces of their own
constexpr size_t shared_floats = size_t(1) << 19;

// Where the splits of a group meet: the last one to finish merges them all. Counters are reset by
// `tiles`, which precedes every call, and by whoever finishes a group.
struct Shared {
    int32_t done[max_shared];
    float partials[shared_floats];  // pages that no call reaches are never touched
};

struct Shape {
    int64_t head_dim, n_head, n_head_kv, shared, rows, items, depth;

    static int64_t round_up(int64_t n, int64_t to) { return rad_blocks(n, to) * to; }

    int set(int64_t dim, int64_t heads, int64_t kv_heads)
    {
        if (dim < 8 || dim % 8 != 0 || dim > 4096 || kv_heads < 1 || heads < kv_heads ||
            heads > 4096 || heads % kv_heads != 0)
            return RAD_SHAPE;
        head_dim = dim, n_head = heads, n_head_kv = kv_heads;
        shared = heads / kv_heads;
        rows = shared < block_items ? block_items / shared : 1;
        items = round_up(rows * shared, 4);
        depth = rad_blocks(dim, 16);
        return RAD_OK;
    }
    int64_t width() const { return depth * 16; }
    // Groups of values that have scales of their own, in some caches.
    int64_t groups() const { return head_dim % cache_group == 0 ? head_dim / cache_group : 1; }
    // queries, sums of the split, sums of all, weights, scores, sums of weights, factors of items;
    // a widened page, factors of keys and values; items
    size_t scratch_bytes() const
    {
        const int64_t each = 3 * width() + (groups() + 1) * page_keys + 16 + 1;
        const int64_t page = 2 * page_keys * (width() + groups());
        return size_t(round_up(items * each + page, 16)) * sizeof(float) +
               size_t(items) * sizeof(Item);
    }
};

struct Workspace {
    float *q, *sums, *all, *weights, *scores, *totals, *keys, *values, *factors[2], *keep;
    Item *items;

    Workspace(const Shape &s, char *at)
    {
        auto *next = reinterpret_cast<float *>(at);
        const auto take = [&next](int64_t count) { return (next += count) - count; };
        q = take(s.items * s.width());
        sums = take(s.items * s.width());
        all = take(s.items * s.width());
        weights = take(s.items * s.groups() * page_keys);
        scores = take(s.items * page_keys);
        totals = take(s.items * 16);
        keys = take(page_keys * s.width());
        values = take(page_keys * s.width());
        for (float *&f : factors) f = take(s.groups() * page_keys);
        keep = take(s.items);
        items = reinterpret_cast<Item *>(at + s.scratch_bytes()) - s.items;
    }
};

// Rows [row, row + count) of sequence `seq`, against key head `head`.
struct Group {
    int64_t seq, row, count, head, token, first, last;  // keys [first, last) are seen by some row

    int64_t first_split() const { return first / split_keys; }
    int64_t splits() const
    {
        return last > first ? rad_blocks(last, split_keys) - first_split() : 1;
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
