// One page against a block of many queries: two small matrix products over a page that was widened
// once, its keys transposed so that a lane is a key and no sum goes across lanes.
#ifndef LIBAVX_OPS_ATTENTION_BLOCK_H_
#define LIBAVX_OPS_ATTENTION_BLOCK_H_

#include "ops_attention_page.h"
#include "ops_attention_weights.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

#if defined(__AVX512F__)
// Accumulators of a tile: 4 lanes of a head by 3 queries by 2 times 16 keys, 24 of 32 registers.
constexpr int tile_queries = 3, tile_columns = 2, tile_lanes = 4;

// GCC would load a number again for each product.
LIBAVX_INLINE f32x16 in_register(f32x16 a)
{
    asm("" : "+v"(a.v));
    return a;
}

// Sixteen rows become sixteen columns.
LIBAVX_INLINE void transpose(f32x16 *rows)
{
    __m512 a[16], b[16];
    LIBAVX_UNROLLED(i, 8)
    {
        a[2 * i] = _mm512_unpacklo_ps(rows[2 * i].v, rows[2 * i + 1].v);
        a[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i].v, rows[2 * i + 1].v);
    }
    LIBAVX_UNROLLED(i, 4)
        LIBAVX_UNROLLED(h, 2)
        {
            const __m512d x = _mm512_castps_pd(a[4 * i + h]);
            const __m512d y = _mm512_castps_pd(a[4 * i + 2 + h]);
            b[4 * i + 2 * h] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
            b[4 * i + 2 * h + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
        }
    // b[4 i + c] has column c, c + 4, c + 8 and c + 12 of rows 4 i to 4 i + 3.
    LIBAVX_UNROLLED(c, 4)
    {
        const __m512 low = _mm512_shuffle_f32x4(b[c], b[4 + c], 0x88);
        const __m512 high = _mm512_shuffle_f32x4(b[c], b[4 + c], 0xdd);
        const __m512 low2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0x88);
        const __m512 high2 = _mm512_shuffle_f32x4(b[8 + c], b[12 + c], 0xdd);
        rows[c] = {_mm512_shuffle_f32x4(low, low2, 0x88)};
        rows[c + 8] = {_mm512_shuffle_f32x4(low, low2, 0xdd)};
        rows[c + 4] = {_mm512_shuffle_f32x4(high, high2, 0x88)};
        rows[c + 12] = {_mm512_shuffle_f32x4(high, high2, 0xdd)};
    }
}
#else
// 2 lanes of a head by 2 queries by 16 keys: 8 of 16 registers.
constexpr int tile_queries = 2, tile_columns = 1, tile_lanes = 2;

LIBAVX_INLINE f32x16 in_register(f32x16 a)
{
    asm("" : "+x"(a.l), "+x"(a.h));
    return a;
}

LIBAVX_INLINE void transpose8(__m256 *rows)
{
    __m256 a[8], b[8];
    LIBAVX_UNROLLED(i, 4)
    {
        a[2 * i] = _mm256_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        a[2 * i + 1] = _mm256_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    LIBAVX_UNROLLED(i, 2)
        LIBAVX_UNROLLED(h, 2)
        {
            b[4 * i + 2 * h] = _mm256_shuffle_ps(a[4 * i + h], a[4 * i + 2 + h], 0x44);
            b[4 * i + 2 * h + 1] = _mm256_shuffle_ps(a[4 * i + h], a[4 * i + 2 + h], 0xee);
        }
    LIBAVX_UNROLLED(c, 4)
    {
        rows[c] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x20);
        rows[c + 4] = _mm256_permute2f128_ps(b[c], b[4 + c], 0x31);
    }
}
LIBAVX_INLINE void transpose(f32x16 *rows)
{
    __m256 part[4][8];
    LIBAVX_UNROLLED(i, 8)
    {
        part[0][i] = rows[i].l, part[1][i] = rows[i].h;
        part[2][i] = rows[i + 8].l, part[3][i] = rows[i + 8].h;
    }
    LIBAVX_UNROLLED(p, 4) transpose8(part[p]);
    LIBAVX_UNROLLED(i, 8)
    {
        rows[i] = {part[0][i], part[2][i]};
        rows[i + 8] = {part[1][i], part[3][i]};
    }
}
#endif

// Keys as `depth` * 16 rows of page_keys floats.
template <class S>
__attribute__((noinline)) void widen_keys(const S &k, int depth, float *out, const Ahead &ahead)
{
    for (int j = 0; j < page_keys; j += 16)
        for (int d = 0; d < depth; d += S::step) {
            ahead.fetch_keys((j / 16 * depth + d) / S::step, 2 * depth / S::step);
            f32x16 x[S::step][16];
            LIBAVX_UNROLLED(i, 16)
            {
                f32x16 y[S::step];
                k.load(j + i, d, y);
                LIBAVX_UNROLLED(u, S::step) x[u][i] = y[u];
            }
            LIBAVX_UNROLLED(u, S::step)
            {
                transpose(x[u]);
                LIBAVX_UNROLLED(i, 16)
                    f32_store(out + ((d + u) * 16 + i) * page_keys + j, x[u][i]);
            }
        }
}

// Values as page_keys rows of `depth` * 16 floats.
template <class S>
__attribute__((noinline)) void widen_values(const S &v, int depth, float *out, const Ahead &ahead)
{
    for (int j = 0; j < page_keys; j++) {
        ahead.fetch_values(j, page_keys);
        for (int d = 0; d < depth; d += S::step) {
            f32x16 y[S::step];
            v.load(j, d, y);
            LIBAVX_UNROLLED(u, S::step) f32_store(out + (j * depth + d + u) * 16, y[u]);
        }
    }
}

// x_i of `ops_attention_page.h` for NQ queries and so many times 16 keys; `q` and `keys` begin at
// lane i.
template <int NQ>
LIBAVX_INLINE void score_lanes(const float *q, const float *keys, int depth, f32x16 *out)
{
    f32x16 half[2][NQ * tile_columns];
    LIBAVX_UNROLLED(p, 4 / tile_lanes)
    {
        f32x16 acc[tile_lanes][NQ * tile_columns];
        LIBAVX_UNROLLED(l, tile_lanes)
            LIBAVX_UNROLLED(a, NQ * tile_columns) acc[l][a] = f32_zero();
        for (int d = 0; d < depth; d++)
            LIBAVX_UNROLLED(l, tile_lanes)
            {
                // Lanes i and i + 8, then i + 4 and i + 12.
                const int lane = d * 16 + 4 * (p + l / 2) + 8 * (l % 2);
                f32x16 y[tile_columns];
                LIBAVX_UNROLLED(c, tile_columns) 
                    y[c] = in_register(f32_load(keys + lane * page_keys + 16 * c));
                LIBAVX_UNROLLED(i, NQ)
                {
                    const f32x16 x = f32_set(q[i * depth * 16 + lane]);
                    LIBAVX_UNROLLED(c, tile_columns)
                        acc[l][i * tile_columns + c] = fma(x, y[c], acc[l][i * tile_columns + c]);
                }
            }
        LIBAVX_UNROLLED(l, tile_lanes / 2)
            LIBAVX_UNROLLED(a, NQ * tile_columns)
                half[p + l][a] = acc[2 * l][a] + acc[2 * l + 1][a];
    }
    LIBAVX_UNROLLED(a, NQ * tile_columns) out[a] = half[0][a] + half[1][a];
}

template <int NQ>
LIBAVX_INLINE void score_tile(const float *q, const float *keys, int depth, float *scores)
{
    for (int j = 0; j < page_keys; j += 16 * tile_columns) {
        f32x16 x[4][NQ * tile_columns];
#pragma GCC unroll 1  // four at once are more sums than registers
        for (int i = 0; i < 4; i++) score_lanes<NQ>(q + i, keys + i * page_keys + j, depth, x[i]);
        LIBAVX_UNROLLED(i, NQ)
            LIBAVX_UNROLLED(c, tile_columns)
            {
                const int a = i * tile_columns + c;
                f32_store(scores + i * page_keys + j + 16 * c,
                          (x[0][a] + x[1][a]) + (x[2][a] + x[3][a]));
            }
    }
}

// Scores of queries [first, last) against transposed keys, fetching what comes next on the way.
__attribute__((noinline)) void score_block(const float *q, const float *keys, int depth,
                                           int64_t first, int64_t last, float *scores,
                                           const Ahead &ahead)
{
    int64_t i = first;
    int part = 0;
    for (; i + tile_queries <= last; i += tile_queries) {
        if (part < 8) ahead.fetch(8 * part, 8 * part + 8), part++;
        score_tile<tile_queries>(q + i * depth * 16, keys, depth, scores + i * page_keys);
    }
    for (; i < last; i++)
        score_tile<1>(q + i * depth * 16, keys, depth, scores + i * page_keys);
    ahead.fetch(8 * part, Ahead::parts);
}

// Add what each of `count` queries sees: what all of them see together, the rest for each alone.
template <class S, int NQ>
LIBAVX_INLINE void add_seen(const float *weights, int64_t group_step, const float *keep, const S &v,
                            const Item *items, int64_t key, float *acc, int depth,
                            const Ahead &ahead)
{
    const float one = 1.0f;
    int first = 0, last = page_keys;
    for (int i = 0; i < NQ; i++) {
        const Seen seen(items[i], key);
        first = seen.first > first ? seen.first : first;
        last = seen.last < last ? seen.last : last;
    }
    if (NQ > 1 && first == 0 && last == page_keys)
        return add_few<S, NQ>(weights, group_step, keep, v, first, last, acc, depth, ahead);
    ahead.fetch(Ahead::parts / 2, Ahead::parts);
    const bool together = NQ > 1 && first < last;
    for (int i = 0; i < NQ; i++) {
        const Seen seen(items[i], key);
        const int end = together ? first : seen.last;
        if (seen.first < end)
            add_few<S, 1>(weights + i * page_keys, group_step, keep + i, v, seen.first, end,
                          acc + i * depth * 16, depth, {});
    }
    if (!together) return;
    float rest[NQ];
    for (int i = 0; i < NQ; i++) rest[i] = Seen(items[i], key).first < first ? one : keep[i];
    add_few<S, NQ>(weights, group_step, rest, v, first, last, acc, depth, {});
    for (int i = 0; i < NQ; i++) {
        const Seen seen(items[i], key);
        if (last < seen.last)
            add_few<S, 1>(weights + i * page_keys, group_step, &one, v, last, seen.last,
                          acc + i * depth * 16, depth, {});
    }
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
