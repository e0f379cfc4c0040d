/* A library whose one kernel stores a weight as its planes' rows, one plane behind the other. */
#include <string.h>

#include "radiance_abi.h"

static int run(const RadCall *call, int64_t first, int64_t last, int worker)
{
    (void)call, (void)first, (void)last, (void)worker;
    return RAD_OK;
}

static int layout(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                  RadLayout *out)
{
    (void)geometry, (void)operand, (void)encoding, (void)out;
    return RAD_DTYPE; /* tests bring their own */
}

/* Refuses rows from the layout's tag on, when there is one. */
static int relayout(const RadGeometry *geometry, int operand, const RadEncoding *encoding,
                    const RadLayout *layout, const DLTensor *planes, void *stored,
                    int64_t first_row, int64_t last_row)
{
    const int64_t width = layout->shape[1];
    if (strcmp(geometry->op, "embed_lookup") || operand != 1 || first_row % layout->row_block)
        return RAD_INVAL;
    if (layout->tag && last_row > layout->tag)
        return RAD_NOMEM;
    for (int64_t row = first_row; row < last_row; row++) {
        uint8_t *out = (uint8_t *)stored + row * width;
        for (int i = 0; i < encoding->num_planes; i++) {
            const DLTensor *p = &planes[i];
            const int64_t bytes = p->shape[1] * p->dtype.bits / 8;
            const int64_t at = encoding->planes[i].is_table ? 0 : row - first_row;
            if (!encoding->planes[i].is_table && p->shape[0] != last_row - first_row)
                return RAD_SHAPE;
            memcpy(out, (const uint8_t *)p->data + at * p->strides[0] * p->dtype.bits / 8,
                   (size_t)bytes);
            out += bytes;
        }
    }
    return RAD_OK;
}

static const RadKernel kernels[] = {
    { RAD_KERNEL("embed_lookup", "rows"), .run = run, .layout = layout, .relayout = relayout },
};
RAD_EXPORT int32_t rad_abi_version(void);
RAD_EXPORT const RadLibrary *rad_library(void);
int32_t rad_abi_version(void) { return RAD_ABI_VERSION; }
const RadLibrary *rad_library(void)
{
    static const RadLibrary library = { .struct_bytes = sizeof(RadLibrary),
                                        .name = "rows",
                                        .version = "1",
                                        .target = "host",
                                        .kernels = kernels,
                                        .num_kernels = 1 };
    return &library;
}
