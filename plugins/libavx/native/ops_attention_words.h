// Pages whose codes lie in words of four bytes (`Order` of ops_cache.h), widened as they lie: a
// lane of a word is a key or a number of a value already, so shifts and masks do it and nothing is
// moved.
#ifndef LIBAVX_OPS_ATTENTION_WORDS_H_
#define LIBAVX_OPS_ATTENTION_WORDS_H_

#include "ops_attention_source.h"

namespace libavx::LIBAVX_LEVEL {
namespace {  // plain names, which other files of this level may use for something else

// Keys, code + 128, [head_dim / 4][slot][4]; and their scales, [group][slot].
struct KeyWords {
    const uint8_t *at;
    const float *scales;
};

// Values, [slot / 4][head_dim][4] with signs, or of 4 bits [slot / 8][head_dim][4], code + 8; what
// they become is yet to be multiplied by the scales of groups.
template <int bits>
struct ValueWords {
    static constexpr bool grouped = true;
    const uint8_t *at;
};

LIBAVX_INLINE i32x16 words_load(const uint8_t *p, int64_t index)
{
    return i32_load(reinterpret_cast<const int32_t *>(p) + index);
}

// Keys as `depth` * 16 rows of page_keys floats. Every step is exact.
__attribute__((noinline)) void widen_keys(const KeyWords &k, int depth, float *out,
                                          const Ahead &ahead)
{
    constexpr int group_words = cache_group / 4;
    for (int g = 0; g < depth / 2; g++)
        for (int j = 0; j < page_keys; j += 16) {
            ahead.fetch_keys(2 * g + j / 16, depth);
            const f32x16 scale = f32_load(k.scales + g * page_keys + j);
            const f32x16 zero = scale * f32_set(-128.0f);
            for (int word = g * group_words; word < (g + 1) * group_words; word++) {
                i32x16 x = words_load(k.at, word * page_keys + j);
                float *to = out + 4 * word * page_keys + j;
                LIBAVX_UNROLLED(i, 4)
                {
                    f32_store(to + i * page_keys, fma(to_f32(x & i32_set(255)), scale, zero));
                    x = shr<8>(x);
                }
            }
        }
}

// Values as page_keys rows of `depth` * 16 floats. A byte with a sign is read where the word's is.
template <int bits>
__attribute__((noinline)) void widen_values(const ValueWords<bits> &v, int depth, float *out,
                                            const Ahead &ahead)
{
    constexpr int slots = 32 / bits;
    const int dim = depth * 16;
    for (int j = 0; j < page_keys; j += slots) {
        ahead.fetch_values(j / slots, page_keys / slots);
        for (int d = 0; d < dim; d += 16) {
            i32x16 x = words_load(v.at, j / slots * dim + d);
            float *to = out + j * dim + d;
            LIBAVX_UNROLLED(i, 4)
            {
                if constexpr (bits == 8) {
                    const i32x16 high = x & i32_set(int32_t(0xff000000));
                    f32_store(to + (3 - i) * dim, to_f32(high) * f32_set(0x1p-24f));
                    x = shl<8>(x);
                } else {
                    f32_store(to + i * dim, nibbles<8>(x));
                    f32_store(to + (i + 4) * dim, nibbles<8>(shr<4>(x)));
                    x = shr<8>(x);
                }
            }
        }
    }
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
