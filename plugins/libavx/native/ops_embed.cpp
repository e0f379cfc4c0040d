// embed_lookup: rows of the embedding table by token id,
// decoded from the form that products read too.
#include "codes.h"
#include "products.h"
#include "rows.h"
#include "scales.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t tokens_a_piece = 8;

float half(uint16_t x) { return _cvtsh_ss(x); }

float brain(uint16_t x)
{
    const uint32_t bits = uint32_t(x) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// As e8m0_load_half has it.
float half_e8m0(uint8_t e)
{
    const uint32_t bits = e == 255 ? 0x7fc00000u : e > 1 ? uint32_t(e - 1) << 23 : 0x00200000u << e;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

float number(Number n, const uint8_t *p, bool high_nibble)
{
    uint16_t two = 0;
    float four = 0;
    if (n == NF32) memcpy(&four, p, 4);
    if (n == NF16 || n == NBF16) memcpy(&two, p, 2);
    switch (n) {
        case NF32: return four;
        case NF16: return half(two);
        case NBF16: return brain(two);
        case E8M0: return half_e8m0(*p);
        case U4: return float(high_nibble ? *p >> 4 : *p & 15);
        case I6:
        case I8: return float(int8_t(*p));
        default: return float(*p);
    }
}

// One row of one block.
struct RowOfBlock {
    const Format &f;
    const uint8_t *block;
    int64_t cols, row;

    float level(int l, int64_t column, bool min) const
    {
        const Number n = f.number[l];
        if (n == NONE) return 1.0f;
        const uint8_t *at = block + (l ? f.level1_at() : f.level0_at(cols));
        at += (column >> f.shift[l]) * f.entry_bytes(l);
        if (!f.shared()) at += row * Format::number_bytes(n);
        return number(n, min ? at + f.min_step(l) : at, min);
    }
    float scale(int64_t column) const { return level(0, column, false) * level(1, column, false); }
    float min(int64_t column) const { return level(0, column, true) * level(1, column, true); }
};

// The four codes of one row in each of a group's eight quads.
template <Codes codes>
void decode_row(const uint8_t *group, const uint8_t *table, int64_t row, uint8_t *out)
{
    alignas(64) uint8_t quads[512];
    decode_group<codes>(group, table, quads);
    for (int q = 0; q < 8; q++) memcpy(out + 4 * q, quads + 64 * q + 4 * row, 4);
}

void decode_row_group(const Format &f, const uint8_t *group, const uint8_t *table, int64_t row,
                      uint8_t *out)
{
    if (f.table()) return decode_row<CTABLE>(group, table, row, out);
    switch (f.bits) {
        case 2: return decode_row<C2>(group, table, row, out);
        case 3: return decode_row<C3>(group, table, row, out);
        case 4: return decode_row<C4>(group, table, row, out);
        case 5: return decode_row<C5>(group, table, row, out);
        case 6: return decode_row<C6>(group, table, row, out);
        default: return decode_row<C8>(group, table, row, out);
    }
}

void look_up_integers(const RowOfBlock &r, float factor, float *out)
{
    const Format &f = r.f;
    const f32x16 by = f32_set(factor);
    const i32x16 offset = i32_set(f.offset);
    for (int64_t k = 0; k < r.cols; k += group_cols) {
        uint8_t codes[group_cols];
        decode_row_group(f, r.block + f.codes_at(r.cols) + k / group_cols * 64 * f.bits, r.block,
                         r.row, codes);
        for (int64_t i = 0; i < group_cols; i += 16) {
            const f32x16 q = to_f32(u8_load(codes + i) - offset), scale = f32_set(r.scale(k + i));
            const f32x16 value = f.min() ? fma(q, scale, f32_set(-r.min(k + i))) : q * scale;
            f32_store(out + k + i, value * by);
        }
    }
}

void look_up_items(const RowOfBlock &r, float factor, float *out)
{
    const Format &f = r.f;
    const int64_t size = f.bits / 8;
    const uint8_t *codes = r.block + f.codes_at(r.cols) + r.row * size;
    for (int64_t k = 0; k < r.cols; k++) {
        const uint8_t *at = codes + k * block_rows * size;
        uint16_t two = 0;
        float value = 0;
        if (f.kind == F32) memcpy(&value, at, 4);
        if (f.kind == F16 || f.kind == BF16) memcpy(&two, at, 2);
        if (f.kind == F16) value = half(two);
        if (f.kind == BF16) value = brain(two);
        if (f.kind == FP8)
            value = fp8_value(*at) * (f.number[0] == NONE ? 1.0f : r.level(0, k, false));
        out[k] = value * factor;
    }
}

int run(const RadCall *call, int64_t first, int64_t last, int)
{
    const DLTensor &tokens = call->tensors[0], &x = call->tensors[2];
    if (tokens.ndim != 1 || x.ndim != 2) return RAD_SHAPE;
    if (!has_type(tokens, kDLInt, 32)) return RAD_DTYPE;
    const int64_t count = tokens.shape[0], cols = x.shape[1], num_rows = call->params[2].i;
    Matrix<float> out;
    Weight w;
    int status = bind(x, kDLFloat, count, cols, &out);
    if (!status) status = bind_weight(call, 1, num_rows, cols, &w);
    if (status) return status;
    const float factor = float(call->params[4].f);
    const auto *ids = static_cast<const int32_t *>(tokens.data);
    for (int64_t t = first * tokens_a_piece; t < rad_min(last * tokens_a_piece, count); t++) {
        const int64_t id = ids[t * tokens.strides[0]];
        if (id >= num_rows) return RAD_INVAL;
        if (id < 0) {
            memset(out.row(t), 0, size_t(cols) * sizeof(float));
            continue;
        }
        const RowOfBlock r = {w.format, w.data + id / block_rows * w.block_bytes, cols,
                              id % block_rows};
        if (w.format.integer()) look_up_integers(r, factor, out.row(t));
        else look_up_items(r, factor, out.row(t));
    }
    return RAD_OK;
}

int64_t tiles(const RadCall *call) { return rad_blocks(rad_rows(call), tokens_a_piece); }

const RadConstraint where[] = {RAD_IN("dtype", "f32")};

const RadKernel rows[] = {{
    RAD_KERNEL("embed_lookup", "packed"),
    .where = where,
    .num_where = 1,
    .tiles = tiles,
    .run = run,
    .layout = layout_weight,
    .relayout = relayout_weight,
    .unrelayout = unrelayout_weight,
}};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(embed, rows)
