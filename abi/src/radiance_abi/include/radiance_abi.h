/* radiance_abi.h - the contract between the radiance core and a kernel library written in C or C++.
 *
 * A library is a shared object that exports two functions, both made by RAD_LIBRARY or
 * RAD_LIBRARY_WITH below:
 *   int32_t rad_abi_version(void);         which contract it was built for; this signature never
 *                                          changes
 *   const RadLibrary *rad_library(void);   its static tables; read once, kept for the life of the
 *                                          process
 *
 * Ownership: every table, string and function that rad_library reaches stays valid and unchanged
 * until the process ends. Every pointer that the core passes to a hook is valid only during that
 * call unless stated.
 * Threads: run is called from many threads at once, each with its own `worker`; relayout and
 * unrelayout from many threads on disjoint row ranges; all other hooks from one thread at a time.
 * Status: hooks return RAD_OK or a negative status. Nothing may throw, print, exit, or start
 * threads.
 *
 * One file, because it is all that a kernel library includes, and all that binds it.
 */
#ifndef RADIANCE_ABI_H_
#define RADIANCE_ABI_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RAD_ABI_VERSION 1 /* a library built for another number is refused by name */
#define RAD_MAX_RANK 6    /* most dimensions that a tensor has */

#if defined(__GNUC__)
#define RAD_EXPORT __attribute__((visibility("default")))
#else
#define RAD_EXPORT
#endif

/* ------------------------------------------------------- tensors: the DLPack layout, in C */
#ifndef DLPACK_DLPACK_H_
#define DLPACK_DLPACK_H_
typedef int32_t DLDeviceType; /* DLPack device code; the host is kDLCPU */
enum { kDLCPU = 1 };
typedef struct DLDevice {
    DLDeviceType device_type; /* kDLCPU for host kernels */
    int32_t device_id;        /* 0 on the host */
} DLDevice;
enum {
    kDLInt = 0,
    kDLUInt = 1,
    kDLFloat = 2,
    kDLOpaqueHandle = 3,
    kDLBfloat = 4,
    kDLComplex = 5,
    kDLBool = 6,
    kDLFloat8_e4m3fn = 10,
    kDLFloat8_e5m2 = 12,
    kDLFloat8_e8m0fnu = 14,
    kDLFloat6_e2m3fn = 15,
    kDLFloat6_e3m2fn = 16,
    kDLFloat4_e2m1fn = 17
};
typedef struct DLDataType {
    uint8_t code;   /* one of the codes above */
    uint8_t bits;   /* bits of one element */
    uint16_t lanes; /* 1 */
} DLDataType;
typedef struct DLTensor {
    void *data;           /* NULL when an optional operand is absent */
    DLDevice device;      /* where data lives */
    int32_t ndim;         /* 0 when absent, else 1..RAD_MAX_RANK */
    DLDataType dtype;     /* element type */
    int64_t *shape;       /* ndim extents, in elements */
    int64_t *strides;     /* ndim strides, in elements; never NULL here */
    uint64_t byte_offset; /* always 0 here: data points at the first element */
} DLTensor;
#endif

/* ------------------------------------------------------------------ status codes */
enum {
    RAD_OK = 0,
    RAD_SHAPE = -1,        /* extents that the kernel cannot take */
    RAD_DTYPE = -2,        /* element type, or encoding, that the kernel does not read */
    RAD_ALIGN = -3,        /* data not aligned as the kernel needs */
    RAD_STRIDE = -4,       /* strides that the kernel cannot take */
    RAD_SCRATCH = -5,      /* scratch missing or too small */
    RAD_NOMEM = -6,        /* out of memory */
    RAD_NOKERNEL = -7,     /* no kernel for this geometry */
    RAD_NOSCHEMA = -8,     /* no schema for this op */
    RAD_SCHEMA = -9,       /* operands or params differ from the schema */
    RAD_ABI = -10,         /* contract versions differ */
    RAD_DUPLICATE = -11,   /* claimed twice */
    RAD_INVAL = -12,       /* an argument that makes no sense */
    RAD_IO = -13,          /* reading or writing failed */
    RAD_FORMAT = -14,      /* a file is not what it says */
    RAD_DEVICE = -15,      /* the device reported a fault */
    RAD_STATE = -16,       /* called in the wrong state */
    RAD_NOTFOUND = -17,    /* not there */
    RAD_UNSUPPORTED = -18, /* not served; from open: this machine is declined */
    RAD_FULL = -19,        /* no room */
    RAD_CANCELLED = -20    /* given up on request */
};

/* ------------------------------------------------------------------ params and geometry */
enum { RAD_INT = 0, RAD_FLOAT = 1, RAD_STR = 2 };
typedef union RadValue {
    int64_t i;     /* RAD_INT */
    double f;      /* RAD_FLOAT */
    const char *s; /* RAD_STR: UTF-8, ends in NUL */
} RadValue;
typedef struct RadParam {
    const char *key; /* the schema's name for it */
    int32_t kind;    /* RAD_INT, RAD_FLOAT or RAD_STR */
    int32_t reserved; /* 0, here and below */
    RadValue value;  /* the member that kind names */
} RadParam;
/* The params that a node was declared with; ranged ones hold the band's upper bound. */
typedef struct RadGeometry {
    size_t struct_bytes;      /* sizeof(RadGeometry) of the core */
    const char *op;           /* op name */
    int32_t num_params;       /* entries in params; absent optional ones are left out */
    int32_t reserved;
    const RadParam *params;   /* in schema order */
} RadGeometry;

/* ------------------------------------------------------- encodings and layouts of weights */
typedef struct RadPlane {
    const char *role;   /* "codes", "scale", "scale.1", "zero", "min", "min.1", "table", ... */
    const char *dtype;  /* "u4", "f16", "bf16", ... */
    int32_t is_table;   /* 1: extent is the plane's own; 0: block says how many share one entry */
    int32_t reserved;
    int64_t block[2];   /* rows, columns per entry; 0 means the whole extent */
    int64_t extent[2];  /* rows, columns of a table */
} RadPlane;
typedef struct RadEncoding {
    size_t struct_bytes;    /* sizeof(RadEncoding) of the core */
    const char *spelling;   /* the one-line spelling; equal encodings have equal spellings */
    const char *scheme;     /* "plain", "affine", or a quantiser's own */
    const char *transform;  /* "" or the name of the transform */
    int64_t rows, cols;     /* logical extents: rows is the product of all but the last */
    int32_t num_planes;     /* entries in planes */
    int32_t reserved;
    const RadPlane *planes; /* in the order in which relayout receives them */
} RadEncoding;
/* What a kernel stores for a weight, and therefore what its operand looks like. */
typedef struct RadLayout {
    size_t struct_bytes;    /* sizeof(RadLayout) of the core; the hook fills the rest */
    char name[48];          /* equal names mean equal bytes for equal planes; ends in NUL */
    DLDataType dtype;       /* element type of the stored tensor */
    int32_t ndim;           /* rank of the stored tensor, 1..4 */
    int64_t shape[4];       /* its extents; stored dense, row-major, 256-byte aligned */
    int64_t row_block;      /* relayout's row ranges begin at multiples of this (>= 1) */
    int64_t tag;            /* the kernel's own; handed back in RadCall.layouts */
} RadLayout;

/* ------------------------------------------------------------------ a call */
typedef struct RadCall {
    size_t struct_bytes;             /* sizeof(RadCall) of the core */
    const DLTensor *tensors;         /* operands in schema order, narrowed to this step's rows */
    const RadLayout *const *layouts; /* same order; NULL where it is not a laid-out weight */
    const RadValue *params;          /* in schema order; an absent optional one holds its default */
    uint64_t params_present;         /* bit i set: param i was given */
    void *state;                     /* what init returned, or NULL */
    void *scratch;                   /* worker w owns scratch + w * scratch_bytes; 64-byte aligned,
                                        contents undefined */
    size_t scratch_bytes;            /* bytes for one worker, at least what the hook asked */
    int32_t num_tensors;             /* operands of the schema, absent ones included */
    int32_t num_params;              /* params of the schema, absent ones included */
} RadCall;

/* ------------------------------------------------------------------ a kernel row */
enum { RAD_EQ = 0, RAD_LE_OP = 1, RAD_GE_OP = 2, RAD_DIV_OP = 3, RAD_IN_OP = 4 };
typedef struct RadConstraint {
    const char *key; /* param name; an int param that is absent does not match */
    int32_t op;      /* RAD_EQ .. RAD_IN_OP */
    int32_t reserved;
    int64_t value;   /* EQ, LE, GE: bound; DIV: the param is a multiple of it */
    const char *set; /* IN: words separated by spaces; a derived param prefers the first */
} RadConstraint;
#define RAD_IS(k, v) { (k), RAD_EQ, 0, (v), NULL }
#define RAD_LE(k, v) { (k), RAD_LE_OP, 0, (v), NULL }
#define RAD_GE(k, v) { (k), RAD_GE_OP, 0, (v), NULL }
#define RAD_DIV(k, v) { (k), RAD_DIV_OP, 0, (v), NULL }
#define RAD_IN(k, words) { (k), RAD_IN_OP, 0, 0, (words) }

/* A tunable, for speed alone: results are the same bits at every value. The core appends the chosen
 * value to the params that hooks see in geometry; init keeps what tiles and run need in the state
 * (rad_int_param reads it). */
typedef struct RadAxis {
    const char *name;      /* differs from every param of the op */
    const int64_t *values; /* ascending */
    int32_t num_values;    /* entries in values, at least 1 */
    int32_t default_index; /* the value until somebody tunes */
} RadAxis;

enum { RAD_HOST = 0, RAD_DEVICE_DOMAIN = 1 };
typedef struct RadKernel {
    size_t struct_bytes;          /* sizeof(RadKernel) of the library */
    const char *op;               /* op it serves */
    const char *name;             /* unique inside the library for this op */
    int32_t domain;               /* RAD_HOST or RAD_DEVICE_DOMAIN */
    int32_t priority;             /* higher wins inside one library; ties: order of declaration */
    const RadConstraint *where;   /* all must hold */
    int32_t num_where;            /* entries in where; 0 with where NULL: no condition */
    int32_t num_axes;             /* entries in axes */
    const RadAxis *axes;          /* what may be tuned, or NULL */
    /* How many independent pieces the call has. >= 0, or a negative status. Must not allocate or
     * block. NULL: one piece. */
    int64_t (*tiles)(const RadCall *call);
    /* Compute pieces [first, last). What a piece writes must not depend on the worker, on how
     * pieces are grouped, or on how many rows the call has. */
    int (*run)(const RadCall *call, int64_t first, int64_t last, int worker);
    /* Bytes of scratch for one worker at this geometry. NULL: none. */
    int64_t (*scratch)(const RadGeometry *geometry);
    /* Once per resolved node. *state comes back in RadCall.state. NULL: no state. fini frees it. */
    int (*init)(const RadGeometry *geometry, void **state);
    void (*fini)(void *state);
    /* What this kernel stores for weight operand `operand`: RAD_OK and *out filled, RAD_UNSUPPORTED
     * to take the single plane of a plain weight as it is, RAD_DTYPE for "I do not read this
     * encoding". NULL: plain f32, f16 and bf16 only, as they are. */
    int (*layout)(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                  RadLayout *out);
    /* Arrange rows [first_row, last_row). planes: one per encoding plane, narrowed to those rows
     * (tables whole; sub-byte planes as bytes [rows, row_bytes]). stored: the whole laid-out
     * weight. Lossless. */
    int (*relayout)(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                    const RadLayout *layout, const DLTensor *planes, void *stored,
                    int64_t first_row, int64_t last_row);
    /* The inverse: fill the planes of those rows from the stored weight. */
    int (*unrelayout)(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                      const RadLayout *layout, const void *stored, DLTensor *planes,
                      int64_t first_row, int64_t last_row);
    const char *replaces; /* NULL, or ops joined by '+' that this one is the byte-equal fusion of */
    const char *describe; /* NULL, or one line for people */
} RadKernel;

/* ------------------------------------------------------------------ a library */
/* Flags: an oracle and last resort; resolves after all others and stops start-up. */
enum { RAD_REFERENCE = 1 };
typedef struct RadLibrary {
    size_t struct_bytes;        /* sizeof(RadLibrary) of the library */
    const char *name;           /* plugin id: lower-case letters, digits, '_' */
    const char *version;        /* for people */
    const char *target;         /* "host", or the device this library serves */
    uint64_t flags;             /* RAD_REFERENCE or 0 */
    const RadKernel *kernels;   /* num_kernels rows */
    int32_t num_kernels;        /* entries in kernels */
    int32_t num_schemas;        /* entries in schemas */
    const char *const *schemas; /* ops of its own, in the schema spelling; standard ops need none */
    /* Called once before anything else. RAD_OK, or RAD_UNSUPPORTED with the reason in text: this
     * machine is declined. May choose implementations for the CPU at hand and describe it in text
     * on RAD_OK. NULL: RAD_OK. */
    int (*open)(char *text, size_t text_bytes);
} RadLibrary;

/* ------------------------------------------------------------------ conveniences for authors */
#ifdef __cplusplus
#define RAD_EXTERN_C extern "C"
#else
#define RAD_EXTERN_C extern
#endif
/* First members of a RadKernel with designated initialisers:
 * { RAD_KERNEL("silu_mul", "mine"), .run = run } */
#define RAD_KERNEL(op_name, row_name) \
    .struct_bytes = sizeof(RadKernel), .op = (op_name), .name = (row_name)
/* Define the two exported functions for an array `table` of kernels in scope. */
#define RAD_LIBRARY(id, version_text, target_text, table) \
    RAD_LIBRARY_FROM(id, version_text, target_text, table, static RadLibrary library)
/* The same with further members of RadLibrary, as designated initialisers in the order of the
 * struct:
 * RAD_LIBRARY_WITH("mine", "0.1", "host", kernels, .num_schemas = 1, .schemas = s, .open = o); */
#define RAD_LIBRARY_WITH(id, version_text, target_text, table, ...) \
    RAD_LIBRARY_FROM(id, version_text, target_text, table,          \
                     static RadLibrary library = { __VA_ARGS__ })
/* What both expand to; the last argument declares `library`. */
#define RAD_LIBRARY_FROM(id, version_text, target_text, table, ...)          \
    RAD_EXTERN_C RAD_EXPORT int32_t rad_abi_version(void);                   \
    RAD_EXTERN_C RAD_EXPORT const RadLibrary *rad_library(void);             \
    int32_t rad_abi_version(void) { return RAD_ABI_VERSION; }                \
    const RadLibrary *rad_library(void)                                      \
    {                                                                        \
        __VA_ARGS__;                                                         \
        library.struct_bytes = sizeof(RadLibrary);                           \
        library.name = (id);                                                 \
        library.version = (version_text);                                    \
        library.target = (target_text);                                      \
        library.kernels = (table);                                           \
        library.num_kernels = (int32_t)(sizeof(table) / sizeof((table)[0])); \
        return &library;                                                     \
    }                                                                        \
    typedef int rad_library_needs_a_semicolon

static inline int64_t rad_rows(const RadCall *call) /* rows of the first operand */
{
    return call->tensors[0].shape[0];
}
/* Pieces of `block` that cover count. */
static inline int64_t rad_blocks(int64_t count, int64_t block)
{
    return (count + block - 1) / block;
}
static inline int64_t rad_min(int64_t a, int64_t b) { return a < b ? a : b; }
/* An int param of a geometry, or an axis, by name; `otherwise` when there is none. */
static inline int64_t rad_int_param(const RadGeometry *geometry, const char *key, int64_t otherwise)
{
    int32_t i;
    for (i = 0; i < geometry->num_params; i++)
        if (geometry->params[i].kind == RAD_INT && strcmp(geometry->params[i].key, key) == 0)
            return geometry->params[i].value.i;
    return otherwise;
}
static inline int rad_absent(const DLTensor *t) { return t->data == NULL && t->ndim == 0; }

#ifdef __cplusplus
}
#endif
#endif /* RADIANCE_ABI_H_ */
