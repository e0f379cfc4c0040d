// Products of words: activations as 16-bit codes, of two planes 128 * high + low, and weights
// widened to pairs of 16 bits.
//
// Where more can be added than multiplied, every other quad's products are folded (Winograd's inner
// product, 1968), for columns 0..3:
//
//     a0 w0 + a1 w1 = (a0 + w1)(a1 + w0) - a0 a1 - w0 w1,      a2 w2 + a3 w3 likewise
//
// so that one multiplication and two additions do what four multiplications of bytes did. Cores
// that multiply on two of four pipes (Zen 4) have the additions for nothing. The sums of a0 a1 come
// with the token, those of w0 w1 with the weight. All of it is integers modulo 2^32, so that the
// results are those of products by planes bit for bit.
#ifndef LIBAVX_WORDS_H_
#define LIBAVX_WORDS_H_

#include "codes.h"
#include "format.h"
#include "pairs.h"
#include "products.h"

namespace libavx::LIBAVX_LEVEL {

#if defined(__AVX512F__)
constexpr int64_t words_from = 4;  // tokens of a tile; fewer do not repay the widening
#else
constexpr int64_t words_from = 2;
#endif

#if defined(LIBAVX_VNNI) && !defined(LIBAVX_DUAL)
constexpr bool folds = true;
#else
// Without VNNI each multiplication has an addition of its own, and cores that multiply on all pipes
// that add (Sapphire Rapids) have none that would be idle.
constexpr bool folds = false;
#endif

// Whether a tile's products are made of words. Of two planes pairs are as fast, and faster where
// both planes' are summed in one go; of one plane pairs are, and `vpdpbusd` is, but wide codes
// without either take words.
constexpr bool makes_words(int64_t planes, int64_t tokens, bool pairs)
{
    if (planes == 1) return has_pairs && !pairs && tokens >= words_from;
    if (!has_pairs && !folds) return false;  // `vpdpbusd` does a plane's four as fast as words' two
    return tokens >= words_from && !(pairs && 2 * tokens <= max_tile);
}

// Bytes of a column of a tile's tokens at most: words have two.
constexpr int64_t column_bytes(int64_t planes) { return has_pairs ? 2 : planes; }

constexpr int64_t quad_bytes = 8;  // a token's quad: its columns 0, 2, 1, 3 as 16-bit codes

constexpr bool is_folded(int quad) { return folds && quad % 2 == 0; }

#if defined(__AVX512F__)

// acc + sum over both halves of each lane of i16 a times i16 b, modulo 2^32.
LIBAVX_INLINE i32x16 dot2(i32x16 acc, u8x64 a, u8x64 b)
{
#if defined(__AVX512VNNI__)
    return {_mm512_dpwssd_epi32(acc.v, a.v, b.v)};
#else
    return {in_register(_mm512_add_epi32(acc.v, _mm512_madd_epi16(a.v, b.v)))};
#endif
}

#else

LIBAVX_INLINE i32x16 dot2(i32x16 acc, u8x64 a, u8x64 b)
{
#if defined(LIBAVX_VNNI)
    return {_mm256_dpwssd_avx_epi32(acc.l, a.l, b.l), _mm256_dpwssd_avx_epi32(acc.h, a.h, b.h)};
#else
    return {in_register(_mm256_add_epi32(acc.l, _mm256_madd_epi16(a.l, b.l))),
            in_register(_mm256_add_epi32(acc.h, _mm256_madd_epi16(a.h, b.h)))};
#endif
}

#endif

LIBAVX_INLINE i32x16 dot2(i32x16 acc, u8x64 w, const int8_t *a)
{
#if defined(__AVX512VNNI__)
    // As written by hand, since GCC spends an instruction and a register on each broadcast.
    typedef int32_t __attribute__((may_alias, aligned(1))) four_bytes;
    const auto &four = *reinterpret_cast<const four_bytes *>(a);
    asm("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(w.v), "m"(four));
    return acc;
#else
    return dot2(acc, w, spread_four(a));
#endif
}

// Columns 0 and 2, and 1 and 3, of a quad of bytes.
struct WordPairs {
    u8x64 even, odd;
};
LIBAVX_INLINE WordPairs widen(u8x64 quad)
{
#if defined(__AVX512F__)
    const u8x64 low = {_mm512_set1_epi16(0xff)};
#else
    const u8x64 low = {_mm256_set1_epi16(0xff), _mm256_set1_epi16(0xff)};
#endif
    return {quad & low, shift_right<8>(quad)};
}

// Adds a quad's products with the codes `a` of each token, and its weights' own products to `own`.
template <int q, int tokens, bool sums_own>
LIBAVX_INLINE void dot_words(i32x16 (&dot)[tokens], i32x16 &own, u8x64 quad, const int8_t *a)
{
    constexpr int64_t step = group_cols * 2;
    const WordPairs w = widen(quad);
    const int8_t *even = a + q * quad_bytes, *odd = even + 4;
    if constexpr (is_folded(q)) {
        if constexpr (sums_own) own = dot2(own, w.even, w.odd);
        LIBAVX_UNROLLED(t, tokens)
            dot[t] = dot2(dot[t], add_words(w.odd, spread_four(even + t * step)),
                          add_words(w.even, spread_four(odd + t * step)));
    } else {
        LIBAVX_UNROLLED(t, tokens) dot[t] = dot2(dot[t], w.even, even + t * step);
        LIBAVX_UNROLLED(t, tokens) dot[t] = dot2(dot[t], w.odd, odd + t * step);
    }
}

// The weights' own products in a row block whose codes are bytes: [sub-group][16].
template <int subs, int q = 0>
LIBAVX_INLINE void own_products_of_group(const uint8_t *quads, int32_t *out)
{
    if constexpr (q < 8) {
        constexpr int count = 8 / subs;
        i32x16 own = q % count ? i32_load(out + q / count * 16) : i32_set(0);
        if constexpr (is_folded(q)) {
            const WordPairs w = widen(u8_load64(quads + 64 * q));
            own = dot2(own, w.even, w.odd);
        }
        i32_store(out + q / count * 16, own);
        own_products_of_group<subs, q + 1>(quads, out);
    }
}

static inline void own_products(const uint8_t *codes, int64_t groups, int64_t subs, int32_t *out)
{
    for (int64_t g = 0; g < groups; g++) {
        if (subs == 1) own_products_of_group<1>(codes + 512 * g, out + 16 * g);
        else own_products_of_group<2>(codes + 512 * g, out + 32 * g);
    }
}

// Sixteen columns of both planes, or of the low one alone, as codes, and in each quad's first lane
// its a0 a1 + a2 a3.
template <int planes>
LIBAVX_INLINE __m256i join_planes(const int8_t *high, const int8_t *low, int8_t *to)
{
    const __m128i eight = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    const __m256i order = _mm256_broadcastsi128_si256(eight);
    __m256i code = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(low)));
    if constexpr (planes == 2) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i *>(high));
        code = _mm256_add_epi16(_mm256_slli_epi16(_mm256_cvtepi8_epi16(bytes), 7), code);
    }
    code = _mm256_shuffle_epi8(code, order);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), code);
    return _mm256_madd_epi16(code, _mm256_shuffle_epi32(code, 0xb1));
}

LIBAVX_INLINE uint32_t sum_of_folded(__m256i products)  // quads 0 and 2 of four
{
    if constexpr (!folds) return 0;
    return uint32_t(_mm256_extract_epi32(products, 0)) +
           uint32_t(_mm256_extract_epi32(products, 4));
}
static_assert(!folds || (is_folded(0) && !is_folded(1) && is_folded(2) && !is_folded(3)));

// Packs a token's row of planes, groups `step` bytes apart, and sums a0 a1 by sub-groups, modulo
// 2^32.
template <int planes>
static void pack_words(const int8_t *row, int64_t cols, int64_t subs, int8_t *to, int64_t step,
                       uint32_t *own)
{
    const int8_t *high = row, *low = row + (planes - 1) * cols;
    for (int64_t k = 0; k < cols; k += group_cols, to += step) {
        const uint32_t first = sum_of_folded(join_planes<planes>(high + k, low + k, to));
        const uint32_t second =
            sum_of_folded(join_planes<planes>(high + k + 16, low + k + 16, to + 32));
        if (subs == 1) {
            *own++ = first + second;
        } else {
            *own++ = first;
            *own++ = second;
        }
    }
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
