// One page of keys against a few queries, read as it is stored: dot products and weighted sums.
//
// A score is a chain of fused multiply-adds over d/16 in sixteen lanes, then one tree over them:
//
//     x_i = (l_i + l_i+8) + (l_i+4 + l_i+12) for i in 0..3,   score = (x_0 + x_1) + (x_2 + x_3)
//
// A weighted sum is a chain over ascending keys. Neither knows how many queries share the page, and
// ops_attention_block.h does the same operations lane by lane, so a row's bits depend on neither.
#ifndef LIBAVX_OPS_ATTENTION_PAGE_H_
#define LIBAVX_OPS_ATTENTION_PAGE_H_

#include "ops_attention_source.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

#if defined(__AVX512F__)
constexpr int value_queries = 4, value_lanes = 4;  // accumulators of a block: 16 of 32 registers
constexpr int half_queries = 4, key_queries = 4, packed_queries = 4, key_columns = 4;
LIBAVX_INLINE f32x16 fold16(f32x16 a, f32x16 b)
{
    return {_mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x44),
                          _mm512_shuffle_f32x4(a.v, b.v, 0xee))};
}
LIBAVX_INLINE f32x16 fold8(f32x16 a, f32x16 b)
{
    return {_mm512_add_ps(_mm512_shuffle_f32x4(a.v, b.v, 0x88),
                          _mm512_shuffle_f32x4(a.v, b.v, 0xdd))};
}
LIBAVX_INLINE f32x16 fold_pairs(f32x16 a, f32x16 b)
{
    return {
        _mm512_add_ps(_mm512_shuffle_ps(a.v, b.v, 0x88), _mm512_shuffle_ps(a.v, b.v, 0xdd))};
}
#else
constexpr int value_queries = 3, value_lanes = 2;  // 12 of 16, two a lane group
constexpr int half_queries = 3, key_queries = 2, packed_queries = 3, key_columns = 2;
LIBAVX_INLINE f32x16 fold16(f32x16 a, f32x16 b)
{
    return {_mm256_add_ps(a.l, a.h), _mm256_add_ps(b.l, b.h)};
}
LIBAVX_INLINE __m256 fold_halves(__m256 a, __m256 b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
LIBAVX_INLINE f32x16 fold8(f32x16 a, f32x16 b)
{
    return {fold_halves(a.l, a.h), fold_halves(b.l, b.h)};
}
LIBAVX_INLINE f32x16 fold_pairs(f32x16 a, f32x16 b)
{
    return {_mm256_add_ps(_mm256_shuffle_ps(a.l, b.l, 0x88), _mm256_shuffle_ps(a.l, b.l, 0xdd)),
            _mm256_add_ps(_mm256_shuffle_ps(a.h, b.h, 0x88), _mm256_shuffle_ps(a.h, b.h, 0xdd))};
}
#endif

// Four keys, 4 apart, against NQ queries: lane 4 m + i is x_i of key `first` + 4 m. As many keys at
// a time as there are registers for their sums.
template <class S, int NQ, int known_depth>
LIBAVX_INLINE void score_columns(const float *q, S k, int first, int some_depth, f32x16 *out)
{
    const int depth = known_depth ? known_depth : some_depth;
    f32x16 folded[NQ][2];
    LIBAVX_UNROLLED(m, 4 / key_columns)
    {
        f32x16 acc[NQ][key_columns];
        const auto step = [&](int d) __attribute__((always_inline)) {
            f32x16 x[NQ][S::step];
            LIBAVX_UNROLLED(i, NQ)
                LIBAVX_UNROLLED(u, S::step) x[i][u] = f32_load(q + (i * depth + d + u) * 16);
            LIBAVX_UNROLLED(c, key_columns)
            {
                f32x16 y[S::step];
                k.load(first + 4 * (m * key_columns + c), d, y);
                LIBAVX_UNROLLED(u, S::step)
                    LIBAVX_UNROLLED(i, NQ) acc[i][c] = fma(x[i][u], y[u], acc[i][c]);
            }
        };
        LIBAVX_UNROLLED(i, NQ) LIBAVX_UNROLLED(c, key_columns) acc[i][c] = f32_zero();
        if constexpr (known_depth != 0)
            LIBAVX_UNROLLED(d, known_depth / S::step) step(d * S::step);
        else
            for (int d = 0; d < depth; d += S::step) step(d);
        LIBAVX_UNROLLED(i, NQ)
            LIBAVX_UNROLLED(c, key_columns / 2)
                folded[i][m * key_columns / 2 + c] = fold16(acc[i][2 * c], acc[i][2 * c + 1]);
    }
    LIBAVX_UNROLLED(i, NQ) out[i] = fold8(folded[i][0], folded[i][1]);
}

#if defined(__AVX512F__)
template <class S, int NQ, int known_depth>
LIBAVX_INLINE void score_four(const float *q, S k, int first, int depth, f32x16 *out)
{
    score_columns<S, NQ, known_depth>(q, k, first, depth, out);
}
#else
// Eight of sixteen lanes of all four keys: their sums, a number of each query and one of a key are
// as many as there are registers.
template <class S, int NQ, bool high>
LIBAVX_INLINE void score_half(const float *q, S k, int first, int depth, __m256 (&sum)[NQ][4])
{
    LIBAVX_UNROLLED(i, NQ) LIBAVX_UNROLLED(c, 4) sum[i][c] = _mm256_setzero_ps();
#pragma GCC unroll 1  // several at once would be more numbers than registers
    for (int d = 0; d < depth; d++) {
        __m256 x[NQ];
        LIBAVX_UNROLLED(i, NQ) x[i] = _mm256_loadu_ps(q + (i * depth + d) * 16 + 8 * high);
        LIBAVX_UNROLLED(c, 4)
        {
            f32x16 both;
            k.load(first + 4 * c, d, &both);
            __m256 y = high ? both.h : both.l;
            asm("" : "+x"(y));  // GCC would load it again for each product
            LIBAVX_UNROLLED(i, NQ) sum[i][c] = _mm256_fmadd_ps(x[i], y, sum[i][c]);
        }
    }
}
template <class S, int NQ, int known_depth>
LIBAVX_INLINE void score_four(const float *q, S k, int first, int depth, f32x16 *out)
{
    static_assert(NQ <= half_queries);
    if constexpr (!S::by_halves) {
        score_columns<S, NQ, known_depth>(q, k, first, depth, out);
    } else {
        __m256 low[NQ][4], high[NQ][4];
        score_half<S, NQ, false>(q, k, first, known_depth ? known_depth : depth, low);
        score_half<S, NQ, true>(q, k, first, known_depth ? known_depth : depth, high);
        LIBAVX_UNROLLED(i, NQ)
        {
            __m256 x[4];
            LIBAVX_UNROLLED(c, 4) x[c] = _mm256_add_ps(low[i][c], high[i][c]);
            out[i] = {fold_halves(x[0], x[1]), fold_halves(x[2], x[3])};
        }
    }
}
#endif

// scores[i][j] = q[i] . k[j] for NQ queries (rows of `depth` * 16 floats) and the page's keys.
template <class S, int NQ, int known_depth>
LIBAVX_INLINE void score_some(const float *q, S k, int depth, int last, float *scores,
                              const Ahead &ahead)
{
#pragma GCC unroll 1
    for (int j = 0; j < page_keys; j += 16) {
        f32x16 part[4][NQ];
        LIBAVX_UNROLLED(m, 4)
        {
            ahead.fetch(j + 4 * m, j + 4 * m + 4);
            if (j < last) score_four<S, NQ, known_depth>(q, k, j + m, depth, part[m]);
        }
        if (j >= last) continue;
        LIBAVX_UNROLLED(i, NQ)
            f32_store(scores + i * page_keys + j, fold_pairs(fold_pairs(part[0][i], part[1][i]),
                                                             fold_pairs(part[2][i], part[3][i])));
    }
}

// The same for any few queries; keys from `last` on need no score.
template <class S, int NQ, int known_depth>
__attribute__((noinline)) void score_few(const float *q, S k, int depth, int last, float *scores,
                                         Ahead ahead)
{
    constexpr int most = S::by_halves   ? half_queries
                         : S::step == 1 ? key_queries
                                        : packed_queries;
    constexpr int queries = NQ < most ? NQ : most, rest = NQ % queries;
    for (int i = 0; i + queries <= NQ; i += queries) {
        score_some<S, queries, known_depth>(q + i * depth * 16, k, depth, last,
                                            scores + i * page_keys, ahead);
        ahead = {};
    }
    if constexpr (rest != 0)
        score_some<S, rest, known_depth>(q + (NQ - rest) * depth * 16, k, depth, last,
                                         scores + (NQ - rest) * page_keys, ahead);
}

// acc[i] = acc[i] * keep[i] + sum over j in [first, last) of weights[i][j] * v[j], for NV lanes of
// sixteen from the `at`th on. Where numbers have scales by groups, so have weights: two lanes a
// group, groups `group_step` apart.
template <class S, int NQ, int NV>
LIBAVX_INLINE void add_values(const float *weights, int64_t group_step, const float *keep,
                              S v, int at, int first, int last, float *acc, int depth,
                              const Ahead &ahead)
{
    f32x16 sum[NQ][NV];
    LIBAVX_UNROLLED(i, NQ)
        LIBAVX_UNROLLED(n, NV)
            sum[i][n] = f32_load(acc + (i * depth + at + n) * 16) * f32_set(keep[i]);
    for (int j = first; j < last; j++) {
        ahead.fetch(page_keys + j, page_keys + j + 1);
        f32x16 y[NV];
        LIBAVX_UNROLLED(n, NV / S::step) v.load(j, at + n * S::step, y + n * S::step);
        LIBAVX_UNROLLED(i, NQ)
        {
            if constexpr (S::grouped) {
                LIBAVX_UNROLLED(n, NV)
                    sum[i][n] = fma(f32_set(weights[(at + n) / 2 * group_step + i * page_keys + j]),
                                    y[n], sum[i][n]);
            } else {
                const f32x16 w = f32_set(weights[i * page_keys + j]);
                LIBAVX_UNROLLED(n, NV) sum[i][n] = fma(w, y[n], sum[i][n]);
            }
        }
    }
    LIBAVX_UNROLLED(i, NQ)
        LIBAVX_UNROLLED(n, NV) f32_store(acc + (i * depth + at + n) * 16, sum[i][n]);
}

template <class S, int NQ>
LIBAVX_INLINE void add_some(const float *weights, int64_t group_step, const float *keep, S v,
                            int first, int last, float *acc, int depth, Ahead ahead)
{
    int d = 0;
    for (; d + value_lanes <= depth; d += value_lanes, ahead = {})
        add_values<S, NQ, value_lanes>(weights, group_step, keep, v, d, first, last, acc, depth,
                                       ahead);
    for (; d < depth; d += S::step, ahead = {})
        add_values<S, NQ, S::step>(weights, group_step, keep, v, d, first, last, acc, depth, ahead);
}

template <class S, int NQ>
__attribute__((noinline)) void add_few(const float *weights, int64_t group_step, const float *keep,
                                       S v, int first, int last, float *acc, int depth,
                                       Ahead ahead)
{
    constexpr int queries = NQ < value_queries ? NQ : value_queries, rest = NQ % queries;
    for (int i = 0; i + queries <= NQ; i += queries, ahead = {})
        add_some<S, queries>(weights + i * page_keys, group_step, keep + i, v, first, last,
                             acc + i * depth * 16, depth, ahead);
    if constexpr (rest != 0)
        add_some<S, rest>(weights + (NQ - rest) * page_keys, group_step, keep + NQ - rest, v, first,
                          last, acc + (NQ - rest) * depth * 16, depth, ahead);
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
