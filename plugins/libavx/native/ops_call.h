// Operands of a call as typed views, checked once, and the glue between an op's struct and a kernel
// row.
//
// An op is a struct with `int bind(const RadCall &)` (checks everything, so that nothing after it
// can leave a buffer), `int64_t tiles() const`, `int tile(int64_t t, int worker)`, and perhaps
// `begin()`, which the tiles hook calls at the start of a call. Hooks may not trust their caller's
// extents: a wrong one is a negative status.
#ifndef LIBAVX_OPS_CALL_H_
#define LIBAVX_OPS_CALL_H_

#include <radiance_abi.h>

#include "simd.h"

#define LIBAVX_TRY(expression)                                \
    do {                                                      \
        if (const int status_ = (expression)) return status_; \
    } while (0)

namespace libavx::LIBAVX_LEVEL {

constexpr int64_t any = -1;  // an extent that the operand itself decides

template <class T>
struct Rows2 {
    T *data;
    int64_t rows, cols, stride;
    T *row(int64_t i) const { return data + i * stride; }
};

template <class T>
struct Line {
    T *data;
    int64_t n, stride;
    T operator[](int64_t i) const { return data[i * stride]; }
};

template <class T>
struct ElementType;
template <>
struct ElementType<float> {
    static constexpr uint8_t code = kDLFloat, bits = 32;
};
template <>
struct ElementType<int32_t> {
    static constexpr uint8_t code = kDLInt, bits = 32;
};
template <>
struct ElementType<int8_t> {
    static constexpr uint8_t code = kDLInt, bits = 8;
};
template <>
struct ElementType<uint8_t> {
    static constexpr uint8_t code = kDLUInt, bits = 8;
};

LIBAVX_INLINE bool is_type(const DLTensor &t, uint8_t code, int bits)
{
    return t.dtype.code == code && t.dtype.bits == bits && t.dtype.lanes == 1;
}

LIBAVX_INLINE int64_t extent_product(const DLTensor &t)
{
    int64_t n = 1;
    for (int i = 0; i < t.ndim; i++) n *= t.shape[i];
    return n;
}

// Rank, extents (`any` excepted) and element alignment.
LIBAVX_INLINE int check_shape(const DLTensor &t, int ndim, const int64_t *extents)
{
    if (t.ndim != ndim) return RAD_SHAPE;
    for (int i = 0; i < ndim; i++)
        if (t.shape[i] < 0 || (extents[i] != any && t.shape[i] != extents[i])) return RAD_SHAPE;
    if (t.data == nullptr && extent_product(t) != 0) return RAD_SHAPE;
    const uintptr_t bytes = t.dtype.bits / 8u;
    if (bytes > 1 && reinterpret_cast<uintptr_t>(t.data) % bytes != 0) return RAD_ALIGN;
    return RAD_OK;
}

template <class T>
LIBAVX_INLINE int bind_rows(const DLTensor &t, int64_t rows, int64_t cols, Rows2<T> *out)
{
    using E = ElementType<T>;
    if (!is_type(t, E::code, E::bits)) return RAD_DTYPE;
    const int64_t extents[2] = {rows, cols};
    LIBAVX_TRY(check_shape(t, 2, extents));
    if (t.strides[1] != 1 && t.shape[1] > 1 && t.shape[0] > 0) return RAD_STRIDE;
    *out = {static_cast<T *>(t.data), t.shape[0], t.shape[1], t.strides[0]};
    return RAD_OK;
}

template <class T>
LIBAVX_INLINE int bind_line(const DLTensor &t, int64_t n, Line<T> *out)
{
    using E = ElementType<T>;
    if (!is_type(t, E::code, E::bits)) return RAD_DTYPE;
    LIBAVX_TRY(check_shape(t, 1, &n));
    *out = {static_cast<T *>(t.data), t.shape[0], t.strides[0]};
    return RAD_OK;
}

enum class Element { f32, f16, bf16 };

LIBAVX_INLINE int element_of(const DLTensor &t, Element *out)
{
    if (is_type(t, kDLFloat, 32))
        *out = Element::f32;
    else if (is_type(t, kDLFloat, 16))
        *out = Element::f16;
    else if (is_type(t, kDLBfloat, 16))
        *out = Element::bf16;
    else
        return RAD_DTYPE;
    return RAD_OK;
}

// A norm's gain or bias as it is stored.
struct Gain {
    const void *data;
    Element element;
};

LIBAVX_INLINE int bind_gain(const DLTensor &t, int64_t n, Gain *out)
{
    LIBAVX_TRY(element_of(t, &out->element));
    LIBAVX_TRY(check_shape(t, 1, &n));
    if (n > 1 && t.strides[0] != 1) return RAD_STRIDE;
    out->data = t.data;
    return RAD_OK;
}

// Call `body` with the element type's struct (F32, F16 or BF16 of ops_lanes.h).
#define LIBAVX_WITH_ELEMENT(element, name, ...) \
    do {                                        \
        if ((element) == Element::f32) {        \
            using name = F32;                   \
            __VA_ARGS__;                        \
        } else if ((element) == Element::f16) { \
            using name = F16;                   \
            __VA_ARGS__;                        \
        } else {                                \
            using name = BF16;                  \
            __VA_ARGS__;                        \
        }                                       \
    } while (0)

LIBAVX_INLINE int check_counts(const RadCall &call, int tensors, int params)
{
    return call.num_tensors == tensors && call.num_params == params ? RAD_OK : RAD_SCHEMA;
}

LIBAVX_INLINE int check_scratch(const RadCall &call, size_t bytes)
{
    return bytes == 0 || (call.scratch != nullptr && call.scratch_bytes >= bytes) ? RAD_OK
                                                                                  : RAD_SCRATCH;
}

template <class T>
LIBAVX_INLINE T *scratch_of(const RadCall &call, int worker)
{
    return reinterpret_cast<T *>(static_cast<char *>(call.scratch) +
                                 size_t(worker) * call.scratch_bytes);
}

LIBAVX_INLINE double float_param(const RadGeometry *geometry, const char *key, double otherwise)
{
    for (int i = 0; i < geometry->num_params; i++) {
        const RadParam &p = geometry->params[i];
        if (p.kind == RAD_FLOAT && strcmp(p.key, key) == 0) return p.value.f;
    }
    return otherwise;
}

// How [rows, cols] is cut into pieces of about `target` elements: whole rows, or parts of one row
// at multiples of `unit` columns. Depends on the extents only, and no element's value depends on
// the cut.
struct Grid {
    int64_t rows = 0, cols = 0, row_step = 1, col_step = 1, across = 0;

    void cut(int64_t num_rows, int64_t num_cols, int64_t target, int64_t unit = 16)
    {
        rows = num_rows, cols = num_cols;
        if (cols <= 0) return;
        col_step = cols <= target ? cols : rad_blocks(target, unit) * unit;
        row_step = col_step < cols ? 1 : (target / cols > 1 ? target / cols : 1);
        across = rad_blocks(cols, col_step);
    }
    int64_t tiles() const { return rad_blocks(rows, row_step) * across; }
    struct Piece {
        int64_t row, row_end, col, col_end;
    };
    Piece piece(int64_t t) const
    {
        const int64_t row = t / across * row_step, col = t % across * col_step;
        return {row, rad_min(row + row_step, rows), col, rad_min(col + col_step, cols)};
    }
};

template <class Op>
int64_t tiles_of(const RadCall *call)
{
    Op op;
    LIBAVX_TRY(op.bind(*call));
    if constexpr (requires { op.begin(); }) op.begin();
    return op.tiles();
}

template <class Op>
int run_of(const RadCall *call, int64_t first, int64_t last, int worker)
{
    Op op;
    LIBAVX_TRY(op.bind(*call));
    if (first < 0 || last > op.tiles()) return RAD_INVAL;
    for (int64_t t = first; t < last; t++) LIBAVX_TRY(op.tile(t, worker));
    return RAD_OK;
}

// The table entry of an op; the row takes the op's name unless the library has several for it.
template <class Op, int n>
constexpr RadKernel row(const char *op, const RadConstraint (&where)[n],
                        const char *replaces = nullptr, const char *name = nullptr)
{
    RadKernel k{};
    k.struct_bytes = sizeof(RadKernel), k.op = op, k.name = name ? name : op;
    k.where = where, k.num_where = n;
    k.tiles = tiles_of<Op>, k.run = run_of<Op>;
    k.replaces = replaces;
    if constexpr (requires { Op::scratch; }) k.scratch = Op::scratch;
    if constexpr (requires { Op::init; }) k.init = Op::init, k.fini = Op::fini;
    return k;
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
