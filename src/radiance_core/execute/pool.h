/* pool.h - a team of threads that runs one kernel call at a time; see pool.c and workers.c.
 *
 * For executor.c alone: what is exported stands in executor.h.
 */
#ifndef RADIANCE_POOL_H_
#define RADIANCE_POOL_H_

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <limits.h>
#include <radiance_abi.h>

#include "executor.h"

enum { POOL_ABORTED = INT_MIN }; /* a status that no kernel may return */

typedef int (*RunHook)(const RadCall *call, int64_t first, int64_t last, int worker);

/* Whether another thread has asked for the step to end. */
static inline int is_aborted(const int32_t *word)
{
    return word != NULL && __atomic_load_n(word, __ATOMIC_RELAXED) != 0;
}

/* Around the calls of a step. `abort`, or NULL, is looked at between the chunks of a call. */
void pool_begin(RadStepPool *pool, const int32_t *abort);
void pool_end(RadStepPool *pool);
/* Run a call of so many tiles on the team: the first negative status, POOL_ABORTED, or RAD_OK. */
int pool_run(RadStepPool *pool, RunHook fn, const RadCall *call, int64_t tiles);

#endif /* RADIANCE_POOL_H_ */
