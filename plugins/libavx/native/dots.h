// Sums of products of a row block's codes with the int8 planes of a tile of tokens, for
// ops_gemm_q.cpp; choices.h says which of them a product takes.
#ifndef LIBAVX_DOTS_H_
#define LIBAVX_DOTS_H_

#include "codes.h"
#include "format.h"
#include "pairs.h"
#include "products.h"
#include "scales.h"
#include "words.h"

namespace libavx::LIBAVX_LEVEL {

#if defined(__AVX512F__)
constexpr bool many_registers = true;
#else
constexpr bool many_registers = false;
#endif

// What the tokens of a tile bring. Codes are packed as [group][plane][token][32], for products of
// words as [group][token][quad][4], or lie in the row of a lone token.
struct Tile {
    const int8_t *a;
    int64_t plane_step, group_step;
    const float *scale;  // [group][token]
    // [sub-group][token]: -offset * sum of a, over all planes; read for signed codes, and for
    // words, from whose folded quads the tokens' own products are subtracted.
    const int32_t *start;
    const float *min_factor;  // [sub-group][token]: scale_a * sum of a; read where there are minima

    // The tile as it goes on after so many sub-groups.
    Tile from(int64_t subs, int64_t per_group, int64_t tokens) const
    {
        const int64_t groups = subs / per_group;
        return {a + groups * group_step, plane_step, group_step, scale + groups * tokens,
                start + subs * tokens, min_factor + subs * tokens};
    }
};

struct Block {
    const uint8_t *codes, *table;
    const float *scale, *min;  // decoded, [sub-group][16]; min is NULL when there are none
    const int32_t *own;        // of decoded codes: own products [sub-group][16]; read for words
    const uint8_t *level0, *level1;  // as they are stored
    int64_t shift1;                  // sub-groups of an entry of level 1, as a power of two
    const uint8_t *next;             // what is read some groups later, fetched meanwhile
    int64_t next_step;               // so much of it with each group
    bool whole;                      // tiles of few tokens fetch all lines of a group
};

// What is known when a kernel is compiled. Stored scales are decoded in registers, for one token.
struct Shape {
    Codes codes;
    int subs;  // sub-groups of a group
    bool has_min, has_start;
    int planes, tokens;
    Number number0, number1;  // of stored scales; NONE and NONE where they are decoded
    constexpr Shape with(int other_tokens) const
    {
        Shape shape = *this;
        shape.tokens = other_tokens;
        return shape;
    }
    constexpr bool stored() const { return number0 != NONE; }
    constexpr bool few() const { return tokens <= few_tokens; }
    constexpr bool words() const { return makes_words(planes, tokens, quads_of_pairs(codes) > 0); }
    constexpr bool pairs() const { return quads_of_pairs(codes) > 0 && !words(); }
    // Codes that are decoded in registers stay there for
    // the second plane, if there are registers for them.
    constexpr bool held() const { return many_registers && few(); }
    // The planes' sums are chains of their own while there are registers for both.
    constexpr bool apart() const { return tokens <= (many_registers ? 4 : 1); }
};

// The quads of a sub-group as bytes, which may still lie in memory.
template <Shape k, int first> struct Quads {
    static constexpr int count = 8 / k.subs;
    const uint8_t *group, *table;
    u8x64 in_registers[k.held() ? count : 1];

    template <int q = 0> LIBAVX_INLINE void decode(Quads &self)
    {
        if constexpr (k.held() && q < count) {
            self.in_registers[q] = quad<k.codes, first + q>(self.group, self.table);
            decode<q + 1>(self);
        }
    }
    template <int q = 0>
    LIBAVX_INLINE void dot(const Quads &self, i32x16 (&sum)[k.tokens], const int8_t *a)
    {
        if constexpr (q < count) {
            u8x64 w;
            if constexpr (k.held()) w = self.in_registers[q];
            else w = quad<k.codes, first + q>(self.group, self.table);
            LIBAVX_UNROLLED(t, k.tokens)
                sum[t] = dot4(sum[t], w, a + t * group_cols + 4 * (first + q));
            dot<q + 1>(self, sum, a);
        }
    }
};

// The same for words, whose quads are widened one after the other.
template <Shape k, int first, int q = 0>
LIBAVX_INLINE void dot_quads(i32x16 (&dot)[k.tokens], i32x16 &own, const Block &b,
                             const uint8_t *codes, const int8_t *a)
{
    if constexpr (q < 8 / k.subs) {
        dot_words<first + q, k.tokens, k.few()>(dot, own, quad<k.codes, first + q>(codes, b.table),
                                                a);
        dot_quads<k, first, q + 1>(dot, own, b, codes, a);
    }
}

template <Shape k> LIBAVX_INLINE void load_start(i32x16 (&dot)[k.tokens], const int32_t *start)
{
    LIBAVX_UNROLLED(t, k.tokens) dot[t] = k.has_start || k.words() ? i32_set(start[t]) : i32_set(0);
}

// The exact sums of a sub-group's products, of two planes 128 * high + low.
template <Shape k, int first>
LIBAVX_INLINE void dot_sub_group(i32x16 (&dot)[k.tokens], const Block &b, const Tile &x,
                                 int64_t group)
{
    const uint8_t *codes = b.codes + group * 64 * bits_of_codes(k.codes);
    if constexpr (k.words()) {
        load_start<k>(dot, x.start);
        i32x16 own = i32_set(0);
        dot_quads<k, first>(dot, own, b, codes, x.a);
        if constexpr (folds && !k.few())
            own = i32_load(b.own + 16 * (group * k.subs + first / (8 / k.subs)));
        LIBAVX_UNROLLED(t, k.tokens) dot[t] = dot[t] - own;
        return;
    }
    using W = Quads<k, first>;
    W w;
    w.group = codes, w.table = b.table;
    W::decode(w);
    if constexpr (k.planes == 1) {
        load_start<k>(dot, x.start);
        W::dot(w, dot, x.a);
    } else if constexpr (k.apart()) {
        i32x16 high[k.tokens];
        LIBAVX_UNROLLED(t, k.tokens) high[t] = i32_set(0);
        load_start<k>(dot, x.start);
        W::dot(w, high, x.a);
        W::dot(w, dot, x.a + x.plane_step);
        LIBAVX_UNROLLED(t, k.tokens) dot[t] = shl<7>(high[t]) + dot[t];
    } else {
        LIBAVX_UNROLLED(t, k.tokens) dot[t] = i32_set(0);
        W::dot(w, dot, x.a);
        LIBAVX_UNROLLED(t, k.tokens) {
            dot[t] = shl<7>(dot[t]);
            if constexpr (k.has_start) dot[t] = dot[t] + i32_set(x.start[t]);
        }
        W::dot(w, dot, x.a + x.plane_step);
    }
}

// The same by pairs. Both planes are chains beside each other, so that codes are decoded once.
template <Shape k, int first>
LIBAVX_INLINE void dot_pairs_of_sub_group(i32x16 (&dot)[k.tokens], const Block &b, const Tile &x,
                                          int64_t group)
{
    constexpr int n = k.tokens, chains = k.planes * n;
    i32x16 sum[chains];
    LIBAVX_UNROLLED(c, chains) sum[c] = i32_set(0);
    dot_pairs<k.codes, n, chains, first, first + 8 / k.subs>(
        sum, b.codes + group * 64 * bits_of_codes(k.codes), b.table, x.a, x.plane_step);
    LIBAVX_UNROLLED(t, n) dot[t] = k.planes == 1 ? sum[t] : shl<7>(sum[t]) + sum[chains - n + t];
    if constexpr (k.has_start)
        LIBAVX_UNROLLED(t, n) dot[t] = dot[t] + i32_set(x.start[t]);
}

// Scales of a sub-group; `at` is 1 for its minima.
template <Shape k, int at> LIBAVX_INLINE f32x16 scale_of(const Block &b, int64_t sub)
{
    if constexpr (!k.stored()) return f32_load((at ? b.min : b.scale) + 16 * sub);
    constexpr int64_t size0 = Format::number_bytes(k.number0),
                      size1 = Format::number_bytes(k.number1);
    constexpr bool halves = k.number0 == U4;
    constexpr int64_t step0 = block_rows * size0 * (k.has_min && !halves ? 2 : 1);
    constexpr int64_t step1 = block_rows * size1 * (k.has_min ? 2 : 1);
    const uint8_t *entry0 = b.level0 + sub * step0 + (halves ? 0 : at * block_rows * size0);
    const f32x16 scale = load_numbers(k.number0, entry0, halves && at);
    if constexpr (k.number1 == NONE) return scale;
    return scale * load_numbers(k.number1,
                                b.level1 + (sub >> b.shift1) * step1 + at * block_rows * size1,
                                false);
}

// Moves `x` on by the sub-groups from `s` on, its codes excepted.
template <Shape k, int s>
LIBAVX_INLINE void add_sub_group(f32x16 (&sum)[k.tokens], const Block &b, Tile &x, int64_t group)
{
    if constexpr (s < k.subs) {
        const int64_t sub = group * k.subs + s;
        i32x16 dot[k.tokens];
        if constexpr (k.pairs()) dot_pairs_of_sub_group<k, s * (8 / k.subs)>(dot, b, x, group);
        else dot_sub_group<k, s * (8 / k.subs)>(dot, b, x, group);
        const f32x16 scale = scale_of<k, 0>(b, sub);
        LIBAVX_UNROLLED(t, k.tokens)
            sum[t] = fma(to_f32(dot[t]), scale * f32_set(x.scale[t]), sum[t]);
        if constexpr (k.has_min) {
            const f32x16 min = scale_of<k, 1>(b, sub);
            LIBAVX_UNROLLED(t, k.tokens) sum[t] = fnma(min, f32_set(x.min_factor[t]), sum[t]);
        }
        x.start += k.tokens;
        x.min_factor += k.tokens;
        add_sub_group<k, s + 1>(sum, b, x, group);
    }
}

template <Shape k> static void accumulate(const Block &b, Tile x, int64_t groups, float *sums)
{
    constexpr int lines = bits_of_codes(k.codes) + 1;  // a group's codes and scales
    f32x16 sum[k.tokens];
    LIBAVX_UNROLLED(t, k.tokens) sum[t] = f32_load(sums + 16 * t);
    const uint8_t *next = b.next, *line = next;
    for (int64_t g = 0; g < groups; g++) {
        const bool whole = k.stored() || (k.few() && b.whole);
        if (whole) fetch_lines<lines>(next);
        next += b.next_step;
        if (!whole)
            for (; line < next; line += 64) fetch_lines<1>(line);
        add_sub_group<k, 0>(sum, b, x, g);
        x.a += x.group_step;
        x.scale += k.tokens;
    }
    LIBAVX_UNROLLED(t, k.tokens) f32_store(sums + 16 * t, sum[t]);
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
