/* executor.h - the step executor: runs a table of nodes on a persistent pool of threads.
 *
 * Python builds the tables once per model and owns their memory; it reads the structs below from
 * this file. One run at a time per pool. A node whose band is a kernel written in Python is handed
 * back to the caller.
 */
#ifndef RADIANCE_EXECUTOR_H_
#define RADIANCE_EXECUTOR_H_

#include <radiance_abi.h>

enum { RAD_STEP_SYMBOLS = 8 };
/* What the executor was doing when a step failed; ABORT: it was asked to end. */
enum {
    RAD_STEP_RUN = 0,
    RAD_STEP_TILES = 1,
    RAD_STEP_BAND = 2,
    RAD_STEP_SLOT = 3,
    RAD_STEP_SYMBOL = 4,
    RAD_STEP_ABORT = 5,
};

typedef struct RadStepOperand {
    int32_t slot;      /* index into the slots of a run; -1: absent, the tensor stays null */
    int32_t rows;      /* symbol whose value, plus rows_add, is shape[0]; -1: fixed */
    int32_t first_row; /* symbol whose value times row_bytes moves the data; -1: none */
    int32_t reserved;
    int64_t offset; /* bytes from the slot's address */
    int64_t rows_add;
    int64_t row_bytes;
} RadStepOperand;

typedef struct RadStepBand {
    int64_t upper;           /* the band serves values up to this one */
    const RadKernel *kernel; /* NULL: a kernel written in Python */
    const RadValue *params;  /* num_params values */
    uint64_t params_present;
    void *state;
    int32_t num_params;
    int32_t reserved;
} RadStepBand;

typedef struct RadStepNode {
    int32_t rows;   /* symbol; the node is skipped while its value is 0; -1: never */
    int32_t ranged; /* symbol that chooses the band; -1: the first band */
    int32_t num_operands;
    int32_t num_bands;
    const RadStepOperand *operands;
    const RadStepBand *bands;
    DLTensor *tensors; /* num_operands, patched by every run */
    RadCall call;      /* tensors, layouts and scratch set once, the rest by every run */
} RadStepNode;

typedef struct RadStepProgram {
    RadStepNode *nodes;
    int32_t num_nodes;
    int32_t reserved;
    int64_t max_symbols[8];
} RadStepProgram;

typedef struct RadStepFailure {
    int32_t node;
    int32_t what;   /* RAD_STEP_RUN .. RAD_STEP_ABORT */
    int32_t status; /* negative status of the contract */
    int32_t index;  /* the operand or symbol in question, else -1 */
} RadStepFailure;

typedef struct RadStepPool RadStepPool;

/* A pool of num_threads - 1 sleeping threads beside the caller; NULL when they cannot be made. */
RadStepPool *rad_step_create(int32_t num_threads);
/* Joins the threads and frees the pool. Not while a run is going on. */
void rad_step_destroy(RadStepPool *pool);
/* Run nodes from `first` on. Returns num_nodes when all are done, the index of a node that Python
 * has to run (go on with the next one after it), or -1 with *failure filled. `abort`, which may be
 * NULL, is looked at between nodes and between the chunks of a node; any thread may set it to other
 * than 0 to end the run there. */
int32_t rad_step_run(RadStepPool *pool, RadStepProgram *program, int32_t first,
                     const int64_t *symbols, const uint64_t *slots, const int32_t *abort,
                     RadStepFailure *failure);

#endif /* RADIANCE_EXECUTOR_H_ */
