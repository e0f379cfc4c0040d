/* The claims of spans.h for a test in Python, one at a time. */
#include <radiance_abi.h>

#include "spans.h"

static RadSpan spans[64];

/* All spans as the call of this generation left them. */
RAD_EXPORT void start(uint32_t generation)
{
    for (int i = 0; i < 64; i++)
        atomic_store(&spans[i].word, (uint64_t)generation << 32);
}
RAD_EXPORT int64_t take(int32_t num_spans, uint32_t generation, int64_t num_chunks, int32_t span,
                        int32_t last)
{
    const RadShares shares = { spans, num_spans, generation, num_chunks };
    return claim(&shares, span, last);
}
