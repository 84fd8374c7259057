// What the templates of sm_90 have in common: barriers in shared memory, bulk and tensor copies into it that
// they count, dependent launches, matrix loads by shared address, one function an instruction; and
// helpers of the compiler.
//
// As in mma.cuh, the environment that runs emitted text on a host brings twins of what is PTX.
#pragma once

#include <stdint.h>

#include "mma.cuh"

namespace sm90 {

#ifdef __CUDACC__

// ---- barriers (8 aligned bytes of shared memory each)

WOOTZ_FN void barrier_init(uint32_t barrier, int arrivals) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// After the last `barrier_init` of a thread: copies see its barriers.
WOOTZ_FN void barriers_made() {
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

// Waits for the end of the phase of this parity; a barrier's first is 0.
WOOTZ_FN void barrier_wait(uint32_t barrier, uint32_t parity) {
    asm volatile(
        "{\n.reg .pred p;\nAGAIN%=:\nmbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra AGAIN%=;\n}" ::
            "r"(barrier),
        "r"(parity)
        : "memory");
}

// ---- copies into shared memory, counted by a barrier

// A CUtensorMap, by value: what cuTensorMapEncodeTiled wrote on the host.
struct alignas(64) TensorMap {
    uint64_t words[16];
};

// Starts a copy of whole 16 bytes between places aligned to 16 bytes.
WOOTZ_FN void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
        "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
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

// Starts a copy of 4, 8 or 16 bytes between places aligned to as many, which `cp_async_commit` ends.
template <int Bytes>
WOOTZ_FN void cp_async(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(shared_address(to)),
                 "l"(__cvta_generic_to_global(from)), "n"(Bytes)
                 : "memory");
}

WOOTZ_FN void prefetch_map(const TensorMap* map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// ---- dependent launches

// What the launches before have written may be read from here on.
WOOTZ_FN void previous_grid_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
WOOTZ_FN void next_grid_launch() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// ---- a warp's lanes, numbers

// Whether this lane is the one of its warp, all of which is here, that is to act for it: the compiler knows
// that it is one alone.
WOOTZ_FN bool elect() {
    uint32_t chosen;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(chosen));
    return chosen != 0;
}

// The lane of its warp, held rather than computed anew.
WOOTZ_FN int lane_id() {
    int result;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(result));
    return result;
}

// The largest of the numbers of a warp's lanes.
WOOTZ_FN uint32_t warp_max(uint32_t value) { return __reduce_max_sync(0xffffffff, value); }

// The larger of each half-word.
WOOTZ_FN uint32_t max_pair(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }

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
WOOTZ_FN void load_matrices(uint32_t (&result)[4], uint32_t row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(result[0]), "=r"(result[1]), "=r"(result[2]), "=r"(result[3])
                 : "r"(row));
}

#endif

// ---- helpers of the compiler

// 2^exponent; 0 where float32 has none so small.
WOOTZ_FN constexpr float power_of_2(int exponent) {
    if (exponent < -149) return 0;
    float value = 1;
    for (int i = 0; i < (exponent < 0 ? -exponent : exponent); i++) value *= exponent < 0 ? 0.5f : 2.0f;
    return value;
}

// Loops that the compiler must unroll: body(Index<0>) .. body(Index<Count - 1>).
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

// ---- units of packed weights

// A lane's codes of a unit.
template <class Weight>
WOOTZ_FN void load_words(uint32_t (&words)[Weight::words], const uint8_t* unit, int lane) {
    unroll<Weight::vectors>([&](auto i) {
        const uint4 v = *reinterpret_cast<const uint4*>(unit + (i.value * 32 + lane) * 16);
        words[4 * i.value] = v.x;
        words[4 * i.value + 1] = v.y;
        words[4 * i.value + 2] = v.z;
        words[4 * i.value + 3] = v.w;
    });
}

}  // namespace sm90
