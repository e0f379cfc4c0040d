// What a product of integer codes works on, and how the
// tokens of a piece are packed for the sums of dots.h.
#ifndef LIBAVX_OPS_GEMM_Q_TOKENS_H_
#define LIBAVX_OPS_GEMM_Q_TOKENS_H_

#include "dots.h"
#include "products.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level use for something else

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
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), codes),
                             _mm256_set1_epi16(1));
}

// Sums of 16 columns each; writes eight at a time, as many as `cols` need and at most six more.
LIBAVX_INLINE void sum_codes(const int8_t *a, int64_t cols, int32_t *sums)
{
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7), none = _mm256_setzero_si256();
    for (int64_t k = 0; k < cols; k += 128) {
        __m256i quads[4];
        for (int64_t i = 0; i < 4; i++)
            quads[i] = k + 32 * i < cols ? sums_of_quads(a + k + 32 * i) : none;
        const __m256i pairs = _mm256_hadd_epi32(_mm256_hadd_epi32(quads[0], quads[1]),
                                                _mm256_hadd_epi32(quads[2], quads[3]));
        _mm256_storeu_si256(reinterpret_cast<__m256i *>(sums + k / 16),
                            _mm256_permutevar8x32_epi32(pairs, order));
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

// The worker's scratch, cut up for products of so many tokens, columns and planes; also says how
// much that is.
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
    s.a = take<int8_t>(&at, m * column_bytes(planes) * cols);
    s.codes = take<uint8_t>(&at, block_rows * chunk);
    s.bytes = at - begin;
    return s;
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

// The tile of a piece's `tokens` tokens from `first` on, as pack_tile leaves it.
Tile tile_of(const Product &p, const Scratch &s, const Piece &piece, int64_t first, int64_t tokens)
{
    const int64_t subs = p.cols / p.w.format.sub();
    if (tokens == 1)
        return {p.a.row(piece.first_token + first), p.cols, group_cols,
                p.a_scale.row(piece.first_token + first), s.start + first * subs,
                s.factor + first * subs};
    const int64_t plane_step = tokens * group_cols;
    return {s.a + first * column_bytes(p.planes) * p.cols, plane_step,
            (packs_words(p, tokens) ? 2 : p.planes) * plane_step,
            s.a_scale + first * (p.cols / group_cols), s.start + first * subs,
            s.factor + first * subs};
}

// What goes with a token's codes, as the first of a tile of `tokens`.
void pack_sums(const Product &p, const Scratch &s, int64_t token, int32_t *start, float *factor,
               int64_t tokens)
{
    const Format &f = p.w.format;
    const int64_t subs = p.cols / f.sub();
    const int32_t *sums = sums_of(p, token, s);
    if (packs_words(p, tokens))
        for (int64_t i = 0; i < subs; i++)
            start[i * tokens] =
                int32_t(-(uint32_t(f.offset) * uint32_t(sums[i]) + s.own_of_token[i]));
    else if (f.offset != 0 || !f.min())
        for (int64_t i = 0; i < subs; i++) start[i * tokens] = -int32_t(f.offset) * sums[i];
    if (!f.min()) return;
    const float *scales = p.a_scale.row(token);
    const int shift = f.sub() == 16 ? 1 : 0;
    for (int64_t i = 0; i < subs; i++) factor[i * tokens] = scales[i >> shift] * float(sums[i]);
}

// A token's codes as the first of a tile; `a` is where the tile's are.
void pack_codes(const Product &p, const Scratch &s, int64_t token, int8_t *tile, int64_t index,
                int64_t tokens)
{
    const int64_t step = tokens * group_cols;
    const int8_t *row = p.a.row(token);
    if (packs_words(p, tokens)) {
        const auto pack = p.planes == 1 ? pack_words<1> : pack_words<2>;
        return pack(row, p.cols, group_cols / p.w.format.sub(), tile + 2 * index * group_cols,
                    2 * step, s.own_of_token);
    }
    int8_t *a = tile + index * group_cols;
    for (int64_t plane = 0; plane < p.planes; plane++) {
        const int8_t *codes = row + plane * p.cols;
        int8_t *to = a + plane * step;
        for (int64_t k = 0; k < p.cols; k += group_cols, to += p.planes * step)
            memcpy(to, codes + k, group_cols);
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
        if (count > 1) pack_codes(p, s, token, s.a + t0 * column_bytes(p.planes) * p.cols, t,
                                  count);
        pack_sums(p, s, token, s.start + t0 * subs + t, s.factor + t0 * subs + t, count);
        if (count == 1) continue;
        const float *scales = p.a_scale.row(token);
        float *to = s.a_scale + t0 * groups + t;
        for (int64_t g = 0; g < groups; g++) to[g * count] = scales[g];
    }
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
