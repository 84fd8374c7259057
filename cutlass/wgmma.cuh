// What a matrix kernel of sm_90a has beside the instructions of sm90.cuh: warpgroup MMA with the left operand
// in registers or shared memory, barriers of warpgroups, register reallocation, counters between blocks. One
// function an instruction, with twins as there.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "sm90.cuh"

namespace warpgroup {

using namespace sm90;

#ifdef __CUDACC__

// ---- barriers of some warps

template <int Threads>
WOOTZ_FN void named_barrier(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(Threads) : "memory");
}

// ---- warpgroup MMA, asynchronous

WOOTZ_FN void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
WOOTZ_FN void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

template <int Groups>
WOOTZ_FN void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Groups) : "memory");
}

// The values are read only from here on (an accumulator after its wait).
template <int Count>
WOOTZ_FN void settle(float (&values)[Count]) {
#pragma unroll
    for (int i = 0; i < Count; i++) asm volatile("" : "+f"(values[i])::"memory");
}

// The same number, made here: the compiler does not keep what follows from it in registers from before.
WOOTZ_FN int anew(int value) {
    asm volatile("" : "+r"(value));
    return value;
}

// The same number, of which the compiler does not know that all lanes have it: it stays in a register, where
// it would be copied from a uniform one for each use.
WOOTZ_FN uint32_t kept(uint32_t value) {
    asm("{\n.reg .b32 below;\nmov.b32 below, %%lanemask_lt;\nand.b32 below, below, 0x80000000;\n"
        "add.u32 %0, %0, below;\n}"
        : "+r"(value));
    return value;
}

// A pair of 16-bit numbers that are both the low one, or the high one: an operand of arithmetic on pairs, and
// no instruction.
WOOTZ_FN uint32_t both_low(uint32_t pair) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %0;\nmov.b32 %0, {low, low};\n}" : "+r"(pair));
    return pair;
}

WOOTZ_FN uint32_t both_high(uint32_t pair) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %0;\nmov.b32 %0, {high, high};\n}" : "+r"(pair));
    return pair;
}

// ---- registers

template <int Registers>
WOOTZ_FN void registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
WOOTZ_FN void registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

// ---- stores

// Four 8x8 matrices of 16-bit values, each stored transposed; lane l gives the address of row l % 8 of matrix
// l / 8.
WOOTZ_FN void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
                 "r"(a), "r"(b), "r"(c), "r"(d)
                 : "memory");
}

// ---- counters in global memory, between blocks

WOOTZ_FN void add_release(uint32_t* counter, uint32_t value) {
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(value) : "memory");
}

WOOTZ_FN uint32_t load_acquire(const uint32_t* counter) {
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
    return value;
}

// Whether this lane issues its warp's copies; the others are done. (A twin keeps them in step with it.)
WOOTZ_FN bool copies_for_warp() { return threadIdx.x % 32 == 0; }

#endif

// ---- warpgroup MMA: D[64][Columns] += A[64][16] (registers) B[16][Columns] (shared memory, k innermost)
// The instruction itself (Wgmma<Columns, Type>::multiply) has Columns / 2 accumulators a thread: its text is
// generated.

// Type: fragment::Half or fragment::Bfloat.
template <int Columns, class Type>
struct Wgmma;

// As Wgmma, of 8-bit floats: D[64][Columns] = A[64][32] B[32][Columns], both in shared memory, and plus D
// where `Add` says so (multiply<Add>).
template <int Columns>
struct WgmmaShared;

// Descriptor of a matrix at a 1024-byte aligned address: rows of 128 bytes (64 or 128 k) in the 128-byte
// swizzle, 8 rows a kilobyte. Its low half, to which offsets in 16 bytes may be added, and the whole.
WOOTZ_FN uint32_t descriptor_low(uint32_t address) {
    constexpr uint32_t leading = 1;
    return (address & 0x3FFFF) >> 4 | leading << 16;
}

WOOTZ_FN uint64_t descriptor(uint32_t low) {
    constexpr uint32_t stride = 1024 / 16, swizzle_128 = 1;
    return static_cast<uint64_t>(stride | swizzle_128 << 30) << 32 | low;
}

}  // namespace warpgroup
