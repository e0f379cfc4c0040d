// One split of a group: every page of it against the group's queries.
#ifndef LIBAVX_OPS_ATTENTION_PAGES_H_
#define LIBAVX_OPS_ATTENTION_PAGES_H_

#include "ops_attention_batch.h"
#include "ops_attention_block.h"
#include "ops_attention_words.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

constexpr int64_t pages_ahead = 2;  // what is fetched meanwhile

struct Pages : Batch {
    Cache cache;
    float softcap;

    // Leave each item's maximum, sum of weights and weighted values of a split in the workspace.
    int compute(const Group &g, int64_t split_index, Workspace &w) const
    {
        const int64_t items = g.count * shape.shared;
        for (int64_t i = 0; i < items; i++) w.items[i].top = -INFINITY, w.items[i].some = false;
        memset(w.sums, 0, size_t(items * shape.width()) * sizeof(float));
        memset(w.totals, 0, size_t(items * 16) * sizeof(float));
        const int64_t begin = split_index * split_keys, end = rad_min(begin + split_keys, g.last);
        const int64_t from = g.first > begin ? g.first / page_keys * page_keys : begin;
        for (int64_t i = 0; i < pages_ahead && from < end; i++)
            ahead_of(g, from + i * page_keys).fetch(0, Ahead::parts);
        for (int64_t key = from; key < end; key += page_keys) {
            const int64_t page = table.row(g.seq)[key / page_keys];
            if (page < 0) continue;
            if (page >= cache.pages()) return RAD_INVAL;
            const View view = {g, page, key, items, ahead_of(g, key + pages_ahead * page_keys)};
            if (cache.form != nullptr)
                read_packed(view, w);
            else
                LIBAVX_WITH_ELEMENT(cache.element, E, read_plain<E>(view, w));
        }
        for (int64_t i = 0; i < items; i++) w.items[i].total = sum(f32_load(w.totals + i * 16));
        return RAD_OK;
    }

    bool rotated(int half) const { return cache.form && cache.form->halves[half].rotated; }

private:
    // A page of the cache and who looks at it.
    struct View {
        const Group &group;
        int64_t page, key, items;
        Ahead ahead;
    };

    // The page that begins at a key, if the group sees that and there is one.
    Ahead ahead_of(const Group &g, int64_t key) const
    {
        const int64_t page = key < g.last ? table.row(g.seq)[key / page_keys] : -1;
        if (page < 0 || page >= cache.pages()) return {};
        const DLTensor &t = cache.tensor;
        if (t.strides[2] != t.shape[3]) return {};
        const int64_t bytes = t.dtype.bits / 8;
        return {static_cast<const char *>(t.data) +
                    (page * t.strides[0] + g.head * t.strides[1]) * bytes,
                page_keys * t.shape[3] * bytes / Ahead::parts};
    }

    template <class E>
    void read_plain(const View &view, Workspace &w) const
    {
        using T = typename E::type;
        const int64_t *strides = cache.tensor.strides, dim = shape.head_dim;
        const T *at = static_cast<const T *>(cache.tensor.data) + view.group.head * strides[1] +
                      view.page * strides[0];
        read_rows<E>(at, at + dim, strides[2], {}, view, w);
    }

    template <class E>
    void read_rows(const typename E::type *k, const typename E::type *v, int64_t stride,
                   const Factors &factors, const View &view, Workspace &w) const
    {
        const int64_t dim = shape.head_dim;
        if (dim % 16 == 0)
            read(Plain<E>{k, stride}, Plain<E>{v, stride}, factors, view, w);
        else
            read_widened(Ragged<E>{k, stride, dim}, Ragged<E>{v, stride, dim}, factors, view, w);
    }

    void read_packed(const View &view, Workspace &w) const
    {
        const int64_t dim = shape.head_dim;
        const Area area(cache, view.page, view.group.head, dim);
        const Half *halves = cache.form->halves;
        for (int i = 0; i < 2; i++)
            for (int64_t j = 0; j < (halves[i].grouped() ? shape.groups() : 1) * page_keys; j += 16)
                f32_store(w.factors[i] + j, halves[i].grouped() ? f16_load(area.scales[i] + 2 * j)
                                                                : powers_load(area.scales[i] + j));
        if (cache.form->in_words()) return read_words(area, view, w);
        const Integers<4, false> values = {area.codes[1], dim / 2, nullptr};
        const int num_groups = int(shape.groups());
        if (!halves[1].grouped())
            read_rows<E4M3>(area.codes[0], area.codes[1], dim, {w.factors[0], w.factors[1], 1},
                            view, w);
        else if (!halves[0].grouped())
            read(Plain<E4M3>{area.codes[0], dim}, values, {w.factors[0], w.factors[1], num_groups},
                 view, w);
        else
            read(Integers<6, true>{area.codes[0], dim * 6 / 8, w.factors[0]}, values,
                 {nullptr, w.factors[1], num_groups}, view, w);
    }

    // Always widened: so laid out that costs few queries little where heads share keys.
    void read_words(const Area &area, const View &view, Workspace &w) const
    {
        const KeyWords keys = {area.codes[0], w.factors[0]};
        const Factors factors = {nullptr, w.factors[1], int(shape.groups())};
        if (cache.form->halves[1].bits == 8)
            read_widened(keys, ValueWords<8>{area.codes[1]}, factors, view, w);
        else
            read_widened(keys, ValueWords<4>{area.codes[1]}, factors, view, w);
    }

    template <class K, class V>
    void read(const K &k, const V &v, const Factors &factors, const View &view, Workspace &w) const
    {
        switch (view.items) {
        case 1: return read_few<K, V, 1>(k, v, factors, view, w);
        case 2: return read_few<K, V, 2>(k, v, factors, view, w);
        case 3: return read_few<K, V, 3>(k, v, factors, view, w);
        case few_items: return read_few<K, V, few_items>(k, v, factors, view, w);
        default: return read_widened(k, v, factors, view, w);
        }
    }

    template <class K, class V, int NQ>
    void read_few(const K &k, const V &v, const Factors &factors, const View &view,
                  Workspace &w) const
    {
        int last = 0;
        for (int i = 0; i < NQ; i++) {
            const Seen seen(w.items[i], view.key);
            last = seen.any() && seen.last > last ? seen.last : last;
        }
        if (shape.depth == 4)
            score_few<K, NQ, 4>(w.q, k, 4, last, w.scores, view.ahead);
        else
            score_few<K, NQ, 0>(w.q, k, int(shape.depth), last, w.scores, view.ahead);
        weigh_items(0, NQ, factors, view.key, w);
        add_seen<V, NQ>(w.weights, group_step(), w.keep, v, w.items, view.key, w.sums,
                        int(shape.depth), view.ahead);
    }

    template <class K, class V>
    void read_widened(const K &k, const V &v, const Factors &factors, const View &view,
                      Workspace &w) const
    {
        int64_t first = 0, last = view.items;
        while (first < last && !Seen(w.items[first], view.key).any()) first++;
        while (first < last && !Seen(w.items[last - 1], view.key).any()) last--;
        if (first == last) return;
        // What comes next is fetched bit by bit where most of the time goes.
        const bool many = last - first > 8 * tile_queries;
        const Ahead none, &beside = many ? none : view.ahead;
        widen_keys(k, int(shape.depth), w.keys, beside);
        widen_values(v, int(shape.depth), w.values, beside);
        score_block(w.q, w.keys, int(shape.depth), first, last, w.scores,
                    many ? view.ahead : none);
        weigh_items(first, last, factors, view.key, w);
        add_block<V::grouped>(first, last, view.key, w);
    }

    // Where values have scales by groups, a group's weights of all items lie together.
    int64_t group_step() const { return shape.items * page_keys; }

    void weigh_items(int64_t first, int64_t last, const Factors &factors, int64_t key,
                     Workspace &w) const
    {
        for (int64_t i = first; i < last; i++) {
            const Seen seen(w.items[i], key);
            if (seen.any())
                w.keep[i] = weigh(w.scores + i * page_keys, seen, factors, softcap, w.items[i],
                                  w.totals + i * 16, w.weights + i * page_keys, group_step());
        }
    }

    template <bool grouped>
    void add_block(int64_t first, int64_t last, int64_t key, Workspace &w) const
    {
        const Plain<F32, grouped> v = {w.values, shape.width()};
        const auto add = [&]<int NQ>(int64_t i) {
            add_seen<Plain<F32, grouped>, NQ>(w.weights + i * page_keys, group_step(), w.keep + i,
                                              v, w.items + i, key, w.sums + i * shape.width(),
                                              int(shape.depth), {});
        };
        int64_t i = first;
        for (; i + value_queries <= last; i += value_queries)
            add.template operator()<value_queries>(i);
        for (; i < last; i++) add.template operator()<1>(i);
    }
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
