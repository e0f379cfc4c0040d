// kv_store: this step's keys and values to their slots of the paged cache.
#include "ops_cache_pack.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

struct KvStore {
    int64_t head_dim, heads, block_size;
    Rows2<float> k, v;
    Line<int32_t> slots;
    Cache cache;
    Grid grid;

    int bind(const RadCall &c)
    {
        LIBAVX_TRY(check_counts(c, 4, 6));
        head_dim = c.params[1].i, heads = c.params[2].i, block_size = c.params[3].i;
        if (head_dim < 1 || heads < 1 || block_size < 1 || head_dim > INT32_MAX ||
            heads > INT32_MAX)
            return RAD_SHAPE;
        LIBAVX_TRY(bind_rows(c.tensors[0], any, heads * head_dim, &k));
        LIBAVX_TRY(bind_rows(c.tensors[1], k.rows, heads * head_dim, &v));
        LIBAVX_TRY(bind_line(c.tensors[2], k.rows, &slots));
        LIBAVX_TRY(cache.bind(c.tensors[3], c.params[4].s, heads, block_size, head_dim));
        if (in_words())
            grid.cut(2 * heads * groups(), 1, 8192 / cache_group / (k.rows + 1) + 1);
        else
            grid.cut(k.rows, 1, rad_blocks(8192, heads * head_dim));
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        if (in_words()) return write_words(p.row, p.row_end);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const int64_t slot = slots[r];
            if (slot < 0) continue;
            if (slot / block_size >= cache.pages()) return RAD_INVAL;
            if (cache.form != nullptr)
                write_packed(r, slot);
            else
                LIBAVX_WITH_ELEMENT(cache.element, E, write<E>(r, slot));
        }
        return RAD_OK;
    }
    template <class E>
    void write(int64_t r, int64_t slot) const
    {
        using T = typename E::type;
        const int64_t *strides = cache.tensor.strides;
        T *at = static_cast<T *>(cache.tensor.data) + slot / block_size * strides[0] +
                slot % block_size * strides[2];
        for (int64_t h = 0; h < heads; h++, at += strides[1])
            for (int64_t i = 0; i < head_dim; i += 16) {
                const int part = int(rad_min(16, head_dim - i));
                const int64_t from = h * head_dim + i;
                store_part<E>(at + i, load_part<F32>(k.row(r) + from, part), part);
                store_part<E>(at + head_dim + i, load_part<F32>(v.row(r) + from, part), part);
            }
    }
    bool in_words() const { return cache.form != nullptr && cache.form->in_words(); }
    int64_t groups() const { return head_dim / cache_group; }

    // Words of values hold several slots, of which two may share a byte. So a tile has all tokens
    // of some groups, which are first the keys' and then the values', by head.
    int write_words(int64_t first, int64_t last) const
    {
        for (int64_t r = 0; r < k.rows; r++) {
            const int64_t slot = slots[r];
            if (slot < 0) continue;
            if (slot / block_size >= cache.pages()) return RAD_INVAL;
            for (int64_t i = first; i < last; i++) {
                const int64_t half = i / (heads * groups()), head = i / groups() % heads;
                const Area area(cache, slot / block_size, head, head_dim);
                pack_words(cache.form->halves[half], (half ? v : k).row(r) + head * head_dim,
                           head_dim, block_size, slot % block_size, i % groups(),
                           area.codes[half], area.scales[half]);
            }
        }
        return RAD_OK;
    }
    void write_packed(int64_t r, int64_t slot) const
    {
        alignas(64) float row[most_head_dim];
        for (int64_t h = 0; h < heads; h++) {
            const Area area(cache, slot / block_size, h, head_dim);
            for (int i = 0; i < 2; i++)
                pack(cache.form->halves[i], (i ? v : k).row(r) + h * head_dim, head_dim,
                     block_size, slot % block_size, area.codes[i], area.scales[i], row);
        }
    }
};

const RadConstraint where[] = {RAD_IN("dtype", "f32"), RAD_IN("kv_dtype", "f16 bf16 f32")};
const RadConstraint where_fp8[] = {RAD_IN("dtype", "f32"), RAD_IN("kv_dtype", "fp8"),
                                   RAD_DIV("head_dim", 8), RAD_LE("head_dim", most_head_dim)};
const RadConstraint where_integers[] = {RAD_IN("dtype", "f32"), RAD_IN("kv_dtype", "fp8_v4 k6_v4"),
                                        RAD_DIV("head_dim", cache_group),
                                        RAD_LE("head_dim", most_head_dim)};
const RadConstraint where_words[] = {RAD_IN("dtype", "f32"), RAD_IN("kv_dtype", "int8 k8_v4"),
                                     RAD_DIV("head_dim", cache_group),
                                     RAD_DIV("block_size", word_slots),
                                     RAD_LE("head_dim", most_head_dim)};

const RadKernel rows[] = {
    row<KvStore>("kv_store", where),
    row<KvStore>("kv_store", where_fp8, nullptr, "kv_store_fp8"),
    row<KvStore>("kv_store", where_integers, nullptr, "kv_store_integers"),
    row<KvStore>("kv_store", where_words, nullptr, "kv_store_words"),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(attention_store, rows)
