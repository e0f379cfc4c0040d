/* executor.c - the step executor; see executor.h. Threads are in pool.c and workers.c. */
#include "pool.h"

/* Point the node's tensors at this step's memory; return the operand whose slot is empty, or -1. */
static int32_t patch(RadStepNode *node, const int64_t *symbols, const uint64_t *slots)
{
    for (int32_t i = 0; i < node->num_operands; i++) {
        const RadStepOperand *operand = &node->operands[i];
        if (operand->slot < 0)
            continue;
        uint64_t base = slots[operand->slot];
        if (base == 0)
            return i;
        int64_t moved =
            operand->first_row >= 0 ? symbols[operand->first_row] * operand->row_bytes : 0;
        node->tensors[i].data = (char *)(uintptr_t)base + operand->offset + moved;
        if (operand->rows >= 0)
            node->tensors[i].shape[0] = symbols[operand->rows] + operand->rows_add;
    }
    return -1;
}

static const RadStepBand *choose(const RadStepNode *node, const int64_t *symbols)
{
    if (node->ranged < 0)
        return &node->bands[0];
    for (int32_t i = 0; i < node->num_bands; i++) {
        if (symbols[node->ranged] <= node->bands[i].upper)
            return &node->bands[i];
    }
    return NULL;
}

static int32_t fail(RadStepFailure *failure, int32_t node, int32_t what, int32_t status,
                    int32_t index)
{
    *failure = (RadStepFailure){ node, what, status, index };
    return -1;
}

static int32_t run_native(RadStepPool *pool, RadStepNode *node, const RadStepBand *band, int32_t at,
                          RadStepFailure *failure)
{
    node->call.params = band->params;
    node->call.params_present = band->params_present;
    node->call.num_params = band->num_params;
    node->call.state = band->state;
    int64_t tiles = band->kernel->tiles ? band->kernel->tiles(&node->call) : 1;
    if (tiles < 0)
        return fail(failure, at, RAD_STEP_TILES, (int32_t)tiles, -1);
    int status = pool_run(pool, band->kernel->run, &node->call, tiles);
    if (status == POOL_ABORTED)
        return fail(failure, at, RAD_STEP_ABORT, RAD_OK, -1);
    return status < 0 ? fail(failure, at, RAD_STEP_RUN, status, -1) : 0;
}

static int32_t run_nodes(RadStepPool *pool, RadStepProgram *program, int32_t first,
                         const int64_t *symbols, const uint64_t *slots, const int32_t *abort,
                         RadStepFailure *failure)
{
    for (int32_t at = first; at < program->num_nodes; at++) {
        if (is_aborted(abort))
            return fail(failure, at, RAD_STEP_ABORT, RAD_OK, -1);
        RadStepNode *node = &program->nodes[at];
        if (node->rows >= 0 && symbols[node->rows] == 0)
            continue;
        const RadStepBand *band = choose(node, symbols);
        if (band == NULL)
            return fail(failure, at, RAD_STEP_BAND, RAD_NOKERNEL, -1);
        if (band->kernel == NULL)
            return at;
        int32_t empty = patch(node, symbols, slots);
        if (empty >= 0)
            return fail(failure, at, RAD_STEP_SLOT, RAD_INVAL, empty);
        if (run_native(pool, node, band, at, failure) != 0)
            return -1;
    }
    return program->num_nodes;
}

RAD_EXPORT int32_t rad_step_run(RadStepPool *pool, RadStepProgram *program, int32_t first,
                                const int64_t *symbols, const uint64_t *slots, const int32_t *abort,
                                RadStepFailure *failure)
{
    for (int32_t i = 0; i < RAD_STEP_SYMBOLS; i++) {
        if (symbols[i] < 0 || symbols[i] > program->max_symbols[i])
            return fail(failure, first, RAD_STEP_SYMBOL, RAD_INVAL, i);
    }
    pool_begin(pool, abort);
    int32_t end = run_nodes(pool, program, first, symbols, slots, abort, failure);
    pool_end(pool);
    return end;
}
