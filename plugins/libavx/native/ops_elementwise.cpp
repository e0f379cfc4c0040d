// Elementwise ops and row softmax. Every element is computed alone, so cuts are free.
#include <math.h>

#include "ops_call.h"
#include "ops_lanes.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t piece_elements = 16384;  // 3 us of memory traffic, 7 us where there is an exp

struct Silu {
    static constexpr int params = 3;
    void bind(const RadValue *) {}
    f32x16 operator()(f32x16 x) const { return silu(x); }
};
struct Gelu : Silu {
    f32x16 operator()(f32x16 x) const { return gelu(x); }
};
struct GeluTanh : Silu {
    f32x16 operator()(f32x16 x) const { return gelu_tanh(x); }
};
struct Sigmoid : Silu {
    f32x16 operator()(f32x16 x) const { return sigmoid(x); }
};
struct Scale {
    static constexpr int params = 4;
    float factor;
    void bind(const RadValue *p) { factor = float(p[2].f); }
    f32x16 operator()(f32x16 x) const { return x * f32_set(factor); }
};
struct Softcap {
    static constexpr int params = 4;
    float cap;
    void bind(const RadValue *p) { cap = float(p[2].f); }
    f32x16 operator()(f32x16 x) const { return f32_set(cap) * tanh(x / f32_set(cap)); }
};

template <class F>
struct Map {
    F f;
    Rows2<float> x, y;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 2, F::params));
        const int64_t n = call.params[1].i;
        LIBAVX_TRY(bind_rows(call.tensors[0], any, n, &x));
        LIBAVX_TRY(bind_rows(call.tensors[1], x.rows, n, &y));
        f.bind(call.params);
        grid.cut(x.rows, n, piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const float *in = x.row(r);
            float *out = y.row(r);
            int64_t i = p.col;
            for (; i + 16 <= p.col_end; i += 16) f32_store(out + i, f(f32_load(in + i)));
            const int left = int(p.col_end - i);
            if (left) store_part<F32>(out + i, f(load_part<F32>(in + i, left)), left);
        }
        return RAD_OK;
    }
};

struct Add {
    static constexpr bool broadcasts = false;
    f32x16 operator()(f32x16 a, f32x16 b) const { return a + b; }
};
struct Mul {
    static constexpr bool broadcasts = true;
    f32x16 operator()(f32x16 a, f32x16 b) const { return a * b; }
};
template <class F>
struct Gated {  // act(gate) rounded, times up
    f32x16 operator()(f32x16 a, f32x16 b) const { return F()(a) * b; }
};

// y = f(a, b) on rows; for the gated ops a and b are the halves of one operand.
template <class F, bool halves>
struct Zip {
    F f;
    Rows2<float> a, b, y;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, halves ? 2 : 3, 3));
        const int64_t n = call.params[1].i;
        if constexpr (halves) {
            LIBAVX_TRY(bind_rows(call.tensors[0], any, 2 * n, &a));
            b = a;
            b.data += n;
        } else {
            LIBAVX_TRY(bind_rows(call.tensors[0], any, n, &a));
            LIBAVX_TRY(bind_rows(call.tensors[1], any, n, &b));
            if (F::broadcasts && b.rows == 1) b.stride = 0, b.rows = a.rows;
            if (b.rows != a.rows) return RAD_SHAPE;
        }
        LIBAVX_TRY(bind_rows(call.tensors[halves ? 1 : 2], a.rows, n, &y));
        grid.cut(a.rows, n, piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const float *left = a.row(r), *right = b.row(r);
            float *out = y.row(r);
            int64_t i = p.col;
            for (; i + 16 <= p.col_end; i += 16)
                f32_store(out + i, f(f32_load(left + i), f32_load(right + i)));
            const int n = int(p.col_end - i);
            if (n)
                store_part<F32>(out + i,
                                f(load_part<F32>(left + i, n), load_part<F32>(right + i, n)), n);
        }
        return RAD_OK;
    }
};

struct Softmax {
    Rows2<float> x, y;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 2, 3));
        const int64_t n = call.params[1].i;
        LIBAVX_TRY(bind_rows(call.tensors[0], any, n, &x));
        LIBAVX_TRY(bind_rows(call.tensors[1], x.rows, n, &y));
        grid.cut(x.rows, n, n > piece_elements ? n : piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        for (int64_t r = p.row; r < p.row_end; r++) softmax(x.row(r), y.row(r), x.cols);
        return RAD_OK;
    }
    static void softmax(const float *in, float *out, int64_t n)
    {
        f32x16 top = f32_set(-INFINITY), total = f32_zero();
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            top = max(select(mask_from((1u << part) - 1), load_part<F32>(in + i, part), top), top);
        }
        const f32x16 most = f32_set(largest(top));
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            const f32x16 e = exp(load_part<F32>(in + i, part) - most);
            store_part<F32>(out + i, e, part);
            total = total + select(mask_from((1u << part) - 1), e, f32_zero());
        }
        const f32x16 all = f32_set(sum(total));
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            store_part<F32>(out + i, load_part<F32>(out + i, part) / all, part);
        }
    }
};

const RadConstraint f32_only[] = {RAD_IN("dtype", "f32")};

using SiluMul = Zip<Gated<Silu>, true>;
using GeluTanhMul = Zip<Gated<GeluTanh>, true>;
using AddOp = Zip<Add, false>;
using MulOp = Zip<Mul, false>;

const RadKernel rows[] = {
    row<AddOp>("add", f32_only),
    row<MulOp>("mul", f32_only),
    row<Map<Scale>>("scale", f32_only),
    row<Map<Softcap>>("softcap", f32_only),
    row<Map<Silu>>("silu", f32_only),
    row<Map<Gelu>>("gelu", f32_only),
    row<Map<GeluTanh>>("gelu_tanh", f32_only),
    row<Map<Sigmoid>>("sigmoid", f32_only),
    row<Softmax>("softmax", f32_only),
    row<SiluMul>("silu_mul", f32_only, "silu+mul"),
    row<GeluTanhMul>("gelu_tanh_mul", f32_only, "gelu_tanh+mul"),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(elementwise, rows)
