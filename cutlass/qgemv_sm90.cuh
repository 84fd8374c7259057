// y[m, n] = x[m, k] * w[n, k]^T for up to 8 rows of x, w in the packed layout: as fast as w can be read.
//
// Weights are operand A of mma.sync, rows of x its columns, or parts of one row. A block takes every
// gridDim.x-th tile of 16 rows of w, and its warps share k: each has a ring of slots of its own, which bulk
// copies fill, and nothing but its own slots and its own columns of x to wait for. The sums of a few tiles
// wait in shared memory and are added once.
//
// Weights do not depend on the launch before: they are on their way before its results are waited for.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "qgemv_sm90_lane.cuh"
#include "qgemv_sm90_plan.cuh"
#include "qgemv_sm90_staging.cuh"

namespace gemv {

// A block's work. Blocks past the last tile have none.
template <class Tile>
WOOTZ_FN void run(const Arguments& with, uint8_t* shared) {
    using Weight = typename Tile::Weight;
    const int lane = lane_id();
    // By a shuffle: what follows from it is in uniform registers.
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x / 32), 0);
    const uint32_t tiles = (with.n + 15) / 16;
    const Share<Tile> share(with.k, warp);
    Ring<Tile> ring(with, share, shared, warp, tiles);
    if (lane == 0) {
        for (int i = 0; i < Tile::slots; i++) barrier_init(ring.barriers + i * 8, 1);
        barriers_made();
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Tile::slots; i++) ring.copy(share, i);

    if constexpr (Tile::table) make_table<Tile>(shared + Tile::table_at);

    previous_grid_wait();
    next_grid_launch();
    uint16_t* staged = reinterpret_cast<uint16_t*>(shared + Tile::x_at);
    const uint32_t pitch = share.units * Weight::unit_k + 8;
    float* totals = reinterpret_cast<float*>(staged + pitch);  // of one row of x
    const int lifted = stage<Tile>(with, share, staged, pitch, totals, lane);
    const Factors factor = factors<Tile>(lifted, with.tensor);
    if (Tile::table) {
        __syncthreads();
    } else {
        __syncwarp();
    }

    Lane<Tile> weights;
    weights.lane = lane;
    weights.tensor = with.tensor;
    weights.table = shared + Tile::table_at;
    // Rows past m repeat the last one.
    const uint32_t row = Tile::tokens == 1 ? 0 : min(static_cast<uint32_t>(lane) % 8, with.m - 1);
    const uint8_t* x = reinterpret_cast<const uint8_t*>(staged + row * pitch + share.begin * Weight::unit_k) +
                       weights.place();
    const uint8_t* slots = shared + warp * (Tile::slots * Tile::slot_bytes);
    float* sums_of = reinterpret_cast<float*>(shared + Tile::sums_at);

#pragma unroll 1
    for (uint32_t first = blockIdx.x; first < tiles; first += Tile::waiting * gridDim.x) {
        if (first != blockIdx.x) __syncthreads();  // sums before have been read
        uint32_t count = 0;
#pragma unroll 1
        for (uint32_t tile = first; tile < tiles && count < Tile::waiting; tile += gridDim.x, count++) {
            float sums[4] = {0, 0, 0, 0};
            const uint8_t* at = x;
            const float* runs = totals + share.begin * Weight::runs;
#pragma unroll 1
            for (uint32_t chunk = 0; chunk < share.chunks; chunk++) {
                const uint32_t units = share.units_of(chunk);
                const uint8_t* unit = slots + ring.slot * Tile::slot_bytes;
                ring.wait();
#pragma unroll 1
                for (uint32_t u = 0; u < units; u++) {
                    weights.multiply(sums, at + u * (Weight::unit_k * 2), unit, [&] {
                        if (Tile::held || u + 1 < units) return;
                        __syncwarp();
                        // A copy does not wait for loads in flight. (k has no sign bit.)
                        ring.copy(share, ring.slot, weights.loaded() & with.k >> 31);
                    });
                    if constexpr (Tile::shift) weights.correct(sums, runs);
                    runs += Weight::runs;
                    unit += Weight::unit_bytes;
                }
                if (Tile::held) {
                    __syncwarp();
                    ring.copy(share, ring.slot);
                }
                ring.advance();
                at += Tile::units * Weight::unit_k * 2;
            }
            leave<Tile>(sums_of + (count * Tile::warps + warp) * Tile::sums, sums, factor, lane);
        }
        __syncthreads();
        store<Tile>(with, sums_of, first, count);
    }
}

}  // namespace gemv
