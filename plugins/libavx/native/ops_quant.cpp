// Activations to grouped int8 codes and back, also straight from a gated pair.
#include "ops_quant.h"

#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t piece_elements = 8192;

struct QuantAct {
    Rows2<float> x;
    Codes out;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 4, 5));
        const int64_t n = call.params[1].i;
        LIBAVX_TRY(bind_rows(call.tensors[0], any, n, &x));
        LIBAVX_TRY(out.bind(call.tensors + 1, x.rows, n, call.params[2].i, call.params[4].i));
        grid.cut(x.rows, n, piece_elements, out.group);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++)
            out.write(r, x.row(r) + p.col, p.col, p.col_end);
        return RAD_OK;
    }
};

struct Dequant {
    Rows2<int8_t> q;
    Rows2<float> scale, y;
    int64_t group, low_at;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 3, 5));
        const int64_t n = call.params[1].i, planes = call.params[4].i;
        group = call.params[2].i, low_at = planes == 2 ? n : 0;
        if (planes < 1 || planes > 2) return RAD_INVAL;
        if (group < 1 || n % group != 0) return RAD_SHAPE;
        LIBAVX_TRY(bind_rows(call.tensors[0], any, planes * n, &q));
        LIBAVX_TRY(bind_rows(call.tensors[1], q.rows, n / group, &scale));
        LIBAVX_TRY(bind_rows(call.tensors[2], q.rows, n, &y));
        grid.cut(q.rows, n, piece_elements, group);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++)
            for (int64_t col = p.col; col < p.col_end; col += group)
                expand(q.row(r) + col, scale.row(r)[col / group], y.row(r) + col);
        return RAD_OK;
    }
    void expand(const int8_t *codes, float factor, float *out) const
    {
        int64_t i = 0;
        const int8_t *low = codes + low_at;
        for (; i + 16 <= group; i += 16) {
            i32x16 code = i8_load(codes + i);
            if (low_at) code = shl<7>(code) + i8_load(low + i);
            f32_store(out + i, to_f32(code) * f32_set(factor));
        }
        for (; i < group; i++) {
            const int code = low_at ? 128 * codes[i] + low[i] : codes[i];
            out[i] = float(code) * factor;
        }
    }
};

struct Silu {
    static f32x16 of(f32x16 x) { return silu(x); }
};
struct GeluTanh {
    static f32x16 of(f32x16 x) { return gelu_tanh(x); }
};

// Params: M, n, group, act, dtype, planes. The gated values
// of a piece lie in scratch while they are quantised.
template <class Act>
struct GatedQuant {
    Rows2<float> gate_up;
    Codes out;
    const RadCall *call;
    Grid grid;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(check_counts(c, 4, 6));
        const int64_t n = c.params[1].i;
        LIBAVX_TRY(bind_rows(c.tensors[0], any, 2 * n, &gate_up));
        LIBAVX_TRY(out.bind(c.tensors + 1, gate_up.rows, n, c.params[2].i, c.params[5].i));
        grid.cut(gate_up.rows, n, piece_elements, out.group);
        return check_scratch(c, size_t(rad_min(grid.col_step, n)) * sizeof(float));
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        Grid g;
        const int64_t group = rad_int_param(geometry, "group", 1);
        g.cut(1, rad_int_param(geometry, "n", 0), piece_elements, group < 1 ? 1 : group);
        return g.col_step * int64_t(sizeof(float));
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int worker) const
    {
        const Grid::Piece p = grid.piece(t);
        float *product = scratch_of<float>(*call, worker);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const float *gate = gate_up.row(r), *up = gate + gate_up.cols / 2;
            int64_t i = p.col;
            for (; i + 16 <= p.col_end; i += 16)
                f32_store(product + i - p.col, Act::of(f32_load(gate + i)) * f32_load(up + i));
            const int part = int(p.col_end - i);
            if (part)
                store_part<F32>(
                    product + i - p.col,
                    Act::of(load_part<F32>(gate + i, part)) * load_part<F32>(up + i, part), part);
            out.write(r, product, p.col, p.col_end);
        }
        return RAD_OK;
    }
};

const RadConstraint grouped[] = {RAD_IN("dtype", "f32"), RAD_GE("group", 1), RAD_LE("planes", 2)};
const RadConstraint silu_gate[] = {RAD_IN("dtype", "f32"), RAD_GE("group", 1), RAD_LE("planes", 2),
                                   RAD_IN("act", "silu")};
const RadConstraint gelu_gate[] = {RAD_IN("dtype", "f32"), RAD_GE("group", 1), RAD_LE("planes", 2),
                                   RAD_IN("act", "gelu_tanh")};

const RadKernel rows[] = {
    row<QuantAct>("quant_act_i8", grouped),
    row<Dequant>("dequant", grouped),
    row<GatedQuant<Silu>>("gated_quant_i8", silu_gate, "silu_mul+quant_act_i8",
                          "gated_quant_i8_silu"),
    row<GatedQuant<GeluTanh>>("gated_quant_i8", gelu_gate, "gelu_tanh_mul+quant_act_i8",
                              "gated_quant_i8_gelu_tanh"),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(quant, rows)
