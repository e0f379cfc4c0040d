/* Goes before every source of llama.cpp (-include).
 *
 * GCC 12.2, for one, tells its optimiser of 8 of the 64 bytes that ldtilecfg reads. What a program
 * wrote into the others is then not there yet, no tile is configured, and the first instruction on
 * one is illegal: llama.cpp ends so on a processor with AMX. Here all 64 are named, which changes
 * nothing where the compiler's own intrinsic names them too. */
#if defined(__AMX_TILE__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

static inline void configure_tiles(const void *config)
{
    __asm__ volatile("ldtilecfg %0" : : "m"(*(const char(*)[64])config));
}
#define _tile_loadconfig configure_tiles
#endif
