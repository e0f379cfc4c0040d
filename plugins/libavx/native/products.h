// What the matrix products share: operands, how a product
// is cut into pieces, and what is done to a finished block.
#ifndef LIBAVX_PRODUCTS_H_
#define LIBAVX_PRODUCTS_H_

#include <math.h>

#include "format.h"
#include "simd.h"
#include "tuned.h"

namespace libavx::LIBAVX_LEVEL {

#if defined(__AVX512F__)
constexpr int max_tile = 12;       // tokens whose sums stay in registers
constexpr int64_t few_tokens = 8;  // up to here weights are decoded in registers
#else
constexpr int max_tile = 4;
constexpr int64_t few_tokens = 4;
#endif
constexpr int64_t piece_tokens = 96;  // most tokens of a piece

// A matrix whose rows may be apart; elements of a row are adjacent.
template <class T> struct Matrix {
    T *data;
    int64_t stride;
    T *row(int64_t r) const { return data + r * stride; }
};

LIBAVX_INLINE bool has_type(const DLTensor &t, int code, int bits)
{
    return t.dtype.code == code && t.dtype.bits == bits;
}

// Binds a rows x cols operand, or says what is wrong with it.
template <class T>
LIBAVX_INLINE int bind(const DLTensor &t, int code, int64_t rows, int64_t cols, Matrix<T> *out)
{
    if (!has_type(t, code, int(8 * sizeof(T)))) return RAD_DTYPE;
    if (t.ndim != 2 || t.shape[0] != rows || t.shape[1] != cols) return RAD_SHAPE;
    if (cols > 1 && t.strides[1] != 1) return RAD_STRIDE;
    *out = {static_cast<T *>(t.data), t.strides[0]};
    return RAD_OK;
}

struct Weight {
    const uint8_t *data;
    Format format;
    int64_t block_bytes;
};

LIBAVX_INLINE int bind_weight(const RadCall *call, int operand, int64_t rows, int64_t cols,
                              Weight *out)
{
    const DLTensor &t = call->tensors[operand];
    if (call->layouts == nullptr || call->layouts[operand] == nullptr) return RAD_DTYPE;
    const Format format = format_of(call->layouts[operand]);
    const int64_t bytes = format.block_bytes(cols);
    if (t.ndim != 2 || t.shape[0] * block_rows < rows || t.shape[1] != bytes) return RAD_SHAPE;
    *out = {static_cast<const uint8_t *>(t.data), format, bytes};
    return RAD_OK;
}

enum Form { PLAIN, ADD, BIAS };  // what follows the weight among the operands of a product

enum Act { ACT_NONE, ACT_GELU, ACT_GELU_TANH };

// y = product, then + bias, then act, then + res, each rounded to f32.
struct Epilogue {
    Matrix<float> y, res;  // res.data is NULL when there is none
    const void *bias;      // NULL when there is none
    Kind bias_kind;
    Act act;
};

LIBAVX_INLINE int bind_bias(const DLTensor &t, int64_t cols, Epilogue *out)
{
    if (t.ndim < 1 || t.shape[t.ndim - 1] != cols) return RAD_SHAPE;
    if (cols > 1 && t.strides[t.ndim - 1] != 1) return RAD_STRIDE;
    if (has_type(t, kDLFloat, 32)) out->bias_kind = F32;
    else if (has_type(t, kDLFloat, 16)) out->bias_kind = F16;
    else if (has_type(t, kDLBfloat, 16)) out->bias_kind = BF16;
    else return RAD_DTYPE;
    out->bias = t.data;
    return RAD_OK;
}

// Plain biases are taken as they are.
LIBAVX_INLINE int layout_bias(const RadEncoding *encoding)
{
    Format format;
    if (!parse_format(encoding, &format) || encoding->num_planes != 1) return RAD_DTYPE;
    return format.kind == FP8 ? RAD_DTYPE : RAD_UNSUPPORTED;
}

LIBAVX_INLINE int act_of(const char *name, Act *out)
{
    if (name == nullptr || strcmp(name, "none") == 0) *out = ACT_NONE;
    else if (strcmp(name, "gelu") == 0) *out = ACT_GELU;
    else if (strcmp(name, "gelu_tanh") == 0) *out = ACT_GELU_TANH;
    else return RAD_INVAL;
    return RAD_OK;
}

LIBAVX_INLINE float activate(Act act, float x)
{
    if (act == ACT_GELU) return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
    if (act == ACT_GELU_TANH)
        return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return x;
}

LIBAVX_INLINE f32x16 load_bias(const Epilogue &e, int64_t column, int count)
{
    alignas(64) uint8_t copy[64] = {};
    const int64_t size = e.bias_kind == F32 ? 4 : 2;
    memcpy(copy, static_cast<const uint8_t *>(e.bias) + column * size, size_t(count * size));
    if (e.bias_kind == F16) return f16_load(copy);
    if (e.bias_kind == BF16) return bf16_load(copy);
    float lanes[16];
    memcpy(lanes, copy, 64);
    return f32_load(lanes);
}

// Writes columns [column, column + count) of a token's row.
LIBAVX_INLINE void finish(const Epilogue &e, f32x16 sums, int64_t token, int64_t column, int count)
{
    if (e.bias != nullptr) sums = sums + load_bias(e, column, count);
    if (e.act != ACT_NONE) {
        float lanes[16];
        f32_store(lanes, sums);
        for (float &x : lanes) x = activate(e.act, x);
        sums = f32_load(lanes);
    }
    float *y = e.y.row(token) + column;
    if (count == 16) {
        if (e.res.data != nullptr) sums = sums + f32_load(e.res.row(token) + column);
        f32_store(y, sums);
    } else {
        if (e.res.data != nullptr) sums = sums + f32_load_part(e.res.row(token) + column, count);
        f32_store_part(y, sums, count);
    }
}

// Pieces are (a range of row blocks) x (a range of tokens), blocks fastest, so that tokens are
// packed once for many.
struct Tiling {
    int64_t blocks, tokens;              // of a whole product
    int64_t piece_blocks, piece_tokens;  // of one piece
    int64_t token_pieces, block_pieces, pieces;
};

LIBAVX_INLINE int64_t clamp(int64_t x, int64_t low, int64_t high)
{
    return x < low ? low : x > high ? high : x;
}

// Sizes come from the shape alone, never from the number of workers.
LIBAVX_INLINE Tiling tile(const Tuned &tuned, int64_t tokens, int64_t rows, int64_t cols,
                          int64_t block_bytes)
{
    Tiling t = {};
    t.blocks = rad_blocks(rows, block_rows);
    t.tokens = tokens;
    t.token_pieces = rad_blocks(tokens, piece_tokens);
    if (t.token_pieces > 1) {
        // Pieces of whole tiles and about one size, so that no piece is left with a token or two.
        t.piece_tokens = rad_blocks(rad_blocks(tokens, t.token_pieces), max_tile) * max_tile;
        t.token_pieces = rad_blocks(tokens, t.piece_tokens);
    } else {
        t.piece_tokens = tokens;
    }
    // A piece reads so much, or a 96th of a big weight, and does about 8 million products.
    const int64_t bytes = clamp(t.blocks * block_bytes / 96, tuned.piece_kib << 10, 512 << 10);
    const int64_t by_bytes = bytes / (block_bytes + 1);
    const int64_t by_work = (int64_t(8) << 20) / (block_rows * cols * (t.piece_tokens + 1) + 1);
    t.piece_blocks = clamp(by_bytes < by_work ? by_bytes : by_work, 4, 64);
    if (t.blocks > 0)
        t.piece_blocks = rad_blocks(t.blocks, rad_blocks(t.blocks, t.piece_blocks));  // of one size
    t.block_pieces = rad_blocks(t.blocks, t.piece_blocks);
    t.pieces = t.block_pieces * t.token_pieces;
    return t;
}

struct Piece {
    int64_t first_block, last_block, first_token, last_token;
};

LIBAVX_INLINE Piece piece_of(const Tiling &t, int64_t index)
{
    const int64_t b = index % t.block_pieces * t.piece_blocks,
                  m = index / t.block_pieces * t.piece_tokens;
    return {b, rad_min(b + t.piece_blocks, t.blocks), m, rad_min(m + t.piece_tokens, t.tokens)};
}

// Bounds of tile `index` when `tokens` are shared out evenly among the fewest tiles.
LIBAVX_INLINE int64_t tile_start(int64_t tokens, int64_t index)
{
    const int64_t tiles = rad_blocks(tokens, max_tile);
    return index * tokens / tiles;
}

LIBAVX_INLINE void fetch(const uint8_t *from, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64) asm volatile("prefetcht0 %0" : : "m"(from[i]));
}

// In ascending order, which keeps the hardware's own prefetching going. Compilers mix intrinsics
// up, and then a core reads 13 GB/s instead of 30.
template <int lines, int line = 0> LIBAVX_INLINE void fetch_lines(const uint8_t *from)
{
    asm volatile("prefetcht0 %0" : : "m"(from[64 * line]));
    if constexpr (line + 1 < lines) fetch_lines<lines, line + 1>(from);
}

template <class Int> LIBAVX_INLINE Int *take(uint8_t **scratch, int64_t count)
{
    auto *out = reinterpret_cast<Int *>(*scratch);
    *scratch += (count * int64_t(sizeof(Int)) + 63) / 64 * 64;
    return out;
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
