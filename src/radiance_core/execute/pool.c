/* pool.c - a team of threads and how they share the tiles of a call (ADR 0003).
 *
 * One parallel call at a time is on offer, under a generation number. Its tiles are cut into chunks, and each
 * thread has a span of adjacent ones (spans.h): it claims the first of its own, so that it reads weights in one
 * stream, and when none is left the last ones of the others. The description of the call (fn, call, tiles, ...)
 * is read before the first claim and is only rewritten when no span has a chunk left, so a claim that succeeds
 * proves that what was read belongs to this generation. The caller goes on as soon as every claimed chunk is
 * done, whoever else may still be on the way: there is no barrier that all threads must reach.
 */
#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spans.h"
#include "team.h"

#define CHUNKS_PER_THREAD 8
#define SPIN_NS 50000        /* how long a thread waits awake; covers the gaps between nodes of a step */
#define YIELD_NS 500000      /* how long a worker goes on, giving way to whoever asks; covers those between steps */
#define SPIN_CROWDED_NS 2000 /* instead of both with more threads than processors: the other needs this one */
#define POLLS_PER_CLOCK 32

struct RadStepPool {
    _Alignas(64) _Atomic uint32_t generation; /* of the call on offer, which follows */
    _Atomic int status;                       /* its first negative status */
    _Atomic(RunHook) fn;
    _Atomic(const RadCall *) call;
    _Atomic(const int32_t *) abort;
    _Atomic int64_t tiles, chunk, num_chunks;
    _Alignas(64) _Atomic uint32_t pending; /* chunks not counted as finished; the caller sleeps on it */
    _Atomic uint32_t caller_sleeps;
    _Alignas(64) _Atomic uint32_t wake_count; /* workers sleep on it */
    _Atomic uint32_t sleepers;                /* at least as many as workers sleep */
    _Atomic uint32_t team_size;               /* workers below it take part; the others sleep on it */
    _Atomic int stop;
    _Atomic int caller_cpu;
    int64_t spin_ns, yield_ns;
    int32_t num_threads;
    pthread_t *threads;
    RadSpan *spans;                 /* one for each thread */
    _Alignas(64) RadTeam team;      /* from here on the caller's own, apart from what workers poll */
    int64_t clock_ns;               /* the latest reading in this step */
    int64_t begin_ns, begin_cpu_ns; /* of the step: time, and the caller's processor time */
    int64_t slept_ns, late_ns;      /* in this step: asleep, and waiting for chunks that are late */
};

typedef struct Offer {
    RadShares shares;
    RunHook fn;
    const RadCall *call;
    const int32_t *abort;
    int64_t tiles, chunk;
} Offer;

typedef struct Worker {
    RadStepPool *pool;
    int index;
} Worker;

static void futex_wait(_Atomic uint32_t *word, uint32_t value)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, uint32_t count)
{
    syscall(SYS_futex, (uint32_t *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int64_t now_ns(void) { return read_ns(CLOCK_MONOTONIC); }

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* ------------------------------------------------------------------ distribution */
static Offer read_offer(const RadStepPool *pool)
{
    uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_acquire);
    int64_t num_chunks = atomic_load_explicit(&pool->num_chunks, memory_order_relaxed);
    return (Offer){
        .shares = { pool->spans, pool->num_threads, generation, num_chunks },
        .fn = atomic_load_explicit(&pool->fn, memory_order_relaxed),
        .call = atomic_load_explicit(&pool->call, memory_order_relaxed),
        .abort = atomic_load_explicit(&pool->abort, memory_order_relaxed),
        .tiles = atomic_load_explicit(&pool->tiles, memory_order_relaxed),
        .chunk = atomic_load_explicit(&pool->chunk, memory_order_relaxed),
    };
}

static void run_chunk(RadStepPool *pool, const Offer *offer, int64_t index, int worker)
{
    if (atomic_load_explicit(&pool->status, memory_order_relaxed) != RAD_OK)
        return;
    int64_t first = index * offer->chunk, end = rad_min(first + offer->chunk, offer->tiles);
    int status = is_aborted(offer->abort) ? POOL_ABORTED : offer->fn(offer->call, first, end, worker);
    int ok = RAD_OK;
    if (status < 0)
        atomic_compare_exchange_strong(&pool->status, &ok, status);
}

/* Claim and run chunks of the call on offer until none is left, then count them all as finished: until then
 * the call cannot end. Returns its generation. */
static uint32_t help(RadStepPool *pool, int worker)
{
    const Offer offer = read_offer(pool);
    uint32_t done = 0;
    for (int32_t i = 0; i < pool->num_threads; i++) {
        int32_t span = (worker + i) % pool->num_threads;
        for (int64_t at; (at = claim(&offer.shares, span, i > 0)) >= 0; done++)
            run_chunk(pool, &offer, at, worker);
    }
    if (done > 0 && atomic_fetch_sub(&pool->pending, done) == done && atomic_load(&pool->caller_sleeps))
        futex_wake(&pool->pending, 1);
    return offer.shares.generation;
}

/* Wake as many sleepers as there are chunks for them: each costs the caller a microsecond.
 *
 * A worker counts itself before its last look at the generation, and reads wake_count before that, so either it
 * sees the offer or its futex_wait returns at once. The count may be too high, never too low. */
static void wake_workers(RadStepPool *pool, uint32_t wanted)
{
    uint32_t asleep = atomic_exchange(&pool->sleepers, 0);
    uint32_t count = asleep < wanted ? asleep : wanted;
    atomic_fetch_add(&pool->sleepers, asleep - count);
    atomic_fetch_add(&pool->wake_count, 1);
    futex_wake(&pool->wake_count, count);
}

static int64_t chunk_of(const RadStepPool *pool, int64_t tiles)
{
    int64_t wanted = rad_min((int64_t)CHUNKS_PER_THREAD * pool->num_threads, MOST_CHUNKS / 2);
    return tiles > wanted ? tiles / wanted : 1;
}

static void offer(RadStepPool *pool, RunHook fn, const RadCall *call, int64_t tiles)
{
    int64_t chunk = chunk_of(pool, tiles);
    int64_t num_chunks = rad_blocks(tiles, chunk);
    uint32_t generation = atomic_load_explicit(&pool->generation, memory_order_relaxed);
    atomic_store_explicit(&pool->fn, fn, memory_order_relaxed);
    atomic_store_explicit(&pool->call, call, memory_order_relaxed);
    atomic_store_explicit(&pool->tiles, tiles, memory_order_relaxed);
    atomic_store_explicit(&pool->chunk, chunk, memory_order_relaxed);
    atomic_store_explicit(&pool->num_chunks, num_chunks, memory_order_relaxed);
    atomic_store_explicit(&pool->status, RAD_OK, memory_order_relaxed);
    atomic_store_explicit(&pool->pending, (uint32_t)num_chunks, memory_order_relaxed);
    atomic_store(&pool->generation, generation + 1);
    if (atomic_load(&pool->sleepers) > 0)
        wake_workers(pool, (uint32_t)num_chunks - 1);
}

static int poll_finished(const RadStepPool *pool)
{
    for (int i = 0; i < POLLS_PER_CLOCK; i++) {
        if (atomic_load_explicit(&pool->pending, memory_order_acquire) == 0)
            return 1;
        relax();
    }
    return 0;
}

static int64_t sleep_until_finished(RadStepPool *pool, int64_t since)
{
    atomic_store(&pool->caller_sleeps, 1);
    for (uint32_t left; (left = atomic_load(&pool->pending)) != 0;)
        futex_wait(&pool->pending, left);
    atomic_store(&pool->caller_sleeps, 0);
    int64_t now = now_ns();
    pool->slept_ns += now - since;
    return now;
}

/* Wait until every chunk is finished: awake for a while, then asleep. */
static int wait_finished(RadStepPool *pool)
{
    if (atomic_load_explicit(&pool->pending, memory_order_acquire) != 0) {
        int64_t begin = now_ns(), now = begin;
        while (!poll_finished(pool)) {
            now = now_ns();
            if (now - begin >= pool->spin_ns) {
                now = sleep_until_finished(pool, now);
                break;
            }
        }
        pool->late_ns += team_lost(now - begin, begin - pool->clock_ns);
        pool->clock_ns = now;
    }
    return atomic_load_explicit(&pool->status, memory_order_relaxed);
}

/* Run a call on the caller alone, in chunks, so that a long one can be ended on the way. */
static int run_alone(RadStepPool *pool, RunHook fn, const RadCall *call, int64_t tiles)
{
    const int32_t *abort = atomic_load_explicit(&pool->abort, memory_order_relaxed);
    int64_t chunk = chunk_of(pool, tiles);
    int status = RAD_OK;
    for (int64_t first = 0; first < tiles && status >= 0; first += chunk)
        status = is_aborted(abort) ? POOL_ABORTED : fn(call, first, rad_min(first + chunk, tiles), 0);
    return status;
}

int pool_run(RadStepPool *pool, RunHook fn, const RadCall *call, int64_t tiles)
{
    if (tiles <= 1 || pool->team.size == 1)
        return run_alone(pool, fn, call, tiles);
    offer(pool, fn, call, tiles);
    help(pool, 0);
    return wait_finished(pool);
}

void pool_begin(RadStepPool *pool, const int32_t *abort)
{
    atomic_store_explicit(&pool->abort, abort, memory_order_relaxed);
    atomic_store_explicit(&pool->caller_cpu, sched_getcpu(), memory_order_relaxed);
    pool->clock_ns = pool->begin_ns = now_ns();
    pool->begin_cpu_ns = read_ns(CLOCK_THREAD_CPUTIME_ID);
    pool->slept_ns = pool->late_ns = 0;
}

static void set_team(RadStepPool *pool, int32_t size)
{
    atomic_store(&pool->team_size, (uint32_t)size);
    futex_wake(&pool->team_size, INT_MAX);
}

void pool_end(RadStepPool *pool)
{
    if (pool->num_threads == 1)
        return;
    int64_t now = now_ns(), ran = now - pool->begin_ns;
    int64_t away = ran - pool->slept_ns - (read_ns(CLOCK_THREAD_CPUTIME_ID) - pool->begin_cpu_ns);
    int32_t before = pool->team.size;
    if (team_after(&pool->team, now, ran, pool->late_ns + away) != before)
        set_team(pool, pool->team.size);
}

/* ------------------------------------------------------------------ workers */
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
    for (uint32_t size; (size = atomic_load(&pool->team_size)) <= (uint32_t)index && !atomic_load(&pool->stop);)
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

/* On the caller's processor a worker only takes time from it, and where all are busy the system leaves both
 * there: go to another one, and be free to move again. */
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
        seen = help(worker.pool, worker.index);
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
    int32_t processors = sched_getaffinity(0, sizeof(cpus), &cpus) == 0 ? CPU_COUNT(&cpus) : num_threads;
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
