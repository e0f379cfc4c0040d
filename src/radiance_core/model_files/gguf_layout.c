/* gguf_layout.c - weights from the blocks of a file to what kernels store, on as many threads as
 * call.
 *
 * A range of rows is split into planes and handed to the kernel's own relayout while it is in the
 * cache; a claim is many such ranges, so that threads meet rarely. Nothing here is allocated per
 * range.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gguf_native.h"
#include "radiance_abi.h"

#define RAD_API __attribute__((visibility("default")))
#define MAX_NDIM 4

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

/* Where row `row` of every plane stands in a worker's room, whose rows begin with `first`. */
static RadGgufPlanes at_row(const RadGgufWeight *w, uint8_t *const *room, int64_t rows)
{
    uint8_t *at[RAD_GGUF_FIELDS] = {0};
    for (int32_t i = 0; i < w->num_planes; i++)
        if (w->planes[i].field >= 0)
            at[w->planes[i].field] = room[i] + rows * w->planes[i].row_bytes;
    return (RadGgufPlanes){at[0], at[1], at[2], at[3], at[4]};
}

/* Splits rows [first, last), which may lie in several tensors one behind the other. */
static int32_t split(const RadGgufWeight *w, int64_t first, int64_t last, uint8_t *const *room)
{
    int64_t begin = 0;
    for (int32_t i = 0; i < w->num_spans; begin += w->spans[i++].rows) {
        const int64_t from = most(first, begin), to = least(last, begin + w->spans[i].rows);
        if (from >= to) continue;
        const RadGgufPlanes planes = at_row(w, room, from - first);
        const int32_t status =
            rad_gguf_split(w->type, w->spans[i].blocks + (from - begin) * w->row_bytes,
                           (to - from) * w->row_blocks, &planes);
        if (status) return status;
    }
    return 0;
}

/* Lets whole pages go that hold only rows [first, last); what is in the page cache stays there. */
static void release(const RadGgufWeight *w, int64_t first, int64_t last)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    int64_t begin = 0;
    for (int32_t i = 0; i < w->num_spans; begin += w->spans[i++].rows) {
        const int64_t from = most(first, begin) - begin,
                      to = least(last, begin + w->spans[i].rows) - begin;
        if (from >= to) continue;
        const uintptr_t low =
            ((uintptr_t)w->spans[i].blocks + (uintptr_t)(from * w->row_bytes) + page - 1) / page;
        const uintptr_t high =
            ((uintptr_t)w->spans[i].blocks + (uintptr_t)(to * w->row_bytes)) / page;
        if (low < high) madvise((void *)(low * page), (high - low) * page, MADV_DONTNEED);
    }
}

/* Lays rows [first, last) out, w->step of them at a time. */
static int32_t lay_out(const RadGgufWeight *w, int64_t first, int64_t last, uint8_t *scratch)
{
    DLTensor planes[RAD_GGUF_FIELDS + 1];
    int64_t shapes[RAD_GGUF_FIELDS + 1][MAX_NDIM];
    uint8_t *room[RAD_GGUF_FIELDS + 1] = {0};
    int (*relayout)(const RadGeometry *, int, const RadEncoding *, const RadLayout *,
                    const DLTensor *, void *, int64_t, int64_t);
    memcpy(&relayout, &w->relayout, sizeof relayout);
    for (int32_t i = 0; i < w->num_planes; i++) {
        planes[i] = *(const DLTensor *)w->planes[i].tensor;
        if (w->planes[i].field < 0) continue;
        room[i] = scratch;
        scratch += (w->step * w->planes[i].row_bytes + 63) / 64 * 64;
        memcpy(shapes[i], planes[i].shape, (size_t)planes[i].ndim * sizeof(int64_t));
        planes[i].shape = shapes[i];
        planes[i].data = room[i];
    }
    for (int64_t row = first; row < last; row += w->step) {
        const int64_t end = least(row + w->step, last);
        int32_t status = split(w, row, end, room);
        if (status) return status;
        for (int32_t i = 0; i < w->num_planes; i++)
            if (w->planes[i].field >= 0) shapes[i][0] = end - row;
        status =
            relayout(w->geometry, w->operand, w->encoding, w->layout, planes, w->stored, row, end);
        if (status) return status;
    }
    release(w, first, last);
    return 0;
}

static int64_t num_claims(const RadGgufWeight *w) { return (w->rows + w->claim - 1) / w->claim; }

RAD_API int32_t rad_gguf_lay_out(RadGgufBatch *batch)
{
    uint8_t *scratch = NULL;
    if (posix_memalign((void **)&scratch, 64, batch->scratch_bytes)) return -1;
    int64_t passed = 0; /* claims of the weights before `at` */
    for (int64_t at = 0; at < batch->num_weights;) {
        const int64_t mine = __atomic_fetch_add(&batch->next_claim, 1, __ATOMIC_RELAXED);
        while (at < batch->num_weights && mine - passed >= num_claims(&batch->weights[at]))
            passed += num_claims(&batch->weights[at++]);
        if (at == batch->num_weights) break;
        const RadGgufWeight *w = &batch->weights[at];
        const int64_t first = (mine - passed) * w->claim, last = least(first + w->claim, w->rows);
        const int32_t status = lay_out(w, first, last, scratch);
        int64_t none = 0;
        if (status && __atomic_compare_exchange_n(&batch->failed, &none, at + 1, 0,
                                                  __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            batch->first_row = first, batch->last_row = last, batch->status = status;
        }
        /* Nobody begins anything after a failure. */
        if (__atomic_load_n(&batch->failed, __ATOMIC_RELAXED)) break;
    }
    free(scratch);
    return 0;
}
