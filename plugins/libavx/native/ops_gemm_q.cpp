// Products of int8 activations with integer-coded weights: gemm_nt_q and its forms, logits_gemm_q.
//
// Per output element, for each sub-group of 32 (or 16) columns in ascending order:
//     dot = sum of (code - offset) * a              exact, 32-bit; of two planes 128 * high + low
//     y   = fma(dot, scale_w * scale_a, y)
//     y   = fma(-min_w, scale_a * sum of a, y)      where the weight has minima
// at every level, for any number of tokens and any cut into pieces: results are equal bit for bit.
#include "choices.h"
#include "ops_gemm_q_tokens.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int num_params = 6;  // M, the two extents of the weight, group, dtype, planes

constexpr int64_t few_cols = 1024;  // columns whose scales are decoded at a time for few tokens

// How the blocks of a piece are computed.
struct Plan {
    bool few, stored, raw;  // stored: scales as they are; raw: codes as they are
    bool own;               // weights' own products are summed beforehand
    bool whole;             // each tile fetches the lines of a group as a whole, not its share
    int64_t step;           // columns at a time
    Accumulate add[2];      // for tiles of the least and of the most tokens that occur
    int64_t least;
};

Plan plan_of(const Product &p, int64_t tokens)
{
    const Format &f = p.w.format;
    Plan plan = {};
    plan.few = tokens <= few_tokens;
    plan.raw = plan.few ? reads_stored_codes(f) : f.bits == 8;
    plan.least = tokens / rad_blocks(tokens, max_tile);
    plan.whole = plan.raw && (plan.few || max_tile <= few_tokens);
    const int64_t most = rad_blocks(tokens, rad_blocks(tokens, max_tile));
    plan.own = folds && most > few_tokens && packs_words(p, most);
    Choice c = {f, p.planes, plan.least, !plan.raw, tokens == 1 && plan.raw};
    plan.add[0] = choose(c);
    plan.stored = c.stored && plan.add[0] != nullptr;
    c.stored = false;
    if (!plan.stored) plan.add[0] = choose(c);
    c.tokens = plan.least + 1;
    if (plan.least < max_tile && !plan.few) plan.add[1] = choose(c);
    plan.step = plan.stored ? p.cols : plan.few ? few_cols : many_cols;
    return plan;
}

// Rows of a result lie a page apart, so that each store would wait for its line.
void fetch_results(const Product &p, int64_t first_token, int64_t tokens, int64_t column)
{
    for (int64_t t = first_token; t < first_token + tokens; t++) {
        fetch(reinterpret_cast<const uint8_t *>(p.out.y.row(t) + column), 64);
        if (p.out.res.data != nullptr)
            fetch(reinterpret_cast<const uint8_t *>(p.out.res.row(t) + column), 64);
    }
}

// All sums of one row block for the tokens of a piece.
void run_block(const Product &p, const Piece &piece, const Scratch &s, const Plan &plan,
               int64_t index)
{
    const Format &f = p.w.format;
    const int64_t tokens = piece.last_token - piece.first_token,
                  tiles = rad_blocks(tokens, max_tile);
    const uint8_t *block = p.w.data + index * p.w.block_bytes, *codes = block + f.codes_at(p.cols);
    Block b = {};
    b.table = block;
    const int64_t group_bytes = p.w.block_bytes * group_cols / p.cols;
    b.whole = plan.whole;
    b.next_step = plan.whole ? group_bytes : rad_blocks(group_bytes, tiles);
    b.scale = s.scale, b.min = s.min, b.own = s.own;
    b.level0 = block + f.level0_at(p.cols), b.level1 = block + f.level1_at(),
    b.shift1 = f.shift[1] - f.shift[0];
    memset(s.sums, 0, size_t(tokens) * 64);
    for (int64_t k0 = 0; k0 < p.cols; k0 += plan.step) {
        const int64_t width = rad_min(plan.step, p.cols - k0), groups = width / group_cols;
        b.codes = codes + k0 / group_cols * 64 * f.bits;
        const uint8_t *next = b.next = block + k0 / group_cols * group_bytes + p.tuned.ahead;
        if (!plan.stored)
            decode_scales(f, block, p.cols, k0 / f.sub(), width / f.sub(), s.scale, s.min);
        if (!plan.raw) {
            decode(f, b.codes, block, groups, s.codes);
            b.codes = s.codes;
        }
        if (plan.own) own_products(b.codes, groups, group_cols / f.sub(), s.own);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t t0 = tile_start(tokens, i), count = tile_start(tokens, i + 1) - t0;
            const Tile x =
                tile_of(p, s, piece, t0, count).from(k0 / f.sub(), group_cols / f.sub(), count);
            if (!plan.few) fetch_results(p, piece.first_token + t0, count, index * block_rows);
            if (!plan.whole) b.next = next + groups * group_bytes * i / tiles;
            plan.add[count - plan.least](b, x, groups, s.sums + 16 * t0);
        }
    }
}

// All lines of a lone token at once: another core wrote them, and its groups would ask for one
// after the other.
void fetch_token(const Product &p)
{
    const int64_t numbers = p.cols / group_cols * int64_t(sizeof(float));
    fetch(reinterpret_cast<const uint8_t *>(p.a.row(0)), p.planes * p.cols);
    fetch(reinterpret_cast<const uint8_t *>(p.a_sum.row(0)), numbers);
    fetch(reinterpret_cast<const uint8_t *>(p.a_scale.row(0)), numbers);
}

// `packed` says whether the scratch holds the tokens of this piece already.
void run_piece(const Product &p, const Piece &piece, const Scratch &s, bool packed)
{
    const int64_t tokens = piece.last_token - piece.first_token;
    const Plan plan = plan_of(p, tokens);
    if (plan.few) fetch(p.w.data + piece.first_block * p.w.block_bytes, p.tuned.ahead);
    if (!packed)
        for (int64_t i = 0; i < rad_blocks(tokens, max_tile); i++) pack_tile(p, s, piece, i);
    for (int64_t b = piece.first_block; b < piece.last_block; b++) {
        run_block(p, piece, s, plan, b);
        const int count = int(rad_min(block_rows, p.rows - b * block_rows));
        for (int64_t t = piece.first_token; t < piece.last_token; t++)
            finish(p.out, f32_load(s.sums + 16 * (t - piece.first_token)), t, b * block_rows,
                   count);
    }
}

template <Form form> int bind_product(const RadCall *call, Product *p)
{
    const DLTensor *t = call->tensors;
    const DLTensor &y = t[form == PLAIN ? 4 : 5];
    if (t[0].ndim != 2 || y.ndim != 2) return RAD_SHAPE;
    if (call->num_params != num_params) return RAD_SCHEMA;
    p->planes = call->params[num_params - 1].i;
    if (p->planes < 1 || p->planes > 2) return RAD_INVAL;
    if (t[0].shape[1] % p->planes != 0) return RAD_SHAPE;
    p->tokens = t[0].shape[0];
    p->cols = t[0].shape[1] / p->planes;
    p->rows = y.shape[1];
    const int64_t groups = p->cols / group_cols;
    if (p->cols % group_cols != 0) return RAD_SHAPE;
    p->out = {};
    p->tuned = tuned_of(call);
    int status = bind(t[0], kDLInt, p->tokens, p->planes * p->cols, &p->a);
    if (!status) status = bind(t[1], kDLFloat, p->tokens, groups, &p->a_scale);
    if (!status) status = bind(t[2], kDLInt, p->tokens, groups, &p->a_sum);
    if (!status) status = bind_weight(call, 3, p->rows, p->cols, &p->w);
    if (!status && !p->w.format.integer()) status = RAD_DTYPE;
    if (!status && form == ADD) status = bind(t[4], kDLFloat, p->tokens, p->rows, &p->out.res);
    if (!status && form == BIAS) status = bind_bias(t[4], p->rows, &p->out);
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
    const Scratch s = cut_scratch(own, p.tokens, p.cols, p.planes);
    if (call->scratch == nullptr || int64_t(call->scratch_bytes) < s.bytes) return RAD_SCRATCH;
    if (p.tokens == 1) fetch_token(p);
    int64_t packed = -1;
    for (int64_t i = first; i < last; i++) {
        const Piece piece = piece_of(p.tiling, i);
        run_piece(p, piece, s, piece.first_token == packed);
        packed = piece.first_token;
    }
    return RAD_OK;
}

int64_t scratch(const RadGeometry *g)
{
    const int64_t cols = rad_int_param(g, "K", rad_int_param(g, "n_embd", 0)),
                  tokens = rad_int_param(g, "M", piece_tokens);
    // A call of few tokens in a wide band may need less, never more.
    return cut_scratch(nullptr, tokens <= few_tokens ? tokens : piece_tokens, cols,
                       rad_int_param(g, "planes", 1))
        .bytes;
}

int layout(const RadGeometry *g, int operand, const RadEncoding *encoding, RadLayout *out)
{
    if (operand == 4) return layout_bias(encoding);
    Format format;
    if (!parse_format(encoding, &format) || !format.integer()) return RAD_DTYPE;
    return layout_weight(g, operand, encoding, out);
}

const RadConstraint where[] = {RAD_IN("dtype", "f32"), RAD_IS("group", group_cols),
                               RAD_DIV("K", group_cols), RAD_LE("planes", 2)};
const RadConstraint where_logits[] = {RAD_IN("dtype", "f32"), RAD_IS("group", group_cols),
                                      RAD_DIV("n_embd", group_cols), RAD_LE("planes", 2)};

#define LIBAVX_ROW(op_name, form, conditions, chain)                                           \
    {                                                                                          \
        RAD_KERNEL(op_name, "packed_i8"), .where = conditions,                                 \
        .num_where = 4, .num_axes = num_product_axes,                                          \
        .axes = product_axes, .tiles = tiles<form>, .run = run<form>, .scratch = scratch,      \
        .init = init_tuned, .fini = fini_tuned, .layout = layout, .relayout = relayout_weight, \
        .unrelayout = unrelayout_weight, .replaces = chain                                     \
    }
// No op adds a bias to each row, so BIAS rows have no chain to claim.
const RadKernel rows[] = {
    LIBAVX_ROW("gemm_nt_q", PLAIN, where, nullptr),
    LIBAVX_ROW("gemm_nt_q_add", ADD, where, "gemm_nt_q+add"),
    LIBAVX_ROW("gemm_nt_q_bias", BIAS, where, nullptr),
    LIBAVX_ROW("logits_gemm_q", PLAIN, where_logits, nullptr),
};
#undef LIBAVX_ROW

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(gemm_q, rows)
