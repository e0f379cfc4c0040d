// What the sampling stages share: a request's settings, its draws, sorting, and e^x for
// probabilities.
#ifndef LIBAVX_OPS_SAMPLING_H_
#define LIBAVX_OPS_SAMPLING_H_

#include "ops_call.h"

namespace libavx::LIBAVX_LEVEL {

enum : int32_t {
    flag_greedy = 1,
    flag_penalty = 2,
    flag_mask = 4,
    flag_xtc = 8,
    flag_dry = 16,
    flag_logprobs = 32,
    flag_bias = 64,
};

// One row of `params`, as it lies in memory.
struct Settings {
    uint64_t seed, pos;
    float temp, top_p, min_p, typical_p, rep_penalty, freq_penalty, pres_penalty;
    float xtc_probability, xtc_threshold, dry_multiplier, dry_base;
    int32_t top_k, penalty_last_n, dry_allowed_length, dry_penalty_last_n;
    int32_t hist_off, hist_len, mask_row, flags, dry_rep_limit;

    bool greedy() const { return flags & flag_greedy; }
    bool sampled_with(int32_t flag) const { return !greedy() && flags & flag; }
};
static_assert(sizeof(Settings) == 96);

LIBAVX_INLINE int bind_settings(const DLTensor &t, int64_t rows, Rows2<uint8_t> *out)
{
    return bind_rows(t, rows, int64_t(sizeof(Settings)), out);
}

LIBAVX_INLINE Settings settings_of(const Rows2<uint8_t> &params, int64_t row)
{
    Settings s;
    memcpy(&s, params.row(row), sizeof s);
    return s;
}

// A step in which no row wants a stage has no pieces, so that the stage costs a look at the flags.
template <class Wanted>
LIBAVX_INLINE int64_t rows_if_any(const Rows2<uint8_t> &params, Wanted wanted)
{
    for (int64_t r = 0; r < params.rows; r++)
        if (wanted(settings_of(params, r))) return params.rows;
    return 0;
}

// Whether a row's history lies in the plane.
LIBAVX_INLINE bool holds_history(const Settings &s, int64_t plane)
{
    return s.hist_off >= 0 && s.hist_len >= 0 && int64_t(s.hist_off) + s.hist_len <= plane;
}

LIBAVX_INLINE int64_t window_of(const Settings &s, int32_t last_n)
{
    return last_n < 0 ? s.hist_len : rad_min(last_n, s.hist_len);
}

// The operands that stages over whole rows of logits share; a row is a piece.
struct LogitRows {
    Rows2<float> logits;
    Rows2<uint8_t> params;

    int bind(const RadCall &call, int tensors, int num_params)
    {
        LIBAVX_TRY(check_counts(call, tensors, num_params));
        LIBAVX_TRY(bind_rows(call.tensors[0], any, call.params[1].i, &logits));
        if (logits.cols > INT32_MAX) return RAD_SHAPE;
        return bind_settings(call.tensors[1], logits.rows, &params);
    }
};

// The draw in [0, 1) of (seed, pos): the upper 24 bits of splitmix64.
LIBAVX_INLINE float uniform(uint64_t seed, uint64_t pos)
{
    uint64_t z = seed * 0x9E3779B97F4A7C15u + pos + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return float((z ^ (z >> 31)) >> 40) * 0x1p-24f;
}

constexpr uint64_t xtc_stream = 0x58544311u;

// Sort so that before(a[i], a[i+1]) never fails in reverse. A heap needs no memory and has no bad
// inputs; the standard library's templates are avoided because the linker would merge copies of
// different levels.
template <class T, class Before>
void heap_sort(T *a, int64_t n, Before before)
{
    const auto sift = [&](int64_t root, int64_t end) {
        const T moved = a[root];
        for (int64_t child; (child = 2 * root + 1) < end; root = child) {
            if (child + 1 < end && before(a[child], a[child + 1])) child++;
            if (!before(moved, a[child])) break;
            a[root] = a[child];
        }
        a[root] = moved;
    };
    for (int64_t i = n / 2 - 1; i >= 0; i--) sift(i, n);
    for (int64_t end = n - 1; end > 0; end--) {
        const T top = a[0];
        a[0] = a[end];
        a[end] = top;
        sift(0, end);
    }
}

// Sort keys in descending order by the bits from `first_bit` up, stable below it; `spare` holds n
// keys. Eleven bits a pass, counted for all passes in one; a pass over bits that all keys share is
// left out. Returns where the result lies: keys or spare.
template <int first_bit>
LIBAVX_INLINE uint64_t *radix_sort(uint64_t *keys, uint64_t *spare, int64_t n)
{
    constexpr int bits = 11, digits = 1 << bits, passes = (64 - first_bit + bits - 1) / bits;
    uint32_t starts[passes][digits] = {};
    for (int64_t i = 0; i < n; i++)
        for (int pass = 0; pass < passes; pass++)
            starts[pass][keys[i] >> (first_bit + pass * bits) & (digits - 1)]++;
    for (int pass = 0; pass < passes; pass++) {
        const int shift = first_bit + pass * bits;
        if (starts[pass][keys[0] >> shift & (digits - 1)] == uint32_t(n)) continue;
        uint32_t at = 0;
        for (int digit = digits - 1; digit >= 0; digit--) {
            const uint32_t count = starts[pass][digit];
            starts[pass][digit] = at;
            at += count;
        }
        for (int64_t i = 0; i < n; i++)
            spare[starts[pass][keys[i] >> shift & (digits - 1)]++] = keys[i];
        uint64_t *swapped = keys;
        keys = spare;
        spare = swapped;
    }
    return keys;
}

// e^-y in f64 for y >= 0, without branches so that loops over it become vectors; the same bits in
// any of them. Taylor's series to r^12 in |r| <= ln 2 / 2: its rest is below 2e-16. Beyond 708 the
// result is 0.
LIBAVX_INLINE double exp_of_minus(double y)
{
    y += 0.0;  // -0, the difference of two zeros, becomes +0
    // Magnitudes compare as integers, which every level has vectors for.
    const auto bits = __builtin_bit_cast(int64_t, y), far = __builtin_bit_cast(int64_t, 708.0);
    const double c = -__builtin_bit_cast(double, bits < far ? bits : far);
    const double shift = 0x1.8p52;  // adding it rounds to an integer, which its low bits then hold
    const double t = __builtin_fma(c, 0x1.71547652b82fep0, shift), k = t - shift;
    double r = __builtin_fma(-k, 0x1.62e42fefa39efp-1, c);
    r = __builtin_fma(-k, 0x1.abc9e3b39803fp-56, r);
    double e = 1.0 / 479001600.0;
    e = __builtin_fma(e, r, 1.0 / 39916800.0);
    e = __builtin_fma(e, r, 1.0 / 3628800.0);
    e = __builtin_fma(e, r, 1.0 / 362880.0);
    e = __builtin_fma(e, r, 1.0 / 40320.0);
    e = __builtin_fma(e, r, 1.0 / 5040.0);
    e = __builtin_fma(e, r, 1.0 / 720.0);
    e = __builtin_fma(e, r, 1.0 / 120.0);
    e = __builtin_fma(e, r, 1.0 / 24.0);
    e = __builtin_fma(e, r, 1.0 / 6.0);
    e = __builtin_fma(e, r, 0.5);
    e = __builtin_fma(e, r, 1.0);
    e = __builtin_fma(e, r, 1.0);
    const int64_t scaled = __builtin_bit_cast(int64_t, e) + (__builtin_bit_cast(int64_t, t) << 52);
    return __builtin_bit_cast(double,
                              scaled & ~((far - bits) >> 63));  // a select would become a branch
}

}  // namespace libavx::LIBAVX_LEVEL
#endif
