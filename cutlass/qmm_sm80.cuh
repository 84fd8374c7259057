// y[m, n] = x[m, k] * w[n, k]^T with w in the packed layout: mma.sync, for every format.
//
// Weights are operand A, 16 rows to a tile, and tokens (rows of x) are its columns, 8 to a tile, so that one
// template serves a single token and thousands. A warp's weights go from global memory to registers as they
// lie, those of the next unit as soon as there is room; x and the scales of a unit go through shared memory
// by asynchronous copies.
//
// A block has RowWarps x TokenWarps x DepthWarps warps. Those of one depth take every DepthWarps-th unit
// along k; their sums meet in shared memory at the end. Shapes are free: rows past n repeat the last tile and
// are not stored, tokens past m and columns past k are zero.
#pragma once

#include <stdint.h>

#include "activation.cuh"
#include "fragment.cuh"
#include "mma.cuh"

namespace fragment {

// The bytes of four codes of up to 4 bits (one in each byte), from a table of 16.
WOOTZ_FN uint32_t pick_bytes(uint32_t codes, uint32_t t0, uint32_t t1, uint32_t t2, uint32_t t3) {
    const uint32_t select = prmt((codes & 0x07070707) | (codes & 0x07070707) >> 4, 0, 0x4420);
    const uint32_t upper = prmt(codes << 4, 0, 0xba98);  // all ones where the code is 8 or more
    return (prmt(t0, t1, select) & ~upper) | (prmt(t2, t3, select) & upper);
}

}  // namespace fragment

// What x may be: its matrix instruction, of 32 bytes along k, the type of that one's sums; and how 16 bytes
// of x lie in shared memory.
struct HalfActivation {
    using Element = uint16_t;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const float (&c)[4]) {
        mma_m16n8k16_f16_f32(d, a, b, c);
    }
    static WOOTZ_FN uint16_t round(float value) {
        return static_cast<uint16_t>(fragment::Half::round(value, 0.0f));
    }
};
struct BfloatActivation {
    using Element = uint16_t;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const float (&c)[4]) {
        mma_m16n8k16_bf16_f32(d, a, b, c);
    }
    static WOOTZ_FN uint16_t round(float value) {
        return static_cast<uint16_t>(fragment::Bfloat::round(value, 0.0f));
    }
};
struct IntegerActivation {
    using Element = uint8_t;
    using Sum = int;
    static WOOTZ_FN void multiply(int (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const int (&c)[4]) {
        mma_m16n8k32_s8_s32(d, a, b, c);
    }
};
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
struct ByteFloatActivation {
    using Element = uint8_t;
    using Sum = float;
    static WOOTZ_FN void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                  const float (&c)[4]) {
        mma_m16n8k32_e4m3_f32(d, a, b, c);
    }
};
#endif

// One variant. Fold: scales are applied to every weight, which is then rounded to the activation type; else
// to the sums of each run, exactly. Narrow: rows of x are not aligned to 16 bytes. Direct: scales are read
// from global memory where they are needed, for formats that have too many of them to stage. Paired: every
// other tile of rows is of a second matrix, and y is activation(first) * second. Output: the type of y, one
// of the activations.
template <class Weight_, class Activation_, class Output_, int RowWarps_, int DepthWarps_, int TokenWarps_,
          int RowTiles_, int TokenTiles_, int Chunk_, int Stages_, bool Fold_, bool Narrow_, bool Direct_,
          bool Paired_ = false>
struct QmmTile {
    using Weight = Weight_;
    using Activation = Activation_;
    using Output = Output_;
    static constexpr int row_warps = RowWarps_, depth_warps = DepthWarps_, token_warps = TokenWarps_;
    static constexpr int row_tiles = RowTiles_, token_tiles = TokenTiles_;
    static constexpr int chunk = Chunk_, stages = Stages_;
    static constexpr bool fold = Fold_, narrow = Narrow_, direct = Direct_, paired = Paired_;

    static constexpr int element = sizeof(typename Activation::Element), per_piece = 16 / element;
    static constexpr int step = 2 * per_piece;  // columns of one matrix instruction
    // Bytes: a lane's codes of 16 columns are 2 t, 2 t + 1, 2 t + 8 and 2 t + 9, where the instruction has 4
    // t to 4 t + 3. The order of k is free, so the bytes of x are stored as the codes lie.
    static constexpr bool woven = element == 1;
    // No scale awaits a sum.
    static constexpr bool whole = fold || (!Weight::scaled && Weight::exponent == 0 && !woven);

    static constexpr int threads = 32 * row_warps * depth_warps * token_warps;
    static constexpr int block_tiles = row_warps * row_tiles;
    static constexpr int block_rows = 16 * block_tiles / (paired ? 2 : 1);  // of y
    static constexpr int block_tokens = 8 * token_warps * token_tiles;
    static constexpr int chunks = Weight::unit_k / chunk;
    static constexpr int steps = chunk / step;

    // A stage holds x[block_tokens][depth_warps * chunk], 16 bytes at place p of row r lying at p ^ (r & 7).
    static constexpr int row_pieces = depth_warps * chunk / per_piece;
    static constexpr int stage_bytes = 16 * block_tokens * row_pieces;
    static constexpr int side_bytes = direct ? 0 : Weight::unit_bytes - Weight::code_bytes;
    static constexpr int side_slots = (stages - 2 + chunks) / chunks + 1;
    static constexpr int slot_bytes = depth_warps * block_tiles * side_bytes;

    // Reused at the end: sums of the other depths, then y[block_tokens][block_rows].
    static constexpr int sums = 4 * row_tiles * token_tiles;
    static constexpr int reduce_bytes = (depth_warps - 1) * row_warps * token_warps * sums * 32 * 4;
    static constexpr int output_pitch = block_rows + 8;
    static constexpr int output_bytes = 2 * block_tokens * output_pitch;

    static constexpr int larger(int a, int b) { return a > b ? a : b; }
    static constexpr int shared_bytes =
        larger(stages * stage_bytes + side_slots * slot_bytes, larger(reduce_bytes, output_bytes));

    static_assert(stages >= 2 && chunk % 64 == 0 && Weight::unit_k % chunk == 0 && row_pieces >= 8, "");
    static_assert(fold || Weight::run % step == 0, "");
    static_assert(!paired || row_tiles == 2, "");
    static_assert(token_tiles == 1 || token_tiles % 2 == 0, "");
    static_assert(shared_bytes <= 48 << 10, "more static shared memory than there is");
    static_assert(fold || !Weight::fold_only, "this format's scales cannot wait for the sums");
};

// token_scales: one a row of x, null for ones. second_...: of the second matrix, where tiles are paired.
struct QmmArguments {
    const void* x;
    const uint8_t* units;
    const float* tensor;
    const float* token_scales;
    uint16_t* y;
    uint32_t m, n, k;
    const uint8_t* second_units;
    const float* second_tensor;
    uint32_t activation;
};

// One block's work: which rows of w and which tokens it takes.
template <class Tile>
struct Qmm {
    using Weight = typename Tile::Weight;
    using Activation = typename Tile::Activation;
    using Element = typename Activation::Element;
    using Sum = typename Activation::Sum;

    QmmArguments to;
    uint8_t* shared;
    uint32_t units;  // along k
    uint32_t first_tile, first_token;
    int lane, row_warp, depth, token_warp;

    float sums[Tile::row_tiles][Tile::token_tiles][4];
    Sum partial[Tile::row_tiles][Tile::token_tiles][4];  // of one run
    uint32_t words[Tile::row_tiles][Weight::words];

    WOOTZ_FN Qmm(const QmmArguments& arguments, uint8_t* memory, uint32_t rows, uint32_t tokens)
        : to(arguments), shared(memory) {
        const int warp = threadIdx.x / 32;
        lane = threadIdx.x % 32;
        row_warp = warp % Tile::row_warps;
        token_warp = warp / Tile::row_warps % Tile::token_warps;
        depth = warp / (Tile::row_warps * Tile::token_warps);
        units = (to.k + Weight::unit_k - 1) / Weight::unit_k;
        first_tile = rows * (Tile::block_rows / 16);
        first_token = tokens * Tile::block_tokens;
    }

    // A unit of the block's tile `tile`.
    WOOTZ_FN const uint8_t* unit(uint32_t tile, uint32_t index) const {
        const uint8_t* from = Tile::paired && tile % 2 ? to.second_units : to.units;
        const uint32_t last = (to.n + 15) / 16 - 1, wanted = first_tile + (Tile::paired ? tile / 2 : tile);
        tile = wanted < last ? wanted : last;
        index = index < units ? index : units - 1;
        return from + (static_cast<uint64_t>(tile) * units + index) * Weight::unit_bytes;
    }

    WOOTZ_FN uint8_t* sides(uint32_t group, int of_depth, int tile) const {
        const int slot = group % Tile::side_slots;
        return shared + Tile::stages * Tile::stage_bytes + slot * Tile::slot_bytes +
               (of_depth * Tile::block_tiles + tile) * Tile::side_bytes;
    }

    WOOTZ_FN const uint8_t* own_unit(uint32_t group, int r) const {
        return unit(row_warp * Tile::row_tiles + r, group * Tile::depth_warps + depth);
    }

    // Words From (rounded up to whole vectors) to To - 1 of this warp's units of a group.
    template <int From, int To>
    WOOTZ_FN void load_words(uint32_t group) {
#pragma unroll
        for (int r = 0; r < Tile::row_tiles; ++r) {
            const uint8_t* from = own_unit(group, r);
#pragma unroll
            for (int i = (From + 3) / 4; i < (To + 3) / 4; ++i) {
                const uint4 vector = load_once_16(from + (32 * i + lane) * 16);
                words[r][4 * i] = vector.x;
                words[r][4 * i + 1] = vector.y;
                words[r][4 * i + 2] = vector.z;
                words[r][4 * i + 3] = vector.w;
            }
        }
    }

    WOOTZ_FN const Element* activation(uint32_t token, uint32_t column) const {
        return static_cast<const Element*>(to.x) + static_cast<uint64_t>(token) * to.k + column;
    }

    // 16 bytes of one token from column `column` on, zero outside, by single loads.
    WOOTZ_FN uint4 gather(uint32_t token, uint32_t column) const {
        constexpr int per_word = 4 / Tile::element;
        uint32_t packed[4] = {0, 0, 0, 0};
#pragma unroll
        for (int i = 0; i < Tile::per_piece; ++i) {
            if (token < to.m && column + i < to.k) {
                const uint32_t bits = *activation(token, column + i);
                packed[i / per_word] |= bits << (8 * Tile::element * (i % per_word));
            }
        }
        return make_uint4(packed[0], packed[1], packed[2], packed[3]);
    }

    static WOOTZ_FN uint4 weave(uint4 v) {
        return make_uint4(fragment::prmt(v.x, v.z, 0x5410), fragment::prmt(v.x, v.z, 0x7632),
                          fragment::prmt(v.y, v.w, 0x5410), fragment::prmt(v.y, v.w, 0x7632));
    }

    // Brings a chunk of x, and the scales of its units with the first of them, on their way.
    WOOTZ_FN void stage(uint32_t index) const {
        const uint32_t group = index / Tile::chunks, part = index % Tile::chunks;
        constexpr int pieces = Tile::row_pieces;  // of a row; threads next to each other copy next pieces
        constexpr int across = pieces < Tile::threads ? pieces : Tile::threads, step = Tile::threads / across;
#pragma unroll
        for (int first = 0; first < pieces; first += across) {
            const uint32_t place = first + threadIdx.x % across, row = threadIdx.x / across;
            constexpr int chunk_pieces = Tile::chunk / Tile::per_piece;
            const uint32_t unit_index = group * Tile::depth_warps + place / chunk_pieces;
            const uint32_t column =
                unit_index * Weight::unit_k + part * Tile::chunk + place % chunk_pieces * Tile::per_piece;
            const uint32_t token = first_token + row;
            const Element* from = activation(token, column);
            uint8_t* line = shared + index % Tile::stages * Tile::stage_bytes + row * pieces * 16;
#pragma unroll(Tile::narrow ? 1 : 8)
            for (uint32_t i = 0; i < Tile::block_tokens; i += step) {
                uint8_t* piece = line + i * pieces * 16 + (place ^ ((row + i) & 7)) * 16;
                if (step <= Tile::block_tokens || row < Tile::block_tokens) {
                    const bool inside = token + i < to.m && column < to.k;
                    if (Tile::woven) {
                        uint4 v = make_uint4(0, 0, 0, 0);
                        if (Tile::narrow) {
                            v = gather(token + i, column);
                        } else if (inside) {
                            v = *reinterpret_cast<const uint4*>(from);
                        }
                        *reinterpret_cast<uint4*>(piece) = weave(v);
                    } else if (Tile::narrow) {
                        *reinterpret_cast<uint4*>(piece) = gather(token + i, column);
                    } else {
                        cp_async_16(piece, from, inside ? 16 : 0);
                    }
                }
                from += static_cast<uint64_t>(step) * to.k;
            }
        }
        if (Tile::side_bytes && part == 0) {
            constexpr int side_pieces = Tile::side_bytes > 0 ? Tile::side_bytes / 16 : 1;
            constexpr int all = Tile::depth_warps * Tile::block_tiles * side_pieces;
#pragma unroll 1
            for (int i = threadIdx.x; i < all; i += Tile::threads) {
                const int tile = i / side_pieces % Tile::block_tiles;
                const int of_depth = i / (side_pieces * Tile::block_tiles), offset = i % side_pieces * 16;
                const uint8_t* from = unit(tile, group * Tile::depth_warps + of_depth) + Weight::code_bytes;
                cp_async_16(sides(group, of_depth, tile) + offset, from + offset, 16);
            }
        }
    }

    // Operand B of one step, for every token tile of this warp.
    WOOTZ_FN void load_tokens(uint32_t index, int step, uint32_t (&b)[Tile::token_tiles][2]) const {
        const uint8_t* from = shared + index % Tile::stages * Tile::stage_bytes;
        const int row = lane % 8, matrix = lane / 8;
        const int first = depth * (Tile::chunk / Tile::per_piece) + 2 * step;
#pragma unroll
        for (int i = 0; i < Tile::token_tiles; i += 2) {
            const int tile = Tile::token_tiles == 1 ? 0 : i + matrix / 2;
            const int token = (token_warp * Tile::token_tiles + tile) * 8 + row;
            const int place = (first + matrix % 2) ^ row;
            uint32_t loaded[4];
            ldmatrix_x4(loaded, from + (token * Tile::row_pieces + place) * 16);
            b[i][0] = loaded[0];
            b[i][1] = loaded[1];
            if (Tile::token_tiles > 1) {
                b[i + (Tile::token_tiles > 1)][0] = loaded[2];
                b[i + (Tile::token_tiles > 1)][1] = loaded[3];
            }
        }
    }

    WOOTZ_FN const uint8_t* own_sides(uint32_t group, int r) const {
        const int tile = row_warp * Tile::row_tiles + r;
        if (Tile::direct) {
            return own_unit(group, r) + Weight::code_bytes;
        }
        return sides(group, depth, tile);
    }

    WOOTZ_FN const float* levels(int r) const { return Tile::paired && r ? to.second_tensor : to.tensor; }

    // Adds scale * partial of run `run` to the sums.
    WOOTZ_FN void close_run(uint32_t group, int run) {
#pragma unroll
        for (int r = 0; r < Tile::row_tiles; ++r) {
            const uint8_t* side = own_sides(group, r);
            const float low = Weight::scale(side, levels(r), lane / 4, run, 0);
            const float high = Weight::scale(side, levels(r), lane / 4, run, 1);
#pragma unroll
            for (int i = 0; i < Tile::token_tiles; ++i) {
                sums[r][i][0] += low * static_cast<float>(partial[r][i][0]);
                sums[r][i][1] += low * static_cast<float>(partial[r][i][1]);
                sums[r][i][2] += high * static_cast<float>(partial[r][i][2]);
                sums[r][i][3] += high * static_cast<float>(partial[r][i][3]);
            }
        }
    }

    // Steps Step to End - 1 of a unit.
    template <int Step, int End>
    WOOTZ_FN void multiply(uint32_t group, uint32_t index) {
        if constexpr (Step < End) {
            constexpr bool whole = Tile::whole;
            constexpr int k = Step * Tile::step, next = k + Tile::step;
            constexpr bool opens = k % Weight::run == 0, closes = next % Weight::run == 0;
            uint32_t b[Tile::token_tiles][2];
            load_tokens(index, Step % Tile::steps, b);
#pragma unroll
            for (int r = 0; r < Tile::row_tiles; ++r) {
                uint32_t a[4];
                if constexpr (Tile::fold) {
                    Weight::template decode_folded<Step>(words[r], own_sides(group, r), levels(r), lane, a);
                } else {
                    Weight::template decode<Step>(words[r], own_sides(group, r), lane, a);
                }
#pragma unroll
                for (int i = 0; i < Tile::token_tiles; ++i) {
                    const Sum zero[4] = {0, 0, 0, 0};
                    if constexpr (whole) {
                        Activation::multiply(sums[r][i], a, b[i], sums[r][i]);
                    } else if constexpr (opens) {
                        Activation::multiply(partial[r][i], a, b[i], zero);
                    } else {
                        Activation::multiply(partial[r][i], a, b[i], partial[r][i]);
                    }
                }
            }
            if constexpr (!whole && closes) {
                close_run(group, k / Weight::run);
            }
            // 64 columns use `bits` words. Vectors that are used up are filled from the next unit, which past
            // the end is the last once more.
            if constexpr (next % 64 == 0) {
                constexpr int used = next / 64 * Weight::bits;
                load_words<(used - Weight::bits) / 4 * 4, used / 4 * 4>(group + 1);
            }
            multiply<Step + 1, End>(group, index);
        }
    }

    // Chunks Part and after of a group of units: each first sends the chunk that is stages - 1 ahead on its
    // way.
    template <int Part>
    WOOTZ_FN void chunks(uint32_t group, uint32_t end) {
        if constexpr (Part < Tile::chunks) {
            const uint32_t index = group * Tile::chunks + Part;
            cp_async_wait<Tile::stages - 2>();
            __syncthreads();
            if (index + Tile::stages - 1 < end) {
                stage(index + Tile::stages - 1);
            }
            cp_async_commit();
            if (group * Tile::depth_warps + depth < units) {
                multiply<Part * Tile::steps, (Part + 1) * Tile::steps>(group, index);
            }
            chunks<Part + 1>(group, end);
        }
    }

    WOOTZ_FN void accumulate() {
        const uint32_t groups = (units + Tile::depth_warps - 1) / Tile::depth_warps;
        const uint32_t end = groups * Tile::chunks;
        load_words<0, Weight::words>(0);
#pragma unroll
        for (int i = 0; i < Tile::stages - 1; ++i) {
            if (static_cast<uint32_t>(i) < end) {
                stage(i);
            }
            cp_async_commit();
        }
#pragma unroll
        for (int r = 0; r < Tile::row_tiles; ++r) {
#pragma unroll
            for (int i = 0; i < Tile::token_tiles; ++i) {
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[r][i][j] = 0.0f;
                }
            }
        }
        for (uint32_t group = 0; group < groups; ++group) {
            chunks<0>(group, end);
        }
        cp_async_wait<0>();
    }

    // Sums of all depths, in the warps of depth 0.
    WOOTZ_FN void reduce() {
        if (Tile::depth_warps == 1) {
            return;
        }
        constexpr int warps = Tile::row_warps * Tile::token_warps;
        float* places = reinterpret_cast<float*>(shared) +
                        (token_warp * Tile::row_warps + row_warp) * Tile::sums * 32 + lane;
        __syncthreads();
#pragma unroll
        for (int i = 0; i < Tile::sums; ++i) {
            float& sum = sums[i / 4 / Tile::token_tiles][i / 4 % Tile::token_tiles][i % 4];
            if (depth > 0) {
                places[((depth - 1) * warps * Tile::sums + i) * 32] = sum;
            }
        }
        __syncthreads();
        if (depth == 0) {
#pragma unroll
            for (int d = 1; d < Tile::depth_warps; ++d) {
#pragma unroll
                for (int i = 0; i < Tile::sums; ++i) {
                    sums[i / 4 / Tile::token_tiles][i / 4 % Tile::token_tiles][i % 4] +=
                        places[((d - 1) * warps * Tile::sums + i) * 32];
                }
            }
        }
    }

    WOOTZ_FN float token_scale(uint32_t token) const {
        return Tile::woven && to.token_scales && token < to.m ? to.token_scales[token] : 1.0f;
    }

    // Rounds, and stores by way of shared memory so that neighbouring threads store neighbouring rows of w.
    WOOTZ_FN void store() {
        constexpr int row_tiles = Tile::paired ? 1 : Tile::row_tiles;
        if constexpr (Tile::paired) {
#pragma unroll
            for (int i = 0; i < Tile::token_tiles; ++i) {
                activate<4>(sums[0][i], to.activation);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    sums[0][i][j] *= sums[1][i][j];
                }
            }
        }
        uint16_t* output = reinterpret_cast<uint16_t*>(shared);
        __syncthreads();
        if (depth == 0) {
#pragma unroll
            for (int i = 0; i < 4 * row_tiles * Tile::token_tiles; ++i) {
                const int r = i / 4 / Tile::token_tiles, tile = i / 4 % Tile::token_tiles;
                const int row = (row_warp * row_tiles + r) * 16 + lane / 4 + 8 * (i % 4 / 2);
                const int token = (token_warp * Tile::token_tiles + tile) * 8 + lane % 4 * 2 + i % 2;
                const float sum = sums[r][tile][i % 4] * token_scale(first_token + token);
                output[token * Tile::output_pitch + row] = Tile::Output::round(sum);
            }
        }
        __syncthreads();
        const uint32_t first_row = first_tile * 16;
        if (to.n % 8 == 0) {
            constexpr int pieces = Tile::block_rows / 8;
            for (int i = threadIdx.x; i < Tile::block_tokens * pieces; i += Tile::threads) {
                const uint32_t token = first_token + i / pieces, row = first_row + i % pieces * 8;
                if (token < to.m && row < to.n) {
                    const uint16_t* from = output + i / pieces * Tile::output_pitch + i % pieces * 8;
                    *reinterpret_cast<uint4*>(to.y + static_cast<uint64_t>(token) * to.n + row) =
                        *reinterpret_cast<const uint4*>(from);
                }
            }
        } else {
            for (int i = threadIdx.x; i < Tile::block_tokens * Tile::block_rows; i += Tile::threads) {
                const int at = i / Tile::block_rows;
                const uint32_t token = first_token + at, row = first_row + i % Tile::block_rows;
                if (token < to.m && row < to.n) {
                    to.y[static_cast<uint64_t>(token) * to.n + row] =
                        output[at * Tile::output_pitch + i % Tile::block_rows];
                }
            }
        }
    }

    WOOTZ_FN void run() {
        accumulate();
        reduce();
        store();
    }
};
