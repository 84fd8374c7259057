// The instructions of an sm_90a matrix kernel: barriers in shared memory, bulk and tensor copies into it,
// warpgroup MMA with the left operand in registers, register reallocation, dependent launches. One function
// an instruction.
//
// As in mma.cuh, the environment that runs emitted text on a host brings twins of what is PTX.
#pragma once
#include <stdint.h>

#include "fragment.cuh"

namespace warpgroup {

#ifdef __CUDACC__

// A CUtensorMap, by value: what cuTensorMapEncodeTiled wrote on the host.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

WOOTZ_FN uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- barriers (8 bytes of shared memory each)

WOOTZ_FN void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}

WOOTZ_FN void barrier_init_visible() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives, and adds `bytes` to what copies have to deliver before the phase ends.
WOOTZ_FN void barrier_expect(uint32_t barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

WOOTZ_FN void barrier_arrive(uint32_t barrier) {
    asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}

WOOTZ_FN void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN%=:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN%=;\n}" ::
            "r"(barrier),
        "r"(parity)
        : "memory");
}

template <int Threads>
WOOTZ_FN void named_barrier(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(Threads) : "memory");
}

// ---- copies into shared memory, counted by a barrier

WOOTZ_FN void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}

WOOTZ_FN void copy_tensor(uint32_t to, const TensorMap* map, int x, int y, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3}], "
        "[%4];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(barrier)
        : "memory");
}

WOOTZ_FN void copy_tensor(uint32_t to, const TensorMap* map, int x, int y, int z, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, "
        "%3, %4}], "
        "[%5];" ::"r"(to),
        "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
        : "memory");
}

WOOTZ_FN void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
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

// ---- registers, dependent launches

template <int Registers>
WOOTZ_FN void registers_grow() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

template <int Registers>
WOOTZ_FN void registers_shrink() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}

WOOTZ_FN void previous_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
WOOTZ_FN void next_grid_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

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

// Descriptor of B at a 1024-byte aligned address: rows of 128 bytes (64 k) in the 128-byte swizzle, 8 rows a
// kilobyte. Its low half, to which offsets in 16 bytes may be added, and the whole.
WOOTZ_FN uint32_t descriptor_low(uint32_t address) {
    constexpr uint32_t leading = 1;
    return (address & 0x3FFFF) >> 4 | leading << 16;
}

WOOTZ_FN uint64_t descriptor(uint32_t low) {
    constexpr uint32_t stride = 1024 / 16, swizzle_128 = 1;
    return static_cast<uint64_t>(stride | swizzle_128 << 30) << 32 | low;
}

// ---- loops that the compiler must unroll: body(Index<0>) .. body(Index<Count - 1>)

template <int I>
struct Index {
    static constexpr int value = I;
};

template <int Count, int First = 0, class Body>
WOOTZ_FN void unroll(Body&& body) {
    if constexpr (First < Count) {
        body(Index<First>{});
        unroll<Count, First + 1>(body);
    }
}

}  // namespace warpgroup
