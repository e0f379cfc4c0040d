// The ragged batch of a step: who sees which keys, and what its pieces are.
#ifndef LIBAVX_OPS_ATTENTION_BATCH_H_
#define LIBAVX_OPS_ATTENTION_BATCH_H_

#include "ops_attention_shape.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

struct Batch {
    Shape shape;
    Rows2<int32_t> table;
    Line<int32_t> used, cuts;
    int64_t groups = 0, pieces = 0, window, partial_floats = 0;
    bool causal, split = false;

    // Counts groups and pieces; decides whether splits are pieces, which changes no result.
    int count(int64_t tokens, bool may_split)
    {
        int64_t splits = 0, most_rows = 0;
        if (cuts[0] < 0 || cuts[used.n] > tokens) return RAD_SHAPE;
        for (int64_t s = 0; s < used.n; s++) {
            const int64_t rows = int64_t(cuts[s + 1]) - cuts[s];
            if (rows < 0 || used[s] < 0 || rad_blocks(used[s], page_keys) > table.cols)
                return RAD_SHAPE;
            groups += rad_blocks(rows, shape.rows) * shape.n_head_kv;
            most_rows = rows > most_rows ? rows : most_rows;
            if (groups >= max_shared) continue;
            for (int64_t r = 0; r < rows; r += shape.rows)
                splits += group(s, r).splits() * shape.n_head_kv;
        }
        const int64_t items = rad_min(most_rows, shape.rows) * shape.shared;
        partial_floats = items * (shape.width() + 3);
        split = may_split && groups < max_shared && splits > groups &&
                size_t(splits * partial_floats) <= shared_floats;
        pieces = split ? splits : groups;
        return RAD_OK;
    }
    int64_t position(int64_t seq, int64_t row) const
    {
        return int64_t(used[seq]) - (int64_t(cuts[seq + 1]) - cuts[seq]) + row;
    }
    int64_t first_key(int64_t seq, int64_t row) const
    {
        const int64_t from = window ? position(seq, row) - window + 1 : 0;
        return from > 0 ? from : 0;
    }
    int64_t last_key(int64_t seq, int64_t row) const
    {
        const int64_t pos = position(seq, row), length = used[seq];
        const int64_t end = causal ? pos + 1 : (window ? rad_min(length, pos + window) : length);
        return end > 0 ? end : 0;
    }
    Group group(int64_t seq, int64_t row) const
    {
        const int64_t rows = int64_t(cuts[seq + 1]) - cuts[seq];
        const int64_t count = rad_min(shape.rows, rows - row);
        return {seq,
                row,
                count,
                0,
                cuts[seq] + row,
                first_key(seq, row),
                last_key(seq, row + count - 1)};
    }

    // Piece t lies in which group (its number in *index), and is which of its splits?
    Group find(int64_t t, int64_t *index, int64_t *part) const
    {
        *index = 0;
        for (int64_t s = 0;; s++) {
            const int64_t rows = int64_t(cuts[s + 1]) - cuts[s];
            const int64_t blocks = rad_blocks(rows, shape.rows);
            if (!split && t >= blocks * shape.n_head_kv) {
                t -= blocks * shape.n_head_kv;
                continue;
            }
            for (int64_t b = split ? 0 : t / shape.n_head_kv; b < blocks; b++) {
                Group g = group(s, b * shape.rows);
                const int64_t each = split ? g.splits() : 1;
                const int64_t skip = split ? 0 : b * shape.n_head_kv;
                if (t - skip >= each * shape.n_head_kv) {
                    t -= each * shape.n_head_kv, *index += shape.n_head_kv;
                    continue;
                }
                g.head = (t - skip) / each;
                *index += g.head, *part = (t - skip) % each;
                return g;
            }
        }
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
