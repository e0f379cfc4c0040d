// What may be tuned of a matrix product: how far ahead weights are
// fetched, and how much of them a piece reads. Neither changes a bit
// of a result: every sum is computed in one piece, in the same order.
#ifndef LIBAVX_TUNED_H_
#define LIBAVX_TUNED_H_

#include <radiance_abi.h>
#include <stdlib.h>

namespace libavx {

struct Tuned {
    // Bytes of weights that few tokens fetch ahead, as they stream from memory.
    int64_t ahead = 8192;
    int64_t piece_kib = 64;  // of weights that a piece reads at least
};

constexpr int64_t ahead_values[] = {1024, 2048, 4096, 8192, 16384};
constexpr int64_t piece_kib_values[] = {16, 32, 64, 128, 256};
constexpr RadAxis product_axes[] = {{"ahead", ahead_values, 5, 3},
                                    {"piece_kib", piece_kib_values, 5, 2}};
constexpr int num_product_axes = int(sizeof(product_axes) / sizeof(product_axes[0]));

static inline int init_tuned(const RadGeometry *g, void **state)
{
    auto *tuned = static_cast<Tuned *>(malloc(sizeof(Tuned)));
    if (tuned == nullptr) return RAD_NOMEM;
    const Tuned usual;
    *tuned = {rad_int_param(g, "ahead", usual.ahead),
              rad_int_param(g, "piece_kib", usual.piece_kib)};
    *state = tuned;
    return RAD_OK;
}

static inline void fini_tuned(void *state) { free(state); }

static inline Tuned tuned_of(const RadCall *call)
{
    return call->state == nullptr ? Tuned{} : *static_cast<const Tuned *>(call->state);
}

}  // namespace libavx
#endif
