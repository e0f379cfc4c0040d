// Lane operations that the ops beside gemm need on top of simd.h and masks.h: sums over lanes,
// element types, exp and its kin.
//
// Coefficients are our own minimax fits in relative error; every function gives the same bits at
// all levels.
#ifndef LIBAVX_OPS_LANES_H_
#define LIBAVX_OPS_LANES_H_

#include "masks.h"

namespace libavx::LIBAVX_LEVEL {

LIBAVX_INLINE f32x16 absolute(f32x16 a) { return bits_to_f32(bits_of(a) & i32_set(0x7fffffff)); }

LIBAVX_INLINE int32_t sum(i32x16 a)
{
    const __m256i eight = _mm256_add_epi32(low_half(a), high_half(a));
    const __m128i four =
        _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

LIBAVX_INLINE int32_t largest(i32x16 a)
{
    const __m256i eight = _mm256_max_epi32(low_half(a), high_half(a));
    const __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

LIBAVX_INLINE void i8_store_part(int8_t *p, i32x16 a, int n)
{
    int8_t all[16];
    i8_store(all, a);
    memcpy(p, all, size_t(n));
}

// Narrow to bf16, nearest even; a NaN stays one.
LIBAVX_INLINE i32x16 to_bf16(f32x16 a)
{
    const i32x16 bits = bits_of(a);
    const i32x16 odd = shr<16>(bits) & i32_set(1);
    const i32x16 near = shr<16>(bits + i32_set(0x7fff) + odd);
    const i32x16 quiet = shr<16>(bits) | i32_set(0x40);
    return bits_of(select(compare<_CMP_UNORD_Q>(a, a), bits_to_f32(quiet), bits_to_f32(near)));
}

// The stored element types that are read and written as f32.
struct F32 {
    using type = float;
    LIBAVX_INLINE f32x16 load(const float *p) { return f32_load(p); }
    LIBAVX_INLINE void store(float *p, f32x16 a) { f32_store(p, a); }
};
struct F16 {
    using type = uint16_t;
    LIBAVX_INLINE f32x16 load(const uint16_t *p) { return f16_load(p); }
    LIBAVX_INLINE void store(uint16_t *p, f32x16 a) { f16_store(p, a); }
};
struct BF16 {
    using type = uint16_t;
    LIBAVX_INLINE f32x16 load(const uint16_t *p) { return bf16_load(p); }
    LIBAVX_INLINE void store(uint16_t *p, f32x16 a) { u16_store(p, to_bf16(a)); }
};

template <class E>
LIBAVX_INLINE f32x16 load_part(const typename E::type *p, int n)
{
    if (n >= 16) return E::load(p);
    typename E::type all[16] = {};
    memcpy(all, p, size_t(n) * sizeof(*p));
    return E::load(all);
}

template <class E>
LIBAVX_INLINE void store_part(typename E::type *p, f32x16 a, int n)
{
    if (n >= 16) return E::store(p, a);
    typename E::type all[16];
    E::store(all, a);
    memcpy(p, all, size_t(n) * sizeof(*p));
}

LIBAVX_INLINE f32x16 polynomial(f32x16, f32x16 acc) { return acc; }
template <class... Rest>
LIBAVX_INLINE f32x16 polynomial(f32x16 x, f32x16 acc, float next, Rest... rest)
{
    return polynomial(x, fma(acc, x, f32_set(next)), rest...);
}

// e^x within 2 ulp for every x, denormal results included; 0 below, inf above, NaN for NaN.
LIBAVX_INLINE f32x16 exp(f32x16 x)
{
    x = min(f32_set(89.0f), max(f32_set(-105.0f), x));  // the second operand wins when one is NaN
    const i32x16 n = round_to_i32(x * f32_set(1.44269504f));
    const f32x16 k = to_f32(n);
    f32x16 r = fnma(k, f32_set(0x1.62e400p-1f), x);
    r = fnma(k, f32_set(0x1.7f7d1cp-20f), r);
    const f32x16 q = polynomial(r, f32_set(0x1.6a3278p-10f), 0x1.1239d4p-7f, 0x1.5558dcp-5f,
                                0x1.555492p-3f, 0x1.fffffcp-2f);
    const f32x16 p = fma(r * r, q, r) + f32_set(1.0f);
    // 2^n in two factors, so that neither end of the range leaves the exponent field.
    const i32x16 half = shr<1>(n + i32_set(256)) - i32_set(128);
    const f32x16 a = bits_to_f32(shl<23>(half + i32_set(127)));
    const f32x16 b = bits_to_f32(shl<23>(n - half + i32_set(127)));
    return (p * a) * b;
}

LIBAVX_INLINE f32x16 sigmoid(f32x16 x)
{
    const f32x16 one = f32_set(1.0f);
    return one / (one + exp(f32_zero() - x));
}

LIBAVX_INLINE f32x16 silu(f32x16 x) { return x / (f32_set(1.0f) + exp(f32_zero() - x)); }

LIBAVX_INLINE f32x16 tanh(f32x16 x)
{
    const f32x16 t = absolute(x), z = x * x, one = f32_set(1.0f);
    const f32x16 p = polynomial(z, f32_set(-0.005717495456337929f), 0.020651042461395264f,
                                -0.05374366044998169f, 0.13331493735313416f, -0.3333328366279602f);
    const f32x16 near = fma(z * x, p, x);
    const f32x16 far = one - f32_set(2.0f) / (exp(t + t) + one);
    const i32x16 sign = bits_of(x) & i32_set(int32_t(0x80000000u));
    return select(compare<_CMP_LT_OQ>(t, f32_set(0.625f)), near, bits_to_f32(bits_of(far) | sign));
}

// x * Phi(x). The tail is e^(-t^2/2) R(t) with R fitted in u = 1 / (1 + 0.3 t) up to t = 14.5,
// beyond which the exponential is 0; the low half of t^2 corrects the exponential's argument.
LIBAVX_INLINE f32x16 gelu(f32x16 x)
{
    const f32x16 t = absolute(x), one = f32_set(1.0f), half = f32_set(0.5f);
    const f32x16 u = one / fma(t, f32_set(0.3f), one);
    const f32x16 r =
        polynomial(u, f32_set(0.038407571613788605f), -0.16930828988552094f, 0.22895340621471405f,
                   -0.07684142887592316f, 0.14276641607284546f, 0.09458541125059128f,
                   0.12194537371397018f, 0.11948419362306595f, 7.3731321208470035e-06f);
    const f32x16 c = min(f32_set(16.0f), t), z = c * c;
    const f32x16 rest = fma(c, c, f32_zero() - z);
    const f32x16 e = exp(f32_zero() - half * z);
    const f32x16 tail = t * (fnma(e, half * rest, e) * r);  // |x| Phi(-|x|)
    const f32x16 negative = f32_zero() - tail;
    // NaN takes the first branch, where it stays; +inf must not meet 0 * inf in tail.
    const f32x16 positive = select(compare<_CMP_LT_OQ>(t, f32_set(16.0f)), x - tail, x);
    const f32x16 below =
        select(compare<_CMP_LT_OQ>(t, f32_set(16.0f)), negative, f32_zero() - f32_zero());
    return select(compare<_CMP_LT_OQ>(x, f32_zero()), below, positive);
}

// 0.5 x (1 + tanh(w)) = x sigmoid(2 w), w = 0.7978845608 (x + 0.044715 x^3): no cancellation below
// zero.
LIBAVX_INLINE f32x16 gelu_tanh(f32x16 x)
{
    const f32x16 w = x * fma(x * x, f32_set(0.044715f), f32_set(1.0f));
    const f32x16 e = exp(f32_set(-2.0f * 0.7978845608f) * w);
    const f32x16 y = x / (f32_set(1.0f) + e);
    const f32x16 low = f32_set(-3.0e38f);  // -inf / inf is not the limit
    return select(compare<_CMP_LT_OQ>(x, low), f32_zero(), y);
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
