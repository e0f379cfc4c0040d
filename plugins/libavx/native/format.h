// How a weight is stored: 16 rows interleaved, everything at the width it has on disk.
//
// A stored weight is bytes [row blocks, block bytes]; row block i holds rows 16i .. 16i+15
// (absent ones as zeros):
//
//     table    16 bytes, only for codes that index one (e2m1 codes do: their doubles are integers);
//              padded to 64
//     level 1  per entry along the columns: 16 scales, then 16 minima if there are any
//     level 0  likewise; integers take a byte, two 4-bit ones (scale, minimum) share it; padded to
//              64
//     codes    integer codes: per 32 columns 64 * bits bytes (codes.h); others: per column the 16
//              rows' items
//
// Signed codes are stored with their offset added (i4 as
// 0..15), since vpdpbusd reads unsigned weights.
#ifndef LIBAVX_FORMAT_H_
#define LIBAVX_FORMAT_H_

#include <radiance_abi.h>

namespace libavx {

constexpr int64_t block_rows = 16;
// Columns that share an activation scale, and that codes are packed by.
constexpr int64_t group_cols = 32;

enum Kind : uint8_t { F32, F16, BF16, FP8, INT };  // what the codes are
// What scales and minima are.
enum Number : uint8_t { NONE, NF32, NF16, NBF16, U4, U6, I6, U8, I8, E8M0 };
constexpr uint8_t whole_row = 62;  // shift of an entry that covers all columns

struct Format {
    Kind kind;
    uint8_t bits;           // of one code
    uint8_t offset;         // added to a code when it was stored
    uint8_t flags;          // bits below
    Number number[2];       // of level 0 (finest) and level 1; NONE where there is none
    uint8_t shift[2];       // an entry of the level covers 1 << shift columns

    // Shared: one entry for all 16 rows.
    static constexpr uint8_t has_table = 1, has_min = 2, shared_rows = 4;
    bool table() const { return flags & has_table; }
    bool min() const { return flags & has_min; }
    bool shared() const { return flags & shared_rows; }
    bool integer() const { return kind == INT; }
    // Codes that look up the doubles of e2m1, which are at most 12 and stored with that offset.
    static constexpr uint8_t e2m1_offset = 12;
    bool e2m1() const { return table() && offset == e2m1_offset; }
    // Columns that one effective scale covers, as kernels see it.
    int64_t sub() const { return shift[0] == 4 ? 16 : 32; }

    static constexpr int64_t number_bytes(Number n)
    {
        return n == NONE ? 0 : n == NF32 ? 4 : n == NF16 || n == NBF16 ? 2 : 1;
    }
    int64_t entries(int level, int64_t cols) const
    {
        return number[level] == NONE ? 0
                                     : (cols + (int64_t(1) << shift[level]) - 1) >> shift[level];
    }
    // Bytes from an entry's scales to its minima; 0 when they are halves of one byte.
    int64_t min_step(int level) const
    {
        return number[level] == U4 ? 0 : block_rows * number_bytes(number[level]);
    }
    int64_t entry_bytes(int level) const
    {
        if (shared()) return number_bytes(number[level]);
        return block_rows * number_bytes(number[level]) + (min() ? min_step(level) : 0);
    }
    int64_t level1_at() const { return table() ? 64 : 0; }
    int64_t level0_at(int64_t cols) const
    {
        return level1_at() + entries(1, cols) * entry_bytes(1);
    }
    int64_t codes_at(int64_t cols) const
    {
        return (level0_at(cols) + entries(0, cols) * entry_bytes(0) + 63) / 64 * 64;
    }
    int64_t code_bytes(int64_t cols) const { return block_rows * cols * bits / 8; }
    int64_t block_bytes(int64_t cols) const
    {
        return (codes_at(cols) + code_bytes(cols) + 63) / 64 * 64;
    }
};
static_assert(sizeof(Format) == sizeof(int64_t), "a format travels in RadLayout.tag");

static inline Format format_of(const RadLayout *layout)
{
    Format format;
    __builtin_memcpy(&format, &layout->tag, sizeof format);
    return format;
}

// Returns whether the encoding is read, and how it is stored.
bool parse_format(const RadEncoding *encoding, Format *out);

// Hooks for the weight operand of embeddings, matrix products and heads; all of them store alike.
int layout_weight(const RadGeometry *, int, const RadEncoding *encoding, RadLayout *out);
int relayout_weight(const RadGeometry *, int, const RadEncoding *, const RadLayout *,
                    const DLTensor *planes, void *stored, int64_t first_row, int64_t last_row);
int unrelayout_weight(const RadGeometry *, int, const RadEncoding *, const RadLayout *,
                      const void *stored, DLTensor *planes, int64_t first_row, int64_t last_row);

}  // namespace libavx
#endif
