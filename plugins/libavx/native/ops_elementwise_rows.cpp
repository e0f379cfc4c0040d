// Rows moved: converted to another element type, or gathered by index.
#include "ops_call.h"
#include "ops_lanes.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t piece_elements = 16384;

// A view of rows of f32, f16 or bf16 elements.
struct AnyRows {
    char *data;
    int64_t rows, stride_bytes;
    Element element;
    int size;

    int bind(const DLTensor &t, int64_t num_rows, int64_t cols)
    {
        LIBAVX_TRY(element_of(t, &element));
        const int64_t extents[2] = {num_rows, cols};
        LIBAVX_TRY(check_shape(t, 2, extents));
        if (t.strides[1] != 1 && cols > 1 && t.shape[0] > 0) return RAD_STRIDE;
        size = t.dtype.bits / 8;
        data = static_cast<char *>(t.data), rows = t.shape[0], stride_bytes = t.strides[0] * size;
        return RAD_OK;
    }
    template <class E>
    typename E::type *row(int64_t i) const
    {
        return reinterpret_cast<typename E::type *>(data + i * stride_bytes);
    }
};

struct Cast {
    AnyRows x, y;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 2, 4));
        const int64_t n = call.params[1].i;
        LIBAVX_TRY(x.bind(call.tensors[0], any, n));
        LIBAVX_TRY(y.bind(call.tensors[1], x.rows, n));
        grid.cut(x.rows, n, piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    template <class From, class To>
    void convert(const Grid::Piece &p) const
    {
        for (int64_t r = p.row; r < p.row_end; r++)
            for (int64_t i = p.col; i < p.col_end; i += 16) {
                const int part = int(rad_min(16, p.col_end - i));
                store_part<To>(y.row<To>(r) + i, load_part<From>(x.row<From>(r) + i, part), part);
            }
    }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        if (x.element == y.element) {  // a copy keeps every bit, NaN payloads too
            for (int64_t r = p.row; r < p.row_end; r++)
                memmove(y.data + r * y.stride_bytes + p.col * y.size,
                        x.data + r * x.stride_bytes + p.col * x.size,
                        size_t((p.col_end - p.col) * x.size));
            return RAD_OK;
        }
        LIBAVX_WITH_ELEMENT(x.element, From,
                            LIBAVX_WITH_ELEMENT(y.element, To, convert<From, To>(p)));
        return RAD_OK;
    }
};

struct GatherRows {
    AnyRows x, y;
    Line<int32_t> idx;
    Grid grid;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(check_counts(call, 3, 3));
        const int64_t n = call.params[1].i;
        LIBAVX_TRY(x.bind(call.tensors[0], any, n));
        LIBAVX_TRY(bind_line(call.tensors[1], any, &idx));
        LIBAVX_TRY(y.bind(call.tensors[2], idx.n, n));
        if (x.element != y.element) return RAD_DTYPE;
        grid.cut(y.rows, n, piece_elements);
        return RAD_OK;
    }
    int64_t tiles() const { return grid.tiles(); }
    int tile(int64_t t, int) const
    {
        const Grid::Piece p = grid.piece(t);
        const auto bytes = size_t((p.col_end - p.col) * y.size);
        for (int64_t r = p.row; r < p.row_end; r++) {
            const int64_t from = idx[r];
            char *out = y.data + r * y.stride_bytes + p.col * y.size;
            if (from >= x.rows) return RAD_INVAL;
            if (from < 0)
                memset(out, 0, bytes);
            else
                memcpy(out, x.data + from * x.stride_bytes + p.col * x.size, bytes);
        }
        return RAD_OK;
    }
};

const RadConstraint any_float[] = {RAD_IN("dtype", "f32 bf16 f16")};
const RadConstraint casts[] = {RAD_IN("from", "f32 bf16 f16"), RAD_IN("to", "f32 bf16 f16")};

const RadKernel rows[] = {row<Cast>("cast", casts), row<GatherRows>("gather_rows", any_float)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(elementwise_rows, rows)
