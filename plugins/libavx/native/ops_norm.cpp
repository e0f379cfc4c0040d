// rmsnorm and layernorm, alone, after an addition, and ending in int8 codes.
#include "ops_norm.h"

#include "ops_quant.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t piece_elements = 16384;

// Params: M, n, eps, [group,] dtype, wadd[, planes]. Operands: x, [residual,] w, then y or the
// codes, [residual_out]. A fused form computes what its chain would have stored, and stores it or
// keeps it in scratch.
template <bool adds, bool codes>
struct Rmsnorm {
    Rows2<float> x, residual, residual_out, y;
    Gain w;
    Codes out;
    float eps, wadd;
    const RadCall *call;
    Grid grid;

    static constexpr int num_tensors = (adds ? 3 : 2) + (codes ? 3 : 1) + (adds ? 1 : 0);

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(check_counts(c, num_tensors, codes ? 7 : 5));
        const int64_t n = c.params[1].i;
        eps = float(c.params[2].f), wadd = float(c.params[codes ? 5 : 4].f);
        const DLTensor *t = c.tensors;
        LIBAVX_TRY(bind_rows(*t++, any, n, &x));
        if (adds) LIBAVX_TRY(bind_rows(*t++, x.rows, n, &residual));
        LIBAVX_TRY(bind_gain(*t++, n, &w));
        if constexpr (codes) {
            LIBAVX_TRY(out.bind(t, x.rows, n, c.params[3].i, c.params[6].i));
            LIBAVX_TRY(check_scratch(c, size_t(n) * sizeof(float)));
            t += 3;
        } else {
            LIBAVX_TRY(bind_rows(*t++, x.rows, n, &y));
        }
        if (adds) LIBAVX_TRY(bind_rows(*t++, x.rows, n, &residual_out));
        grid.cut(x.rows, n, n > piece_elements ? n : piece_elements);
        return RAD_OK;
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return codes ? rad_int_param(geometry, "n", 0) * int64_t(sizeof(float)) : 0;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int worker) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const float *in = x.row(r);
            if (adds) {
                add(in, residual.row(r), residual_out.row(r));
                in = residual_out.row(r);
            }
            float *normed = codes ? scratch_of<float>(*call, worker) : y.row(r);
            rmsnorm_row(in, w, eps, wadd, normed, x.cols);
            if constexpr (codes) out.write(r, normed, 0, x.cols);
        }
        return RAD_OK;
    }
    void add(const float *a, const float *b, float *to) const
    {
        int64_t i = 0;
        for (; i + 16 <= x.cols; i += 16) f32_store(to + i, f32_load(a + i) + f32_load(b + i));
        const int part = int(x.cols - i);
        if (part)
            store_part<F32>(to + i, load_part<F32>(a + i, part) + load_part<F32>(b + i, part),
                            part);
    }
};

struct Layernorm {
    Rows2<float> x, y;
    Gain w, b;
    float eps;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 4, 4));
        const int64_t n = call.params[1].i;
        eps = float(call.params[2].f);
        LIBAVX_TRY(bind_rows(call.tensors[0], any, n, &x));
        LIBAVX_TRY(bind_gain(call.tensors[1], n, &w));
        b = {nullptr, Element::f32};
        if (!rad_absent(&call.tensors[2])) LIBAVX_TRY(bind_gain(call.tensors[2], n, &b));
        LIBAVX_TRY(bind_rows(call.tensors[3], x.rows, n, &y));
        grid.cut(x.rows, n, n > piece_elements ? n : piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++) norm(x.row(r), y.row(r), x.cols);
        return RAD_OK;
    }
    void norm(const float *in, float *out, int64_t n) const
    {
        f32x16 total = f32_zero();
        for (int64_t i = 0; i < n; i += 16)
            total = total + load_part<F32>(in + i, int(rad_min(16, n - i)));
        const f32x16 mean = f32_set(sum(total) / float(n));
        f32x16 squares = f32_zero();
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            const f32x16 d = select(mask_from((1u << part) - 1),
                                    load_part<F32>(in + i, part) - mean, f32_zero());
            squares = fma(d, d, squares);
        }
        const f32x16 factor = f32_set(reciprocal_rms(sum(squares), n, eps));
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            f32x16 v = (load_part<F32>(in + i, part) - mean) * factor * gain(w, i, part);
            if (b.data != nullptr) v = v + gain(b, i, part);
            store_part<F32>(out + i, v, part);
        }
    }
    static f32x16 gain(const Gain &g, int64_t i, int part)
    {
        LIBAVX_WITH_ELEMENT(
            g.element, W,
            return load_part<W>(static_cast<const typename W::type *>(g.data) + i, part));
    }
};

const RadConstraint plain[] = {RAD_IN("dtype", "f32")};
const RadConstraint grouped[] = {RAD_IN("dtype", "f32"), RAD_GE("group", 1), RAD_LE("planes", 2)};

const RadKernel rows[] = {
    row<Rmsnorm<false, false>>("rmsnorm", plain),
    row<Rmsnorm<true, false>>("rmsnorm_add", plain, "add+rmsnorm"),
    row<Rmsnorm<false, true>>("rmsnorm_quant_i8", grouped, "rmsnorm+quant_act_i8"),
    row<Rmsnorm<true, true>>("rmsnorm_add_quant_i8", grouped, "rmsnorm_add+quant_act_i8"),
    row<Layernorm>("layernorm", plain),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(norm, rows)
