// sample_dry: lower the tokens that would go on with a repetition of what was just said.
#include <math.h>

#include "ops_sampling.h"
#include "rows.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

constexpr int64_t longest_match = 4096;  // a longer one counts as this long

struct Dry : LogitRows {
    Line<int32_t> history;
    Line<uint8_t> breakers{};
    const RadCall *call;

    int bind(const RadCall &c)
    {
        call = &c;
        LIBAVX_TRY(LogitRows::bind(c, 4, 2));
        LIBAVX_TRY(bind_line(c.tensors[2], any, &history));
        if (c.tensors[3].data != nullptr) {
            LIBAVX_TRY(bind_line(c.tensors[3], any, &breakers));
            if (breakers.n < history.n) return RAD_SHAPE;
        }
        return check_scratch(c, scratch_bytes(logits.cols));
    }
    static size_t scratch_bytes(int64_t n_vocab)
    {
        return size_t(n_vocab + longest_match) * sizeof(int32_t);
    }
    static int64_t scratch(const RadGeometry *geometry)
    {
        return int64_t(scratch_bytes(rad_int_param(geometry, "n_vocab", 0)));
    }
    static bool wanted(const Settings &s) { return s.sampled_with(flag_dry); }
    int64_t tiles() const { return rows_if_any(params, wanted); }
    int tile(int64_t r, int worker) const
    {
        const Settings s = settings_of(params, r);
        if (!wanted(s)) return RAD_OK;
        if (!holds_history(s, history.n)) return RAD_INVAL;
        const int64_t window = window_of(s, s.dry_penalty_last_n);
        const int64_t allowed = s.dry_allowed_length > 0 ? s.dry_allowed_length : 2;
        if (window <= allowed) return RAD_OK;
        const int64_t end = int64_t(s.hist_off) + s.hist_len, begin = end - window;
        int32_t *lengths = scratch_of<int32_t>(*call, worker), *longest = lengths + longest_match;
        for (int64_t i = begin; i < end; i++)
            if (known(history[i])) longest[history[i]] = 0;
        find(s, end, window, allowed, lengths, longest);
        float *row = logits.row(r);
        for (int64_t i = begin; i < end; i++) {
            const int64_t token = history[i];
            if (!known(token) || longest[token] == 0) continue;
            row[token] -= penalty(s, longest[token] - allowed);
            longest[token] = 0;
        }
        return RAD_OK;
    }
    bool known(int64_t token) const { return token >= 0 && token < logits.cols; }

    // The Z algorithm from the window's end backwards: lengths[k] is how far the runs that end 0
    // and k places before the end agree. A match is never longer than the cap, so none of a greater
    // k is looked up again.
    void find(const Settings &s, int64_t end, int64_t window, int64_t allowed, int32_t *lengths,
              int32_t *longest) const
    {
        const int64_t cap =
            s.dry_rep_limit > 0 ? rad_min(s.dry_rep_limit, longest_match) : longest_match;
        const auto back = [&](int64_t k) { return history[end - 1 - k]; };
        int64_t left = 0, right = 0;  // [left, right) is the match that reaches farthest back
        for (int64_t k = 1; k < window; k++) {
            int64_t length = k < right ? rad_min(right - k, int64_t(lengths[k - left])) : 0;
            while (length < cap && k + length < window && back(length) == back(k + length))
                length++;
            if (k < longest_match) lengths[k] = int32_t(length);
            if (k + length > right) left = k, right = k + length;
            const int64_t next = end - k;  // the place after the run
            if (length < allowed || (breakers.data != nullptr && breakers[next])) continue;
            const int64_t token = history[next];
            if (known(token) && length > longest[token]) longest[token] = int32_t(length);
        }
    }
    static float penalty(const Settings &s, int64_t excess)
    {
        float p = s.dry_multiplier;
        for (int64_t i = 0; i < excess; i++) {
            const float grown = p * s.dry_base;
            if (!isfinite(grown) || grown == p) break;
            p = grown;
        }
        return p;
    }
};

const RadConstraint always[] = {RAD_GE("n_vocab", 1)};

const RadKernel rows[] = {row<Dry>("sample_dry", always)};

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL

LIBAVX_ROWS(sampling_dry, rows)
