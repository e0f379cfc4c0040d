// Sixteen float or int lanes, the same lanes at every
// level: one 512-bit register or two of 256 bits.
//
// Kernels are written once over these types; since every operation here is exact per lane (no
// approximations, sums in one fixed tree), all levels give the same bits.
#ifndef LIBAVX_SIMD_H_
#define LIBAVX_SIMD_H_

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef LIBAVX_LEVEL
#error "compile op modules once per level, with LIBAVX_LEVEL naming the level's namespace"
#endif

// Products of four bytes, or of two words, added to a sum by one instruction.
#if defined(__AVX512VNNI__) || defined(__AVXVNNI__)
#define LIBAVX_VNNI
#endif

#define LIBAVX_INLINE static inline __attribute__((always_inline))

// A loop whose arrays stay in registers: unrolled before the compiler decides where they live.
// Without it GCC stores each element at each pass of the loop around this one.
#define LIBAVX_UNROLLED(i, count) _Pragma("GCC unroll 16") for (int i = 0; i < (count); i++)

namespace libavx::LIBAVX_LEVEL {

#if defined(__AVX512F__)

struct f32x16 {
    __m512 v;
};
struct i32x16 {
    __m512i v;
};

LIBAVX_INLINE f32x16 f32_set(float x) { return {_mm512_set1_ps(x)}; }
LIBAVX_INLINE f32x16 f32_zero() { return {_mm512_setzero_ps()}; }
LIBAVX_INLINE f32x16 f32_load(const float *p) { return {_mm512_loadu_ps(p)}; }
LIBAVX_INLINE void f32_store(float *p, f32x16 a) { _mm512_storeu_ps(p, a.v); }
LIBAVX_INLINE __mmask16 mask_of(int n) { return __mmask16(n >= 16 ? 0xffff : (1u << n) - 1); }
LIBAVX_INLINE f32x16 f32_load_part(const float *p, int n)
{
    return {_mm512_maskz_loadu_ps(mask_of(n), p)};
}
LIBAVX_INLINE void f32_store_part(float *p, f32x16 a, int n)
{
    _mm512_mask_storeu_ps(p, mask_of(n), a.v);
}
LIBAVX_INLINE f32x16 operator+(f32x16 a, f32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 operator-(f32x16 a, f32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 operator*(f32x16 a, f32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 operator/(f32x16 a, f32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
LIBAVX_INLINE f32x16 fnma(f32x16 a, f32x16 b, f32x16 c)
{
    return {_mm512_fnmadd_ps(a.v, b.v, c.v)};
}
LIBAVX_INLINE f32x16 max(f32x16 a, f32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 min(f32x16 a, f32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
LIBAVX_INLINE f32x16 sqrt(f32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
LIBAVX_INLINE f32x16 to_f32(i32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
LIBAVX_INLINE i32x16 round_to_i32(f32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }  // nearest even
LIBAVX_INLINE i32x16 i32_set(int32_t x) { return {_mm512_set1_epi32(x)}; }
LIBAVX_INLINE i32x16 i32_load(const int32_t *p) { return {_mm512_loadu_si512(p)}; }
LIBAVX_INLINE void i32_store(int32_t *p, i32x16 a) { _mm512_storeu_si512(p, a.v); }
LIBAVX_INLINE i32x16 operator+(i32x16 a, i32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
LIBAVX_INLINE i32x16 operator-(i32x16 a, i32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LIBAVX_INLINE i32x16 operator*(i32x16 a, i32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
LIBAVX_INLINE i32x16 operator&(i32x16 a, i32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
LIBAVX_INLINE i32x16 operator|(i32x16 a, i32x16 b) { return {_mm512_or_si512(a.v, b.v)}; }
template <int n> LIBAVX_INLINE i32x16 shl(i32x16 a) { return {_mm512_slli_epi32(a.v, n)}; }
template <int n> LIBAVX_INLINE i32x16 shr(i32x16 a) { return {_mm512_srli_epi32(a.v, n)}; }
LIBAVX_INLINE f32x16 bits_to_f32(i32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
LIBAVX_INLINE i32x16 bits_of(f32x16 a) { return {_mm512_castps_si512(a.v)}; }
LIBAVX_INLINE f32x16 f16_expand(__m256i x) { return {_mm512_cvtph_ps(x)}; }
LIBAVX_INLINE f32x16 f16_load(const void *p)
{
    return f16_expand(_mm256_loadu_si256(static_cast<const __m256i *>(p)));
}
LIBAVX_INLINE i32x16 u16_load(const void *p)
{
    return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i *>(p)))};
}
LIBAVX_INLINE i32x16 i8_load(const void *p)
{
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(p)))};
}
LIBAVX_INLINE i32x16 u8_load(const void *p)
{
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(p)))};
}
LIBAVX_INLINE __m256 low_half(f32x16 a) { return _mm512_castps512_ps256(a.v); }
LIBAVX_INLINE __m256 high_half(f32x16 a) { return _mm512_extractf32x8_ps(a.v, 1); }

#else

struct f32x16 {
    __m256 l, h;
};
struct i32x16 {
    __m256i l, h;
};

#define LIBAVX_BOTH1(op) {op(a.l), op(a.h)}
#define LIBAVX_BOTH2(op) {op(a.l, b.l), op(a.h, b.h)}
#define LIBAVX_BOTH3(op) {op(a.l, b.l, c.l), op(a.h, b.h, c.h)}
LIBAVX_INLINE f32x16 f32_set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LIBAVX_INLINE f32x16 f32_zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
LIBAVX_INLINE f32x16 f32_load(const float *p)
{
    return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
LIBAVX_INLINE void f32_store(float *p, f32x16 a)
{
    _mm256_storeu_ps(p, a.l);
    _mm256_storeu_ps(p + 8, a.h);
}
LIBAVX_INLINE __m256i mask_of(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LIBAVX_INLINE f32x16 f32_load_part(const float *p, int n)
{
    return {_mm256_maskload_ps(p, mask_of(n)), _mm256_maskload_ps(p + 8, mask_of(n - 8))};
}
LIBAVX_INLINE void f32_store_part(float *p, f32x16 a, int n)
{
    _mm256_maskstore_ps(p, mask_of(n), a.l);
    _mm256_maskstore_ps(p + 8, mask_of(n - 8), a.h);
}
LIBAVX_INLINE f32x16 operator+(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_add_ps); }
LIBAVX_INLINE f32x16 operator-(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_sub_ps); }
LIBAVX_INLINE f32x16 operator*(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_mul_ps); }
LIBAVX_INLINE f32x16 operator/(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_div_ps); }
LIBAVX_INLINE f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return LIBAVX_BOTH3(_mm256_fmadd_ps); }
LIBAVX_INLINE f32x16 fnma(f32x16 a, f32x16 b, f32x16 c) { return LIBAVX_BOTH3(_mm256_fnmadd_ps); }
LIBAVX_INLINE f32x16 max(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_max_ps); }
LIBAVX_INLINE f32x16 min(f32x16 a, f32x16 b) { return LIBAVX_BOTH2(_mm256_min_ps); }
LIBAVX_INLINE f32x16 sqrt(f32x16 a) { return LIBAVX_BOTH1(_mm256_sqrt_ps); }
LIBAVX_INLINE f32x16 to_f32(i32x16 a) { return LIBAVX_BOTH1(_mm256_cvtepi32_ps); }
LIBAVX_INLINE i32x16 round_to_i32(f32x16 a) { return LIBAVX_BOTH1(_mm256_cvtps_epi32); }
LIBAVX_INLINE i32x16 i32_set(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LIBAVX_INLINE i32x16 i32_load(const int32_t *p)
{
    const auto *q = reinterpret_cast<const __m256i *>(p);
    return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
LIBAVX_INLINE void i32_store(int32_t *p, i32x16 a)
{
    auto *q = reinterpret_cast<__m256i *>(p);
    _mm256_storeu_si256(q, a.l);
    _mm256_storeu_si256(q + 1, a.h);
}
LIBAVX_INLINE i32x16 operator+(i32x16 a, i32x16 b) { return LIBAVX_BOTH2(_mm256_add_epi32); }
LIBAVX_INLINE i32x16 operator-(i32x16 a, i32x16 b) { return LIBAVX_BOTH2(_mm256_sub_epi32); }
LIBAVX_INLINE i32x16 operator*(i32x16 a, i32x16 b) { return LIBAVX_BOTH2(_mm256_mullo_epi32); }
LIBAVX_INLINE i32x16 operator&(i32x16 a, i32x16 b) { return LIBAVX_BOTH2(_mm256_and_si256); }
LIBAVX_INLINE i32x16 operator|(i32x16 a, i32x16 b) { return LIBAVX_BOTH2(_mm256_or_si256); }
template <int n> LIBAVX_INLINE i32x16 shl(i32x16 a)
{
    return {_mm256_slli_epi32(a.l, n), _mm256_slli_epi32(a.h, n)};
}
template <int n> LIBAVX_INLINE i32x16 shr(i32x16 a)
{
    return {_mm256_srli_epi32(a.l, n), _mm256_srli_epi32(a.h, n)};
}
LIBAVX_INLINE f32x16 bits_to_f32(i32x16 a) { return LIBAVX_BOTH1(_mm256_castsi256_ps); }
LIBAVX_INLINE i32x16 bits_of(f32x16 a) { return LIBAVX_BOTH1(_mm256_castps_si256); }
LIBAVX_INLINE f32x16 f16_expand(__m256i x)
{
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(x)),
            _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1))};
}
LIBAVX_INLINE f32x16 f16_load(const void *p)
{
    const auto *q = static_cast<const __m128i *>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
LIBAVX_INLINE i32x16 u16_load(const void *p)
{
    const auto *q = static_cast<const __m128i *>(p);
    return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)),
            _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
LIBAVX_INLINE i32x16 i8_load(const void *p)
{
    const __m128i x = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
}
LIBAVX_INLINE i32x16 u8_load(const void *p)
{
    const __m128i x = _mm_loadu_si128(static_cast<const __m128i *>(p));
    return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
LIBAVX_INLINE __m256 low_half(f32x16 a) { return a.l; }
LIBAVX_INLINE __m256 high_half(f32x16 a) { return a.h; }
#undef LIBAVX_BOTH1
#undef LIBAVX_BOTH2
#undef LIBAVX_BOTH3

#endif

LIBAVX_INLINE f32x16 bf16_load(const void *p) { return bits_to_f32(shl<16>(u16_load(p))); }

// OCP e4m3 through f16, whose exponent is 8 more: exact, and 0x7f becomes NaN.
LIBAVX_INLINE float fp8_value(uint8_t x)
{
    const uint16_t bits = uint16_t((x & 0x80) << 8 | (x & 0x7f) << 7);
    return (x & 0x7f) == 0x7f ? __builtin_nanf("") : _cvtsh_ss(bits) * 256.0f;
}

// Sixteen codes times 1/256, which is left to the caller's scale.
LIBAVX_INLINE f32x16 fp8_load_small(const void *p)
{
    const __m256i x = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i *>(p)));
    const __m256i all =
        _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16(int16_t(0xbfff)));
    const __m256i size = _mm256_and_si256(all, _mm256_set1_epi16(0x7fff));
    const __m256i nan = _mm256_cmpeq_epi16(size, _mm256_set1_epi16(0x7f << 7));
    return f16_expand(_mm256_or_si256(all, nan));
}

// Sum of the lanes as a tree over halves: lane i with i+8, then +4, +2, +1.
LIBAVX_INLINE float sum(f32x16 a)
{
    const __m256 eight = _mm256_add_ps(low_half(a), high_half(a));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

LIBAVX_INLINE float largest(f32x16 a)
{
    const __m256 eight = _mm256_max_ps(low_half(a), high_half(a));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
