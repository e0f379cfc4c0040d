// Which encodings are read, and what their stored form is called.
#include "format.h"

#include <cstdio>
#include <cstring>

namespace libavx {
namespace {

struct Planes {
    const RadPlane *codes = nullptr, *scale[2] = {}, *min[2] = {}, *table = nullptr;
};

bool sort_planes(const RadEncoding *encoding, Planes *out)
{
    const struct {
        const char *role;
        const RadPlane **place;
    } places[] = {{"codes", &out->codes}, {"scale", &out->scale[0]}, {"scale.1", &out->scale[1]},
                  {"min", &out->min[0]},  {"min.1", &out->min[1]},   {"table", &out->table}};
    for (int i = 0; i < encoding->num_planes; i++) {
        const RadPlane *plane = &encoding->planes[i];
        bool known = false;
        for (const auto &place : places) {
            if (std::strcmp(plane->role, place.role) != 0) continue;
            *place.place = plane;
            known = true;
        }
        if (!known) return false;
    }
    return out->codes != nullptr;
}

constexpr const char *number_names[] = {"",   "f32", "f16", "bf16", "u4",
                                        "u6", "i6",  "u8",  "i8",   "e8m0"};

Number number_of(const char *dtype)
{
    for (int n = NF32; n <= E8M0; n++)
        if (std::strcmp(dtype, number_names[n]) == 0) return Number(n);
    return NONE;
}

bool is_float(Number n) { return n == NF32 || n == NF16 || n == NBF16; }

// log2 of an entry's columns; false when they are no power of two.
bool shift_of(int64_t cols, uint8_t *out)
{
    if (cols == 0) {
        *out = whole_row;
        return true;
    }
    if (cols & (cols - 1)) return false;
    *out = uint8_t(__builtin_ctzll(uint64_t(cols)));
    return true;
}

bool parse_plain_codes(const char *dtype, Format *f)
{
    const struct {
        const char *name;
        Kind kind;
        uint8_t bits;
    } kinds[] = {{"f32", F32, 32}, {"f16", F16, 16}, {"bf16", BF16, 16}, {"fp8_e4m3", FP8, 8}};
    for (const auto &k : kinds) {
        if (std::strcmp(dtype, k.name) != 0) continue;
        f->kind = k.kind;
        f->bits = k.bits;
        return true;
    }
    return false;
}

bool parse_scaled_fp8(const Planes &p, Format *f)
{
    const RadPlane *scale = p.scale[0];
    if (scale == nullptr || p.scale[1] || p.min[0] || p.table) return false;
    f->number[0] = number_of(scale->dtype);
    const int64_t rows = scale->block[0];
    if (rows != 1 && rows % block_rows != 0) return false;
    if (rows != 1) f->flags |= Format::shared_rows;
    return is_float(f->number[0]) && shift_of(scale->block[1], &f->shift[0]);
}

bool parse_level(const Planes &p, int level, Format *f)
{
    const RadPlane *scale = p.scale[level], *min = p.min[level];
    if ((min != nullptr) != f->min() && scale != nullptr) return false;
    if (scale == nullptr) return min == nullptr;
    f->number[level] = number_of(scale->dtype);
    if (f->number[level] == NONE || scale->block[0] != 1 ||
        !shift_of(scale->block[1], &f->shift[level]))
        return false;
    return min == nullptr || (std::strcmp(min->dtype, scale->dtype) == 0 && min->block[0] == 1 &&
                              min->block[1] == scale->block[1]);
}

bool parse_codes(const Planes &p, Format *f)
{
    const char *dtype = p.codes->dtype;
    if (std::strcmp(dtype, "fp4_e2m1") == 0) {
        f->kind = INT;
        f->bits = 4;
        f->offset = Format::e2m1_offset;
        f->flags |= Format::has_table;
        return p.table == nullptr;
    }
    if ((dtype[0] != 'i' && dtype[0] != 'u') || std::strlen(dtype) != 2) return false;
    const int bits = dtype[1] - '0';
    if (bits < 2 || bits > 8 || bits == 7) return false;
    f->kind = INT;
    f->bits = uint8_t(bits);
    f->offset = dtype[0] == 'i' ? uint8_t(1 << (bits - 1)) : 0;
    if (p.table == nullptr) return true;
    f->flags |= Format::has_table;
    f->offset = 128;  // of the entries, which are signed
    return std::strcmp(dtype, "u4") == 0 && std::strcmp(p.table->dtype, "i8") == 0 &&
           p.table->extent[0] == 1 && p.table->extent[1] == 16;
}

bool parse_integers(const Planes &p, int64_t cols, Format *f)
{
    if (!parse_codes(p, f) || p.scale[0] == nullptr || cols % group_cols != 0) return false;
    if (p.min[0] != nullptr) f->flags |= Format::has_min;
    if (!parse_level(p, 0, f) || !parse_level(p, 1, f)) return false;
    // Sixteen columns a scale are read for the widths that formats in use have it with.
    if (f->shift[0] < 4 || (f->shift[0] == 4 && f->bits != 2 && f->bits != 3 && f->bits != 6))
        return false;
    if (f->shift[0] != 4 && (f->bits == 3 || f->bits == 6)) return false;
    // A scale of e8m0 is decoded to half of it, as goes with codes that are doubled.
    if (f->e2m1()) return f->number[0] == E8M0 && f->number[1] == NONE && !f->min();
    if (f->number[0] == E8M0) return false;
    if (f->number[1] == NONE) return is_float(f->number[0]);
    return !is_float(f->number[0]) && is_float(f->number[1]) && f->shift[1] >= f->shift[0];
}

void append(char *text, size_t size, const char *format, const char *word, int64_t number)
{
    const size_t used = std::strlen(text);
    std::snprintf(text + used, size - used, format, word, static_cast<long long>(number));
}

void name_format(const Format &f, const RadEncoding *encoding, RadLayout *out)
{
    std::snprintf(out->name, sizeof out->name, "avx_r16_%s", encoding->planes[0].dtype);
    for (int level = 0; level < 2; level++) {
        if (f.number[level] == NONE) continue;
        const int64_t cols = f.shift[level] == whole_row ? 0 : int64_t(1) << f.shift[level];
        // b: one entry for a block of rows too.
        const char *form = f.shared() ? "_%sb%lld" : "_%sx%lld";
        append(out->name, sizeof out->name, form, number_names[f.number[level]], cols);
    }
    if (f.min()) append(out->name, sizeof out->name, "_%s", "min", 0);
    if (f.table() && !f.e2m1()) append(out->name, sizeof out->name, "_%s", "table", 0);
}

}  // namespace

bool parse_format(const RadEncoding *encoding, Format *out)
{
    Planes planes;
    *out = {};
    if (encoding->transform[0] != '\0' || !sort_planes(encoding, &planes)) return false;
    if (planes.codes->block[0] != 1 || planes.codes->block[1] != 1) return false;
    if (std::strcmp(encoding->scheme, "plain") == 0)
        return parse_plain_codes(planes.codes->dtype, out);
    if (std::strcmp(encoding->scheme, "affine") != 0) return false;
    if (parse_plain_codes(planes.codes->dtype, out))
        return out->kind == FP8 && parse_scaled_fp8(planes, out);
    return parse_integers(planes, encoding->cols, out);
}

int layout_weight(const RadGeometry *, int, const RadEncoding *encoding, RadLayout *out)
{
    Format format;
    if (!parse_format(encoding, &format)) return RAD_DTYPE;
    name_format(format, encoding, out);
    out->dtype = {kDLUInt, 8, 1};
    out->ndim = 2;
    out->shape[0] = (encoding->rows + block_rows - 1) / block_rows;
    out->shape[1] = format.block_bytes(encoding->cols);
    out->row_block = block_rows;
    for (int i = 0; i < encoding->num_planes; i++) {
        const int64_t rows = encoding->planes[i].block[0];
        if (format.shared() && rows > block_rows) out->row_block = rows;
    }
    __builtin_memcpy(&out->tag, &format, sizeof format);
    return RAD_OK;
}

}  // namespace libavx
