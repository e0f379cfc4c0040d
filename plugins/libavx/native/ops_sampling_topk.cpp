// sample_topk: a row's best logits in order.
#include "ops_sampling_largest.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

struct TopK : LogitRows {
    Rows2<int32_t> ids;
    Rows2<float> values;
    const RadCall *call;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(LogitRows::bind(c, 4, 3));
        const int64_t n_cand = c.params[2].i;
        LIBAVX_TRY(bind_rows(c.tensors[2], logits.rows, n_cand, &ids));
        LIBAVX_TRY(bind_rows(c.tensors[3], logits.rows, n_cand, &values));
        return check_scratch(c, size_t(bytes(n_cand, logits.cols)));
    }
    static int64_t bytes(int64_t n_cand, int64_t n)
    {
        return 8 * pool_size(n_cand) + 4 * Crested::num_crests(n);
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return bytes(rad_int_param(geometry, "n_cand", 0), rad_int_param(geometry, "n_vocab", 0));
    }
    static bool wanted(const Settings &s) { return !s.greedy(); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        const int64_t width = ids.cols;
        const int64_t k = s.top_k <= 0 ? width : rad_min(s.top_k, width);
        uint64_t *pool = scratch_of<uint64_t>(*call, worker);
        Crested logit{logits.row(r), logits.cols,
                      reinterpret_cast<float *>(pool + pool_size(width))};
        logit.look();
        bool cut = false;
        const int64_t found = k == 0 || logit.nan ? 0 : logit.largest_k(k, pool, &cut);
        pool = sort_keys(pool, pool + found, found, cut);
        for (int64_t i = 0; i < width; i++) {
            const int64_t id = i < found ? id_of(pool[i]) : -1;
            ids.row(r)[i] = int32_t(id);
            values.row(r)[i] = id < 0 ? -INFINITY : logits.row(r)[id];
        }
        return RAD_OK;
    }
};

const RadConstraint where[] = {RAD_GE("n_vocab", 1), RAD_GE("n_cand", 1)};

const RadKernel rows[] = {row<TopK>("sample_topk", where)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_topk, rows)
