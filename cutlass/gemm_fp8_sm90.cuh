// y[m][n] = sum over blocks of 128 along k of scale_a[block][m] * scale_b[n / 128][block] * a[m][k]
// b[n][k]^T, 8-bit floats on warpgroup MMA. A tile is Rows rows of a by 128 rows of b. One warp copies a
// block's parts of a and b into a ring of shared memory; two warpgroups multiply, 64 rows at a time, into
// fresh sums, which they scale and add to the tile's: while one does that, the other multiplies.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "qmm_sm90_plan.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// Slots: of the ring. Together: rows of tiles whose columns are neighbours in time. All registers are no more
// than the launch allocated (384 threads x 168), or the block hangs.
template <int Rows_, int Slots_, uint32_t Together_>
struct BlockTile {
    static constexpr int rows = Rows_, columns = 128, slots = Slots_;
    static constexpr int waves = rows / 128, consumers = 256, threads = consumers + 128;
    static constexpr int consumer_registers = 240, producer_registers = 24;
    static constexpr uint32_t together = Together_;

    // Shared memory, from a 1024-byte boundary on. gen/kernels/_fp8_sm90.py computes the same sum.
    static constexpr int a_slot = rows * 128, b_slot = columns * 128, scale_slot = rows * 4;
    static constexpr int a = 0, b = a + slots * a_slot, scales = b + slots * b_slot;
    static constexpr int results = scales + slots * scale_slot, full = results + 2 * 64 * 128;
    static constexpr int empty = full + 8 * slots, bytes = empty + 8 * slots + 1024;
    static_assert(rows == 128 || rows == 256, "one or two products of 64 rows a warpgroup");
};

struct BlockProblem {
    const TensorMap *a, *b, *scale_a;
    const float* scale_b;
    uint16_t* y;
    uint32_t m, n, k;
    WOOTZ_FN uint32_t blocks() const { return (k + 127) / 128; }
};

// The tiles of a block: every so-manieth. They follow each other along m within a few rows of tiles, so that
// what is worked on at one time shares what the cache holds.
template <class Tile>
struct Tiles {
    uint32_t high, wide, tile;

    WOOTZ_FN explicit Tiles(const BlockProblem& p) {
        high = (p.m + Tile::rows - 1) / Tile::rows;
        wide = (p.n + Tile::columns - 1) / Tile::columns;
        tile = blockIdx.x;
    }
    WOOTZ_FN bool more() const { return tile < high * wide; }
    WOOTZ_FN void next() { tile += gridDim.x; }
    WOOTZ_FN uint32_t first() const { return tile / (Tile::together * wide) * Tile::together; }
    WOOTZ_FN uint32_t rows() const { return min(Tile::together, high - first()); }
    WOOTZ_FN uint32_t inside() const { return tile % (Tile::together * wide); }
    WOOTZ_FN uint32_t row() const { return first() + inside() % rows(); }
    WOOTZ_FN uint32_t column() const { return inside() / rows(); }
};

template <class Tile>
WOOTZ_FN void produce_blocks(const BlockProblem& p, uint32_t base) {
    const int blocks = p.blocks();
    Ring<Tile::slots> ring = {0, 1};
    for (Tiles<Tile> tiles(p); tiles.more(); tiles.next()) {
        const int row = tiles.row() * Tile::rows, column = tiles.column() * Tile::columns;
#pragma unroll 1
        for (int block = 0; block < blocks; block++) {
            const uint32_t full = base + Tile::full + ring.slot * 8;
            barrier_wait(base + Tile::empty + ring.slot * 8, ring.parity);
            barrier_expect(full, Tile::a_slot + Tile::b_slot + Tile::scale_slot);
            copy_tensor(base + Tile::a + ring.slot * Tile::a_slot, p.a, block * 128, row, full);
            copy_tensor(base + Tile::b + ring.slot * Tile::b_slot, p.b, block * 128, column, full);
            copy_tensor(base + Tile::scales + ring.slot * Tile::scale_slot, p.scale_a, row, block, full);
            ring.advance(1);
        }
    }
}

// Stores 64 rows x 128 columns of a warpgroup, turned into rows in shared memory that is the warp's own.
template <class Type>
WOOTZ_FN void store_block(const BlockProblem& p, const float (&sums)[64], uint8_t* staged, uint32_t row,
                          uint32_t column, int lane) {
    const int g = lane >> 2, t = lane & 3, piece = lane & 7;
#pragma unroll
    for (int c = 0; c < 2; c++) {
        __syncwarp();
#pragma unroll
        for (int j = 0; j < 8; j++) {
            const float* d = &sums[4 * (8 * c + j)];
            uint8_t* to = staged + g * 128 + ((j ^ g) << 4) + t * 4;
            *reinterpret_cast<uint32_t*>(to) = Type::round(d[0], d[1]);
            *reinterpret_cast<uint32_t*>(to + 8 * 128) = Type::round(d[2], d[3]);
        }
        __syncwarp();
        const uint32_t first = column + c * 64 + piece * 8;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int at = i * 4 + (lane >> 3);
            if (row + at >= p.m || first >= p.n) continue;
            const uint8_t* from = staged + at * 128 + ((piece ^ (at & 7)) << 4);
            *reinterpret_cast<uint4*>(p.y + static_cast<uint64_t>(row + at) * p.n + first) =
                *reinterpret_cast<const uint4*>(from);
        }
    }
}

template <class Tile, class Type>
WOOTZ_FN void consume_blocks(const BlockProblem& p, uint8_t* shared) {
    constexpr int waves = Tile::waves;
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    // Of one lane, so that the compiler knows it to be the warp's, and what follows from it.
    const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x >> 7), 0);
    const uint32_t base = shared_address(shared), blocks = p.blocks();
    const uint32_t a = descriptor_low(base + Tile::a + warpgroup * (waves * 64 * 128));
    const uint32_t b = descriptor_low(base + Tile::b);
    const float* scales = reinterpret_cast<const float*>(shared + Tile::scales) + warpgroup * waves * 64 +
                          warp * 16 + (lane >> 2);
    uint8_t* staged = shared + Tile::results + (warpgroup * 4 + warp) * (16 * 128);
    float sums[waves][64], fresh[64];
    Ring<Tile::slots> ring = {0, 0};
    for (Tiles<Tile> tiles(p); tiles.more(); tiles.next()) {
        const float* levels = p.scale_b + static_cast<uint64_t>(tiles.column()) * blocks;
        float level = levels[0];
#pragma unroll
        for (int w = 0; w < waves; w++)
#pragma unroll
            for (int i = 0; i < 64; i++) sums[w][i] = 0;
#pragma unroll 1
        for (uint32_t block = 0; block < blocks; block++) {
            const float next_level = levels[min(block + 1, blocks - 1)];
            barrier_wait(base + Tile::full + ring.slot * 8, ring.parity);
            unroll<waves>([&](auto wave) {
                constexpr int w = wave.value;
                const float* rows = scales + ring.slot * Tile::rows + w * 64;
                float factors[2] = {rows[0] * level, rows[8] * level};
                wgmma_fence();
                unroll<4>([&](auto step) {
                    constexpr int s = step.value;
                    WgmmaShared<Tile::columns>::template multiply<s != 0>(
                        fresh, descriptor(a + ring.slot * (Tile::a_slot / 16) + w * (64 * 128 / 16) + s * 2),
                        descriptor(b + ring.slot * (Tile::b_slot / 16) + s * 2));
                });
                wgmma_commit();
                settle(factors);
                wgmma_wait<0>();
                settle(fresh);
                if constexpr (w == waves - 1) {
                    __syncwarp();
                    if (lane == 0) barrier_arrive(base + Tile::empty + ring.slot * 8);
                }
#pragma unroll
                for (int i = 0; i < 64; i++) sums[w][i] += factors[i >> 1 & 1] * fresh[i];
            });
            level = next_level;
            ring.advance(1);
        }
        const uint32_t row = tiles.row() * Tile::rows + warpgroup * waves * 64 + warp * 16;
        unroll<waves>([&](auto wave) {
            store_block<Type>(p, sums[wave.value], staged, row + wave.value * 64,
                              tiles.column() * Tile::columns, lane);
        });
    }
}

template <class Tile, class Type>
WOOTZ_FN void gemm_blocks(const BlockProblem& p) {
    uint8_t* shared = shared_memory();
    const uint32_t base = shared_address(shared);
    const int warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) {
        for (int i = 0; i < Tile::slots; i++) {
            barrier_init(base + Tile::full + i * 8, 1);
            barrier_init(base + Tile::empty + i * 8, 8);
        }
        barriers_made();
    }
    __syncthreads();
    previous_grid_wait();
    if (warp < Tile::consumers / 32) {
        registers_grow<Tile::consumer_registers>();
        consume_blocks<Tile, Type>(p, shared);
    } else {
        registers_shrink<Tile::producer_registers>();
        if (warp == Tile::consumers / 32 && copies_for_warp()) {
            prefetch_map(p.a);
            prefetch_map(p.b);
            prefetch_map(p.scale_a);
            produce_blocks<Tile>(p, base);
            next_grid_launch();
        }
    }
}

}  // namespace warpgroup
