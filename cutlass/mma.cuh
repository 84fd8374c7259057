// Warp-level matrix instructions, matrix loads and asynchronous copies: PTX in named helpers.
//
// The environment that runs emitted text on a host brings twins of the same names and signatures, so there is
// nothing here for it. Fragment layouts (PTX ISA, mma.m16n8k16 and .m16n8k32), with g = lane / 4, t = lane %
// 4 and E = 32 bits / element bits:
//   A's register r holds row g + 8 * (r & 1), columns E t + 4 E * (r >> 1) and the E - 1 after it;
//   B's register r holds rows E t + 4 E * r and the E - 1 after it, column g;
//   C's element i holds row g + 8 * (i >> 1), column 2 t + (i & 1).
#pragma once

#include <stdint.h>

#include "function.cuh"

#ifdef __CUDACC__

WOOTZ_FN uint32_t shared_address(const void* place) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(place));
}

// d = a * b + c with f32 sums.
#define WOOTZ_MMA_FLOAT(name, shape)                                                                         \
    WOOTZ_FN void name(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4]) { \
        asm volatile("mma.sync.aligned." shape " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"  \
                     : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])                                        \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]),          \
                       "f"(c[1]), "f"(c[2]), "f"(c[3]));                                                     \
    }
WOOTZ_MMA_FLOAT(mma_m16n8k16_f16_f32, "m16n8k16.row.col.f32.f16.f16.f32")
WOOTZ_MMA_FLOAT(mma_m16n8k16_bf16_f32, "m16n8k16.row.col.f32.bf16.bf16.f32")
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
WOOTZ_MMA_FLOAT(mma_m16n8k32_e4m3_f32, "m16n8k32.row.col.f32.e4m3.e4m3.f32")
WOOTZ_MMA_FLOAT(mma_m16n8k32_e5m2_f32, "m16n8k32.row.col.f32.e5m2.e5m2.f32")
#endif
#undef WOOTZ_MMA_FLOAT

// Exact: d wraps only past 2^31.
WOOTZ_FN void mma_m16n8k32_s8_s32(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const int (&c)[4]) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32"
        " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(c[0]), "r"(c[1]), "r"(c[2]),
          "r"(c[3]));
}

// Four 8 x 8 matrices of 16-bit elements: lane 8 j + i names row i of matrix j (16 bytes of shared memory,
// aligned); result[j] is element (g, 2 t) and (g, 2 t + 1) of matrix j.
WOOTZ_FN void ldmatrix_x4(uint32_t (&result)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// The same with each matrix transposed: result[j] is element (2 t, g) and (2 t + 1, g).
WOOTZ_FN void ldmatrix_x4_trans(uint32_t (&result)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(shared_address(row))
                 : "memory");
}

// Starts a copy of `bytes` (0 to 16) from global to shared memory and fills up to 16 with zero. Both places
// are aligned to 16 bytes; with no bytes, `from` is not read.
WOOTZ_FN void cp_async_16(void* to, const void* from, uint32_t bytes) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(__cvta_generic_to_global(from)), "r"(bytes)
                 : "memory");
}

// Ends a group of copies of this thread.
WOOTZ_FN void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most `Left` groups of this thread are under way. Other threads see the data after a barrier.
template <int Left>
WOOTZ_FN void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

// 16 aligned bytes that are read once: they pass by the first-level cache.
WOOTZ_FN uint4 load_once_16(const void* from) {
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(from)));
    return v;
}

#endif
