// Rotary positions, alone and after the per-head norms of q and k.
#include <math.h>
#include <stdlib.h>

#include "ops_norm.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t piece_elements = 16384;

// theta^(-2i/rot) / scale for every pair i: computed once for a node, as pow is slow.
struct Frequencies {
    int64_t pairs;
    double of[1];
};

int make_frequencies(const RadGeometry *geometry, void **state)
{
    int64_t rot = rad_int_param(geometry, "rotary_dim", 0);
    if (rot == 0) rot = rad_int_param(geometry, "head_dim", 0);
    if (rot < 0 || rot > 1 << 20) return RAD_SHAPE;
    const double theta = float_param(geometry, "theta", 10000.0),
                 scale = float_param(geometry, "scale", 1.0);
    auto *f =
        static_cast<Frequencies *>(malloc(sizeof(Frequencies) + size_t(rot / 2) * sizeof(double)));
    if (f == nullptr) return RAD_NOMEM;
    f->pairs = rot / 2;
    for (int64_t i = 0; i < rot / 2; i++)
        f->of[i] = pow(theta, -2.0 * double(i) / double(rot)) / scale;
    *state = f;
    return RAD_OK;
}

// What rope's and qk_norm_rope's params say; their tails are alike.
struct Rotation {
    int64_t head_dim, heads, rot;
    double theta, scale;
    float mscale;
    bool interleaved;

    // `tail`: index of `scale`, after which mode, rotary_dim and mscale follow.
    int bind(const RadCall &c, int tail)
    {
        const RadValue *p = c.params;
        head_dim = p[1].i;
        if (head_dim < 1 || p[2].i < 0 || p[3].i < 0 || p[2].i > INT32_MAX || p[3].i > INT32_MAX)
            return RAD_SHAPE;
        heads = p[2].i + p[3].i;
        theta = p[4].f, scale = p[tail].f, mscale = float(p[tail + 3].f);
        rot = p[tail + 2].i != 0 ? p[tail + 2].i : head_dim;  // absent is 0
        if (rot < 2 || rot % 2 != 0 || rot > head_dim) return RAD_SHAPE;
        const char *mode = p[tail + 1].s;
        if (mode == nullptr) return RAD_INVAL;
        interleaved = strcmp(mode, "gptj") == 0;
        return interleaved || strcmp(mode, "neox") == 0 ? RAD_OK : RAD_INVAL;
    }
};

template <bool norms>
struct Rope {
    Rotation rotation;
    Rows2<float> qkv;
    Line<int32_t> positions;
    Line<float> freqs;
    Gain q_w, k_w;
    float eps, wadd;
    const RadCall *call;
    Grid grid;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(check_counts(c, norms ? 5 : 3, norms ? 12 : 10));
        LIBAVX_TRY(rotation.bind(c, norms ? 7 : 6));
        const int64_t hd = rotation.head_dim;
        LIBAVX_TRY(bind_rows(c.tensors[0], any, any, &qkv));
        if (qkv.cols / hd < rotation.heads) return RAD_SHAPE;
        LIBAVX_TRY(bind_line(c.tensors[1], qkv.rows, &positions));
        if constexpr (norms) {
            eps = float(c.params[5].f), wadd = float(c.params[11].f);
            LIBAVX_TRY(bind_gain(c.tensors[2], hd, &q_w));
            LIBAVX_TRY(bind_gain(c.tensors[3], hd, &k_w));
        }
        const DLTensor &given = c.tensors[norms ? 4 : 2];
        freqs = {nullptr, 0, 0};
        if (!rad_absent(&given)) LIBAVX_TRY(bind_line(given, rotation.rot / 2, &freqs));
        grid.cut(qkv.rows, rotation.heads * hd, piece_elements);
        if (grid.across > 1) grid.cut(qkv.rows, rotation.heads * hd, rotation.heads * hd);
        return check_scratch(c, scratch_bytes(rotation.rot));
    }
    static size_t scratch_bytes(int64_t rot) { return 2 * size_t(rot) * sizeof(float); }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return int64_t(scratch_bytes(rad_int_param(geometry, "head_dim", 0)));
    }
    static int init(const RadGeometry *geometry, void **state)
    {
        return make_frequencies(geometry, state);
    }
    static void fini(void *state) { free(state); }
    int64_t tiles() const { return grid.tiles(); }

    int tile(int64_t t, int worker) const
    {
        const Grid::Piece p = grid.piece(t);
        float *cosines = scratch_of<float>(*call, worker), *sines = cosines + rotation.rot;
        for (int64_t r = p.row; r < p.row_end; r++) {
            angles(positions[r], cosines, sines);
            for (int64_t h = 0; h < rotation.heads; h++) {
                float *head = qkv.row(r) + h * rotation.head_dim;
                if constexpr (norms) {
                    const Gain &w = h < call->params[2].i ? q_w : k_w;
                    rmsnorm_row(head, w, eps, wadd, head, rotation.head_dim);
                }
                rotation.interleaved ? rotate_pairs(head, cosines, sines)
                                     : rotate_halves(head, cosines, sines);
            }
        }
        return RAD_OK;
    }
    double frequency(int64_t i) const
    {
        if (freqs.data != nullptr) return double(freqs[i]);
        const auto *known = static_cast<const Frequencies *>(call->state);
        if (known != nullptr && known->pairs == rotation.rot / 2) return known->of[i];
        return pow(rotation.theta, -2.0 * double(i) / double(rotation.rot)) / rotation.scale;
    }
    // One cosine and sine a pair; for adjacent pairs each twice, the sine negative at the even
    // place.
    void angles(int32_t position, float *cosines, float *sines) const
    {
        for (int64_t i = 0; i < rotation.rot / 2; i++) {
            const double angle = double(position) * frequency(i);
            const float c = float(::cos(angle)) * rotation.mscale,
                        s = float(::sin(angle)) * rotation.mscale;
            if (rotation.interleaved) {
                cosines[2 * i] = cosines[2 * i + 1] = c;
                sines[2 * i] = -s, sines[2 * i + 1] = s;
            } else {
                cosines[i] = c, sines[i] = s;
            }
        }
    }
    void rotate_halves(float *x, const float *cosines, const float *sines) const
    {
        const int64_t half = rotation.rot / 2;
        for (int64_t i = 0; i < half; i += 16) {
            const int part = int(rad_min(16, half - i));
            const f32x16 a = load_part<F32>(x + i, part), b = load_part<F32>(x + half + i, part);
            const f32x16 c = load_part<F32>(cosines + i, part), s = load_part<F32>(sines + i, part);
            store_part<F32>(x + i, a * c - b * s, part);
            store_part<F32>(x + half + i, a * s + b * c, part);
        }
    }
    void rotate_pairs(float *x, const float *cosines, const float *sines) const
    {
        for (int64_t i = 0; i < rotation.rot; i += 16) {
            const int part = int(rad_min(16, rotation.rot - i));
            const f32x16 v = load_part<F32>(x + i, part);
            const f32x16 c = load_part<F32>(cosines + i, part), s = load_part<F32>(sines + i, part);
            store_part<F32>(x + i, v * c + swap_pairs(v) * s, part);
        }
    }
};

const RadConstraint where[] = {RAD_IN("dtype", "f32"), RAD_GE("head_dim", 2),
                               RAD_IN("mode", "neox gptj")};

const RadKernel rows[] = {row<Rope<false>>("rope", where), row<Rope<true>>("qk_norm_rope", where)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(rope, rows)
