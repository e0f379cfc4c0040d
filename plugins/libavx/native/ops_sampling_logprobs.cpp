// sample_logprobs: what the model thought of a token, and of those that it thought most likely.
#include "ops_sampling_largest.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

// The softmax of a row of logits as far as single logarithms need it.
struct Shares {
    float top;
    double log_total;

    double log_of(float logit) const
    {
        if (top == INFINITY) return logit == top ? -log_total : -INFINITY;
        return double(logit) - double(top) - log_total;
    }
};

// `top` is the largest logit, and there is no NaN. Sums go by columns modulo 8, whatever the level.
Shares shares_of(const float *row, int64_t n, float top)
{
    double totals[8] = {}, total = 0;
    int64_t i = 0;
    if (top == INFINITY) {
        for (; i < n; i++) total += row[i] == top;
    } else {
        for (; i + 8 <= n; i += 8)
            for (int lane = 0; lane < 8; lane++)
                totals[lane] += exp_of_minus(double(top) - double(row[i + lane]));
        for (; i < n; i++) total += exp_of_minus(double(top) - double(row[i]));
    }
    for (const double part : totals) total += part;
    return {top, ::log(total)};
}

struct Logprobs : LogitRows {
    Rows2<int32_t> token, given, rank, ids;
    Rows2<float> logprob, values;
    const RadCall *call;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(LogitRows::bind(c, 8, 3));
        const int64_t m = logits.rows, n_top = c.params[2].i;
        LIBAVX_TRY(bind_rows(c.tensors[2], m, 1, &token));
        LIBAVX_TRY(bind_rows(c.tensors[3], m, 1, &given));
        LIBAVX_TRY(bind_rows(c.tensors[4], m, 1, &logprob));
        LIBAVX_TRY(bind_rows(c.tensors[5], m, 1, &rank));
        LIBAVX_TRY(bind_rows(c.tensors[6], m, n_top, &ids));
        LIBAVX_TRY(bind_rows(c.tensors[7], m, n_top, &values));
        return check_scratch(c, size_t(bytes(n_top, logits.cols)));
    }
    static int64_t bytes(int64_t n_top, int64_t n)
    {
        return 8 * pool_size(n_top + 1) + 4 * Crested::num_crests(n);
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return bytes(rad_int_param(geometry, "n_top", 0), rad_int_param(geometry, "n_vocab", 0));
    }
    static bool wanted(const Settings &s) { return s.flags & flag_logprobs; }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        if (!wanted(settings_of(params, r))) return RAD_OK;
        const float *row = logits.row(r);
        const int64_t n_top = ids.cols;
        uint64_t *pool = scratch_of<uint64_t>(*call, worker);
        Crested all{row, logits.cols, reinterpret_cast<float *>(pool + pool_size(n_top + 1))};
        all.look();
        bool cut = false;
        const int64_t found = all.nan ? 0 : all.largest_k(n_top ? n_top : 1, pool, &cut);
        heap_sort(pool, found, [](uint64_t a, uint64_t b) { return a > b; });
        const Shares shares = found ? shares_of(row, logits.cols, row[id_of(pool[0])]) : Shares{};
        for (int64_t i = 0; i < n_top; i++) {
            const int64_t id = i < found ? id_of(pool[i]) : -1;
            ids.row(r)[i] = int32_t(id);
            values.row(r)[i] = id < 0 ? -INFINITY : float(shares.log_of(row[id]));
        }
        const int64_t told = given.row(r)[0] < 0 ? token.row(r)[0] : given.row(r)[0];
        const bool known = found && told >= 0 && told < logits.cols;
        logprob.row(r)[0] = known ? float(shares.log_of(row[told])) : -INFINITY;
        rank.row(r)[0] = known ? int32_t(1 + above(row, logits.cols, row[told])) : 0;
        return RAD_OK;
    }
    static int64_t above(const float *row, int64_t n, float bar)
    {
        int64_t count = 0;
        for (int64_t i = 0; i < n; i++) count += row[i] > bar;
        return count;
    }
};

const RadConstraint where[] = {RAD_GE("n_vocab", 1), RAD_GE("n_top", 0)};

const RadKernel rows[] = {row<Logprobs>("sample_logprobs", where)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_logprobs, rows)
