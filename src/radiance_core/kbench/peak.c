/* What one core can do at most, in registers alone: products of i8, of bf16 and of f32.
 *
 * Twelve independent accumulators hide the latency of the instructions. Each function runs `rounds`
 * rounds and returns how many multiplications and additions that were; 0: not on this machine.
 */
#include <stdint.h>

#define RAD_API __attribute__((visibility("default")))

RAD_API int64_t rad_peak_i8(int64_t rounds);
RAD_API int64_t rad_peak_bf16(int64_t rounds);
RAD_API int64_t rad_peak_f32(int64_t rounds);

#if defined(__x86_64__)
#include <immintrin.h>

#define CHAINS 12
/* Each chain is a variable of its own: of an array the compiler would make loads and stores. */
#define EACH(DO, with) \
    DO(0, with) DO(1, with) DO(2, with) DO(3, with) DO(4, with) DO(5, with) \
    DO(6, with) DO(7, with) DO(8, with) DO(9, with) DO(10, with) DO(11, with)
#define START(c, vector) vector s##c = {0};
#define STEP(c, sum) KEEP(x); s##c = sum(s##c, x, y); KEEP(s##c);
/* The compiler must neither drop a chain, nor move it out of the loop, nor share its product. */
#define KEEP(v) __asm__ volatile("" : "+v"(v))

/* A function that makes `products` multiplications and additions in each step of a chain. */
#define PEAK(name, isa, vector, a, b, sum, products) \
    __attribute__((target(isa))) static int64_t name(int64_t rounds) \
    { \
        vector x = a; \
        const vector y = b; \
        EACH(START, vector) \
        for (int64_t r = 0; r < rounds; r++) { \
            EACH(STEP, sum) \
        } \
        return rounds * CHAINS * products; \
    }

#define DOTS_512(s, x, y) _mm512_dpbusd_epi32(s, x, y)
#define DOTS_256(s, x, y) \
    _mm256_add_epi32(s, _mm256_madd_epi16(_mm256_maddubs_epi16(x, y), _mm256_set1_epi16(1)))
#define DOTS_BF16(s, x, y) _mm512_dpbf16_ps(s, (__m512bh)x, (__m512bh)y)
#define FMA_512(s, x, y) _mm512_fmadd_ps(x, y, s)
#define FMA_256(s, x, y) _mm256_fmadd_ps(x, y, s)

PEAK(i8_vnni, "avx512f,avx512bw,avx512vnni", __m512i, _mm512_set1_epi8(3), _mm512_set1_epi8(1),
     DOTS_512, 128)
PEAK(i8_avx2, "avx2", __m256i, _mm256_set1_epi8(3), _mm256_set1_epi8(1), DOTS_256, 64)
PEAK(bf16_avx512, "avx512f,avx512bf16", __m512, _mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f),
     DOTS_BF16, 64)
PEAK(f32_avx512, "avx512f", __m512, _mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f), FMA_512, 32)
PEAK(f32_avx2, "avx2,fma", __m256, _mm256_set1_ps(0.5f), _mm256_set1_ps(0.25f), FMA_256, 16)

int64_t rad_peak_i8(int64_t rounds)
{
    if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw"))
        return i8_vnni(rounds);
    return __builtin_cpu_supports("avx2") ? i8_avx2(rounds) : 0;
}

int64_t rad_peak_bf16(int64_t rounds)
{
    return __builtin_cpu_supports("avx512bf16") ? bf16_avx512(rounds) : 0;
}

int64_t rad_peak_f32(int64_t rounds)
{
    if (__builtin_cpu_supports("avx512f")) return f32_avx512(rounds);
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? f32_avx2(rounds) : 0;
}

#else

int64_t rad_peak_i8(int64_t rounds)
{
    (void)rounds;
    return 0;
}

int64_t rad_peak_bf16(int64_t rounds)
{
    (void)rounds;
    return 0;
}

int64_t rad_peak_f32(int64_t rounds)
{
    (void)rounds;
    return 0;
}

#endif
