// The exported tables: every module's rows at the highest level that this machine runs.
#include <cstdio>
#include <cstring>

#include "cpu.h"
#include "rows.h"

namespace libavx {

#define MODULE(name)                                 \
    namespace avx2 { Rows rows_of_##name(); }        \
    namespace avx512 { Rows rows_of_##name(); }      \
    namespace avx512vnni { Rows rows_of_##name(); }
#define DOT_MODULE(name)                          \
    MODULE(name)                                  \
    namespace avx2vnni { Rows rows_of_##name(); } \
    namespace dual { Rows rows_of_##name(); }
#include "modules.def"
#undef MODULE
#undef DOT_MODULE

namespace {

constexpr int max_rows = 256;

using Module = Rows (*)();
struct Level {
    const char *name;
    const char *about;
    bool Cpu::*runs;
    const Module *modules;
    int num_modules;
};

// Two levels differ in products of integers and of bf16; all else is of the level below.
#define MODULE(name) avx512vnni::rows_of_##name,
#define DOT_MODULE(name) dual::rows_of_##name,
constexpr Module dual_modules[] = {
#include "modules.def"
};
#undef MODULE
#undef DOT_MODULE
#define MODULE(name) avx2::rows_of_##name,
#define DOT_MODULE(name) avx2vnni::rows_of_##name,
constexpr Module avx2vnni_modules[] = {
#include "modules.def"
};
#undef MODULE
#undef DOT_MODULE
#define DOT_MODULE(name) MODULE(name)
#define MODULE(name) avx2::rows_of_##name,
constexpr Module avx2_modules[] = {
#include "modules.def"
};
#undef MODULE
#define MODULE(name) avx512::rows_of_##name,
constexpr Module avx512_modules[] = {
#include "modules.def"
};
#undef MODULE
#define MODULE(name) avx512vnni::rows_of_##name,
constexpr Module avx512vnni_modules[] = {
#include "modules.def"
};
#undef MODULE
#undef DOT_MODULE

constexpr int num_modules = int(sizeof(avx2_modules) / sizeof(avx2_modules[0]));
constexpr Level levels[] = {  // best first
    {"avx512vnnidual", "avx512 vnni dual", &Cpu::dual, dual_modules, num_modules},
    {"avx512vnni", "avx512 vnni", &Cpu::avx512vnni, avx512vnni_modules, num_modules},
    {"avx512", "avx512", &Cpu::avx512, avx512_modules, num_modules},
    {"avx2vnni", "avx2 vnni", &Cpu::avx2vnni, avx2vnni_modules, num_modules},
    {"avx2", "avx2", &Cpu::avx2, avx2_modules, num_modules},
};
constexpr int num_levels = int(sizeof(levels) / sizeof(levels[0]));

struct Tables {
    Cpu cpu = judge_cpu(read_cpu());
    RadKernel rows[num_levels][max_rows];
    RadLibrary libraries[num_levels];
    Tables();
};

const Tables tables;  // built when the object is loaded, before any call

const Level *best_level(const Cpu &cpu)
{
    for (const Level &level : levels)
        if (cpu.*level.runs) return &level;
    return nullptr;
}

int describe(const Cpu &cpu, char *text, size_t text_bytes)
{
    if (const Level *level = best_level(cpu)) {
        std::snprintf(text, text_bytes, "%s", level->about);
        return RAD_OK;
    }
    std::snprintf(text, text_bytes,
                  "libavx: expected a CPU with AVX2, FMA, F16C, BMI1 and BMI2, this one lacks %s; "
                  "use a library for this machine",
                  cpu.lacking);
    return RAD_UNSUPPORTED;
}

int open(char *text, size_t text_bytes) { return describe(tables.cpu, text, text_bytes); }

Tables::Tables()
{
    for (int i = 0; i < num_levels; i++) {
        const Level &level = levels[i];
        RadLibrary &library = libraries[i];
        library = {};
        library.struct_bytes = sizeof(RadLibrary);
        library.name = "libavx";
        library.version = LIBAVX_VERSION;
        library.target = "host";
        library.kernels = rows[i];
        library.open = open;
        if (!(cpu.*level.runs)) continue;
        for (int m = 0; m < level.num_modules; m++) {
            const Rows part = level.modules[m]();
            if (library.num_kernels + part.count > max_rows) __builtin_trap();
            const size_t bytes = sizeof(RadKernel) * size_t(part.count);
            std::memcpy(rows[i] + library.num_kernels, part.first, bytes);
            library.num_kernels += part.count;
        }
    }
}

}  // namespace
}  // namespace libavx

RAD_EXTERN_C RAD_EXPORT int32_t rad_abi_version(void);
RAD_EXTERN_C RAD_EXPORT const RadLibrary *rad_library(void);
RAD_EXTERN_C RAD_EXPORT const RadLibrary *rad_libavx_library_at(const char *level);
RAD_EXTERN_C RAD_EXPORT int rad_libavx_judge(const uint32_t *words, char *text, size_t text_bytes);

int32_t rad_abi_version(void) { return RAD_ABI_VERSION; }

const RadLibrary *rad_library(void)
{
    const auto *level = libavx::best_level(libavx::tables.cpu);
    // An empty one if declined.
    const auto index = level ? level - libavx::levels : libavx::num_levels - 1;
    return &libavx::tables.libraries[index];
}

// For tests: the tables of one level by name, or NULL when this machine does not run it.
const RadLibrary *rad_libavx_library_at(const char *level)
{
    const auto &t = libavx::tables;
    for (int i = 0; i < libavx::num_levels; i++)
        if (std::strcmp(level, libavx::levels[i].name) == 0 && t.cpu.*libavx::levels[i].runs)
            return &t.libraries[i];
    return nullptr;
}

// For tests: what open would answer on a CPU with these words (CpuWords).
int rad_libavx_judge(const uint32_t *words, char *text, size_t text_bytes)
{
    libavx::CpuWords given;
    std::memcpy(&given, words, sizeof given);
    return libavx::describe(libavx::judge_cpu(given), text, text_bytes);
}
