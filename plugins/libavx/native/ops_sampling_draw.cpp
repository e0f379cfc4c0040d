// sample_draw: from a row of logits to a token, as the ops from sample_topk to sample_pick would
// go, without a list of the whole vocabulary where the answer lies among the largest logits.
#include "ops_sampling_row_draw.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

struct Draw : LogitRows {
    Rows2<int32_t> token;
    const RadCall *call;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(LogitRows::bind(c, 3, 2));
        LIBAVX_TRY(bind_rows(c.tensors[2], logits.rows, 1, &token));
        return check_scratch(c, size_t(bytes(logits.cols)));
    }
    static int64_t room(int64_t n) { return rad_blocks(pool_size(n), 16) * 16; }
    static int64_t doubles(int64_t n) { return n + num_bins + chunk; }
    static int64_t bytes(int64_t n)
    {
        return 8 * (room(n) + doubles(n)) + 4 * (2 * n + Crested::num_crests(n));
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return bytes(rad_int_param(geometry, "n_vocab", 0));
    }
    static bool wanted(const Settings &s) { return !s.greedy(); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        const int64_t n = logits.cols;
        char *at = scratch_of<char>(*call, worker);
        auto *keys = reinterpret_cast<uint64_t *>(at);
        auto *p = reinterpret_cast<double *>(at += room(n) * 8);
        auto *ids = reinterpret_cast<int32_t *>(at += doubles(n) * 8);
        auto *values = reinterpret_cast<float *>(at += n * 4);
        auto *crests = reinterpret_cast<float *>(at += n * 4);
        RowDraw row{{logits.row(r), n, crests}, s, keys, keys + n, ids, values, p};
        token.row(r)[0] = row.draw();
        return RAD_OK;
    }
};

const RadConstraint where[] = {RAD_GE("n_vocab", 1)};

constexpr char chain[] =
    "sample_topk+sample_topp+sample_minp+sample_typical+sample_xtc+sample_pick";

const RadKernel rows[] = {row<Draw>("sample_draw", where, chain)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_draw, rows)
