// y[m, n] = epilogue(a[m, k] b[n, k]^T) on warp-level matrix instructions: for every chip that has them,
// every element type and every shape. Elements are bytes to all but the instruction: its fragments lie alike
// for 8 and 16 bits, so that one main loop serves all types.
//
// A block of WarpsM x WarpsN warps makes a tile; a warp has TilesM x TilesN instructions of 16 x 8 results.
// Steps along k are Depth bytes; Stages of them are under way in shared memory, and fragments are read one
// instruction's depth ahead. Rows past the end repeat the last one and are not stored; bytes past k are zero.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "mma.cuh"

// The block's dynamic shared memory, under `name`.
#ifdef __CUDACC__
#define WOOTZ_SHARED(name, bytes) extern __shared__ uint4 name[]
#else
#define WOOTZ_SHARED(name, bytes) __shared__ uint4 name[(bytes) / 16]
#endif

// The element types: their width, the type of sums, their instruction.
struct MmaHalf {
    static constexpr int bytes = 2;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        mma_m16n8k16_f16_f32(d, a, b, d);
    }
};
struct MmaBfloat {
    static constexpr int bytes = 2;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        mma_m16n8k16_bf16_f32(d, a, b, d);
    }
};
struct MmaByte {
    static constexpr int bytes = 1;
    using Sum = int;
    static WOOTZ_FN void multiply(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        mma_m16n8k32_s8_s32(d, a, b, d);
    }
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
struct MmaE4m3 {
    static constexpr int bytes = 1;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
        mma_m16n8k32_e4m3_f32(d, a, b, d);
    }
};
#endif

// One variant. Narrow: rows begin at any element, else at multiples of 16 bytes.
template <class Element_, int WarpsM_, int WarpsN_, int TilesM_, int TilesN_, int Depth_, int Stages_,
          bool Narrow_>
struct GemmTile {
    using Element = Element_;
    using Sum = typename Element::Sum;
    static constexpr int warps_m = WarpsM_, warps_n = WarpsN_, tiles_m = TilesM_, tiles_n = TilesN_;
    static constexpr int depth = Depth_, stages = Stages_;
    static constexpr bool narrow = Narrow_;

    static constexpr int threads = 32 * warps_m * warps_n;
    static constexpr int rows_m = 16 * warps_m * tiles_m, rows_n = 8 * warps_n * tiles_n;
    static constexpr int pieces = depth / 16, slices = depth / 32;
    static constexpr int bytes_a = rows_m * depth, stage_bytes = (rows_m + rows_n) * depth;
    static constexpr int shared_bytes = stages * stage_bytes;

    static_assert(depth == 64 || depth == 128, "rows of shared memory are 64 or 128 bytes");
    static_assert(stages >= 2 && tiles_n % 2 == 0, "");
    static_assert(rows_m * pieces % threads == 0 && rows_n * pieces % threads == 0, "");

    // 16 bytes at place p of row r lie at place p ^ key(r): no bank is asked twice by eight rows.
    static WOOTZ_FN uint32_t key(uint32_t row) { return depth == 128 ? row & 7 : row >> 1 & 3; }
};

// The parts of one operand that a thread copies, stage after stage.
template <class Tile, int Rows>
struct GemmCopy {
    static constexpr int count = Rows * Tile::pieces / Tile::threads;
    const uint8_t* from[count];
    uint32_t to, left;

    WOOTZ_FN GemmCopy(const uint8_t* matrix, uint32_t first, uint32_t rows, uint32_t pitch) {
        uint32_t row = threadIdx.x / Tile::pieces, piece = threadIdx.x % Tile::pieces;
        to = row * Tile::depth + (piece ^ Tile::key(row)) * 16;
        left = pitch > piece * 16 ? pitch - piece * 16 : 0;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            uint32_t at = first + row + i * (Tile::threads / Tile::pieces);
            at = at < rows ? at : rows - 1;
            from[i] = matrix + static_cast<uint64_t>(at) * pitch + piece * 16;
        }
    }

    // Copies this thread's part of the next step and moves on.
    WOOTZ_FN void next(uint8_t* stage) {
        uint32_t bytes = left < 16 ? left : 16;
#pragma unroll
        for (int i = 0; i < count; ++i) {
            uint8_t* place = stage + to + i * (Tile::threads / Tile::pieces) * Tile::depth;
            if constexpr (Tile::narrow) {
                *reinterpret_cast<uint4*>(place) = elements(from[i], bytes);
            } else {
                cp_async_16(place, from[i], bytes);
            }
            if (left > Tile::depth) from[i] += Tile::depth;
        }
        left -= left < Tile::depth ? left : Tile::depth;
    }

    static WOOTZ_FN uint4 elements(const uint8_t* from, uint32_t bytes) {
        uint32_t words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < 16; i += Tile::Element::bytes) {
            if (i < bytes) {
                uint32_t element =
                    Tile::Element::bytes == 2 ? *reinterpret_cast<const uint16_t*>(from + i) : from[i];
                words[i / 4] |= element << i % 4 * 8;
            }
        }
        return make_uint4(words[0], words[1], words[2], words[3]);
    }
};

// One instruction's depth of a warp's operands.
template <class Tile>
struct GemmFragments {
    uint32_t a[Tile::tiles_m][4], b[Tile::tiles_n][2];

    // from_a, from_b: what the lane reads of slice 0 of a stage.
    WOOTZ_FN void load(const uint8_t* stage, uint32_t from_a, uint32_t from_b, int slice) {
#pragma unroll
        for (int i = 0; i < Tile::tiles_m; ++i) {
            ldmatrix_x4(a[i], stage + (from_a ^ slice * 32) + i * 16 * Tile::depth);
        }
#pragma unroll
        for (int j = 0; j < Tile::tiles_n; j += 2) {
            uint32_t four[4];
            ldmatrix_x4(four, stage + (from_b ^ slice * 32) + j * 8 * Tile::depth);
            b[j][0] = four[0];
            b[j][1] = four[1];
            b[j + 1][0] = four[2];
            b[j + 1][1] = four[3];
        }
    }

    WOOTZ_FN void multiply(typename Tile::Sum (&sums)[Tile::tiles_m][Tile::tiles_n][4]) const {
#pragma unroll
        for (int i = 0; i < Tile::tiles_m; ++i) {
#pragma unroll
            for (int j = 0; j < Tile::tiles_n; ++j) Tile::Element::multiply(sums[i][j], a[i], b[j]);
        }
    }
};

// The tile of a block: groups of 8 tiles along m share what they read of b in the second-level cache.
struct GemmPlace {
    uint32_t m, n;
    WOOTZ_FN GemmPlace(uint32_t tiles_m, uint32_t tiles_n, uint32_t block) {
        uint32_t group = block / (8 * tiles_n), first = group * 8;
        uint32_t height = tiles_m - first < 8 ? tiles_m - first : 8, inside = block - group * 8 * tiles_n;
        m = first + inside % height;
        n = inside / height;
    }
};

// Sums taken as they are. A policy with a period p > 0 has the sums of every p bytes of k multiplied by
// left(row, block) * right(column, block) and added up in f32; a block of columns that a warp has must share
// its `right`.
struct GemmUnscaled {
    static constexpr int period = 0;
};

template <bool First, class A, class B>
struct GemmChoice {
    using type = A;
};
template <class A, class B>
struct GemmChoice<false, A, B> {
    using type = B;
};

// Sums on their way out: 16 rows of each warp at a time go through shared memory, from where a thread takes
// eight neighbours.
template <class Tile, class Number>
struct GemmOutput {
    static constexpr int pitch = Tile::rows_n + 8, chunks = Tile::rows_n / 8, rows = 16 * Tile::warps_m;
    static_assert(rows * pitch * 4 <= Tile::shared_bytes, "");
    Number* place;
    uint32_t row0, column0;

    WOOTZ_FN void put(const Number (&sums)[Tile::tiles_n][4], uint32_t warp, uint32_t lane) const {
        uint32_t row = warp % Tile::warps_m * 16 + lane / 4;
        Number* first = place + row * pitch + warp / Tile::warps_m * (8 * Tile::tiles_n) + lane % 4 * 2;
#pragma unroll
        for (int j = 0; j < Tile::tiles_n; ++j) {
#pragma unroll
            for (int e = 0; e < 4; ++e) first[e / 2 * 8 * pitch + j * 8 + e % 2] = sums[j][e];
        }
    }

    template <class Epilogue>
    WOOTZ_FN void take(int i, uint32_t m, uint32_t n, const Epilogue& epilogue) const {
#pragma unroll 1
        for (uint32_t at = threadIdx.x; at < rows * chunks; at += Tile::threads) {
            uint32_t from = at / chunks, column = column0 + at % chunks * 8;
            uint32_t row = row0 + from / 16 * (16 * Tile::tiles_m) + i * 16 + from % 16;
            if (row >= m || column >= n) continue;
            Number values[8];
#pragma unroll
            for (int e = 0; e < 8; ++e) values[e] = place[from * pitch + at % chunks * 8 + e];
            epilogue(row, column, values);
        }
    }
};

// Every thread of a grid of ceil(m / rows_m) * ceil(n / rows_n) blocks. shared: Tile::shared_bytes, aligned
// to 128. k is in bytes. epilogue(row, column, eight sums): column is a multiple of 8, and not all of them
// may exist.
template <class Tile, class Scaling, class Epilogue>
WOOTZ_FN void gemm_mma(const uint8_t* a, const uint8_t* b, uint32_t m, uint32_t n, uint32_t k_bytes,
                       uint8_t* shared, const Scaling& scaling, const Epilogue& epilogue) {
    using Sum = typename Tile::Sum;
    constexpr bool scaled = Scaling::period > 0;
    constexpr uint32_t period = scaled ? Scaling::period : Tile::depth;
    static_assert(period % Tile::depth == 0, "");
    GemmPlace place((m + Tile::rows_m - 1) / Tile::rows_m, (n + Tile::rows_n - 1) / Tile::rows_n, blockIdx.x);
    uint32_t row0 = place.m * Tile::rows_m, column0 = place.n * Tile::rows_n;
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t warp_m = warp % Tile::warps_m * (16 * Tile::tiles_m);
    uint32_t warp_n = warp / Tile::warps_m * (8 * Tile::tiles_n);

    GemmCopy<Tile, Tile::rows_m> copy_a(a, row0, m, k_bytes);
    GemmCopy<Tile, Tile::rows_n> copy_b(b, column0, n, k_bytes);
    uint32_t steps = (k_bytes + Tile::depth - 1) / Tile::depth;
    auto fetch = [&](uint32_t step) {
        if (step < steps) {
            uint8_t* stage = shared + step % Tile::stages * Tile::stage_bytes;
            copy_a.next(stage);
            copy_b.next(stage + Tile::bytes_a);
        }
        cp_async_commit();
    };

    // Lane 8 j + i names row i of matrix j. For a: j = row half + 2 * byte half; for b: j = byte half + 2 *
    // tile.
    uint32_t row_a = warp_m + lane % 16, row_b = warp_n + lane % 8 + lane / 16 * 8;
    uint32_t from_a = row_a * Tile::depth + (lane / 16 ^ Tile::key(row_a)) * 16;
    uint32_t from_b = Tile::bytes_a + row_b * Tile::depth + (lane / 8 % 2 ^ Tile::key(row_b)) * 16;

    Sum sums[Tile::tiles_m][Tile::tiles_n][4] = {};
    float totals[scaled ? Tile::tiles_m : 1][scaled ? Tile::tiles_n : 1][4] = {};
    auto add_up = [&](uint32_t block) {
        if constexpr (scaled) {
            float right = scaling.right(column0 + warp_n, block);
#pragma unroll
            for (int i = 0; i < Tile::tiles_m; ++i) {
#pragma unroll
                for (int half = 0; half < 2; ++half) {
                    float scale = right * scaling.left(row0 + warp_m + lane / 4 + i * 16 + half * 8, block);
#pragma unroll
                    for (int j = 0; j < Tile::tiles_n; ++j) {
#pragma unroll
                        for (int e = 2 * half; e < 2 * half + 2; ++e) {
                            totals[i][j][e] += sums[i][j][e] * scale;
                            sums[i][j][e] = 0;
                        }
                    }
                }
            }
        }
    };

#pragma unroll
    for (int step = 0; step < Tile::stages - 1; ++step) fetch(step);
    cp_async_wait<Tile::stages - 2>();
    __syncthreads();
    GemmFragments<Tile> fragments[2];
    fragments[0].load(shared, from_a, from_b, 0);
    uint32_t stage = 0;
    for (uint32_t step = 0; step < steps; ++step) {
#pragma unroll
        for (int slice = 0; slice < Tile::slices; ++slice) {
            if (slice == Tile::slices - 1) {
                cp_async_wait<Tile::stages - 2>();
                __syncthreads();
                stage = stage + 1 == Tile::stages ? 0 : stage + 1;
            }
            fragments[(slice + 1) % 2].load(shared + stage * Tile::stage_bytes, from_a, from_b,
                                            (slice + 1) % Tile::slices);
            if (slice == 0) fetch(step + Tile::stages - 1);
            fragments[slice % 2].multiply(sums);
        }
        if (scaled && ((step + 1) * Tile::depth % period == 0 || step + 1 == steps)) {
            add_up(step * Tile::depth / period);
        }
    }
    cp_async_wait<0>();
    using Number = typename GemmChoice<scaled, float, Sum>::type;
    GemmOutput<Tile, Number> output{reinterpret_cast<Number*>(shared), row0, column0};
#pragma unroll
    for (int i = 0; i < Tile::tiles_m; ++i) {
        __syncthreads();
        if constexpr (scaled) {
            output.put(totals[i], warp, lane);
        } else {
            output.put(sums[i], warp, lane);
        }
        __syncthreads();
        output.take(i, m, n, epilogue);
    }
}
