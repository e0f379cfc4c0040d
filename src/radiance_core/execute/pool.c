/* pool.c - a team of threads and how they share the tiles of a call (ADR 0003).
 *
 * One parallel call at a time is on offer, under a generation number. Its tiles are cut into
 * chunks, and each thread has a span of adjacent ones (spans.h): it claims the first of its own, so
 * that it reads weights in one stream, and when none is left the last ones of the others. The
 * description of the call (fn, call, tiles, ...) is read before the first claim and is only
 * rewritten when no span has a chunk left, so a claim that succeeds proves that what was read
 * belongs to this generation. The caller goes on as soon as every claimed chunk is done, whoever
 * else may still be on the way: there is no barrier that all threads must reach.
 */
#include "pool_state.h"

#include <sched.h>

#define CHUNKS_PER_THREAD 8

typedef struct Offer {
    RadShares shares;
    RunHook fn;
    const RadCall *call;
    const int32_t *abort;
    int64_t tiles, chunk;
} Offer;

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
    int status =
        is_aborted(offer->abort) ? POOL_ABORTED : offer->fn(offer->call, first, end, worker);
    int ok = RAD_OK;
    if (status < 0)
        atomic_compare_exchange_strong(&pool->status, &ok, status);
}

uint32_t pool_help(RadStepPool *pool, int worker)
{
    const Offer offer = read_offer(pool);
    uint32_t done = 0;
    for (int32_t i = 0; i < pool->num_threads; i++) {
        int32_t span = (worker + i) % pool->num_threads;
        for (int64_t at; (at = claim(&offer.shares, span, i > 0)) >= 0; done++)
            run_chunk(pool, &offer, at, worker);
    }
    if (done > 0 && atomic_fetch_sub(&pool->pending, done) == done
        && atomic_load(&pool->caller_sleeps))
        futex_wake(&pool->pending, 1);
    return offer.shares.generation;
}

/* Wake as many sleepers as there are chunks for them: each costs the caller a microsecond.
 *
 * A worker counts itself before its last look at the generation, and reads wake_count before that,
 * so either it sees the offer or its futex_wait returns at once. The count may be too high, never
 * too low. */
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
        status =
            is_aborted(abort) ? POOL_ABORTED : fn(call, first, rad_min(first + chunk, tiles), 0);
    return status;
}

int pool_run(RadStepPool *pool, RunHook fn, const RadCall *call, int64_t tiles)
{
    if (tiles <= 1 || pool->team.size == 1)
        return run_alone(pool, fn, call, tiles);
    offer(pool, fn, call, tiles);
    pool_help(pool, 0);
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
