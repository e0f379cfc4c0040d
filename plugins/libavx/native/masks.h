// Masks and narrow stores of sixteen lanes, for the ops beside gemm.
#ifndef LIBAVX_MASKS_H_
#define LIBAVX_MASKS_H_

#include "simd.h"

namespace libavx::LIBAVX_LEVEL {

#if defined(__AVX512F__)

struct mask16 {
    __mmask16 v;
};
template <int predicate>
LIBAVX_INLINE mask16 compare(f32x16 a, f32x16 b)
{
    return {_mm512_cmp_ps_mask(a.v, b.v, predicate)};
}
LIBAVX_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no)
{
    return {_mm512_mask_blend_ps(m.v, no.v, yes.v)};
}
LIBAVX_INLINE uint32_t bits_of(mask16 m) { return m.v; }
LIBAVX_INLINE mask16 mask_from(uint32_t bits) { return {__mmask16(bits)}; }
LIBAVX_INLINE mask16 sign_mask(i32x16 a) { return {_mm512_movepi32_mask(a.v)}; }
LIBAVX_INLINE i32x16 largest_bits(i32x16 a, i32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
LIBAVX_INLINE void f16_store(uint16_t *p, f32x16 a)
{
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtps_ph(a.v, 0));
}
LIBAVX_INLINE void u16_store(uint16_t *p, i32x16 a)
{
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), _mm512_cvtepi32_epi16(a.v));
}
LIBAVX_INLINE void i8_store(int8_t *p, i32x16 a)
{
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), _mm512_cvtepi32_epi8(a.v));
}
LIBAVX_INLINE f32x16 swap_pairs(f32x16 a) { return {_mm512_permute_ps(a.v, 0xb1)}; }
LIBAVX_INLINE __m256i low_half(i32x16 a) { return _mm512_castsi512_si256(a.v); }
LIBAVX_INLINE __m256i high_half(i32x16 a) { return _mm512_extracti64x4_epi64(a.v, 1); }

#else

struct mask16 {
    __m256 l, h;
};
template <int predicate>
LIBAVX_INLINE mask16 compare(f32x16 a, f32x16 b)
{
    return {_mm256_cmp_ps(a.l, b.l, predicate), _mm256_cmp_ps(a.h, b.h, predicate)};
}
LIBAVX_INLINE f32x16 select(mask16 m, f32x16 yes, f32x16 no)
{
    return {_mm256_blendv_ps(no.l, yes.l, m.l), _mm256_blendv_ps(no.h, yes.h, m.h)};
}
LIBAVX_INLINE uint32_t bits_of(mask16 m)
{
    return uint32_t(_mm256_movemask_ps(m.l)) | uint32_t(_mm256_movemask_ps(m.h)) << 8;
}
LIBAVX_INLINE mask16 mask_from(uint32_t bits)
{
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    const __m256i lo = _mm256_and_si256(_mm256_set1_epi32(int(bits)), each);
    const __m256i hi = _mm256_and_si256(_mm256_set1_epi32(int(bits >> 8)), each);
    return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(lo, each)),
            _mm256_castsi256_ps(_mm256_cmpeq_epi32(hi, each))};
}
LIBAVX_INLINE mask16 sign_mask(i32x16 a)
{
    return {_mm256_castsi256_ps(a.l), _mm256_castsi256_ps(a.h)};
}
LIBAVX_INLINE i32x16 largest_bits(i32x16 a, i32x16 b)
{
    return {_mm256_max_epi32(a.l, b.l), _mm256_max_epi32(a.h, b.h)};
}
LIBAVX_INLINE void f16_store(uint16_t *p, f32x16 a)
{
    auto *q = reinterpret_cast<__m128i *>(p);
    _mm_storeu_si128(q, _mm256_cvtps_ph(a.l, 0));
    _mm_storeu_si128(q + 1, _mm256_cvtps_ph(a.h, 0));
}
LIBAVX_INLINE void u16_store(uint16_t *p, i32x16 a)  // values below 65536
{
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(a.l, a.h), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(p), both);
}
LIBAVX_INLINE void i8_store(int8_t *p, i32x16 a)  // values in -128..127
{
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.l, a.h), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(p), bytes);
}
LIBAVX_INLINE f32x16 swap_pairs(f32x16 a)
{
    return {_mm256_permute_ps(a.l, 0xb1), _mm256_permute_ps(a.h, 0xb1)};
}
LIBAVX_INLINE __m256i low_half(i32x16 a) { return a.l; }
LIBAVX_INLINE __m256i high_half(i32x16 a) { return a.h; }

#endif

}  // namespace libavx::LIBAVX_LEVEL
#endif
