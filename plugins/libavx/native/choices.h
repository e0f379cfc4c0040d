// Which sums of dots.h a product takes: by format, planes,
// number of tokens, and how codes and scales come.
#ifndef LIBAVX_CHOICES_H_
#define LIBAVX_CHOICES_H_

#include "dots.h"

namespace libavx::LIBAVX_LEVEL {

using Accumulate = void (*)(const Block &, Tile, int64_t, float *);

struct Choice {
    Format format;
    int64_t planes, tokens;
    bool decoded, stored;  // codes that were decoded to bytes; scales that were not
};

template <Shape k> static Accumulate choose_tokens(int64_t tokens)
{
#define LIBAVX_TOKENS(n)                                                      \
    if constexpr (n <= (bits_of_codes(k.codes) == 8 ? max_tile : few_tokens)) \
        if (tokens == n) return accumulate<k.with(n)>;
    LIBAVX_TOKENS(1) LIBAVX_TOKENS(2) LIBAVX_TOKENS(3) LIBAVX_TOKENS(4)
    LIBAVX_TOKENS(5) LIBAVX_TOKENS(6) LIBAVX_TOKENS(7) LIBAVX_TOKENS(8)
    LIBAVX_TOKENS(9) LIBAVX_TOKENS(10) LIBAVX_TOKENS(11) LIBAVX_TOKENS(12)
#undef LIBAVX_TOKENS
    return nullptr;
}

// The usual stored scales of one token; others are decoded.
template <Shape k> static Accumulate choose_stored(const Format &f)
{
#define LIBAVX_STORED(n0, n1)                   \
    if (f.number[0] == n0 && f.number[1] == n1) \
        return accumulate<Shape{k.codes, k.subs, k.has_min, k.has_start, k.planes, 1, n0, n1}>;
    if constexpr (k.codes == CE2M1) LIBAVX_STORED(E8M0, NONE)
    if constexpr (k.subs == 1 && k.codes != CE2M1) LIBAVX_STORED(NF16, NONE)
    if constexpr (k.codes == C2) LIBAVX_STORED(U4, NF16)
    if constexpr (k.codes == C3 || k.codes == CTABLE) LIBAVX_STORED(I6, NF16)
    if constexpr ((k.codes == C4 || k.codes == C5) && k.has_min) LIBAVX_STORED(U6, NF16)
    if constexpr (k.codes == C6) LIBAVX_STORED(I8, NF16)
#undef LIBAVX_STORED
    return nullptr;
}

template <Codes codes, int subs, bool has_min, bool has_start>
static Accumulate choose_planes(const Choice &c)
{
    constexpr Shape one = {codes, subs, has_min, has_start, 1, 1, NONE, NONE};
    constexpr Shape two = {codes, subs, has_min, has_start, 2, 1, NONE, NONE};
    if (c.stored)
        return c.planes == 1 ? choose_stored<one>(c.format) : choose_stored<two>(c.format);
    return c.planes == 1 ? choose_tokens<one>(c.tokens) : choose_tokens<two>(c.tokens);
}

// Signed codes have a start; signed ones with minima, which no format in use has, have both.
template <Codes codes, int subs> static Accumulate choose_form(const Choice &c)
{
    if (!c.format.min()) return choose_planes<codes, subs, false, true>(c);
    if constexpr (bits_of_codes(codes) == 8)
        if (c.format.offset != 0) return choose_planes<codes, subs, true, true>(c);
    return choose_planes<codes, subs, true, false>(c);
}

// Whether there are kernels for codes as they are stored: for those of the formats in use.
static bool reads_stored_codes(const Format &f)
{
    if (f.bits == 8) return true;
    if (f.min() && f.offset != 0) return false;
    return f.bits == 4 || f.bits == 5 || (f.sub() == 16 && f.min() == (f.bits == 2));
}

// The kernel for a choice; NULL when there is none for scales as they are stored.
static Accumulate choose(const Choice &c)
{
    const Format &f = c.format;
    const bool fine = f.sub() == 16;
    if (c.stored && f.shift[0] != (fine ? 4 : 5)) return nullptr;
    if (c.decoded || f.bits == 8) {
        if (!has_pairs_of(f)) return fine ? choose_form<CBYTE6, 2>(c) : choose_form<C8, 1>(c);
        if (fine) return f.bits <= 4 ? choose_form<CBYTE4, 2>(c) : choose_form<CBYTE6, 2>(c);
        return f.bits <= 4 && !f.e2m1() ? choose_form<CBYTE4, 1>(c) : choose_form<CBYTE5, 1>(c);
    }
    if (f.e2m1()) return choose_planes<CE2M1, 1, false, true>(c);
    if (f.table()) return choose_planes<CTABLE, 1, false, true>(c);
    switch (f.bits) {
        case 2: return choose_planes<C2, 2, true, false>(c);
        case 3: return choose_planes<C3, 2, false, true>(c);
        case 4: return choose_form<C4, 1>(c);
        case 5: return choose_form<C5, 1>(c);
        default: return choose_planes<C6, 2, false, true>(c);
    }
}

template <Codes codes>
static void decode_codes(const uint8_t *in, const uint8_t *table, int64_t groups, uint8_t *out)
{
    constexpr int64_t bytes = 64 * bits_of_codes(codes);
    for (int64_t g = 0; g < groups; g++) decode_group<codes>(in + g * bytes, table, out + 512 * g);
}

static void decode(const Format &f, const uint8_t *in, const uint8_t *table, int64_t groups,
                   uint8_t *out)
{
    if (f.table()) return decode_codes<CTABLE>(in, table, groups, out);
    switch (f.bits) {
        case 2: return decode_codes<C2>(in, table, groups, out);
        case 3: return decode_codes<C3>(in, table, groups, out);
        case 4: return decode_codes<C4>(in, table, groups, out);
        case 5: return decode_codes<C5>(in, table, groups, out);
        case 6: return decode_codes<C6>(in, table, groups, out);
    }
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
