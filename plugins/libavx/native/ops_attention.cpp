// Attention over a paged cache of keys and values.
//
// A piece is a block of one sequence's query rows and one key head; the query heads that share that
// key head are its `items`. Keys are visited in pages of 32 inside splits of 512, both at fixed
// absolute positions:
//
//     pages  |0 .. 31|32 .. 63| ...           |512 .. 543| ...
//     splits |0 ........................ 511  |512 ........................ 1023|
//
// Inside a split an item keeps a running maximum, sum and weighted values; finished splits are
// merged in ascending order. So a row's bits depend on its own visible keys alone: not on its
// block, its neighbours, or whether the splits were computed by one worker or by many.
#include "ops_attention_pages.h"

#include <stdlib.h>

#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

struct Attention : Pages {
    Rows2<float> q, out;
    const RadCall *call;
    Shared *shared;
    float scale;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(check_counts(c, 6, 11));
        const RadValue *p = c.params;
        LIBAVX_TRY(shape.set(p[1].i, p[2].i, p[3].i));
        if (p[4].i != page_keys) return RAD_SHAPE;
        causal = p[5].i != 0, window = p[6].i > 0 ? p[6].i : 0;
        softcap = float(p[10].f);
        const double factor = p[9].f != 0 ? p[9].f : 1.0 / ::sqrt(double(shape.head_dim));
        scale = float(softcap > 0 ? factor : factor * log2_e);
        const int64_t hd = shape.head_dim;
        LIBAVX_TRY(bind_rows(c.tensors[0], any, shape.n_head * hd, &q));
        LIBAVX_TRY(bind_rows(c.tensors[5], q.rows, shape.n_head * hd, &out));
        LIBAVX_TRY(cache.bind(c.tensors[1], p[8].s, shape.n_head_kv, page_keys, hd));
        LIBAVX_TRY(bind_line(c.tensors[3], any, &used));
        LIBAVX_TRY(bind_rows(c.tensors[2], used.n, any, &table));
        LIBAVX_TRY(bind_line(c.tensors[4], used.n + 1, &cuts));
        LIBAVX_TRY(check_scratch(c, shape.scratch_bytes()));
        shared = static_cast<Shared *>(c.state);
        return count(q.rows, shared != nullptr);
    }

    // The start of a call; a call that was given up may have left counters behind.
    void begin() const
    {
        if (split) memset(shared->done, 0, sizeof shared->done);
    }
    int64_t tiles() const { return pieces; }
    static int64_t scratch(const RadGeometry *geometry)
    {
        Shape s;
        LIBAVX_TRY(s.set(rad_int_param(geometry, "head_dim", 0),
                         rad_int_param(geometry, "n_head", 0),
                         rad_int_param(geometry, "n_head_kv", 0)));
        return Shape::round_up(int64_t(s.scratch_bytes()), 64);
    }
    static int init(const RadGeometry *, void **state)
    {
        auto *s = static_cast<Shared *>(malloc(sizeof(Shared)));
        if (s == nullptr) return RAD_NOMEM;
        memset(s->done, 0, sizeof s->done);
        *state = s;
        return RAD_OK;
    }
    static void fini(void *state) { free(state); }

    int tile(int64_t t, int worker) const
    {
        int64_t index, part;
        const Group g = find(t, &index, &part);
        Workspace w(shape, scratch_of<char>(*call, worker));
        open(g, w);
        if (!split) {
            for (int64_t s = 0; s < g.splits(); s++) {
                LIBAVX_TRY(compute(g, g.first_split() + s, w));
                for (int64_t i = 0; i < g.count * shape.shared; i++)
                    merge(w.items[i], w.items[i].top, w.items[i].total, w.items[i].some,
                          w.sums + i * shape.width(), w.all + i * shape.width());
            }
            close(g, w);
            return RAD_OK;
        }
        LIBAVX_TRY(compute(g, g.first_split() + part, w));
        save(g, w, shared->partials + t * partial_floats);
        const auto splits = int32_t(g.splits());
        if (__atomic_add_fetch(&shared->done[index], 1, __ATOMIC_ACQ_REL) != splits) return RAD_OK;
        __atomic_store_n(&shared->done[index], 0, __ATOMIC_RELAXED);
        for (int64_t s = 0; s < splits; s++)
            restore(g, w, shared->partials + (t - part + s) * partial_floats);
        close(g, w);
        return RAD_OK;
    }

    void open(const Group &g, Workspace &w) const
    {
        const int64_t items = g.count * shape.shared, width = shape.width();
        for (int64_t i = 0; i < items; i++) {
            const int64_t row = i / shape.shared, head = g.head * shape.shared + i % shape.shared;
            const float *from = q.row(g.token + row) + head * shape.head_dim;
            for (int64_t d = 0; d < width; d += 16) {
                const int part = int(rad_min(16, shape.head_dim - d));
                f32_store(w.q + i * width + d, load_part<F32>(from + d, part) * f32_set(scale));
            }
            if (rotated(0)) rotate(w.q + i * width, shape.head_dim, 0.25f);
            w.items[i] = {
                0,     0,    0, 0, first_key(g.seq, g.row + row), last_key(g.seq, g.row + row),
                false, false};
        }
    }

    // Take one split's result into what came before it.
    void merge(Item &item, float top, float total, bool some, const float *sums, float *all) const
    {
        const int64_t width = shape.width();
        if (!some) return;
        if (!item.all_some) {
            item.all_top = top, item.all_total = total, item.all_some = true;
            memcpy(all, sums, size_t(width) * sizeof(float));
            return;
        }
        const float now = top > item.all_top ? top : item.all_top;
        const float older = first_of(power_of_2(f32_set(item.all_top - now)));
        const float newer = first_of(power_of_2(f32_set(top - now)));
        const f32x16 old_factor = f32_set(older), new_factor = f32_set(newer);
        item.all_total = item.all_total * older + total * newer;
        item.all_top = now;
        for (int64_t d = 0; d < width; d += 16)
            f32_store(all + d, fma(f32_load(sums + d), new_factor, f32_load(all + d) * old_factor));
    }

    // A partial result: per item its maximum, sum and whether there is one; then the weighted
    // values.
    void save(const Group &g, const Workspace &w, float *to) const
    {
        const int64_t items = g.count * shape.shared;
        for (int64_t i = 0; i < items; i++) {
            const Item &item = w.items[i];
            to[3 * i] = item.top, to[3 * i + 1] = item.total,
                   to[3 * i + 2] = item.some ? 1.0f : 0.0f;
        }
        memcpy(to + 3 * items, w.sums, size_t(items * shape.width()) * sizeof(float));
    }
    void restore(const Group &g, Workspace &w, const float *from) const
    {
        const int64_t items = g.count * shape.shared, width = shape.width();
        for (int64_t i = 0; i < items; i++)
            merge(w.items[i], from[3 * i], from[3 * i + 1], from[3 * i + 2] != 0,
                  from + 3 * items + i * width, w.all + i * width);
    }

    void close(const Group &g, const Workspace &w) const
    {
        for (int64_t i = 0; i < g.count * shape.shared; i++) {
            const Item &item = w.items[i];
            float *to = out.row(g.token + i / shape.shared) +
                        (g.head * shape.shared + i % shape.shared) * shape.head_dim;
            if (!item.all_some) {
                memset(to, 0, size_t(shape.head_dim) * sizeof(float));
                continue;
            }
            const f32x16 total = f32_set(item.all_total);
            float *mean = w.all + i * shape.width();
            for (int64_t d = 0; d < shape.width(); d += 16)
                f32_store(mean + d, f32_load(mean + d) / total);
            if (rotated(1)) rotate(mean, shape.head_dim, 0.25f);
            memcpy(to, mean, size_t(shape.head_dim) * sizeof(float));
        }
    }
};

const RadConstraint where[] = {
    RAD_IN("dtype", "f32"), RAD_IS("block_size", page_keys), RAD_IN("kv_dtype", "f16 bf16 f32"),
    RAD_DIV("head_dim", 8), RAD_GE("head_dim", 8),           RAD_LE("head_dim", 4096),
};

const RadConstraint where_fp8[] = {
    RAD_IN("dtype", "f32"),  RAD_IS("block_size", page_keys), RAD_IN("kv_dtype", "fp8"),
    RAD_DIV("head_dim", 8), RAD_GE("head_dim", 8),           RAD_LE("head_dim", most_head_dim),
};
const RadConstraint where_integers[] = {
    RAD_IN("dtype", "f32"),
    RAD_IS("block_size", page_keys),
    RAD_IN("kv_dtype", "fp8_v4 k6_v4"),
    RAD_DIV("head_dim", cache_group),
    RAD_GE("head_dim", cache_group),
    RAD_LE("head_dim", most_head_dim),
};
const RadConstraint where_words[] = {
    RAD_IN("dtype", "f32"),
    RAD_IS("block_size", page_keys),
    RAD_IN("kv_dtype", "int8 k8_v4"),
    RAD_DIV("head_dim", cache_group),
    RAD_GE("head_dim", cache_group),
    RAD_LE("head_dim", most_head_dim),
};

const RadKernel rows[] = {
    row<Attention>("attn_paged", where),
    row<Attention>("attn_paged", where_fp8, nullptr, "attn_paged_fp8"),
    row<Attention>("attn_paged", where_integers, nullptr, "attn_paged_integers"),
    row<Attention>("attn_paged", where_words, nullptr, "attn_paged_words"),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(attention, rows)
