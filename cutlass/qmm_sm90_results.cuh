// What becomes of a tile's sums in the product on warpgroup MMA: those of two groups of warpgroups, or of
// blocks that share a tile, are added, and the result is stored.
#pragma once

#include <stdint.h>

#include "qmm_sm90_plan.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// Stores a warpgroup's 64 rows x Columns tokens, turned in shared memory, 16 bytes a thread where n allows.
template <class Type, class Shape, class P>
WOOTZ_FN void store_tile(const P& p, const float (&sums)[Shape::columns / 2], uint8_t* staged,
                         const Place& place, int half) {
    constexpr int chunk = Shape::chunk;
    const int thread = anew(threadIdx.x) & 127, lane = thread & 31, warp = thread >> 5;
    const uint32_t to = shared_address(staged);
    const bool wide = p.n % 8 == 0;
#pragma unroll
    for (int c = 0; c < Shape::columns / chunk; c++) {
        named_barrier<128>(1 + half);
#pragma unroll
        for (int j = 0; j < chunk / 8; j += 2) {
            const float* d = &sums[4 * (c * (chunk / 8) + j)];
            const int at = (j + (lane >> 4)) * 8 + (lane & 7), piece = warp * 2 + ((lane >> 3) & 1);
            store_transposed(to + at * 128 + ((piece ^ (at & 7)) << 4), Type::round(d[0], d[1]),
                             Type::round(d[2], d[3]), Type::round(d[4], d[5]), Type::round(d[6], d[7]));
        }
        named_barrier<128>(1 + half);
        const int piece = thread & 7;
        const uint32_t first = place.row + half * 64 + piece * 8;
#pragma unroll 1
        for (int i = 0; i < chunk / 16; i++) {
            const int at = i * 16 + (thread >> 3);
            const uint32_t t = place.token + c * chunk + at;
            if (t >= place.end || first >= p.n) continue;
            const uint8_t* from = staged + at * 128 + ((piece ^ (at & 7)) << 4);
            uint16_t* out = p.y + static_cast<uint64_t>(t) * p.n + first;
            if (wide) {
                *reinterpret_cast<uint4*>(out) = *reinterpret_cast<const uint4*>(from);
            } else {
                for (uint32_t e = 0; e < 8 && first + e < p.n; e++)
                    out[e] = reinterpret_cast<const uint16_t*>(from)[e];
            }
        }
    }
}

// Adds the second group's sums to the first's, through shared memory. True for the group that has the result.
template <class Shape>
WOOTZ_FN bool add_groups(float (&sums)[Shape::columns / 2], float4* partial, int group, int half,
                         bool first) {
    static_assert(Shape::groups <= 2, "one partial sum a warpgroup");
    if constexpr (Shape::groups == 1) return true;
    constexpr int threads = 128 * Shape::groups;
    float4* mine = partial + (threadIdx.x & 127);
    if (group == 1) {
        if (!first) named_barrier<threads>(5 + half);  // the sums before have been read
#pragma unroll
        for (int j = 0; j < Shape::columns / 8; j++)
            mine[j * 128] = make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
        named_barrier<threads>(3 + half);
        return false;
    }
    if (!first) named_barrier<threads>(5 + half);
    named_barrier<threads>(3 + half);
#pragma unroll
    for (int j = 0; j < Shape::columns / 8; j++) {
        const float4 v = mine[j * 128];
        sums[4 * j] += v.x;
        sums[4 * j + 1] += v.y;
        sums[4 * j + 2] += v.z;
        sums[4 * j + 3] += v.w;
    }
    return true;
}

// Sums the parts of a tile. A block leaves its part in the workspace; the last one to come adds them all, in
// order, and returns true. (Two it adds without leaving its own: the sum of two has no order.) So the result
// never depends on who is last. The workspace begins with a counter for each block's half, zero before and
// after, then has a part for each.
template <class Weight, class Shape, class P>
WOOTZ_FN bool add_parts(const P& p, float (&sums)[Shape::columns / 2], uint32_t* flags, int half) {
    constexpr int vectors = Shape::columns / 8;
    const uint32_t count = Work<Weight, Shape, P>::parts(p), part = blockIdx.x % count,
                   first = blockIdx.x - part;
    const int thread = threadIdx.x & 127;
    uint32_t* counter = reinterpret_cast<uint32_t*>(p.workspace) + 2 * first + half;
    if (thread == 0) flags[half] = atomicAdd(counter, 1) & 0xffff;
    named_barrier<128>(1 + half);
    const bool last = flags[half] == count - 1;
    float4* parts = reinterpret_cast<float4*>(p.workspace + (gridDim.x * 8 + 127) / 128 * 128) +
                    (first * 2ull + half) * (vectors * 128) + thread;
    if (!last || count > 2) {
        float4* mine = parts + part * 2ull * (vectors * 128);
#pragma unroll
        for (int j = 0; j < vectors; j++)
            __stcg(mine + j * 128,
                   make_float4(sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]));
    }
    if (!last) {
        named_barrier<128>(1 + half);
        if (thread == 0) add_release(counter, 1 << 16);
        return false;
    }
    if (thread == 0) {  // the others have come, and do not wait for anything
        while (load_acquire(counter) >> 16 != count - 1) continue;
        *counter = 0;
    }
    named_barrier<128>(1 + half);
    if (count > 2) {
#pragma unroll
        for (int i = 0; i < Shape::columns / 2; i++) sums[i] = 0;
    }
#pragma unroll 1
    for (uint32_t i = 0; i < count; i++) {
        if (count == 2 && i == part) continue;
        const float4* other = parts + i * 2ull * (vectors * 128);
#pragma unroll
        for (int j = 0; j < vectors; j++) {
            const float4 v = __ldcg(other + j * 128);
            sums[4 * j] += v.x;
            sums[4 * j + 1] += v.y;
            sums[4 * j + 2] += v.z;
            sums[4 * j + 3] += v.w;
        }
    }
    return true;
}

}  // namespace warpgroup
