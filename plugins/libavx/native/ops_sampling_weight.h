// What the logits of a row weigh together, roughly and precisely.
#ifndef LIBAVX_OPS_SAMPLING_WEIGHT_H_
#define LIBAVX_OPS_SAMPLING_WEIGHT_H_

#include "ops_sampling_largest.h"

namespace libavx::LIBAVX_LEVEL {
namespace {

// What all candidates weigh, known up to a share of it.
struct Weight {
    double total, slack;
};

// Sum of e^(logit - top) in f32, within two millionths: where a logit
// matters, logit - top is known to 4e-7 and e^x to 2.4e-7 of it, and
// no lane adds more than 9 of them before 5 sums and then f64 do.
double rough_weight(const Crested &all)
{
    // What lies 32 below the top weighs less than 2^-45 of it.
    const f32x16 top = f32_set(all.top);
    double total = 0;
    for (int64_t b = 0; b < all.blocks(); b++) {
        if (all.crests[b] - all.top < -32) continue;
        f32x16 part = f32_zero(), more = part;
        const int64_t end = rad_min((b + 1) * Crested::block, all.n);
        int64_t i = b * Crested::block;
        for (; i + 32 <= end; i += 32) {
            part = part + exp(all.load(i) - top);
            more = more + exp(all.load(i + 16) - top);
        }
        for (; i < end; i += 16) part = part + exp(all.load(i) - top);
        total += double(sum(part + more));
    }
    return total;
}
constexpr double rough_error = 2e-6;

double exact_weight(const Crested &all)
{
    double totals[8] = {}, total = 0;
    int64_t i = 0;
    for (; i + 8 <= all.n; i += 8)
        for (int lane = 0; lane < 8; lane++)
            totals[lane] += exp_of_minus(double(all.top) - double(all.row[i + lane]));
    for (; i < all.n; i++) total += exp_of_minus(double(all.top) - double(all.row[i]));
    for (const double part : totals) total += part;
    return total;
}

}  // namespace
}  // namespace libavx::LIBAVX_LEVEL
#endif
