// What streams weights on sm_90 and later: bulk copies into shared memory that a barrier there counts,
// dependent launches, matrix loads by shared address. PTX in named helpers.
//
// As in mma.cuh, the environment that runs emitted text on a host brings twins of the same names.
#pragma once

#include <stdint.h>

#include "mma.cuh"

#ifdef __CUDACC__

namespace bulk {

// A place in shared memory, to which bytes may be added.
using Address = uint32_t;

WOOTZ_FN Address address_of(const void* place) { return shared_address(place); }

// ---- barriers of one arrival (8 bytes, aligned)

WOOTZ_FN void barrier_init(Address barrier) {
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// After the last `barrier_init` of a thread: copies see its barriers.
WOOTZ_FN void barriers_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Arrives; the phase ends when copies have delivered `bytes`.
WOOTZ_FN void barrier_expect(Address barrier, uint32_t bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

// Whether this lane is the one of its warp, all of which is here, that is to act for it: the compiler knows
// that it is one alone.
WOOTZ_FN bool elect() {
    uint32_t chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

// The lane of its warp, held rather than computed anew.
WOOTZ_FN int lane() {
    int result;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(result));
    return result;
}

// Waits for the end of the phase of this parity; a barrier's first is 0.
WOOTZ_FN void barrier_wait(Address barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN%=:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN%=;\n}" ::
            "r"(barrier),
        "r"(parity)
        : "memory");
}

// Starts a copy of whole 16 bytes between places aligned to 16 bytes.
WOOTZ_FN void copy(Address to, const void* from, uint32_t bytes, Address barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
        : "memory");
}

// ---- dependent launches

// What the launches before have written may be read from here on.
WOOTZ_FN void previous_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
WOOTZ_FN void next_grid_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- loads

// 16 aligned bytes of global memory, never read ahead of a wait.
WOOTZ_FN uint4 load_16(const void* from) {
    uint4 v;
    asm volatile("ld.global.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(__cvta_generic_to_global(from)));
    return v;
}

// As ldmatrix_x4. Nothing may write to the matrices between the barrier before it and the one after it: so
// other loads need not be repeated on its account.
WOOTZ_FN void load_matrices(uint32_t (&result)[4], Address row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(row));
}

// The largest of the numbers of a warp's lanes.
WOOTZ_FN uint32_t warp_max(uint32_t value) { return __reduce_max_sync(0xffffffff, value); }

// The larger of each half-word.
WOOTZ_FN uint32_t max_pair(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }

}  // namespace bulk

#endif
