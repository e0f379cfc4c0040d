// How a module of ops hands its kernel rows to library.cpp.
#ifndef LIBAVX_ROWS_H_
#define LIBAVX_ROWS_H_

#include <radiance_abi.h>

namespace libavx {

struct Rows {
    const RadKernel *first;
    int count;
};

}  // namespace libavx

// In native/ops_<module>.cpp: defines what library.cpp collects, for the level being compiled.
#define LIBAVX_ROWS(module, table)                                                        \
    namespace libavx::LIBAVX_LEVEL {                                                      \
    Rows rows_of_##module() { return {table, int(sizeof(table) / sizeof((table)[0]))}; } \
    }
#endif
