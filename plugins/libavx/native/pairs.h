// Products of bytes where no instruction adds four of them
// up: pairs of products are summed in 16 bits.
//
// `vpmaddubsw` gives pairs of products, and `vpmaddwd` widens and adds pairs to one sum. Pairs lie
// in -256 * code to 254 * code, so those of several quads of narrow codes are added first: eight of
// 4 bits, four of 5, two of 6. A quad then takes a multiplication and an addition, where it took
// two multiplications and an addition. All of it is exact.
#ifndef LIBAVX_PAIRS_H_
#define LIBAVX_PAIRS_H_

#include "codes.h"
#include "format.h"

namespace libavx::LIBAVX_LEVEL {

#if defined(LIBAVX_VNNI)
constexpr bool has_pairs = false;
#else
constexpr bool has_pairs = true;
#endif

// Quads whose pairs fit 16 bits together; 0 for wide codes.
constexpr int quads_of_pairs(Codes c) { return has_pairs && !is_wide(c) ? 128 / most_code(c) : 0; }

// Whether all kernels for the format have narrow codes, whose pairs may be summed.
static bool has_pairs_of(const Format &f)
{
    return has_pairs && f.bits <= 6 && (!f.table() || f.e2m1());
}

#if defined(__AVX512F__)

LIBAVX_INLINE u8x64 pair_products(u8x64 w, u8x64 a) { return {_mm512_maddubs_epi16(w.v, a.v)}; }
LIBAVX_INLINE i32x16 add_pairs(i32x16 acc, u8x64 pairs)
{
    return {_mm512_add_epi32(acc.v, _mm512_madd_epi16(pairs.v, _mm512_set1_epi16(1)))};
}

#else

LIBAVX_INLINE u8x64 pair_products(u8x64 w, u8x64 a)
{
    return {_mm256_maddubs_epi16(w.l, a.l), _mm256_maddubs_epi16(w.h, a.h)};
}
LIBAVX_INLINE i32x16 add_pairs(i32x16 acc, u8x64 pairs)
{
    const __m256i one = _mm256_set1_epi16(1);
    return {_mm256_add_epi32(acc.l, _mm256_madd_epi16(pairs.l, one)),
            _mm256_add_epi32(acc.h, _mm256_madd_epi16(pairs.h, one))};
}

#endif

// Sums quads [q, end) in 16 bits, `first` being the first of them. Chain c is token c % tokens of
// plane c / tokens.
template <Codes codes, int tokens, int chains, int first, int end, int q = first>
LIBAVX_INLINE void sum_pairs(u8x64 (&pairs)[chains], const uint8_t *group, const uint8_t *table,
                             const int8_t *a, int64_t plane_step)
{
    if constexpr (q < end) {
        const u8x64 w = quad<codes, q>(group, table);
        LIBAVX_UNROLLED(c, chains) {
            const int8_t *four = a + c / tokens * plane_step + c % tokens * group_cols + 4 * q;
            const u8x64 two = pair_products(w, spread_four(four));
            pairs[c] = in_registers(q == first ? two : add_words(pairs[c], two));
        }
        sum_pairs<codes, tokens, chains, first, end, q + 1>(pairs, group, table, a, plane_step);
    }
}

// Adds the products of quads [first, end) to each chain.
template <Codes codes, int tokens, int chains, int first, int end>
LIBAVX_INLINE void dot_pairs(i32x16 (&dot)[chains], const uint8_t *group, const uint8_t *table,
                             const int8_t *a, int64_t plane_step)
{
    if constexpr (first < end) {
        constexpr int most = first + quads_of_pairs(codes), stop = most < end ? most : end;
        u8x64 pairs[chains];
        sum_pairs<codes, tokens, chains, first, stop>(pairs, group, table, a, plane_step);
        LIBAVX_UNROLLED(c, chains) dot[c] = add_pairs(dot[c], pairs[c]);
        dot_pairs<codes, tokens, chains, stop, end>(dot, group, table, a, plane_step);
    }
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
