/* gguf_native.h - the parts of reading GGUF that pass over every byte of a file, and the guard of
 * any file that is mapped. */
#ifndef RADIANCE_GGUF_NATIVE_H_
#define RADIANCE_GGUF_NATIVE_H_

#include <stdint.h>

/* Where the planes of consecutive blocks go; a plane that the type does not have is NULL. */
typedef struct RadGgufPlanes {
    uint8_t *codes, *scale, *min, *scale1, *min1;
} RadGgufPlanes;

/* Splits blocks of a type (ggml's number) into planes; each plane gets whole bytes of every block.
 * Returns 0, or -1 for a type that has no blocks or is not read. */
int32_t rad_gguf_split(int32_t type, const uint8_t *blocks, int64_t num_blocks,
                       const RadGgufPlanes *planes);

/* Reads `count` strings, each a u64 of its bytes and then those, from `at` to at most `end`.
 * With `out` they are written there, each with a NUL behind it. Returns where the last one ends, or
 * -1 when one passes the end or holds a NUL itself. */
int64_t rad_gguf_strings(const uint8_t *data, int64_t at, int64_t end, int64_t count, uint8_t *out);

enum { RAD_GGUF_FIELDS = 5 }; /* of RadGgufPlanes */

/* Rows of one tensor, as the file has them. */
typedef struct RadGgufSpan {
    const uint8_t *blocks;
    int64_t rows;
} RadGgufSpan;

/* One plane of a weight. */
typedef struct RadGgufPlane {
    const void *tensor; /* a DLTensor of it: a table's whole, else data and rows are filled in */
    int64_t row_bytes;
    int32_t field; /* of RadGgufPlanes, in its order; -1 for a table */
    int32_t reserved;
} RadGgufPlane;

/* A weight, what the file has of it, and the kernel's hook that makes what is stored. */
typedef struct RadGgufWeight {
    int32_t type, num_spans, num_planes, operand;
    const RadGgufSpan *spans; /* one behind the other */
    const RadGgufPlane *planes; /* in the order in which relayout takes them */
    int64_t rows, row_bytes, row_blocks; /* in the file */
    int64_t step, claim; /* rows of a call of relayout, and of what a thread takes at a time */
    const void *relayout, *geometry, *encoding, *layout; /* as radiance_abi.h has them */
    void *stored;
} RadGgufWeight;

/* All weights of a model that are read so. */
typedef struct RadGgufBatch {
    const RadGgufWeight *weights;
    int64_t num_weights;
    uint64_t scratch_bytes; /* of one thread: the planes of its step, each padded to 64 bytes */
    int64_t next_claim;
    int64_t failed; /* 1 + the weight of which relayout failed; 0 while all is well */
    int64_t first_row, last_row;
    int32_t status, reserved;
} RadGgufBatch;

/* Lays weights out until none is left; call it from as many threads as are to work. Rows' pages of
 * the file are let go after them. Returns 0, or -1 without memory: nothing is begun. */
int32_t rad_gguf_lay_out(RadGgufBatch *batch);

/* Has a process that reads past the end of a mapped file, because that was shortened, print `words`
 * on standard error and exit with 1, instead of being killed by SIGBUS. Whoever handled that signal
 * before still gets what is of no guarded file. `first` is where the mapping of `size` bytes
 * begins; `words` is copied. Returns 0, or -1 without memory. */
int32_t rad_map_guard(const uint8_t *first, int64_t size, const char *words);

/* Guards a mapping no longer: to be called when it goes away, as another may come to lie there. */
void rad_map_forget(const uint8_t *first);

#endif
