/* spans.h - how threads share out the chunks of a call: each has a span of adjacent ones, and helps
 * the others.
 *
 *     63          32 31          16 15           0
 *     [ generation  | first chunk  | end         ]     of what is unclaimed of a span
 *
 * A word of the generation before stands for a whole span, so that nobody has to write the words of
 * a new call. Whoever finds none left in a span has left its word in this generation; once a thread
 * has found none in any, all words are, and a claim that began before can only fail.
 */
#ifndef RADIANCE_SPANS_H_
#define RADIANCE_SPANS_H_

#include <stdatomic.h>
#include <stdint.h>

#define MOST_CHUNKS 32768

typedef struct RadSpan {
    _Alignas(64) _Atomic uint64_t word;
} RadSpan;

typedef struct RadShares {
    RadSpan *spans;
    int32_t num_spans;
    uint32_t generation;
    int64_t num_chunks; /* MOST_CHUNKS at most */
} RadShares;

/* What is unclaimed of a span whose word was read as `word`; none when that is of another call. */
static inline uint64_t unclaimed(const RadShares *shares, int32_t span, uint64_t word)
{
    uint32_t generation = (uint32_t)(word >> 32);
    uint64_t now = (uint64_t)shares->generation << 32;
    if (generation == shares->generation)
        return word;
    if (generation != shares->generation - 1)
        return now;
    uint64_t first = (uint64_t)(shares->num_chunks * span / shares->num_spans) & UINT16_MAX;
    uint64_t end = (uint64_t)(shares->num_chunks * (span + 1) / shares->num_spans) & UINT16_MAX;
    return now | first << 16 | end;
}

/* Claim a chunk of a span, the first or the last one; return its number, or -1: none is left. */
static inline int64_t claim(const RadShares *shares, int32_t span, int last)
{
    _Atomic uint64_t *word = &shares->spans[span].word;
    uint64_t read = atomic_load_explicit(word, memory_order_acquire);
    for (;;) {
        uint64_t left = unclaimed(shares, span, read);
        int64_t first = left >> 16 & UINT16_MAX, end = left & UINT16_MAX;
        int none = first == end;
        if (none && (uint32_t)(read >> 32) != shares->generation - 1)
            return -1;
        uint64_t less = none ? left : last ? left - 1 : left + (UINT64_C(1) << 16);
        if (atomic_compare_exchange_weak_explicit(word, &read, less, memory_order_acq_rel,
                                                  memory_order_acquire))
            return none ? -1 : last ? end - 1 : first;
    }
}

#endif /* RADIANCE_SPANS_H_ */
