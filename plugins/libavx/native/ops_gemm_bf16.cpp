// Products of bf16 activations with bf16 weights by vdpbf16ps, where that does twice as many a
// cycle as f32 fma. Where there is none, or it takes two cycles (Sapphire Rapids), they are no
// faster than those of f32 activations, which are more exact.
//
// Per output element: the pairs of columns of each 512 are summed in ascending order from zero,
// even pairs and odd pairs apart, and the sums of the 512s are added in ascending order. This is so
// for any number of tokens and any cut into pieces. vdpbf16ps takes denormals for zeros.
#include "products.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

#if defined(__AVX512VNNI__) && !defined(LIBAVX_DUAL)
constexpr int64_t span = 512;  // columns of a sum

struct Product {
    Matrix<const uint16_t> a;
    Weight w;
    Epilogue out;
    int64_t tokens, rows, cols;
    Tiling tiling;
    Tuned tuned;
};

// Two columns of 16 weights, which lie one after the other, as 16 pairs.
LIBAVX_INLINE i32x16 pairs(const uint8_t *items)
{
    alignas(64) static const uint16_t order[32] = {
        0, 16, 1, 17, 2,  18, 3,  19, 4,  20, 5,  21, 6,  22, 7,  23,
        8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31,
    };
    return {_mm512_permutexvar_epi16(_mm512_load_si512(order), _mm512_loadu_si512(items))};
}

// The compiler has no pattern for a broadcast operand, and
// this level's flags do not name the instruction.
LIBAVX_INLINE void add_pairs(f32x16 &sum, i32x16 weights, const uint16_t *a)
{
    const auto &two = *reinterpret_cast<const uint32_t (*)[1]>(a);
    asm("vdpbf16ps %1%{1to16%}, %2, %0" : "+v"(sum.v) : "m"(two), "v"(weights.v));
}

template <int tokens>
void accumulate(const uint8_t *items, const uint16_t *a, int64_t stride, int64_t cols,
                int64_t ahead, float *sums)
{
    f32x16 even[tokens], odd[tokens];
    LIBAVX_UNROLLED(t, tokens) even[t] = odd[t] = f32_zero();
    for (int64_t k = 0; k < cols; k += group_cols, items += 32 * group_cols) {
        if (tokens <= few_tokens) fetch_lines<16>(items + ahead);
        for (int64_t j = 0; j < group_cols; j += 4) {
            const i32x16 first = pairs(items + 32 * j), second = pairs(items + 32 * j + 64);
            LIBAVX_UNROLLED(t, tokens) add_pairs(even[t], first, a + t * stride + k + j);
            LIBAVX_UNROLLED(t, tokens) add_pairs(odd[t], second, a + t * stride + k + j + 2);
        }
    }
    LIBAVX_UNROLLED(t, tokens)
        f32_store(sums + 16 * t, f32_load(sums + 16 * t) + (even[t] + odd[t]));
}

using Accumulate = void (*)(const uint8_t *, const uint16_t *, int64_t, int64_t, int64_t, float *);
constexpr Accumulate by_tokens[max_tile] = {
    accumulate<1>, accumulate<2>, accumulate<3>, accumulate<4>,  accumulate<5>,  accumulate<6>,
    accumulate<7>, accumulate<8>, accumulate<9>, accumulate<10>, accumulate<11>, accumulate<12>};

void run_piece(const Product &p, const Piece &piece)
{
    const int64_t tokens = piece.last_token - piece.first_token,
                  tiles = rad_blocks(tokens, max_tile);
    alignas(64) float sums[16 * piece_tokens];
    for (int64_t b = piece.first_block; b < piece.last_block; b++) {
        const uint8_t *items = p.w.data + b * p.w.block_bytes + p.w.format.codes_at(p.cols);
        memset(sums, 0, size_t(tokens) * 64);
        for (int64_t k = 0; k < p.cols; k += span)
            for (int64_t i = 0; i < tiles; i++) {
                const int64_t t0 = tile_start(tokens, i), t1 = tile_start(tokens, i + 1);
                by_tokens[t1 - t0 - 1](items + 32 * k, p.a.row(piece.first_token + t0) + k,
                                       p.a.stride, rad_min(span, p.cols - k), p.tuned.ahead,
                                       sums + 16 * t0);
            }
        const int count = int(rad_min(block_rows, p.rows - b * block_rows));
        for (int64_t t = 0; t < tokens; t++)
            finish(p.out, f32_load(sums + 16 * t), piece.first_token + t, b * block_rows, count);
    }
}

template <Form form> int bind_product(const RadCall *call, Product *p)
{
    const DLTensor *t = call->tensors;
    const DLTensor &y = t[form == PLAIN ? 2 : 3];
    if (t[0].ndim != 2 || y.ndim != 2) return RAD_SHAPE;
    p->tokens = t[0].shape[0], p->cols = t[0].shape[1], p->rows = y.shape[1];
    p->out = {};
    if (p->cols % group_cols) return RAD_SHAPE;
    int status = bind(t[0], kDLBfloat, p->tokens, p->cols, &p->a);
    if (!status) status = bind_weight(call, 1, p->rows, p->cols, &p->w);
    if (!status && p->w.format.kind != BF16) status = RAD_DTYPE;
    if (!status && form == ADD) status = bind(t[2], kDLFloat, p->tokens, p->rows, &p->out.res);
    if (!status) status = bind(y, kDLFloat, p->tokens, p->rows, &p->out.y);
    if (status) return status;
    p->tuned = tuned_of(call);
    p->tiling = tile(p->tuned, p->tokens, p->rows, p->cols, p->w.block_bytes);
    return RAD_OK;
}

template <Form form> int64_t tiles(const RadCall *call)
{
    Product p;
    const int status = bind_product<form>(call, &p);
    return status ? status : p.tiling.pieces;
}

template <Form form> int run(const RadCall *call, int64_t first, int64_t last, int)
{
    Product p;
    if (const int status = bind_product<form>(call, &p)) return status;
    for (int64_t i = first; i < last; i++) run_piece(p, piece_of(p.tiling, i));
    return RAD_OK;
}

int layout(const RadGeometry *g, int operand, const RadEncoding *encoding, RadLayout *out)
{
    Format format;
    if (!__builtin_cpu_supports("avx512bf16")) return RAD_DTYPE;
    if (!parse_format(encoding, &format) || format.kind != BF16) return RAD_DTYPE;
    return layout_weight(g, operand, encoding, out);
}
#else
// Every level has the rows, so that plans name the same ones; these read no encoding.
template <Form> int64_t tiles(const RadCall *) { return RAD_UNSUPPORTED; }
template <Form> int run(const RadCall *, int64_t, int64_t, int) { return RAD_UNSUPPORTED; }
int layout(const RadGeometry *, int, const RadEncoding *, RadLayout *) { return RAD_DTYPE; }
#endif

const RadConstraint where[] = {RAD_IN("dtype", "f32"), RAD_DIV("K", 32)};
const RadConstraint where_head[] = {RAD_IN("dtype", "f32"), RAD_DIV("n_embd", 32)};

#define LIBAVX_ROW(op_name, form, conditions, chain)                                           \
    {                                                                                          \
        RAD_KERNEL(op_name, "packed_bf16"), .where = conditions,                               \
        .num_where = 2, .num_axes = num_product_axes,                                          \
        .axes = product_axes, .tiles = tiles<form>, .run = run<form>,                          \
        .init = init_tuned, .fini = fini_tuned, .layout = layout, .relayout = relayout_weight, \
        .unrelayout = unrelayout_weight, .replaces = chain                                     \
    }
const RadKernel rows[] = {
    LIBAVX_ROW("gemm_nt_bf16", PLAIN, where, nullptr),
    LIBAVX_ROW("gemm_nt_bf16_add", ADD, where, "gemm_nt_bf16+add"),
    LIBAVX_ROW("logits_gemm_bf16", PLAIN, where_head, nullptr),
};
#undef LIBAVX_ROW

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(gemm_bf16, rows)
