// Planes of a weight, and how their scales and minima go to
// the stored form and back. For relayout.cpp.
#ifndef LIBAVX_RELAYOUT_SCALES_H_
#define LIBAVX_RELAYOUT_SCALES_H_

#include <cstring>

#include "format.h"

namespace libavx {
namespace {

struct Plane {
    uint8_t *data = nullptr;
    int64_t row_bytes = 0;  // from one row to the next
    int64_t row_block = 1;  // weight rows per plane row; 0: all
    uint8_t *row(int64_t r) const { return data + (row_block ? r / row_block : 0) * row_bytes; }
};

struct Planes {
    Plane codes, scale[2], min[2], table;
};

Planes bind_planes(const RadEncoding *encoding, const DLTensor *tensors)
{
    Planes out;
    for (int i = 0; i < encoding->num_planes; i++) {
        const DLTensor &t = tensors[i];
        const int64_t item = t.dtype.bits <= 8 ? 1 : t.dtype.bits / 8;
        const Plane plane = {static_cast<uint8_t *>(t.data), t.ndim > 1 ? t.strides[0] * item : 0,
                             encoding->planes[i].block[0]};
        const char *role = encoding->planes[i].role;
        const bool level1 = std::strstr(role, ".1") != nullptr;
        if (role[0] == 'c') out.codes = plane;
        if (role[0] == 's') out.scale[level1] = plane;
        if (role[0] == 'm') out.min[level1] = plane;
        if (role[0] == 't') out.table = plane;
    }
    return out;
}

// In a plane; 8 stands for whole bytes.
constexpr int bits_of(Number n) { return n == U4 ? 4 : n == U6 || n == I6 ? 6 : 8; }

int get_bits(const uint8_t *row, int64_t index, int bits)
{
    const int64_t at = index * bits;
    const int shift = int(at & 7);
    int value = row[at >> 3] >> shift;
    if (shift + bits > 8) value |= row[(at >> 3) + 1] << (8 - shift);
    return value & ((1 << bits) - 1);
}

void or_bits(uint8_t *row, int64_t index, int bits, int value)
{
    const int64_t at = index * bits;
    const int shift = int(at & 7);
    row[at >> 3] |= uint8_t(value << shift);
    if (shift + bits > 8) row[(at >> 3) + 1] |= uint8_t(value >> (8 - shift));
}

int sign_extended(Number n, int value) { return n == I6 && value >= 32 ? value - 64 : value; }

// Numbers of whole bytes of one level of one block: per
// entry along the columns those of the 16 rows.
template <class Item, bool store>
void move_numbers(int64_t count, int64_t step, const Plane &plane, int64_t row, int64_t rows,
                  uint8_t *first)
{
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *one = plane.row(row + r), *other = first + r * int64_t(sizeof(Item));
        for (int64_t e = 0; e < count; e++, one += sizeof(Item), other += step)
            std::memcpy(store ? other : one, store ? one : other, sizeof(Item));
    }
}

// One level of one block: `entry` steps along the columns, each with 16 scales and maybe 16 minima.
template <bool store>
void move_level(const Format &f, int level, int64_t cols, const Planes &p, int64_t row,
                int64_t rows, uint8_t *block)
{
    const Number n = f.number[level];
    const int64_t size = Format::number_bytes(n), count = f.entries(level, cols),
                  step = f.entry_bytes(level);
    uint8_t *first = block + (level ? f.level1_at() : f.level0_at(cols));
    if (f.shared()) rows = 1;
    if (bits_of(n) == 8) {
        const auto move = size == 1   ? move_numbers<uint8_t, store>
                          : size == 2 ? move_numbers<uint16_t, store>
                                      : move_numbers<uint32_t, store>;
        move(count, step, p.scale[level], row, rows, first);
        if (f.min()) move(count, step, p.min[level], row, rows, first + f.min_step(level));
        return;
    }
    for (int64_t r = 0; r < rows; r++) {
        uint8_t *scale = p.scale[level].row(row + r);
        uint8_t *min = f.min() ? p.min[level].row(row + r) : nullptr;
        if (!store) {
            std::memset(scale, 0, size_t((count * bits_of(n) + 7) / 8));
            if (min) std::memset(min, 0, size_t((count * bits_of(n) + 7) / 8));
        }
        for (int64_t e = 0; e < count; e++) {
            uint8_t *at = first + e * step + r * size, *low = at + f.min_step(level);
            if (store) {
                const int s = get_bits(scale, e, bits_of(n)),
                          m = min ? get_bits(min, e, bits_of(n)) : 0;
                *at = uint8_t(n == U4 ? s | m << 4 : sign_extended(n, s));
                if (min && n != U4) *low = uint8_t(sign_extended(n, m));
            } else {
                const int mask = (1 << bits_of(n)) - 1;
                or_bits(scale, e, bits_of(n), *at & mask);
                if (min) or_bits(min, e, bits_of(n), n == U4 ? *at >> 4 : *low & mask);
            }
        }
    }
}

}  // namespace
}  // namespace libavx
#endif
