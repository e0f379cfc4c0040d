// What the processor and the operating system let us execute.
#ifndef LIBAVX_CPU_H_
#define LIBAVX_CPU_H_

#include <cstdint>

namespace libavx {

struct Cpu {
    bool avx2;        // AVX2, FMA, F16C, BMI1 and BMI2, with the 256-bit state enabled
    bool avx2vnni;    // avx2 and AVX-VNNI, which has the products of VNNI for 256 bits
    bool avx512;      // F, BW, DQ and VL, with the 512-bit state enabled
    bool avx512vnni;  // the above and VNNI
    bool dual;        // avx512vnni, with as many pipes that multiply as add
    char lacking[64]; // what keeps avx2 from being true, in words separated by spaces
};

// The words of cpuid and xgetbv that say so.
struct CpuWords {
    uint32_t leaf1_ecx, leaf7_ebx, leaf7_ecx, leaf7_edx, leaf7_1_eax, xcr0;
};

CpuWords read_cpu();
Cpu judge_cpu(const CpuWords &words);

}  // namespace libavx
#endif
