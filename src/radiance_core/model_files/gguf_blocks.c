/* gguf_blocks.c - GGUF blocks to the planes of an encoding, losslessly.
 *
 * Every block contributes whole bytes to every plane, so blocks are converted as one flat run,
 * whatever the rows are. The layouts are those of the public ggml library. One file, because each
 * layout is a few lines that read like its neighbours.
 */
#include <string.h>

#include "gguf_native.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "GGUF is little-endian, and so is the arithmetic here"
#endif

#define RAD_API __attribute__((visibility("default")))
#define INLINE static inline __attribute__((always_inline))

/* Codes are packed as bit streams, the first lowest: eight fill whole bytes at any width. */
INLINE void pack(const uint8_t *codes, int count, int bits, uint8_t *out)
{
    for (int i = 0; i < count; i += 8, out += bits) {
        uint64_t x;
        memcpy(&x, codes + i, 8);
        x = (x & 0x00ff00ff00ff00ffu) | (x & 0xff00ff00ff00ff00u) >> (8 - bits);
        x = (x & 0x0000ffff0000ffffu) | (x & 0xffff0000ffff0000u) >> (16 - 2 * bits);
        x = (x & 0xffffffffu) | x >> 32 << 4 * bits;
        memcpy(out, &x, (size_t)bits);
    }
}

/* The low bytes of four 16-bit lanes. */
INLINE uint32_t low_bytes(uint64_t x)
{
    x &= 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return (uint32_t)(x | x >> 16);
}

/* Runs of `width` bytes hold low nibbles of their codes first, then high ones: to neighbours. */
INLINE void pair(const uint8_t *in, int count, int width, uint64_t flip, uint8_t *out)
{
    for (int run = 0; run < count; run += width, in += width, out += width)
        for (int i = 0; i < width; i += 8) {
            uint64_t x;
            memcpy(&x, in + i, 8);
            x ^= flip;
            const uint32_t low =
                low_bytes((x & 0x000f000f000f000fu) | (x >> 4 & 0x00f000f000f000f0u));
            const uint32_t high =
                low_bytes((x >> 4 & 0x000f000f000f000fu) | (x >> 8 & 0x00f000f000f000f0u));
            memcpy(out + i / 2, &low, 4);
            memcpy(out + (width + i) / 2, &high, 4);
        }
}

/* The same runs to a code a byte. */
INLINE void nibbles(const uint8_t *in, int count, int width, uint8_t *codes)
{
    for (int run = 0; run < count; run += width, in += width, codes += 2 * width)
        for (int i = 0; i < width; i++) {
            codes[i] = in[i] & 15;
            codes[width + i] = in[i] >> 4;
        }
}

/* Byte l of a run of `width` holds `bits` bits of codes l, l + width, l + 2 * width ... to `at`. */
INLINE void add_bits(const uint8_t *in, int count, int width, int bits, int at, uint8_t *codes)
{
    for (int run = 0; run < count; run += width, in += width)
        for (int field = 0; field < 8 / bits; field++, codes += width)
            for (int i = 0; i < width; i++)
                codes[i] |= (uint8_t)((in[i] >> bits * field & ((1 << bits) - 1)) << at);
}

INLINE void flip(uint8_t *codes, int count, uint8_t mask)
{
    for (int i = 0; i < count; i++) codes[i] ^= mask;
}

INLINE void half(const uint8_t *in, uint8_t *out) { memcpy(out, in, 2); }
INLINE void negated(const uint8_t *in, uint8_t *out) { out[0] = in[0], out[1] = in[1] ^ 0x80; }

INLINE void q4_0(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    pair(b + 2, 16, 16, 0x8888888888888888u, p->codes); /* biased by 8 to two's complement */
}

INLINE void q4_1(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    negated(b + 2, p->min); /* the value is d * q + m, and a min is subtracted */
    pair(b + 4, 16, 16, 0, p->codes);
}

/* A mask of fifth bits in order of the codes, then their low nibbles. */
INLINE void five_bits(const uint8_t *b, uint8_t bias, uint8_t *out)
{
    uint8_t codes[32];
    uint32_t high;
    memcpy(&high, b, 4);
    nibbles(b + 4, 16, 16, codes);
    for (int i = 0; i < 32; i += 8) {
        /* A bit to each byte: copies of the eight, of which every byte keeps its own. */
        const uint64_t mine = (high >> i & 0xff) * 0x0101010101010101u & 0x8040201008040201u;
        const uint64_t fifth = (mine + 0x7f7f7f7f7f7f7f7fu) >> 7 & 0x0101010101010101u;
        uint64_t x;
        memcpy(&x, codes + i, 8);
        x = (x | fifth << 4) ^ bias * 0x0101010101010101u;
        memcpy(codes + i, &x, 8);
    }
    pack(codes, 32, 5, out);
}

INLINE void q5_0(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    five_bits(b + 2, 16, p->codes);
}

INLINE void q5_1(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    negated(b + 2, p->min);
    five_bits(b + 4, 0, p->codes);
}

INLINE void q8_0(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    memcpy(p->codes, b + 2, 32);
}

INLINE void q2_k(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t codes[256] = {0};
    for (int i = 0; i < 8; i++) {
        p->scale[i] = (uint8_t)((b[2 * i] & 15) | b[2 * i + 1] << 4);
        p->min[i] = (uint8_t)(b[2 * i] >> 4 | (b[2 * i + 1] & 0xf0));
    }
    add_bits(b + 16, 64, 32, 2, 0, codes);
    pack(codes, 256, 2, p->codes);
    half(b + 80, p->scale1);
    half(b + 82, p->min1);
}

INLINE void q3_k(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t codes[256] = {0}, scales[16];
    add_bits(b, 32, 32, 1, 2, codes);
    add_bits(b + 32, 64, 32, 2, 0, codes);
    flip(codes, 256, 4);
    pack(codes, 256, 3, p->codes);
    nibbles(b + 96, 8, 8, scales); /* sixteen of 6 bits, biased by 32 */
    add_bits(b + 104, 4, 4, 2, 4, scales);
    flip(scales, 16, 32);
    pack(scales, 16, 6, p->scale);
    half(b + 108, p->scale1);
}

/* Eight scales and eight minima of 6 bits in twelve bytes. */
INLINE void nested(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t scales[8], minima[8];
    for (int i = 0; i < 4; i++) {
        scales[i] = b[i] & 63;
        minima[i] = b[i + 4] & 63;
        scales[i + 4] = (uint8_t)((b[i + 8] & 15) | b[i] >> 6 << 4);
        minima[i + 4] = (uint8_t)(b[i + 8] >> 4 | b[i + 4] >> 6 << 4);
    }
    pack(scales, 8, 6, p->scale);
    pack(minima, 8, 6, p->min);
}

INLINE void q4_k(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale1);
    half(b + 2, p->min1);
    nested(b + 4, p);
    pair(b + 16, 128, 32, 0, p->codes);
}

INLINE void q5_k(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t codes[256];
    half(b, p->scale1);
    half(b + 2, p->min1);
    nested(b + 4, p);
    nibbles(b + 48, 128, 32, codes);
    add_bits(b + 16, 32, 32, 1, 4, codes);
    pack(codes, 256, 5, p->codes);
}

INLINE void q6_k(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t codes[256];
    nibbles(b, 128, 64, codes);
    add_bits(b + 128, 64, 32, 2, 4, codes);
    flip(codes, 256, 32);
    pack(codes, 256, 6, p->codes);
    memcpy(p->scale, b + 192, 16);
    half(b + 208, p->scale1);
}

INLINE void iq4_nl(const uint8_t *b, const RadGgufPlanes *p)
{
    half(b, p->scale);
    pair(b + 2, 16, 16, 0, p->codes);
}

INLINE void iq4_xs(const uint8_t *b, const RadGgufPlanes *p)
{
    uint8_t scales[8];
    for (int i = 0; i < 8; i++) {
        const int low = b[4 + i / 2] >> 4 * (i % 2) & 15, top = b[2 + i / 4] >> 2 * (i % 4) & 3;
        scales[i] = (uint8_t)(low | top << 4) ^ 32;
    }
    half(b, p->scale1);
    pack(scales, 8, 6, p->scale);
    pair(b + 8, 128, 16, 0, p->codes);
}

/* The codes are e2m1 as they are; ggml's table has them doubled and halves the scale instead. */
INLINE void mxfp4(const uint8_t *b, const RadGgufPlanes *p)
{
    p->scale[0] = b[0];
    pair(b + 1, 16, 16, 0, p->codes);
}

/* Bytes of a block, and of what it contributes to each plane. */
#define SPLIT(number, name, block, codes_, scale_, min_, scale1_, min1_)                         \
    case number:                                                                                 \
        for (int64_t i = 0; i < num_blocks; i++) {                                               \
            const RadGgufPlanes at = {planes->codes + i * codes_, planes->scale + i * scale_,    \
                                      planes->min + i * min_, planes->scale1 + i * scale1_,      \
                                      planes->min1 + i * min1_};                                 \
            name(blocks + i * block, &at);                                                       \
        }                                                                                        \
        return 0;

RAD_API int32_t rad_gguf_split(int32_t type, const uint8_t *blocks, int64_t num_blocks,
                               const RadGgufPlanes *planes)
{
    switch (type) {
        SPLIT(2, q4_0, 18, 16, 2, 0, 0, 0)
        SPLIT(3, q4_1, 20, 16, 2, 2, 0, 0)
        SPLIT(6, q5_0, 22, 20, 2, 0, 0, 0)
        SPLIT(7, q5_1, 24, 20, 2, 2, 0, 0)
        SPLIT(8, q8_0, 34, 32, 2, 0, 0, 0)
        SPLIT(10, q2_k, 84, 64, 8, 8, 2, 2)
        SPLIT(11, q3_k, 110, 96, 12, 0, 2, 0)
        SPLIT(12, q4_k, 144, 128, 6, 6, 2, 2)
        SPLIT(13, q5_k, 176, 160, 6, 6, 2, 2)
        SPLIT(14, q6_k, 210, 192, 16, 0, 2, 0)
        SPLIT(20, iq4_nl, 18, 16, 2, 0, 0, 0)
        SPLIT(23, iq4_xs, 136, 128, 6, 0, 2, 0)
        SPLIT(39, mxfp4, 17, 16, 1, 0, 0, 0)
    }
    return -1;
}
