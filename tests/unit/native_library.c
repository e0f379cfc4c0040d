/* A kernel library whose faults are chosen by macros, for test_native_loader.py. */
#include <radiance_abi.h>
#include <stdio.h>
#include <string.h>

#ifndef VERSION
#define VERSION RAD_ABI_VERSION
#endif
#ifndef ROW_BYTES
#define ROW_BYTES sizeof(RadKernel)
#endif
#ifndef LIBRARY_BYTES
#define LIBRARY_BYTES sizeof(RadLibrary)
#endif
#ifndef LIBRARY_NAME
#define LIBRARY_NAME "testlib"
#endif
#ifndef OPEN_STATUS
#define OPEN_STATUS RAD_OK
#endif
#ifndef SCHEMA
#define SCHEMA                                                                               \
    "blend(M~, n, by:f=0.5, mode:s=near, tag?) x[M,n]:f32, weight w[n,n]:*, b?[M,n]:f32 -> " \
    "y[M,n]:f32"
#endif
#ifndef OP
#define OP "blend"
#endif
#ifndef SECOND
#define SECOND "whole"
#endif
#ifndef RUN
#define RUN run
#endif
#ifndef DOMAIN
#define DOMAIN RAD_HOST
#endif
#ifndef WHERE
#define WHERE where
#endif
#ifndef AXES
#define AXES axes
#endif
#ifndef RELAYOUT
#define RELAYOUT relayout
#endif

static int live;
RAD_EXPORT int live_states(void) { return live; }

static int64_t tiles(const RadCall *call)
{
    return call->tensors[0].shape[0] == 13 ? RAD_SHAPE : rad_rows(call);
}

/* y = x * by + b + w[0] + tag + state, through scratch, for f32 of any row stride. */
static int run(const RadCall *call, int64_t first, int64_t last, int worker)
{
    const DLTensor *x = &call->tensors[0], *w = &call->tensors[1], *b = &call->tensors[2],
                   *y = &call->tensors[3];
    int64_t n = x->shape[1];
    if (call->struct_bytes != sizeof(RadCall) || call->num_tensors != 4 || call->num_params != 5)
        return RAD_INVAL;
    if (strcmp(call->params[3].s, "far") == 0)
        return RAD_DTYPE;
    if (((call->params_present >> 4) & 1) != (call->params[4].i != 0))
        return RAD_SCHEMA;
    if (rad_absent(b) != (b->data == NULL) || call->layouts[0] != NULL)
        return RAD_STATE;
    float *row = (float *)((char *)call->scratch + (int64_t)worker * (int64_t)call->scratch_bytes);
    if (call->scratch != NULL && ((uintptr_t)row % 64 || call->scratch_bytes < (size_t)n * 4))
        return RAD_SCRATCH;
    float extra = (float)call->params[4].i + (call->state ? *(int *)call->state : 0);
    extra += ((const float *)w->data)[0] + (call->layouts[1] ? (float)call->layouts[1]->tag : 0);
    for (int64_t i = first; i < last; i++) {
        float *out = (float *)y->data + i * y->strides[0];
        for (int64_t j = 0; j < n; j++)
            out[j] = ((const float *)x->data)[i * x->strides[0] + j * x->strides[1]]
                         * (float)call->params[2].f
                     + (b->data ? ((const float *)b->data)[i * b->strides[0] + j] : 0) + extra;
        if (call->scratch != NULL)
            memcpy(row, out, (size_t)n * 4);
    }
    return RAD_OK;
}

static int run_whole(const RadCall *call, int64_t first, int64_t last, int worker)
{
    return first == 0 && last == 1 && worker == 0 ? run(call, 0, rad_rows(call), 0) : RAD_INVAL;
}

static int64_t scratch(const RadGeometry *geometry) { return rad_int_param(geometry, "n", 0) * 4; }

static int init(const RadGeometry *geometry, void **state)
{
    static int values[64];
    if (strcmp(geometry->op, "blend") != 0 || strcmp(geometry->params[0].key, "M") != 0)
        return RAD_SCHEMA;
    if (live == 64)
        return RAD_FULL;
    values[live] = (int)rad_int_param(geometry, "tile", -1);
    *state = &values[live++];
    return RAD_OK;
}

static void fini(void *state) { live -= state != NULL; }

/* Stores plain u8 weights with every byte inverted; f32 as they are; nothing else. */
static int layout(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                  RadLayout *out)
{
    (void)geometry;
    if (operand != 1 || encoding->num_planes != 1 || strcmp(encoding->scheme, "plain") != 0)
        return RAD_DTYPE;
    if (strcmp(encoding->planes[0].dtype, "f32") == 0)
        return RAD_UNSUPPORTED;
    if (strcmp(encoding->planes[0].dtype, "i16") == 0)
        return RAD_OK; /* and forgets to fill the layout in */
    if (strcmp(encoding->planes[0].dtype, "u8") != 0)
        return strcmp(encoding->planes[0].dtype, "i8") == 0 ? RAD_NOMEM : RAD_DTYPE;
    snprintf(out->name, sizeof(out->name), "inverted");
    out->dtype = (DLDataType){ kDLUInt, 8, 1 };
    out->ndim = 2;
    out->shape[0] = encoding->rows;
    out->shape[1] = encoding->cols;
    out->row_block = 2;
    out->tag = 7;
    return RAD_OK;
}

static int relayout(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                    const RadLayout *layout, const DLTensor *planes, void *stored,
                    int64_t first_row, int64_t last_row)
{
    (void)geometry, (void)operand;
    if (layout->tag != 7 || first_row % layout->row_block
        || planes[0].shape[0] != last_row - first_row)
        return RAD_INVAL;
    for (int64_t r = first_row; r < last_row; r++)
        for (int64_t c = 0; c < encoding->cols; c++)
            ((uint8_t *)stored)[r * encoding->cols + c] =
                (uint8_t)~((uint8_t *)planes[0].data)[(r - first_row) * planes[0].strides[0] + c];
    return RAD_OK;
}

static int unrelayout(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                      const RadLayout *layout, const void *stored, DLTensor *planes,
                      int64_t first_row, int64_t last_row)
{
    (void)geometry, (void)operand, (void)layout;
    for (int64_t i = 0; i < (last_row - first_row) * encoding->cols; i++)
        ((uint8_t *)planes[0].data)[i] =
            (uint8_t)~((const uint8_t *)stored)[first_row * encoding->cols + i];
    return RAD_OK;
}

static const RadConstraint where[] = {
    RAD_LE("M", 64), RAD_GE("n", 1), RAD_DIV("n", 2), RAD_IN("mode", "near far"),
#ifdef BAD_CONSTRAINT
    { "n", 9, 0, 1, NULL },
#else
    RAD_IS("n", 8),
#endif
};
static const int64_t tile_values[] = { 1, 2, 4 };
#ifndef DEFAULT_INDEX
#define DEFAULT_INDEX 1
#endif
static const RadAxis axes[] = { { "tile", tile_values, 3, DEFAULT_INDEX } };

#ifdef SMALL_ROWS /* a contract whose rows ended at run: what an older library looks like */
typedef struct OldKernel {
    char bytes[offsetof(RadKernel, scratch)];
} OldKernel;
static OldKernel old[2];
#endif

static const RadKernel kernels[] = {
    { .struct_bytes = ROW_BYTES, .op = OP, .name = "tiled", .domain = DOMAIN, .priority = 5,
      .where = WHERE, .num_where = 5, .axes = AXES, .num_axes = 1, .tiles = tiles, .run = RUN,
      .scratch = scratch, .init = init, .fini = fini, .layout = layout, .relayout = RELAYOUT,
      .unrelayout = unrelayout, .replaces = "mul+add", .describe = "blends" },
    { RAD_KERNEL(OP, SECOND), .run = run_whole },
};
static const char *const schemas[] = { SCHEMA, "other(n) x[n]:f32 -> y[n]:f32",
#ifdef TWICE
                                       "other(n) x[n]:f32 -> z[n]:f32"
#endif
};

static int open_library(char *text, size_t text_bytes)
{
    snprintf(text, text_bytes, "%s",
             OPEN_STATUS == RAD_OK ? "two units" : "needs a flux capacitor");
    return OPEN_STATUS;
}

RAD_EXPORT int32_t rad_abi_version(void);
RAD_EXPORT const RadLibrary *rad_library(void);
int32_t rad_abi_version(void) { return VERSION; }
#ifndef NO_TABLES
const RadLibrary *rad_library(void)
{
    static RadLibrary library = {
        LIBRARY_BYTES, LIBRARY_NAME, "1.2", "host", RAD_REFERENCE, kernels, 2,
        sizeof(schemas) / sizeof(schemas[0]), schemas, open_library
    };
#ifdef SMALL_ROWS
    for (int i = 0; i < 2; i++) {
        memcpy(&old[i], &kernels[i], sizeof(OldKernel));
        ((RadKernel *)(void *)&old[i])->struct_bytes = sizeof(OldKernel);
    }
    library.kernels = (const RadKernel *)(const void *)old;
#endif
#ifdef NULL_TABLES
    return NULL;
#endif
#ifdef NO_SCHEMAS_POINTER
    library.schemas = NULL;
#endif
#ifdef NO_ROWS_POINTER
    library.kernels = NULL;
#endif
    return &library;
}
#endif
