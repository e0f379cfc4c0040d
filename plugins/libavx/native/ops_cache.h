// Packed slots of the conversation cache: where they lie in a page, and what they stand for.
//
// The forms are radiance_abi.kv_cache's. The bytes of one page and head are:
//
//     | codes of the keys | codes of the values | scales of the keys | scales of the values |
//
// Every number that is read is exact in f32 (a code of at most 8 bits times a scale of 11, or
// E4M3 times a power of two), so it does not matter where in a kernel it is widened.
#ifndef LIBAVX_OPS_CACHE_H_
#define LIBAVX_OPS_CACHE_H_

#include "ops_call.h"
#include "ops_lanes.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

constexpr int64_t most_head_dim = 4096;
constexpr int cache_group = 32;  // numbers that share a scale, where codes are integers

// How codes lie: each slot's together, or in words of four bytes that hold consecutive numbers of a
// slot ([dim / 4][block][4]), or one number of consecutive slots ([block / 4][dim][4], of 4 bits
// [block / 8][dim][4] with the later four slots in the high bits).
enum class Order { slot, dims, slots };
constexpr int64_t word_slots = 8;  // the block is a multiple where codes lie in words

struct Half {
    int bits;  // 8 by slot: E4M3 and a power of two for the head; otherwise integers
    bool rotated;
    Order order = Order::slot;

    bool grouped() const { return bits != 8 || order != Order::slot; }
    int64_t code_bytes(int64_t dim) const { return dim * bits / 8; }
    int64_t scale_bytes(int64_t dim) const { return grouped() ? dim / cache_group * 2 : 1; }
    int64_t row(int64_t dim) const { return code_bytes(dim) + scale_bytes(dim); }
};

struct Form {
    const char *name;
    Half halves[2];  // of keys and of values

    int64_t row(int64_t dim) const { return halves[0].row(dim) + halves[1].row(dim); }
    bool in_words() const { return halves[0].order != Order::slot; }
};

// NULL: a plain element type.
LIBAVX_INLINE const Form *form_of(const char *name)
{
    static constexpr Form forms[] = {
        {"fp8", {{8, true}, {8, false}}},
        {"fp8_v4", {{8, true}, {4, true}}},
        {"k6_v4", {{6, true}, {4, true}}},
        {"int8", {{8, true, Order::dims}, {8, false, Order::slots}}},
        {"k8_v4", {{8, true, Order::dims}, {4, true, Order::slots}}},
    };
    for (const Form &f : forms)
        if (strcmp(f.name, name) == 0) return &f;
    return nullptr;
}

// A pool of one layer, [pages, heads, block, elements of a slot], of a plain type or packed.
struct Cache {
    DLTensor tensor;
    Element element;
    const Form *form;

    int bind(const DLTensor &t, const char *kind, int64_t heads, int64_t block, int64_t dim)
    {
        tensor = t, form = form_of(kind);
        if (form == nullptr)
            LIBAVX_TRY(element_of(t, &element));
        else if (!is_type(t, kDLUInt, 8))
            return RAD_DTYPE;
        else if (dim % 8 != 0 || dim > most_head_dim ||
                 (form->halves[1].grouped() && dim % cache_group != 0) ||
                 (form->in_words() && block % word_slots != 0))
            return RAD_SHAPE;
        const int64_t row = form ? form->row(dim) : 2 * dim;
        const int64_t extents[4] = {any, heads, block, row};
        LIBAVX_TRY(check_shape(t, 4, extents));
        const bool dense = t.strides[3] == 1 && (form == nullptr || t.strides[2] == row);
        return dense ? RAD_OK : RAD_STRIDE;
    }
    int64_t pages() const { return tensor.shape[0]; }
};

// Where the halves of one page and head lie.
struct Area {
    uint8_t *codes[2], *scales[2];

    Area(const Cache &c, int64_t page, int64_t head, int64_t dim)
    {
        const int64_t block = c.tensor.shape[2];
        auto *at = static_cast<uint8_t *>(c.tensor.data) + page * c.tensor.strides[0] +
                   head * c.tensor.strides[1];
        for (int i = 0; i < 2; i++)
            codes[i] = at, at += block * c.form->halves[i].code_bytes(dim);
        for (int i = 0; i < 2; i++)
            scales[i] = at, at += block * c.form->halves[i].scale_bytes(dim);
    }
};

#if defined(__AVX512F__)
template <int step>
LIBAVX_INLINE f32x16 swapped(f32x16 a)
{
    if constexpr (step == 1) return {_mm512_permute_ps(a.v, 0xb1)};
    if constexpr (step == 2) return {_mm512_permute_ps(a.v, 0x4e)};
    if constexpr (step == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
    if constexpr (step == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
}
// Lane i is word >> 2i.
LIBAVX_INLINE i32x16 pairs_of(int32_t word)
{
    const __m512i lanes =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    return {_mm512_srlv_epi32(_mm512_set1_epi32(word), lanes)};
}
// The low four bits less `zero`, as floats.
template <int zero>
LIBAVX_INLINE f32x16 nibbles(i32x16 a)
{
    const __m512i at = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 table = _mm512_cvtepi32_ps(_mm512_sub_epi32(at, _mm512_set1_epi32(zero)));
    return {_mm512_permutexvar_ps(a.v, table)};
}
// 16 times the low two bits, as floats.
LIBAVX_INLINE f32x16 sixteens(i32x16 a)
{
    const __m512 table =
        _mm512_setr_ps(0, 16, 32, 48, 0, 16, 32, 48, 0, 16, 32, 48, 0, 16, 32, 48);
    return {_mm512_permutexvar_ps(a.v, table)};
}
#else
template <int step>
LIBAVX_INLINE f32x16 swapped(f32x16 a)
{
    if constexpr (step == 1) return {_mm256_permute_ps(a.l, 0xb1), _mm256_permute_ps(a.h, 0xb1)};
    if constexpr (step == 2) return {_mm256_permute_ps(a.l, 0x4e), _mm256_permute_ps(a.h, 0x4e)};
    if constexpr (step == 4)
        return {_mm256_permute2f128_ps(a.l, a.l, 1), _mm256_permute2f128_ps(a.h, a.h, 1)};
    if constexpr (step == 8) return {a.h, a.l};
}
LIBAVX_INLINE i32x16 pairs_of(int32_t word)
{
    const __m256i all = _mm256_set1_epi32(word);
    return {_mm256_srlv_epi32(all, _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14)),
            _mm256_srlv_epi32(all, _mm256_setr_epi32(16, 18, 20, 22, 24, 26, 28, 30))};
}
template <int zero>
LIBAVX_INLINE f32x16 nibbles(i32x16 a)
{
    return to_f32((a & i32_set(15)) - i32_set(zero));
}
LIBAVX_INLINE f32x16 sixteens(i32x16 a) { return to_f32(shl<4>(a & i32_set(3))); }
#endif

// (a, b) at distance `step` becomes (a + b, a - b).
template <int step>
LIBAVX_INLINE f32x16 butterfly(f32x16 x)
{
    constexpr uint32_t bits = step == 1 ? 0xaaaa : step == 2 ? 0xcccc : step == 4 ? 0xf0f0 : 0xff00;
    const f32x16 sign = select(mask_from(bits), f32_set(-1.0f), f32_set(1.0f));
    return fma(x, sign, swapped<step>(x));
}

// Transform groups of 32, 16 or 8 numbers, whichever divides `dim`, and multiply them; `x` has room
// for whole lanes. Its own inverse but for the factor.
LIBAVX_INLINE void rotate(float *x, int64_t dim, float factor)
{
    const f32x16 times = f32_set(factor);
    const bool pairs = dim % 32 == 0, whole = dim % 16 == 0;
    for (int64_t d = 0; d < dim; d += pairs ? 32 : 16) {
        f32x16 lane[2];
        const int count = pairs ? 2 : 1;
        for (int i = 0; i < count; i++) {
            f32x16 y = butterfly<4>(butterfly<2>(butterfly<1>(f32_load(x + d + 16 * i))));
            lane[i] = whole ? butterfly<8>(y) : y;
        }
        if (pairs) {
            const f32x16 sum = lane[0] + lane[1], less = lane[0] - lane[1];
            lane[0] = sum, lane[1] = less;
        }
        for (int i = 0; i < count; i++) f32_store(x + d + 16 * i, lane[i] * times);
    }
}

// Powers of two of sixteen slots, 256 times as large since codes are read as 1/256 of themselves.
// What is stored is below 247, or 255 for NaN.
LIBAVX_INLINE f32x16 powers_load(const uint8_t *p)
{
    const i32x16 e = u8_load(p);
    const mask16 lost = compare<_CMP_EQ_OQ>(to_f32(e), f32_set(255.0f));
    return select(lost, f32_set(__builtin_nanf("")), bits_to_f32(shl<23>(e + i32_set(8))));
}

// E4M3 codes, none of them NaN, times 1/256; a slot's power is for the caller to apply.
struct E4M3 {
    using type = uint8_t;
    LIBAVX_INLINE f32x16 load(const uint8_t *p)
    {
        const __m256i x =
            _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i *>(p)));
        return f16_expand(
            _mm256_and_si256(_mm256_slli_epi16(x, 7), _mm256_set1_epi16(int16_t(0xbfff))));
    }
};

// Codes of one group, signed and as floats.
template <int bits>
LIBAVX_INLINE void integers_load(const uint8_t *p, f32x16 *out)
{
    const i32x16 both = u8_load(p);
    out[0] = nibbles<1 << (bits - 1)>(both), out[1] = nibbles<1 << (bits - 1)>(shr<4>(both));
    if constexpr (bits == 6)
        for (int i = 0; i < 2; i++) {
            int32_t word;
            memcpy(&word, p + 16 + 4 * i, sizeof word);
            out[i] = out[i] + sixteens(pairs_of(word));
        }
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
