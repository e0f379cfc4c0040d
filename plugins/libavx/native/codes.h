// Sixteen rows' integer codes: 64 bytes hold 4 consecutive
// columns ("a quad") of the 16 rows, row by row.
//
// A group of 32 columns has eight quads, which lie in 64 * bits bytes:
//
//     8 bits   quad q in line q
//     4 bits   quads 2j and 2j+1 in the low and high nibbles of line j
//     2 bits   quad 4j+s at bit 2s of line j
//     5 = 4 + 1, 3 = 2 + 1   then a line whose bit q is the high bit of quad q
//     6 = 4 + 2              then two lines as for 2 bits, with the high bits
#ifndef LIBAVX_CODES_H_
#define LIBAVX_CODES_H_

#include "simd.h"

namespace libavx::LIBAVX_LEVEL {

// Keeps a sum where it is added to. GCC otherwise makes all products first, stores them and adds
// them up afterwards.
template <class T> LIBAVX_INLINE T in_register(T sum)
{
    asm("" : "+v"(sum));
    return sum;
}

#if defined(__AVX512F__)

struct u8x64 {
    __m512i v;
};
LIBAVX_INLINE u8x64 u8_load64(const void *p) { return {_mm512_loadu_si512(p)}; }
LIBAVX_INLINE void u8_store64(void *p, u8x64 a) { _mm512_storeu_si512(p, a.v); }
LIBAVX_INLINE u8x64 u8_set(int x) { return {_mm512_set1_epi8(char(x))}; }
LIBAVX_INLINE u8x64 operator&(u8x64 a, u8x64 b) { return {_mm512_and_si512(a.v, b.v)}; }
LIBAVX_INLINE u8x64 operator|(u8x64 a, u8x64 b) { return {_mm512_or_si512(a.v, b.v)}; }
// Shift of 16-bit items; callers mask what crossed a byte.
template <int n> LIBAVX_INLINE u8x64 shift_right(u8x64 a)
{
    if constexpr (n >= 0) return {_mm512_srli_epi16(a.v, n)};
    else return {_mm512_slli_epi16(a.v, -n)};
}
LIBAVX_INLINE u8x64 look_up(u8x64 index, const void *table)
{
    const __m128i t = _mm_loadu_si128(static_cast<const __m128i *>(table));
    return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), index.v)};
}
LIBAVX_INLINE i32x16 as_i32(u8x64 a) { return {a.v}; }
LIBAVX_INLINE u8x64 add_words(u8x64 a, u8x64 b) { return {_mm512_add_epi16(a.v, b.v)}; }
LIBAVX_INLINE u8x64 in_registers(u8x64 a) { return {in_register(a.v)}; }

#else

struct u8x64 {
    __m256i l, h;
};
LIBAVX_INLINE u8x64 u8_load64(const void *p)
{
    const auto *q = static_cast<const __m256i *>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
LIBAVX_INLINE void u8_store64(void *p, u8x64 a)
{
    auto *q = static_cast<__m256i *>(p);
    _mm256_storeu_si256(q, a.l);
    _mm256_storeu_si256(q + 1, a.h);
}
LIBAVX_INLINE u8x64 u8_set(int x) { return {_mm256_set1_epi8(char(x)), _mm256_set1_epi8(char(x))}; }
LIBAVX_INLINE u8x64 operator&(u8x64 a, u8x64 b)
{
    return {_mm256_and_si256(a.l, b.l), _mm256_and_si256(a.h, b.h)};
}
LIBAVX_INLINE u8x64 operator|(u8x64 a, u8x64 b)
{
    return {_mm256_or_si256(a.l, b.l), _mm256_or_si256(a.h, b.h)};
}
template <int n> LIBAVX_INLINE u8x64 shift_right(u8x64 a)
{
    if constexpr (n >= 0) return {_mm256_srli_epi16(a.l, n), _mm256_srli_epi16(a.h, n)};
    else return {_mm256_slli_epi16(a.l, -n), _mm256_slli_epi16(a.h, -n)};
}
LIBAVX_INLINE u8x64 look_up(u8x64 index, const void *table)
{
    const __m256i t =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i *>(table)));
    return {_mm256_shuffle_epi8(t, index.l), _mm256_shuffle_epi8(t, index.h)};
}
LIBAVX_INLINE i32x16 as_i32(u8x64 a) { return {a.l, a.h}; }
LIBAVX_INLINE u8x64 add_words(u8x64 a, u8x64 b)
{
    return {_mm256_add_epi16(a.l, b.l), _mm256_add_epi16(a.h, b.h)};
}
LIBAVX_INLINE u8x64 in_registers(u8x64 a) { return {in_register(a.l), in_register(a.h)}; }

#endif

LIBAVX_INLINE u8x64 spread_four(const int8_t *a)  // four bytes to every lane
{
    int32_t four;
    memcpy(&four, a, 4);
#if defined(__AVX512F__)
    return {i32_set(four).v};
#else
    return {_mm256_set1_epi32(four), _mm256_set1_epi32(four)};
#endif
}

#if defined(__AVX512VNNI__)

// acc + sum over the four bytes of each lane of u8 w times i8 a; exact. As written by hand, since
// GCC spends an instruction and a register on each broadcast.
LIBAVX_INLINE i32x16 dot4(i32x16 acc, u8x64 w, const int8_t *a)
{
    typedef int32_t __attribute__((may_alias, aligned(1))) four_bytes;
    const auto &four = *reinterpret_cast<const four_bytes *>(a);
    asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(acc.v) : "v"(w.v), "m"(four));
    return acc;
}

#elif defined(__AVX512F__)

// The same for codes above 127; pairs.h has those that are narrower. Pairs of products are summed
// in 16 bits: at most 2 * 127 * 128, so high bits of w go separately.
LIBAVX_INLINE i32x16 dot4(i32x16 acc, u8x64 w, const int8_t *a)
{
    const __m512i x = spread_four(a).v;
    const __m512i low = _mm512_and_si512(w.v, _mm512_set1_epi8(0x7f));
    const __m512i sum = _mm512_madd_epi16(_mm512_maddubs_epi16(low, x), _mm512_set1_epi16(1));
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(w.v, 7), _mm512_set1_epi8(1));
    const __m512i part = _mm512_madd_epi16(_mm512_maddubs_epi16(high, x), _mm512_set1_epi16(128));
    return {in_register(_mm512_add_epi32(acc.v, _mm512_add_epi32(sum, part)))};
}

#elif defined(LIBAVX_VNNI)

LIBAVX_INLINE i32x16 dot4(i32x16 acc, u8x64 w, const int8_t *a)
{
    const u8x64 x = spread_four(a);
    return {_mm256_dpbusd_avx_epi32(acc.l, w.l, x.l), _mm256_dpbusd_avx_epi32(acc.h, w.h, x.h)};
}

#else

LIBAVX_INLINE __m256i dot4_half(__m256i acc, __m256i w, __m256i x)
{
    const __m256i low = _mm256_and_si256(w, _mm256_set1_epi8(0x7f));
    const __m256i sum = _mm256_madd_epi16(_mm256_maddubs_epi16(low, x), _mm256_set1_epi16(1));
    const __m256i high = _mm256_and_si256(_mm256_srli_epi16(w, 7), _mm256_set1_epi8(1));
    const __m256i part = _mm256_madd_epi16(_mm256_maddubs_epi16(high, x), _mm256_set1_epi16(128));
    return in_register(_mm256_add_epi32(acc, _mm256_add_epi32(sum, part)));
}
LIBAVX_INLINE i32x16 dot4(i32x16 acc, u8x64 w, const int8_t *a)
{
    const u8x64 x = spread_four(a);
    return {dot4_half(acc.l, w.l, x.l), dot4_half(acc.h, w.h, x.h)};
}

#endif

// Which codes a kernel reads: their width, and whether they index a table (4 bits then).
// Bytes that were decoded are known to be of 4, 5 or 6 bits at most.
enum Codes {
    C2 = 2, C3 = 3, C4 = 4, C5 = 5, C6 = 6, C8 = 8,
    CTABLE, CE2M1,
    CBYTE4, CBYTE5, CBYTE6,
};

constexpr int bits_of_codes(Codes c)
{
    return c < CTABLE ? int(c) : c == CTABLE || c == CE2M1 ? 4 : 8;
}
constexpr bool is_decoded(Codes c) { return c >= CBYTE4; }
// What e2m1 looks up is narrow; tables hold any byte.
constexpr bool is_wide(Codes c) { return c == C8 || c == CTABLE; }
constexpr int most_code(Codes c)
{
    return is_wide(c)    ? 255
           : c == CE2M1  ? 24
           : c == CBYTE4 ? 15
           : c == CBYTE5 ? 31
           : c == CBYTE6 ? 63
                         : (1 << int(c)) - 1;
}

// Quad q of a group as unsigned bytes.
template <Codes codes, int q>
LIBAVX_INLINE u8x64 quad(const uint8_t *group, [[maybe_unused]] const uint8_t *table)
{
    constexpr int bits = bits_of_codes(codes);
    if constexpr (bits == 8) {
        return u8_load64(group + 64 * q);
    } else if constexpr (bits >= 4) {
        const u8x64 line = u8_load64(group + 64 * (q / 2));
        u8x64 low = (q % 2 ? shift_right<4>(line) : line) & u8_set(0x0f);
        if constexpr (codes == CTABLE || codes == CE2M1) low = look_up(low, table);
        if constexpr (bits == 5)
            low = low | (shift_right<q - 4>(u8_load64(group + 256)) & u8_set(0x10));
        if constexpr (bits == 6)
            low = low | (shift_right<2 * (q % 4) - 4>(u8_load64(group + 256 + 64 * (q / 4))) &
                         u8_set(0x30));
        return low;
    } else {
        u8x64 low = shift_right<2 * (q % 4)>(u8_load64(group + 64 * (q / 4))) & u8_set(0x03);
        if constexpr (bits == 3)
            low = low | (shift_right<q - 2>(u8_load64(group + 128)) & u8_set(0x04));
        return low;
    }
}

template <Codes codes>
LIBAVX_INLINE void decode_group(const uint8_t *group, const uint8_t *table, uint8_t *out)
{
    u8_store64(out, quad<codes, 0>(group, table));
    u8_store64(out + 64, quad<codes, 1>(group, table));
    u8_store64(out + 128, quad<codes, 2>(group, table));
    u8_store64(out + 192, quad<codes, 3>(group, table));
    u8_store64(out + 256, quad<codes, 4>(group, table));
    u8_store64(out + 320, quad<codes, 5>(group, table));
    u8_store64(out + 384, quad<codes, 6>(group, table));
    u8_store64(out + 448, quad<codes, 7>(group, table));
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
