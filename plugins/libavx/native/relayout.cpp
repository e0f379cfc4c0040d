// Planes to the stored form and back, by blocks of 16 rows. Compiled at the AVX2 level. Scales and
// minima are moved by relayout_scales.h.
#include <cstring>

#include "codes.h"
#include "relayout_scales.h"

namespace libavx {
namespace {

using namespace libavx::LIBAVX_LEVEL;

// 32 codes of a row, as bytes with the offset added, and
// back. Eight codes fill whole bytes at any width.
template <int bits> void spread_row(const uint8_t *codes, uint64_t flip, uint8_t *quads)
{
    constexpr uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (int i = 0; i < 4; i++) {
        uint64_t eight = 0;
        std::memcpy(&eight, codes + i * bits, bits);
        eight = _pdep_u64(eight, mask) ^ flip;
        std::memcpy(quads + 128 * i, &eight, 4);
        eight >>= 32;
        std::memcpy(quads + 128 * i + 64, &eight, 4);
    }
}

template <int bits> void gather_row(const uint8_t *quads, uint64_t flip, uint8_t *codes)
{
    constexpr uint64_t mask = 0x0101010101010101u * ((1u << bits) - 1);
    for (int i = 0; i < 4; i++) {
        uint64_t eight = 0, high = 0;
        std::memcpy(&eight, quads + 128 * i, 4);
        std::memcpy(&high, quads + 128 * i + 64, 4);
        eight = _pext_u64((eight | high << 32) ^ flip, mask);
        std::memcpy(codes + i * bits, &eight, bits);
    }
}

LIBAVX_INLINE u8x64 shift_left(u8x64 a, int n)
{
    const __m128i count = _mm_cvtsi32_si128(n);
    return {_mm256_sll_epi16(a.l, count), _mm256_sll_epi16(a.h, count)};
}
LIBAVX_INLINE u8x64 high_bits(u8x64 a, int n, int mask)
{
    const __m128i count = _mm_cvtsi32_si128(n);
    return u8x64{_mm256_srl_epi16(a.l, count), _mm256_srl_epi16(a.h, count)} & u8_set(mask);
}

// Lines that hold `width` bits of each code (from bit `from` up), 8 / width quads to a line.
void pack_lines(const uint8_t *quads, int width, int from, uint8_t *out)
{
    const int per_line = 8 / width, mask = (1 << width) - 1;
    for (int line = 0; line < width; line++) {
        u8x64 packed = u8_set(0);
        for (int s = 0; s < per_line; s++) {
            const u8x64 part = high_bits(u8_load64(quads + 64 * (line * per_line + s)), from, mask);
            packed = packed | shift_left(part, s * width);
        }
        u8_store64(out + 64 * line, packed);
    }
}

template <int bits> void pack_group(const uint8_t *quads, uint8_t *out)
{
    constexpr int low = bits == 8 ? 8 : bits >= 4 ? 4 : 2;
    if constexpr (bits == 8) std::memcpy(out, quads, 512);
    else pack_lines(quads, low, 0, out);
    if constexpr (bits > low) pack_lines(quads, bits - low, low, out + 64 * low);
}

// Four bits need no spreading: eight codes of a row are
// four bytes, the latter four above the former.
void store_nibbles(const Format &f, int64_t cols, const Planes &p, int64_t row, int64_t rows,
                   uint8_t *out)
{
    const uint32_t flip = f.table() ? 0 : 0x11111111u * f.offset;
    for (int64_t g = 0; g < cols / group_cols; g++, out += 256)
        for (int64_t r = 0; r < rows; r++) {
            const uint8_t *codes = p.codes.row(row + r) + g * 16;
            for (int i = 0; i < 4; i++) {
                uint32_t eight;
                std::memcpy(&eight, codes + 4 * i, 4);
                const uint64_t apart = _pdep_u64(eight ^ flip, 0x0f0f0f0f0f0f0f0fu);
                const uint32_t both = uint32_t(apart | apart >> 28);
                std::memcpy(out + 64 * i + 4 * r, &both, 4);
            }
        }
}

template <int bits>
void store_codes(const Format &f, int64_t cols, const Planes &p, int64_t row, int64_t rows,
                 uint8_t *out)
{
    if constexpr (bits == 4) return store_nibbles(f, cols, p, row, rows, out);
    const uint64_t flip = f.table() ? 0 : 0x0101010101010101u * f.offset;
    alignas(64) uint8_t quads[512] = {};
    for (int64_t g = 0; g < cols / group_cols; g++) {
        for (int64_t r = 0; r < rows; r++)
            spread_row<bits>(p.codes.row(row + r) + g * 4 * bits, flip, quads + 4 * r);
        pack_group<bits>(quads, out + g * 64 * bits);
    }
}

template <int bits>
void load_codes(const Format &f, int64_t cols, const Planes &p, int64_t row, int64_t rows,
                const uint8_t *in)
{
    const uint64_t flip = f.table() ? 0 : 0x0101010101010101u * f.offset;
    alignas(64) uint8_t quads[512];
    for (int64_t g = 0; g < cols / group_cols; g++) {
        decode_group<Codes(bits)>(in + g * 64 * bits, nullptr, quads);
        for (int64_t r = 0; r < rows; r++)
            gather_row<bits>(quads + 4 * r, flip, p.codes.row(row + r) + g * 4 * bits);
    }
}

// Items of whole bytes: per column the 16 rows.
template <class Item, bool store>
void move_items(int64_t cols, const Planes &p, int64_t row, int64_t rows, uint8_t *block)
{
    // Columns at a time, so that a block's lines stay in the nearest cache.
    constexpr int64_t step = 64;
    for (int64_t k0 = 0; k0 < cols; k0 += step) {
        const int64_t k1 = k0 + step < cols ? k0 + step : cols;
        for (int64_t r = 0; r < rows; r++) {
            uint8_t *plane = p.codes.row(row + r), *at = block + r * int64_t(sizeof(Item));
            for (int64_t k = k0; k < k1; k++) {
                uint8_t *one = plane + k * int64_t(sizeof(Item)),
                        *other = at + k * 16 * int64_t(sizeof(Item));
                std::memcpy(store ? other : one, store ? one : other, sizeof(Item));
            }
        }
    }
}

template <bool store>
void move_codes(const Format &f, int64_t cols, const Planes &p, int64_t row, int64_t rows,
                uint8_t *at)
{
#define LIBAVX_CODES(n)                                                 \
    case n:                                                             \
        if constexpr (store) store_codes<n>(f, cols, p, row, rows, at); \
        else load_codes<n>(f, cols, p, row, rows, at);                  \
        return;
    if (!f.integer()) {
        if (f.bits == 8) move_items<uint8_t, store>(cols, p, row, rows, at);
        if (f.bits == 16) move_items<uint16_t, store>(cols, p, row, rows, at);
        if (f.bits == 32) move_items<uint32_t, store>(cols, p, row, rows, at);
        return;
    }
    switch (f.bits) {
        LIBAVX_CODES(2)
        LIBAVX_CODES(3)
        LIBAVX_CODES(4)
        LIBAVX_CODES(5)
        LIBAVX_CODES(6)
        LIBAVX_CODES(8)
    }
#undef LIBAVX_CODES
}

// The doubles of 0, 1/2, 1, 3/2, 2, 3, 4, 6 and of their negatives, with their offset.
constexpr uint8_t e2m1_entries[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

template <bool store>
int move_rows(const RadEncoding *encoding, const DLTensor *tensors, uint8_t *stored, int64_t first,
              int64_t last)
{
    Format f;
    if (!parse_format(encoding, &f)) return RAD_DTYPE;
    if (first % block_rows != 0 || first < 0 || last > encoding->rows) return RAD_INVAL;
    const Planes p = bind_planes(encoding, tensors);
    const int64_t cols = encoding->cols, bytes = f.block_bytes(cols);
    for (int64_t row = first; row < last; row += block_rows) {
        uint8_t *block = stored + row / block_rows * bytes;
        const int64_t rows = rad_min(block_rows, last - row);
        if (store && rows < block_rows) std::memset(block, 0, size_t(bytes));
        if (store)
            std::memset(block + f.level0_at(cols), 0, size_t(f.codes_at(cols) - f.level0_at(cols)));
        if (f.table()) {
            // Entries are stored with their offset, like codes.
            for (int i = 0; i < 64; i++)
                if (store)
                    block[i] = i >= 16 ? 0 : f.e2m1() ? e2m1_entries[i] : p.table.data[i] ^ 0x80;
                else if (i < 16 && !f.e2m1()) p.table.data[i] = block[i] ^ 0x80;
        }
        move_level<store>(f, 1, cols, p, row - first, rows, block);
        move_level<store>(f, 0, cols, p, row - first, rows, block);
        move_codes<store>(f, cols, p, row - first, rows, block + f.codes_at(cols));
        if (store) {
            const int64_t end = f.codes_at(cols) + f.code_bytes(cols);
            std::memset(block + end, 0, size_t(bytes - end));
        }
    }
    return RAD_OK;
}

}  // namespace

int relayout_weight(const RadGeometry *, int, const RadEncoding *encoding, const RadLayout *,
                    const DLTensor *planes, void *stored, int64_t first_row, int64_t last_row)
{
    return move_rows<true>(encoding, planes, static_cast<uint8_t *>(stored), first_row, last_row);
}

int unrelayout_weight(const RadGeometry *, int, const RadEncoding *encoding, const RadLayout *,
                      const void *stored, DLTensor *planes, int64_t first_row, int64_t last_row)
{
    auto *bytes = static_cast<uint8_t *>(const_cast<void *>(stored));  // only read when not storing
    return move_rows<false>(encoding, planes, bytes, first_row, last_row);
}

}  // namespace libavx
