/* workers.c - the other threads of a pool: how they start, wait for work, and stop (ADR 0003). */
#include "pool_state.h"

#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* How long a thread waits awake, which covers the gaps between nodes of a step; how long a worker
 * goes on, giving way to whoever asks, which covers those between steps; and what stands for both
 * with more threads than processors, where the other needs this one. */
#define SPIN_NS         50000
#define YIELD_NS        500000
#define SPIN_CROWDED_NS 2000

typedef struct Worker {
    RadStepPool *pool;
    int index;
} Worker;

static int work_or_stop(RadStepPool *pool, uint32_t seen)
{
    return atomic_load(&pool->generation) != seen || atomic_load(&pool->stop);
}

/* Look for work for a while; returns whether there is some, or none any more. */
static int spin_for_work(RadStepPool *pool, uint32_t seen)
{
    int64_t begin = now_ns(), waited = 0;
    do {
        for (int i = 0; i < POLLS_PER_CLOCK; i++) {
            if (work_or_stop(pool, seen))
                return 1;
            relax();
        }
        if (waited > pool->spin_ns)
            sched_yield();
        waited = now_ns() - begin;
    } while (waited < pool->spin_ns + pool->yield_ns);
    return 0;
}

/* Sleep while the team is so small that this worker is not on it. */
static void stay_away(RadStepPool *pool, int index)
{
    for (uint32_t size;
         (size = atomic_load(&pool->team_size)) <= (uint32_t)index && !atomic_load(&pool->stop);)
        futex_wait(&pool->team_size, size);
}

static void wait_for_work(RadStepPool *pool, int index, uint32_t seen)
{
    for (;;) {
        stay_away(pool, index);
        if (spin_for_work(pool, seen))
            return;
        uint32_t count = atomic_load(&pool->wake_count);
        atomic_fetch_add(&pool->sleepers, 1);
        if (work_or_stop(pool, seen))
            return;
        futex_wait(&pool->wake_count, count);
    }
}

/* On the caller's processor a worker only takes time from it, and where all are busy the system
 * leaves both there: go to another one, and be free to move again. */
static void leave_caller(RadStepPool *pool)
{
    int here = sched_getcpu();
    cpu_set_t all, others;
    if (here != atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed) || pool->yield_ns == 0
        || sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    others = all;
    CPU_CLR(here, &others);
    if (sched_setaffinity(0, sizeof(others), &others) == 0) /* fails where there is no other one */
        sched_setaffinity(0, sizeof(all), &all);
}

static void *work(void *argument)
{
    Worker worker = *(Worker *)argument;
    free(argument);
    for (uint32_t seen = 0; !atomic_load(&worker.pool->stop);) {
        wait_for_work(worker.pool, worker.index, seen);
        leave_caller(worker.pool);
        seen = pool_help(worker.pool, worker.index);
    }
    return NULL;
}

static int start(RadStepPool *pool, int index)
{
    Worker *worker = malloc(sizeof(Worker));
    if (worker == NULL)
        return RAD_NOMEM;
    *worker = (Worker){ pool, index };
    /* Signals are the interpreter's: a worker that took one would only delay it. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&pool->threads[index], NULL, work, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        free(worker);
    return failed ? RAD_NOMEM : RAD_OK;
}

static void free_pool(RadStepPool *pool)
{
    if (pool != NULL) {
        free(pool->threads);
        free(pool->spans);
    }
    free(pool);
}

RAD_EXPORT RadStepPool *rad_step_create(int32_t num_threads)
{
    RadStepPool *pool = aligned_alloc(64, sizeof(RadStepPool));
    if (pool == NULL)
        return NULL;
    *pool = (RadStepPool){ .num_threads = 1, .team = team_of(num_threads) };
    pool->threads = calloc((size_t)num_threads, sizeof(pthread_t));
    pool->spans = aligned_alloc(64, (size_t)num_threads * sizeof(RadSpan));
    if (pool->threads == NULL || pool->spans == NULL) {
        free_pool(pool);
        return NULL;
    }
    memset(pool->spans, 0, (size_t)num_threads * sizeof(RadSpan));
    cpu_set_t cpus;
    int32_t processors =
        sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : num_threads;
    atomic_store(&pool->team_size, (uint32_t)num_threads);
    pool->spin_ns = num_threads > processors ? SPIN_CROWDED_NS : SPIN_NS;
    pool->yield_ns = num_threads > processors ? 0 : YIELD_NS;
    for (int32_t i = 1; i < num_threads; i++) {
        if (start(pool, i) != RAD_OK) {
            pool->num_threads = i;
            rad_step_destroy(pool);
            return NULL;
        }
    }
    pool->num_threads = num_threads;
    return pool;
}

RAD_EXPORT void rad_step_destroy(RadStepPool *pool)
{
    atomic_store(&pool->stop, 1);
    set_team(pool, pool->num_threads);
    atomic_fetch_add(&pool->wake_count, 1);
    futex_wake(&pool->wake_count, INT_MAX);
    for (int32_t i = 1; i < pool->num_threads; i++)
        pthread_join(pool->threads[i], NULL);
    free_pool(pool);
}
