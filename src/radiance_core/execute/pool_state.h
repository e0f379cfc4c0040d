/* pool_state.h - what a pool's threads share: the call on offer, and the words on which they wait.
 *
 * For pool.c, the caller's side, and workers.c, the other threads'.
 */
#ifndef RADIANCE_POOL_STATE_H_
#define RADIANCE_POOL_STATE_H_

#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spans.h"
#include "team.h"

#define POLLS_PER_CLOCK 32

struct RadStepPool {
    _Alignas(64) _Atomic uint32_t generation; /* of the call on offer, which follows */
    _Atomic int status;                       /* its first negative status */
    _Atomic(RunHook) fn;
    _Atomic(const RadCall *) call;
    _Atomic(const int32_t *) abort;
    _Atomic int64_t tiles, chunk, num_chunks;
    _Alignas(64) _Atomic uint32_t pending; /* unfinished chunks; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t wake_count; /* workers sleep on it */
    _Atomic uint32_t sleepers;                /* at least as many as workers sleep */
    _Atomic uint32_t team_size;               /* workers below it take part, others sleep on it */
    _Atomic int stop;
    _Atomic int caller_cpu;
    int64_t spin_ns, yield_ns;
    int32_t num_threads;
    pthread_t *threads;
    RadSpan *spans;            /* one for each thread */
    _Alignas(64) RadTeam team; /* from here on the caller's own, apart from what workers poll */
    int64_t clock_ns;          /* the latest reading in this step */
    int64_t begin_ns, begin_cpu_ns; /* of the step: time, and the caller's processor time */
    int64_t slept_ns, late_ns;      /* in this step: asleep, and waiting for chunks that are late */
};

static inline void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static inline void futex_wake(_Atomic uint32_t *word, uint32_t count)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static inline int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t now_ns(void) { return read_ns(CLOCK_MONOTONIC); }

static inline void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Say how many take part; who stays away sleeps on that. */
static inline void set_team(RadStepPool *pool, int32_t size)
{
    atomic_store(&pool->team_size, (uint32_t)size);
    futex_wake(&pool->team_size, INT_MAX);
}

/* Claim and run chunks of the call on offer until none is left, then count them all as finished:
 * until then the call cannot end. Returns its generation. */
uint32_t pool_help(RadStepPool *pool, int worker);

#endif /* RADIANCE_POOL_STATE_H_ */
