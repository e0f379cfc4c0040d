// What cpuid and xgetbv say, as instruction levels and as words for what is lacking.
#include "cpu.h"

#include <cpuid.h>
#include <cstring>

namespace libavx {
namespace {

bool bit(uint32_t word, int index) { return (word >> index) & 1; }

constexpr int osxsave = 27;  // of leaf1_ecx: xgetbv may be executed

}  // namespace

CpuWords read_cpu()
{
    CpuWords words = {};
    uint32_t a = 0, b = 0, c = 0, d = 0;
    if (__get_cpuid_count(1, 0, &a, &b, &c, &d)) words.leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        words.leaf7_ebx = b;
        words.leaf7_ecx = c;
        words.leaf7_edx = d;
    }
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) words.leaf7_1_eax = a;
    if (bit(words.leaf1_ecx, osxsave)) {
        uint32_t high;
        __asm__ volatile("xgetbv" : "=a"(words.xcr0), "=d"(high) : "c"(0));
    }
    return words;
}

Cpu judge_cpu(const CpuWords &words)
{
    const uint32_t one = words.leaf1_ecx, seven = words.leaf7_ebx;
    const bool ymm = (words.xcr0 & 0x6) == 0x6;    // SSE and AVX registers are saved
    const bool zmm = (words.xcr0 & 0xe6) == 0xe6;  // and mask registers and both halves of ZMM
    const struct {
        bool present;
        const char *name;
    } needed[] = {
        {ymm, "ymm-state"},     {bit(seven, 5), "avx2"}, {bit(one, 12), "fma"},
        {bit(one, 29), "f16c"}, {bit(seven, 3), "bmi1"}, {bit(seven, 8), "bmi2"},
    };
    Cpu cpu = {};
    cpu.avx2 = true;
    for (const auto &need : needed) {
        if (need.present) continue;
        if (!cpu.avx2) std::strcat(cpu.lacking, " ");
        std::strcat(cpu.lacking, need.name);
        cpu.avx2 = false;
    }
    const bool f = bit(seven, 16), dq = bit(seven, 17), bw = bit(seven, 30), vl = bit(seven, 31);
    cpu.avx2vnni = cpu.avx2 && bit(words.leaf7_1_eax, 4);
    cpu.avx512 = cpu.avx2 && zmm && f && dq && bw && vl;
    cpu.avx512vnni = cpu.avx512 && bit(words.leaf7_ecx, 11);
    // No word says so, but processors with AMX, which nothing here uses, have such cores.
    cpu.dual = cpu.avx512vnni && bit(words.leaf7_edx, 25);
    return cpu;
}

}  // namespace libavx
