/* Kernels for the tests of the executor. All arithmetic is on int32, so results can be compared
 * exactly. */
#include <radiance_abi.h>
#include <string.h>
#include <time.h>

static int live;
RAD_EXPORT int live_states(void) { return live; }

static int32_t *row(const DLTensor *t, int64_t i) { return (int32_t *)t->data + i * t->strides[0]; }

/* mix: y = y * 3 + x * k + b (its row 0, when there) + state, one row a tile, by way of scratch. */
static int mix(const RadCall *call, int64_t first, int64_t last, int worker)
{
    const DLTensor *x = &call->tensors[0], *b = &call->tensors[1], *y = &call->tensors[2];
    int32_t k = (int32_t)call->params[2].i, plus = call->state ? *(int32_t *)call->state : 0;
    if (x->shape[0] != y->shape[0] || call->struct_bytes != sizeof(RadCall)
        || call->num_tensors != 3)
        return RAD_SHAPE;
    if (((call->params_present >> 3) & 1) != (call->params[3].i != 0))
        return RAD_SCHEMA;
    int32_t *scratch = (int32_t *)((char *)call->scratch + (size_t)worker * call->scratch_bytes);
    if ((uintptr_t)scratch % 64 || call->scratch_bytes < (size_t)x->shape[1] * 4)
        return RAD_SCRATCH;
    for (int64_t i = first; i < last; i++) {
        for (int64_t j = 0; j < x->shape[1]; j++)
            scratch[j] = (int32_t)((uint32_t)row(y, i)[j] * 3u + (uint32_t)(row(x, i)[j] * k + plus)
                                   + (uint32_t)(b->data ? row(b, 0)[j] : 0));
        memcpy(row(y, i), scratch, (size_t)x->shape[1] * 4);
    }
    return RAD_OK;
}

static int64_t mix_tiles(const RadCall *call) { return rad_rows(call); }
static int mix_whole(const RadCall *call, int64_t first, int64_t last, int worker)
{
    return first == 0 && last == 1 && worker == 0 ? mix(call, 0, rad_rows(call), worker)
                                                  : RAD_INVAL;
}

static int64_t param(const RadGeometry *geometry, const char *key)
{
    for (int i = 0; i < geometry->num_params; i++)
        if (strcmp(geometry->params[i].key, key) == 0)
            return geometry->params[i].value.i;
    return 0;
}
static int64_t mix_scratch(const RadGeometry *geometry)
{
    return param(geometry, "k") == -4 ? RAD_NOMEM : param(geometry, "n") * 4;
}
static int mix_init(const RadGeometry *geometry, void **state)
{
    static int32_t values[4096];
    if (param(geometry, "k") == -5)
        return RAD_NOMEM;
    values[live] = (int32_t)param(geometry, "tag");
    *state = &values[live++ % 4096];
    return RAD_OK;
}
static void mix_fini(void *state) { live -= state != NULL; }

/* fault: tile number `at` gives `status`; before that y counts the tiles that ran. */
static int64_t fault_tiles(const RadCall *call)
{
    return call->params[2].i == -1 ? call->params[1].i : rad_rows(call);
}
static int fault(const RadCall *call, int64_t first, int64_t last, int worker)
{
    (void)worker;
    for (int64_t i = first; i < last; i++) {
        if (i == call->params[2].i)
            return (int)call->params[1].i;
        row(&call->tensors[0], i)[0]++;
    }
    return RAD_OK;
}

/* who: y[i] = the worker that ran tile i, after `us` microseconds of work. */
static int64_t who_tiles(const RadCall *call) { return rad_rows(call); }
static int who(const RadCall *call, int64_t first, int64_t last, int worker)
{
    struct timespec t, end;
    for (int64_t i = first; i < last; i++) {
        clock_gettime(CLOCK_MONOTONIC, &end);
        end.tv_nsec += call->params[1].i * 1000;
        do
            clock_gettime(CLOCK_MONOTONIC, &t);
        while ((t.tv_sec - end.tv_sec) * 1000000000L + t.tv_nsec - end.tv_nsec < 0);
        row(&call->tensors[0], i)[0] = worker;
    }
    return RAD_OK;
}

/* until: y[i] = the worker that runs tile i, which ends when the word is no longer 0, or after a
 * minute. */
static int until(const RadCall *call, int64_t first, int64_t last, int worker)
{
    const volatile int32_t *word = call->tensors[0].data;
    const struct timespec pause = { 0, 1000000 };
    for (int64_t i = first; i < last; i++) {
        row(&call->tensors[1], i)[0] = worker;
        for (int k = 0; *word == 0 && k < 60000; k++)
            nanosleep(&pause, NULL);
    }
    return RAD_OK;
}
static int64_t until_tiles(const RadCall *call) { return call->tensors[1].shape[0]; }

static const RadKernel kernels[] = {
    { RAD_KERNEL("mix", "tiled"), .tiles = mix_tiles, .run = mix, .scratch = mix_scratch,
      .init = mix_init, .fini = mix_fini },
    { RAD_KERNEL("mix", "whole"), .run = mix_whole, .scratch = mix_scratch },
    { RAD_KERNEL("fault", "fault"), .tiles = fault_tiles, .run = fault },
    { RAD_KERNEL("who", "who"), .tiles = who_tiles, .run = who },
    { RAD_KERNEL("until", "until"), .tiles = until_tiles, .run = until },
};
static const char *const schemas[] = {
    "mix(M~, n, k, tag?) x[M,n]:i32, b?[_,n]:i32, inout y[M,n]:i32 ->",
    "fault(M~, status, at) inout y[M,1]:i32 ->",
    "who(M~, us) inout y[M,1]:i32 ->",
    "until(M~) word[_]:i32, inout y[M,1]:i32 ->",
};

RAD_EXPORT int32_t rad_abi_version(void);
RAD_EXPORT const RadLibrary *rad_library(void);
int32_t rad_abi_version(void) { return RAD_ABI_VERSION; }
const RadLibrary *rad_library(void)
{
    static const RadLibrary library = {
        sizeof(RadLibrary), "steps", "1", "host", 0, kernels, 5, 4, schemas, NULL
    };
    return &library;
}
