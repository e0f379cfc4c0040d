/* gguf_strings.c - an array of strings, which a vocabulary has hundreds of thousands of. */
#include <string.h>

#include "gguf_native.h"

__attribute__((visibility("default"))) int64_t rad_gguf_strings(const uint8_t *data, int64_t at,
                                                                int64_t end, int64_t count,
                                                                uint8_t *out)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t bytes;
        if (end - at < 8) return -1;
        memcpy(&bytes, data + at, 8);
        at += 8;
        if (bytes > (uint64_t)(end - at) || memchr(data + at, 0, bytes)) return -1;
        if (out) {
            memcpy(out, data + at, bytes);
            out[bytes] = 0;
            out += bytes + 1;
        }
        at += (int64_t)bytes;
    }
    return at;
}
