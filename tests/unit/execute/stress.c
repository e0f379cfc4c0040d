/* Many steps on many threads with every kind of pause between calls; built with ThreadSanitizer by
 * a test. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <unistd.h>

/* A thread that dawdles between reading the offer and claiming: calls begin and end meanwhile. */
static _Thread_local unsigned dawdle;
static void pause_at_times(void)
{
    dawdle = dawdle * 1664525u + 1013904223u;
    if (dawdle >> 29 == 0)
        usleep(dawdle >> 12 & 127);
}
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_weak_explicit(word, expected, wanted, won, lost) \
    (pause_at_times(), __atomic_compare_exchange_n(word, expected, wanted, 1, won, lost))

#include "executor.c"
#include "pool.c"
#include "workers.c"

#include <stdio.h>

enum { ROWS = 96, NODES = 12 };

static int64_t tiles_of(const RadCall *call) { return rad_rows(call); }

/* y[i] += x[i] + 1: each node reads what the node before wrote, so a call that ends early shows. */
static int add(const RadCall *call, int64_t first, int64_t last, int worker)
{
    int64_t *scratch = (int64_t *)((char *)call->scratch + (size_t)worker * call->scratch_bytes);
    for (int64_t i = first; i < last; i++) {
        *scratch = ((int64_t *)call->tensors[0].data)[i];
        ((int64_t *)call->tensors[1].data)[i] += *scratch + 1;
    }
    return call->params[0].i == first ? RAD_NOTFOUND : RAD_OK;
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 4, steps = argc > 2 ? atoi(argv[2]) : 400;
    static int64_t data[2][ROWS], want[2][ROWS];
    static char scratch[64 * 64] __attribute__((aligned(64)));
    static int64_t shapes[NODES][2][1], stride[1] = { 1 };
    static DLTensor tensors[NODES][2];
    static RadStepOperand operands[NODES][2];
    static RadStepBand bands[NODES];
    static RadStepNode nodes[NODES];
    static RadValue fine = { .i = -1 };
    static const RadLayout *layouts[2];
    RadKernel kernel = { RAD_KERNEL("add", "add"), .tiles = tiles_of, .run = add };
    RadStepProgram program = {
        nodes, NODES, 0, { ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS, ROWS }
    };
    for (int n = 0; n < NODES; n++) {
        for (int o = 0; o < 2; o++) {
            tensors[n][o] = (DLTensor){ .device = { kDLCPU, 0 },
                                        .ndim = 1,
                                        .dtype = { kDLInt, 64, 1 },
                                        .shape = shapes[n][o],
                                        .strides = stride };
            operands[n][o] =
                (RadStepOperand){ .slot = (n + o) % 2, .rows = n % 3, .first_row = -1 };
        }
        bands[n] =
            (RadStepBand){ .upper = ROWS, .kernel = &kernel, .params = &fine, .num_params = 1 };
        nodes[n] = (RadStepNode){ n % 3, n % 3, 2, 1, operands[n], &bands[n], tensors[n],
                                  { .struct_bytes = sizeof(RadCall), .tensors = tensors[n],
                                    .layouts = layouts, .scratch = scratch, .scratch_bytes = 64,
                                    .num_tensors = 2 } };
    }
    RadStepPool *pool = rad_step_create(threads);
    unsigned seed = (unsigned)now_ns();
    for (int s = 0; s < steps; s++) {
        int64_t symbols[RAD_STEP_SYMBOLS] = { 0 };
        uint64_t slots[2] = { (uint64_t)(uintptr_t)data[0], (uint64_t)(uintptr_t)data[1] };
        RadStepFailure failure;
        for (int i = 0; i < 3; i++)
            symbols[i] = rand_r(&seed) % (ROWS + 1);
        RadValue bad = { .i = s % 16 == 0 ? 0 : -1 };
        bands[NODES - 1].params = &bad;
        int expect = bad.i == 0 && symbols[(NODES - 1) % 3] > 0 ? -1 : NODES;
        for (int n = 0; n < NODES; n++)
            for (int i = 0; i < symbols[n % 3]; i++)
                want[(n + 1) % 2][i] += want[n % 2][i] + 1;
        if (s % 5 == 0) /* members leave and return, at times all but the caller */
            set_team(pool, pool->team.size = 1 + rand_r(&seed) % threads);
        int got = rad_step_run(pool, &program, 0, symbols, slots, NULL, &failure);
        if (got != expect
            || (got < 0 && (failure.node != NODES - 1 || failure.status != RAD_NOTFOUND))) {
            fprintf(stderr, "step %d: seed: got %d, expected %d\n", s, got, expect);
            return 1;
        }
        /* After a fault the rest of the call's tiles may or may not have run: take it as it is. */
        for (int b = 0; b < 2; b++) {
            for (int i = 0; i < ROWS; i++) {
                if (got < 0 && b == NODES % 2)
                    want[b][i] = data[b][i];
                want[b][i] &= 0xffffff;
                data[b][i] &= 0xffffff;
                if (data[b][i] != want[b][i]) {
                    fprintf(stderr, "step %d: data[%d][%d] differs\n", s, b, i);
                    return 1;
                }
            }
        }
        if (s % 7 == 0) /* long enough for the workers to fall asleep */
            usleep(rand_r(&seed) % 200);
    }
    rad_step_destroy(pool);
    return 0;
}
