// Products of f32 activations with weights of any encoding: gemm_nt and its forms, logits_gemm.
//
// Per output element: the columns of each group of 32 are summed by fma in ascending order from
// zero, and the sums of the groups are added in ascending order. This is so at every level, for any
// number of tokens and any cut into pieces, so results are equal bit for bit. Weights are what
// embed_lookup gives for them.
#include "ops_gemm_decode.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

struct Product {
    Matrix<const float> a;
    Weight w;
    Epilogue out;
    int64_t tokens, rows, cols;
    Tuned tuned;
    Tiling tiling;
};

// Where a tile's weights are: their items, and for fp8 the
// scales, of which one covers whole groups.
struct Items {
    const uint8_t *data, *scales;
    int64_t first_column;
    const Format *format;
    int64_t ahead;  // bytes to fetch ahead
};

template <Kind kind>
LIBAVX_INLINE f32x16 load_column(const uint8_t *items, int64_t column,
                                 [[maybe_unused]] f32x16 scale)
{
    if constexpr (kind == F32) {
        return f32_load(reinterpret_cast<const float *>(items + 64 * column));
    } else if constexpr (kind == F16) {
        return f16_load(items + 32 * column);
    } else if constexpr (kind == BF16) {
        return bf16_load(items + 32 * column);
    } else {
        return fp8_load_small(items + 16 * column) * scale;
    }
}

// Adds the products of up to a group's columns.
template <Kind kind, int tokens>
LIBAVX_INLINE void add_group(f32x16 (&sum)[tokens], const uint8_t *items, f32x16 scale,
                             const float *a, int64_t stride, int64_t cols)
{
    f32x16 part[tokens];
    LIBAVX_UNROLLED(t, tokens) part[t] = f32_zero();
    for (int64_t k = 0; k < cols; k++) {
        const f32x16 w = load_column<kind>(items, k, scale);
        LIBAVX_UNROLLED(t, tokens) part[t] = fma(w, f32_set(a[t * stride + k]), part[t]);
    }
    LIBAVX_UNROLLED(t, tokens) sum[t] = sum[t] + part[t];
}

template <Kind kind, int tokens>
void accumulate(const Items &w, const float *a, int64_t stride, int64_t cols, float *sums)
{
    constexpr int64_t column_bytes = block_rows * (kind == F32 ? 4 : kind == FP8 ? 1 : 2);
    f32x16 sum[tokens], scale = f32_zero();
    LIBAVX_UNROLLED(t, tokens) sum[t] = f32_load(sums + 16 * t);
    const uint8_t *items = w.data;
    int64_t k = 0;
    for (; k + group_cols <= cols; k += group_cols, items += group_cols * column_bytes) {
        fetch_lines<group_cols * column_bytes / 64>(items + w.ahead);
        if constexpr (kind == FP8) scale = fp8_scale(*w.format, w.scales, w.first_column + k);
        add_group<kind, tokens>(sum, items, scale, a + k, stride, group_cols);
    }
    if (k < cols) {
        if constexpr (kind == FP8) scale = fp8_scale(*w.format, w.scales, w.first_column + k);
        add_group<kind, tokens>(sum, items, scale, a + k, stride, cols - k);
    }
    LIBAVX_UNROLLED(t, tokens) f32_store(sums + 16 * t, sum[t]);
}

using Accumulate = void (*)(const Items &, const float *, int64_t, int64_t, float *);

template <Kind kind> Accumulate choose_tokens(int64_t tokens)
{
#define LIBAVX_TOKENS(n)                                      \
    if constexpr (n <= (kind == FP8 ? few_tokens : max_tile)) \
        if (tokens == n) return accumulate<kind, n>;
    LIBAVX_TOKENS(1) LIBAVX_TOKENS(2) LIBAVX_TOKENS(3) LIBAVX_TOKENS(4)
    LIBAVX_TOKENS(5) LIBAVX_TOKENS(6) LIBAVX_TOKENS(7) LIBAVX_TOKENS(8)
    LIBAVX_TOKENS(9) LIBAVX_TOKENS(10) LIBAVX_TOKENS(11) LIBAVX_TOKENS(12)
#undef LIBAVX_TOKENS
    return nullptr;
}

Accumulate choose(Kind kind, int64_t tokens)
{
    switch (kind) {
        case F16: return choose_tokens<F16>(tokens);
        case BF16: return choose_tokens<BF16>(tokens);
        case FP8: return choose_tokens<FP8>(tokens);
        default: return choose_tokens<F32>(tokens);
    }
}

void run_block(const Product &p, const Piece &piece, const Scratch &s, int64_t index)
{
    const Format &f = p.w.format;
    const int64_t tokens = piece.last_token - piece.first_token,
                  tiles = rad_blocks(tokens, max_tile);
    const bool fp8_groups =
        f.kind == FP8 && tokens <= few_tokens && (f.number[0] == NONE || f.shift[0] >= 5);
    const bool raw = f.kind == F32 || f.kind == F16 || f.kind == BF16 || fp8_groups;
    const uint8_t *block = p.w.data + index * p.w.block_bytes, *codes = block + f.codes_at(p.cols);
    const int64_t step = tokens <= few_tokens ? few_cols : many_cols;
    memset(s.sums, 0, size_t(tokens) * 64);
    for (int64_t k0 = 0; k0 < p.cols; k0 += step) {
        const int64_t width = rad_min(step, p.cols - k0);
        if (!raw) decode(f, block, p.cols, k0, width, s);
        const uint8_t *items =
            raw ? codes + f.code_bytes(k0) : reinterpret_cast<const uint8_t *>(s.items);
        const Items w = {items, block + f.level0_at(p.cols), k0, &f, p.tuned.ahead};
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t t0 = tile_start(tokens, i), t1 = tile_start(tokens, i + 1);
            const Accumulate add = choose(raw ? f.kind : F32, t1 - t0);
            add(w, p.a.row(piece.first_token + t0) + k0, p.a.stride, width, s.sums + 16 * t0);
        }
    }
}

void run_piece(const Product &p, const Piece &piece, const Scratch &s)
{
    if (piece.last_token - piece.first_token <= few_tokens)
        fetch(p.w.data + piece.first_block * p.w.block_bytes, p.tuned.ahead);
    for (int64_t b = piece.first_block; b < piece.last_block; b++) {
        run_block(p, piece, s, b);
        const int count = int(rad_min(block_rows, p.rows - b * block_rows));
        for (int64_t t = piece.first_token; t < piece.last_token; t++)
            finish(p.out, f32_load(s.sums + 16 * (t - piece.first_token)), t, b * block_rows,
                   count);
    }
}

template <Form form> int bind_product(const RadCall *call, Product *p)
{
    const DLTensor *t = call->tensors;
    const DLTensor &y = t[form == PLAIN ? 2 : form == ADD ? 3 : 4];
    if (t[0].ndim != 2 || y.ndim != 2) return RAD_SHAPE;
    p->tokens = t[0].shape[0];
    p->cols = t[0].shape[1];
    p->rows = y.shape[1];
    p->out = {};
    p->tuned = tuned_of(call);
    int status = bind(t[0], kDLFloat, p->tokens, p->cols, &p->a);
    if (!status) status = bind_weight(call, 1, p->rows, p->cols, &p->w);
    if (!status && form == ADD) status = bind(t[2], kDLFloat, p->tokens, p->rows, &p->out.res);
    if constexpr (form == BIAS) {
        if (!status) status = bind_bias(t[2], p->rows, &p->out);
        if (!status && !rad_absent(&t[3]))
            status = bind(t[3], kDLFloat, p->tokens, p->rows, &p->out.res);
        if (!status) status = act_of(call->params[4].s, &p->out.act);
    }
    if (!status) status = bind(y, kDLFloat, p->tokens, p->rows, &p->out.y);
    if (!status) p->tiling = tile(p->tuned, p->tokens, p->rows, p->cols, p->w.block_bytes);
    return status;
}

template <Form form> int64_t tiles(const RadCall *call)
{
    Product p;
    const int status = bind_product<form>(call, &p);
    return status ? status : p.tiling.pieces;
}

template <Form form> int run(const RadCall *call, int64_t first, int64_t last, int worker)
{
    Product p;
    if (const int status = bind_product<form>(call, &p)) return status;
    uint8_t *own =
        static_cast<uint8_t *>(call->scratch) + int64_t(worker) * int64_t(call->scratch_bytes);
    const Scratch s = cut_scratch(own, p.tokens, p.cols);
    if (call->scratch == nullptr || int64_t(call->scratch_bytes) < s.bytes) return RAD_SCRATCH;
    for (int64_t i = first; i < last; i++) run_piece(p, piece_of(p.tiling, i), s);
    return RAD_OK;
}

int64_t scratch(const RadGeometry *g)
{
    const int64_t cols = rad_int_param(g, "K", rad_int_param(g, "n_embd", 0));
    return cut_scratch(nullptr, rad_int_param(g, "M", piece_tokens), cols).bytes;
}

int layout(const RadGeometry *g, int operand, const RadEncoding *encoding, RadLayout *out)
{
    return operand == 2 ? layout_bias(encoding) : layout_weight(g, operand, encoding, out);
}

const RadConstraint where[] = {RAD_IN("dtype", "f32")};
const RadConstraint where_bias[] = {RAD_IN("dtype", "f32"), RAD_IN("act", "none gelu gelu_tanh")};

#define LIBAVX_ROW(op_name, form, conditions, chain)                                    \
    {                                                                                   \
        RAD_KERNEL(op_name, "packed_f32"), .where = conditions,                         \
        .num_where = int(sizeof(conditions) / sizeof(conditions[0])),                   \
        .num_axes = num_product_axes, .axes = product_axes, .tiles = tiles<form>,       \
        .run = run<form>, .scratch = scratch, .init = init_tuned, .fini = fini_tuned,   \
        .layout = layout, .relayout = relayout_weight, .unrelayout = unrelayout_weight, \
        .replaces = chain                                                               \
    }
// No op adds a bias to each row, so BIAS rows have no chain to claim.
const RadKernel rows[] = {
    LIBAVX_ROW("gemm_nt", PLAIN, where, nullptr),
    LIBAVX_ROW("gemm_nt_add", ADD, where, "gemm_nt+add"),
    LIBAVX_ROW("gemm_nt_bias", BIAS, where_bias, nullptr),
    LIBAVX_ROW("logits_gemm", PLAIN, where, nullptr),
};
#undef LIBAVX_ROW

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(gemm, rows)
