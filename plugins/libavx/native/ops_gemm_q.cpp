// Products of int8 activations with integer-coded weights: gemm_nt_q and its forms, logits_gemm_q.
//
// Per output element, for each sub-group of 32 (or 16) columns in ascending order:
//     dot = sum of (code - offset) * a              exact, 32-bit; of two planes 128 * high + low
//     y   = fma(dot, scale_w * scale_a, y)
//     y   = fma(-min_w, scale_a * sum of a, y)      where the weight has minima
// at every level, for any number of tokens and any cut into pieces: results are equal bit for bit.
#include "dots.h"
#include "products.h"
#include "rows.h"
#include "scales.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int num_params = 6;  // M, the two extents of the weight, group, dtype, planes

constexpr int64_t few_cols = 1024;   // columns whose scales are decoded at a time for few tokens
constexpr int64_t many_cols = 4096;  // columns decoded at a time for many

struct Product {
    Matrix<const int8_t> a;
    Matrix<const float> a_scale;
    Matrix<const int32_t> a_sum;
    Weight w;
    Epilogue out;
    int64_t tokens, rows, cols, planes;
    Tuned tuned;
    Tiling tiling;
};

LIBAVX_INLINE __m256i sums_of_quads(const int8_t *a)  // of 32 columns
{
    const __m256i codes = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(a));
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes), _mm256_set1_epi16(1));
}

// Sums of 16 columns each; writes eight at a time, as many as `cols` need and at most six more.
LIBAVX_INLINE void sum_codes(const int8_t *a, int64_t cols, int32_t *sums)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), none = _mm256_setzero_si256();
    for (int64_t k = 0; k < cols; k += 128) {
        __m256i quads[4];
        for (int64_t i = 0; i < 4; i++) quads[i] = k + 32 * i < cols ? sums_of_quads(a + k + 32 * i) : none;
        const __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(quads[0], quads[1]),
                                                _mm256_hadd_epi32(quads[2], quads[3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(sums + k / 16), _mm256_permutevar8x32_epi32(pairs, order));
    }
}

struct Scratch {
    float *scale, *min, *sums, *factor, *a_scale;
    int32_t *start, *high, *low, *own;
    uint32_t *own_of_token;
    int8_t *a;
    uint8_t *codes;
    int64_t bytes;
};

// The worker's scratch, cut up for products of so many tokens, columns and planes; also says how much that is.
Scratch cut_scratch(uint8_t *at, int64_t tokens, int64_t cols, int64_t planes)
{
    uint8_t *const begin = at;
    const int64_t m = rad_min(tokens, piece_tokens), chunk = rad_min(cols, many_cols);
    Scratch s;
    s.scale = take<float>(&at, chunk);  // 16 floats per 16 columns
    s.min = take<float>(&at, chunk);
    s.sums = take<float>(&at, 16 * m);
    s.factor = take<float>(&at, m * (cols / 16));
    s.a_scale = take<float>(&at, m * (cols / group_cols));
    s.start = take<int32_t>(&at, m * (cols / 16));
    s.high = take<int32_t>(&at, cols / 16 + 6);
    s.low = take<int32_t>(&at, cols / 16 + 6);
    s.own = take<int32_t>(&at, chunk);  // as many as scales
    s.own_of_token = take<uint32_t>(&at, cols / 16);
    s.a = take<int8_t>(&at, m * planes * cols);
    s.codes = take<uint8_t>(&at, block_rows * chunk);
    s.bytes = at - begin;
    return s;
}

// The tile of a piece's `tokens` tokens from `first` on, as pack_tile leaves it.
Tile tile_of(const Product &p, const Scratch &s, const Piece &piece, int64_t first, int64_t tokens)
{
    const int64_t subs = p.cols / p.w.format.sub();
    if (tokens == 1)
        return {p.a.row(piece.first_token + first), p.cols, group_cols, p.a_scale.row(piece.first_token + first),
                s.start + first * subs, s.factor + first * subs};
    // Planes of bytes and words take the same room.
    return {s.a + first * p.planes * p.cols, tokens * group_cols, p.planes * tokens * group_cols,
            s.a_scale + first * (p.cols / group_cols), s.start + first * subs, s.factor + first * subs};
}

// Sums of a token's codes by sub-groups, over both planes.
const int32_t *sums_of(const Product &p, int64_t token, const Scratch &s)
{
    if (p.w.format.sub() == group_cols) return p.a_sum.row(token);  // the caller has them
    const int64_t count = p.cols / 16;
    sum_codes(p.a.row(token), p.cols, s.high);
    if (p.planes == 1) return s.high;
    sum_codes(p.a.row(token) + p.cols, p.cols, s.low);
    for (int64_t i = 0; i < count; i++) s.high[i] = 128 * s.high[i] + s.low[i];
    return s.high;
}

bool packs_words(const Product &p, int64_t tokens)
{
    return makes_words(p.planes, tokens, has_pairs_of(p.w.format));
}

// What goes with a token's codes, as the first of a tile of `tokens`.
void pack_sums(const Product &p, const Scratch &s, int64_t token, int32_t *start, float *factor, int64_t tokens)
{
    const Format &f = p.w.format;
    const int64_t subs = p.cols / f.sub();
    const int32_t *sums = sums_of(p, token, s);
    if (packs_words(p, tokens))
        for (int64_t i = 0; i < subs; i++)
            start[i * tokens] = int32_t(-(uint32_t(f.offset) * uint32_t(sums[i]) + s.own_of_token[i]));
    else if (f.offset != 0 || !f.min())
        for (int64_t i = 0; i < subs; i++) start[i * tokens] = -int32_t(f.offset) * sums[i];
    if (!f.min()) return;
    const float *scales = p.a_scale.row(token);
    const int shift = f.sub() == 16 ? 1 : 0;
    for (int64_t i = 0; i < subs; i++) factor[i * tokens] = scales[i >> shift] * float(sums[i]);
}

// A token's codes as the first of a tile; `a` is where the tile's are.
void pack_codes(const Product &p, const Scratch &s, int64_t token, int8_t *tile, int64_t index, int64_t tokens)
{
    const int64_t step = tokens * group_cols;
    const int8_t *high = p.a.row(token);
    if (packs_words(p, tokens))
        return pack_words(high, high + p.cols, p.cols, group_cols / p.w.format.sub(), tile + 2 * index * group_cols,
                          2 * step, s.own_of_token);
    int8_t *a = tile + index * group_cols;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        const int8_t *codes = high + plane * p.cols;
        int8_t *to = a + plane * step;
        for (int64_t k = 0; k < p.cols; k += group_cols, to += p.planes * step) memcpy(to, codes + k, group_cols);
    }
}

// Packs tile `index` of a piece; of a lone token only what is not there yet.
void pack_tile(const Product &p, const Scratch &s, const Piece &piece, int64_t index)
{
    const int64_t tokens = piece.last_token - piece.first_token, t0 = tile_start(tokens, index);
    const int64_t count = tile_start(tokens, index + 1) - t0;
    const int64_t subs = p.cols / p.w.format.sub(), groups = p.cols / group_cols;
    for (int64_t t = 0; t < count; t++) {
        const int64_t token = piece.first_token + t0 + t;
        if (count > 1) pack_codes(p, s, token, s.a + t0 * p.planes * p.cols, t, count);
        pack_sums(p, s, token, s.start + t0 * subs + t, s.factor + t0 * subs + t, count);
        if (count == 1) continue;
        const float *scales = p.a_scale.row(token);
        float *to = s.a_scale + t0 * groups + t;
        for (int64_t g = 0; g < groups; g++) to[g * count] = scales[g];
    }
}

// How the blocks of a piece are computed.
struct Plan {
    bool few, stored, raw;  // stored: scales as they are; raw: codes as they are
    bool own;               // weights' own products are summed beforehand
    bool whole;             // kernels fetch the lines of each group as a whole
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
    plan.own = most > few_tokens && packs_words(p, most);
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
        if (p.out.res.data != nullptr) fetch(reinterpret_cast<const uint8_t *>(p.out.res.row(t) + column), 64);
    }
}

// All sums of one row block for the tokens of a piece.
void run_block(const Product &p, const Piece &piece, const Scratch &s, const Plan &plan, int64_t index)
{
    const Format &f = p.w.format;
    const int64_t tokens = piece.last_token - piece.first_token, tiles = rad_blocks(tokens, max_tile);
    const uint8_t *block = p.w.data + index * p.w.block_bytes, *codes = block + f.codes_at(p.cols);
    Block b = {};
    b.table = block;
    const int64_t group_bytes = p.w.block_bytes * group_cols / p.cols;
    b.next_step = plan.whole ? group_bytes : rad_blocks(group_bytes, tiles);
    b.scale = s.scale, b.min = s.min, b.own = s.own;
    b.level0 = block + f.level0_at(p.cols), b.level1 = block + f.level1_at(), b.shift1 = f.shift[1] - f.shift[0];
    memset(s.sums, 0, size_t(tokens) * 64);
    for (int64_t k0 = 0; k0 < p.cols; k0 += plan.step) {
        const int64_t width = rad_min(plan.step, p.cols - k0), groups = width / group_cols;
        b.codes = codes + k0 / group_cols * 64 * f.bits;
        const uint8_t *next = b.next = block + k0 / group_cols * group_bytes + p.tuned.ahead;
        if (!plan.stored) decode_scales(f, block, p.cols, k0 / f.sub(), width / f.sub(), s.scale, s.min);
        if (!plan.raw) {
            decode(f, b.codes, block, groups, s.codes);
            b.codes = s.codes;
        }
        if (plan.own) own_products(b.codes, groups, group_cols / f.sub(), s.own);
        for (int64_t i = 0; i < tiles; i++) {
            const int64_t t0 = tile_start(tokens, i), count = tile_start(tokens, i + 1) - t0;
            const Tile x = tile_of(p, s, piece, t0, count).from(k0 / f.sub(), group_cols / f.sub(), count);
            if (!plan.few) fetch_results(p, piece.first_token + t0, count, index * block_rows);
            if (!plan.whole) b.next = next + groups * group_bytes * i / tiles;
            plan.add[count - plan.least](b, x, groups, s.sums + 16 * t0);
        }
    }
}

// All lines of a lone token at once: another core wrote them, and its groups would ask for one after the other.
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
            finish(p.out, f32_load(s.sums + 16 * (t - piece.first_token)), t, b * block_rows, count);
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
    uint8_t *own = static_cast<uint8_t *>(call->scratch) + int64_t(worker) * int64_t(call->scratch_bytes);
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
    const int64_t cols = rad_int_param(g, "K", rad_int_param(g, "n_embd", 0)), tokens = rad_int_param(g, "M", piece_tokens);
    // A call of few tokens in a wide band may need less, never more.
    return cut_scratch(nullptr, tokens <= few_tokens ? tokens : piece_tokens, cols, rad_int_param(g, "planes", 1)).bytes;
}

int layout(const RadGeometry *g, int operand, const RadEncoding *encoding, RadLayout *out)
{
    if (operand == 4) return layout_bias(encoding);
    Format format;
    if (!parse_format(encoding, &format) || !format.integer()) return RAD_DTYPE;
    return layout_weight(g, operand, encoding, out);
}

const RadConstraint where[] = {RAD_IN("dtype", "f32"), RAD_IS("group", group_cols), RAD_DIV("K", group_cols),
                               RAD_LE("planes", 2)};
const RadConstraint where_logits[] = {RAD_IN("dtype", "f32"), RAD_IS("group", group_cols),
                                      RAD_DIV("n_embd", group_cols), RAD_LE("planes", 2)};

#define LIBAVX_ROW(op_name, form, conditions)                                                                \
    {                                                                                                        \
        RAD_KERNEL(op_name, "packed_i8"), .where = conditions, .num_where = 4,                               \
        .num_axes = num_product_axes, .axes = product_axes, .tiles = tiles<form>, .run = run<form>,          \
        .scratch = scratch, .init = init_tuned, .fini = fini_tuned, .layout = layout,                        \
        .relayout = relayout_weight, .unrelayout = unrelayout_weight                                         \
    }
const RadKernel rows[] = {
    LIBAVX_ROW("gemm_nt_q", PLAIN, where),
    LIBAVX_ROW("gemm_nt_q_add", ADD, where),
    LIBAVX_ROW("gemm_nt_q_bias", BIAS, where),
    LIBAVX_ROW("logits_gemm_q", PLAIN, where_logits),
};
#undef LIBAVX_ROW

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(gemm_q, rows)
