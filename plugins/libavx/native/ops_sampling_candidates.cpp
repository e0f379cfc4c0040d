// The sampling stages that narrow a row's few candidates, and the draw, as ops of their own.
#include "ops_sampling_stages.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

// Room for a row's probabilities in scratch; rows are a piece each.
struct CandidateRows {
    Rows2<int32_t> ids;
    Rows2<float> values;
    Rows2<uint8_t> params;
    const RadCall *call;

    int bind(const RadCall &c, int tensors, int doubles)
    {
        call = &c;
        LIBAVX_TRY(check_counts(c, tensors, 2));
        const int64_t n_cand = c.params[1].i;
        LIBAVX_TRY(bind_rows(c.tensors[0], any, n_cand, &ids));
        LIBAVX_TRY(bind_rows(c.tensors[1], ids.rows, n_cand, &values));
        LIBAVX_TRY(bind_settings(c.tensors[2], ids.rows, &params));
        return check_scratch(c, size_t(n_cand) * size_t(doubles) * sizeof(double));
    }
    Candidates open(int64_t r, int worker) const
    {
        Candidates c{ids.row(r), values.row(r), scratch_of<double>(*call, worker), ids.cols};
        c.look();
        if (!c.nan && c.count > 0) c.weigh();
        return c;
    }
};

template <class Stage>
struct Narrow : CandidateRows {
    int bind(const RadCall &c) { return CandidateRows::bind(c, 3, Stage::doubles); }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return rad_int_param(geometry, "n_cand", 0) * Stage::doubles * int64_t(sizeof(double));
    }
    static bool wanted(const Settings &s) { return !s.greedy() && Stage::active(s); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        Candidates c = open(r, worker);
        if (c.count > 0 && !c.nan) Stage::narrow(c, s, c.p + c.width);
        return RAD_OK;
    }
};

struct Pick : CandidateRows {
    Rows2<int32_t> token;

    int bind(const RadCall &c)
    {
        LIBAVX_TRY(CandidateRows::bind(c, 4, 1));
        return bind_rows(c.tensors[3], ids.rows, 1, &token);
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return rad_int_param(geometry, "n_cand", 0) * int64_t(sizeof(double));
    }
    static bool wanted(const Settings &s) { return !s.greedy(); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        const Candidates c = open(r, worker);
        token.row(r)[0] = c.nan || c.count == 0 ? -1 : c.at(double(uniform(s.seed, s.pos)));
        return RAD_OK;
    }
};

const RadConstraint always[] = {RAD_GE("n_cand", 1)};

const RadKernel rows[] = {
    row<Narrow<TopP>>("sample_topp", always),
    row<Narrow<MinP>>("sample_minp", always),
    row<Narrow<Typical>>("sample_typical", always),
    row<Narrow<Xtc>>("sample_xtc", always),
    row<Pick>("sample_pick", always),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_candidates, rows)
