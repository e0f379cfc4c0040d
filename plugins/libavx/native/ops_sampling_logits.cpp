// The sampling stages that see a whole row of logits: what is kept of them, penalties, bias,
// temperature, mask and argmax.
#include <math.h>

#include "ops_lanes.h"
#include "ops_sampling.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

// A copy for those who ask for log probabilities, before the other stages change the row.
struct Keep : LogitRows {
    Rows2<float> kept;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(LogitRows::bind(call, 3, 2));
        return bind_rows(call.tensors[2], logits.rows, logits.cols, &kept);
    }
    static bool wanted(const Settings &s) { return s.flags & flag_logprobs; }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int) const
    {
        if (wanted(settings_of(params, r)))
            memcpy(kept.row(r), logits.row(r), size_t(logits.cols) * sizeof(float));
        return RAD_OK;
    }
};

// Counts live in scratch, one per token id; only those of the window's tokens are ever looked at.
struct Penalties : LogitRows {
    Line<int32_t> history;
    const RadCall *call;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(LogitRows::bind(c, 3, 2));
        LIBAVX_TRY(bind_line(c.tensors[2], any, &history));
        return check_scratch(c, size_t(logits.cols) * sizeof(int32_t));
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return rad_int_param(geometry, "n_vocab", 0) * int64_t(sizeof(int32_t));
    }
    static bool wanted(const Settings &s) { return s.sampled_with(flag_penalty); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        if (!holds_history(s, history.n)) return RAD_INVAL;
        const int64_t end = int64_t(s.hist_off) + s.hist_len;
        const int64_t begin = end - window_of(s, s.penalty_last_n);
        int32_t *counts = scratch_of<int32_t>(*call, worker);
        const auto each = [&](auto body) {
            for (int64_t i = begin; i < end; i++)
                if (const int64_t token = history[i]; token >= 0 && token < logits.cols)
                    body(token);
        };
        each([&](int64_t token) { counts[token] = 0; });
        each([&](int64_t token) { counts[token]++; });
        float *row = logits.row(r);
        each([&](int64_t token) {
            if (counts[token] == 0) return;  // done at an earlier place
            float v = row[token];
            v = v > 0 ? v / s.rep_penalty : v * s.rep_penalty;
            v -= float(counts[token]) * s.freq_penalty;
            row[token] = v - s.pres_penalty;
            counts[token] = 0;
        });
        return RAD_OK;
    }
};

struct Bias : LogitRows {
    Rows2<int32_t> ids;
    Rows2<float> values;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(LogitRows::bind(call, 4, 3));
        LIBAVX_TRY(bind_rows(call.tensors[2], logits.rows, call.params[2].i, &ids));
        return bind_rows(call.tensors[3], logits.rows, ids.cols, &values);
    }
    static bool wanted(const Settings &s) { return s.sampled_with(flag_bias); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int) const
    {
        if (!wanted(settings_of(params, r))) return RAD_OK;
        float *row = logits.row(r);
        for (int64_t i = 0; i < ids.cols; i++) {
            const int64_t token = ids.row(r)[i];
            if (token < 0) break;
            if (token < logits.cols) row[token] += values.row(r)[i];
        }
        return RAD_OK;
    }
};

struct Temperature : LogitRows {
    int bind(const RadCall &call) { return LogitRows::bind(call, 2, 2); }
    static bool wanted(const Settings &s) { return !s.greedy() && s.temp > 0 && s.temp != 1; }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        float *row = logits.row(r);
        const f32x16 temp = f32_set(s.temp);
        int64_t i = 0;
        for (; i + 16 <= logits.cols; i += 16) f32_store(row + i, f32_load(row + i) / temp);
        const int part = int(logits.cols - i);
        if (part) store_part<F32>(row + i, load_part<F32>(row + i, part) / temp, part);
        return RAD_OK;
    }
};

struct Mask : LogitRows {
    Rows2<int32_t> bitmask;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(LogitRows::bind(call, 3, 2));
        return bind_rows(call.tensors[2], any, any, &bitmask);
    }
    static bool wanted(const Settings &s) { return s.sampled_with(flag_mask) && s.mask_row >= 0; }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        if (s.mask_row >= bitmask.rows) return RAD_INVAL;
        const int32_t *words = bitmask.row(s.mask_row);
        float *row = logits.row(r);
        const f32x16 forbidden = f32_set(-INFINITY);
        for (int64_t i = 0; i < logits.cols; i += 16) {
            // Tokens past the end of a short line are forbidden.
            const uint32_t word = i / 32 < bitmask.cols ? uint32_t(words[i / 32]) : 0;
            const uint32_t allowed = (i % 32 ? word >> 16 : word) & 0xffff;
            const int part = int(rad_min(16, logits.cols - i));
            if (allowed == 0xffff) continue;
            const f32x16 v =
                allowed == 0 ? forbidden
                             : select(mask_from(allowed), load_part<F32>(row + i, part), forbidden);
            store_part<F32>(row + i, v, part);
        }
        return RAD_OK;
    }
};

struct Argmax : LogitRows {
    Rows2<int32_t> token;

    int bind(const RadCall &call)
    {
        LIBAVX_TRY(LogitRows::bind(call, 3, 2));
        return bind_rows(call.tensors[2], logits.rows, 1, &token);
    }
    static bool wanted(const Settings &s) { return s.greedy(); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int) const
    {
        if (wanted(settings_of(params, r))) token.row(r)[0] = best(logits.row(r), logits.cols);
        return RAD_OK;
    }
    // The lowest id of the largest logit; -1 with a NaN, and where nothing is above -inf.
    static int32_t best(const float *row, int64_t n)
    {
        float bar = -INFINITY;
        int64_t id = -1;
        for (int64_t i = 0; i < n; i += 16) {
            const int part = int(rad_min(16, n - i));
            const f32x16 v = part == 16 ? f32_load(row + i) : load_part<F32>(row + i, part);
            uint32_t above = bits_of(compare<_CMP_NLE_UQ>(v, f32_set(bar))) & ((1u << part) - 1);
            for (; above; above &= above - 1) {
                const int64_t at = i + __builtin_ctz(above);
                if (row[at] != row[at]) return -1;
                if (row[at] > bar) bar = row[at], id = at;
            }
        }
        return int32_t(id);
    }
};

const RadConstraint always[] = {RAD_GE("n_vocab", 1)};

const RadConstraint biased[] = {RAD_GE("n_vocab", 1), RAD_GE("n_bias", 1)};

const RadKernel rows[] = {
    row<Keep>("sample_keep", always),
    row<Penalties>("sample_penalties", always),
    row<Bias>("sample_bias", biased),
    row<Temperature>("sample_temp", always),
    row<Mask>("sample_mask", always),
    row<Argmax>("sample_argmax", always),
};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_logits, rows)
