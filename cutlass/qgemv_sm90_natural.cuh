// y[n] = x[k] * w[n, k]^T for one row of x, w with codes of 4 bits as a format stores them, row by row.
//
// Weights are operand A of mma.sync. A unit is 16 rows by 256 columns of w, in each row eight blocks of 32.
// Of the four lanes of a row each decodes two blocks, one after the other; a block has a column of the
// product for itself, in which the lanes of other blocks have zeros for x. So each sum is of one row and one
// block, and is scaled once.
//
// As in qgemv_sm90.cuh blocks of threads are persistent, their warps share k, each has a ring of its own, and
// weights are on their way before the launch before is waited for.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "mma.cuh"
#include "qgemv_sm90_lane.cuh"
#include "qgemv_sm90_plan.cuh"
#include "qgemv_sm90_staging.cuh"

namespace gemv {

// ---- scales and zero points

// Of a lane's 64 columns, in a field of its own: a number of Bits bits each Run columns. The words that have
// them come to shared memory with their unit.
template <int Bits, int Run>
struct Beside {
    static constexpr int count = Run < 64 ? 64 / Run : 1, bits = Bits * count;
    static constexpr int size = bits <= 32 ? 4 : bits / 8;
    uint32_t held[size / 4];

    // column: the lane's first.
    WOOTZ_FN static void start(uint8_t* to, const uint8_t* row, uint32_t column) {
        cp_async<size>(to, row + (column / Run * Bits / 8 & ~(size - 1u)));
    }
    WOOTZ_FN void read(const uint8_t* beside, const uint8_t*, uint32_t column) {
        static_assert(size == 4 || size == 8 || size == 16, "");
        unroll<size / 4>([&](auto i) { held[i.value] = reinterpret_cast<const uint32_t*>(beside)[i.value]; });
        if constexpr (bits < 32) held[0] >>= column / Run * Bits % 32;
    }
    template <int I>
    WOOTZ_FN uint32_t code() const {
        const uint32_t word = held[I * Bits / 32] >> I * Bits % 32;
        return Bits == 32 ? word : word & ((1u << Bits % 32) - 1);
    }
};

// Of a lane's two blocks of Bytes bytes: 16 bits in each, at byte At.
template <int Bytes, int At>
struct Within {
    static constexpr int count = 2, size = 0;
    uint32_t held[2];

    WOOTZ_FN static void start(uint8_t*, const uint8_t*, uint32_t) {}
    WOOTZ_FN void read(const uint8_t*, const uint8_t* blocks, uint32_t) {
        held[0] = *reinterpret_cast<const uint16_t*>(blocks + At);
        held[1] = *reinterpret_cast<const uint16_t*>(blocks + Bytes + At);
    }
    template <int I>
    WOOTZ_FN uint32_t code() const {
        return held[I];
    }
};

// Where there is none.
struct Absent {
    static constexpr int count = 1, size = 0;
    WOOTZ_FN static void start(uint8_t*, const uint8_t*, uint32_t) {}
};

// ---- a variant

// Weight: a decoder of codes in a plain stream, numbers<Step>(words, a), which are `excess` too large, with
// what a row is made of: blocks of `block_bytes`, their 16 bytes of codes at `codes_at`; arrange<Odd>(to, x):
// a block's x, in pairs as lanes decode weights, if the block's number is odd, or even; Scale and Zero: as
// above; scales(to, held, tensor), zeros(to, held): their numbers. Slots: of a warp's ring, of a unit each.
// Lift: as of Tile.
template <class Weight_, int Warps_, int Slots_, bool Lift_>
struct NaturalTile {
    using Weight = Weight_;
    using Type = typename Weight::Type;
    using Scale = typename Weight::Scale;
    using Zero = typename Weight::Zero;
    static constexpr int tokens = 1, warps = Warps_, slots = Slots_, units = 1, threads = 32 * warps;
    static constexpr bool lift = Lift_, fold = false, rest = false, doubled = false;
    static constexpr int waiting = 8, sums = 16;  // as of Tile
    // Bytes of a row in a unit, and of x.
    static constexpr int piece = 8 * Weight::block_bytes, unit_x = 256 * 2;
    static constexpr int slot_bytes = 16 * piece;
    // Whether something is taken away from numbers before they are scaled; whether sums of x are needed.
    static constexpr bool shifted = Weight::zeroed || Weight::excess != 0;
    static constexpr bool summed = shifted || Weight::value_zero;
    // Parts of a block with sums, and scales, of their own.
    static constexpr int halves = Scale::count == 4 ? 2 : 1;

    // Bytes of a slot's scales and zero points, of two rows a lane.
    static constexpr int zero_at = 64 * Scale::size, side_bytes = zero_at + 64 * Zero::size;

    // Shared memory: rings, those of scales and zero points, barriers, sums, as many zeros as a unit has x,
    // x, sums of x. gen/kernels/_natural_sm90.py computes the same.
    static constexpr int sides_at = warps * slots * slot_bytes;
    static constexpr int barriers_at = sides_at + warps * slots * side_bytes;
    static constexpr int sums_at = barriers_at + (warps * slots + 1) / 2 * 16;
    static constexpr int zeros_at = sums_at + waiting * warps * sums * 4;
    static constexpr int x_at = zeros_at + unit_x;

    // Whether a row's codes are 128 bytes; whether every other block begins 2 bytes off a word.
    static constexpr bool vectors = Weight::block_bytes == 16;
    static constexpr bool apart = Weight::block_bytes % 4 != 0;

    static_assert(Weight::bits == 4 && Weight::unit_k == 256, "");
    static_assert(Weight::block_bytes % 2 == 0 && Weight::codes_at % 4 == (apart ? 2 : 0), "");
    static_assert(!(lift && summed) && !(apart && halves > 1), "");
};

// x and y may not be declared free of aliases: loads of x must stay behind the wait for the launch before.
// Pitches: bytes of a row.
struct NaturalArguments {
    const TensorMap* codes;
    const uint16_t* x;
    const uint8_t *scale, *zero;
    const float* tensor;  // levels that are one per tensor
    uint16_t* y;
    uint32_t m, n, k, scale_pitch, zero_pitch;
};

// A warp's ring of units, in the order in which they are taken: along k, then tile by tile. Codes of rows
// past the last are zeros, their scales the last one's. Each lane copies what it will read of scales.
template <class Tile>
struct NaturalRing {
    const NaturalArguments& with;
    uint8_t* sides;
    uint32_t to, barriers;
    uint32_t begin, count, unit, tile, tiles;  // next to be copied, and the end
    uint32_t slot, parity;                     // that is read

    WOOTZ_FN NaturalRing(const NaturalArguments& with, const Share<Tile>& share, uint8_t* shared, int warp,
                         uint32_t tiles)
        : with(with),
          sides(shared + Tile::sides_at + warp * (Tile::slots * Tile::side_bytes)),
          to(shared_address(shared + warp * (Tile::slots * Tile::slot_bytes))),
          barriers(shared_address(shared + Tile::barriers_at + warp * (Tile::slots * 8))),
          begin(share.begin),
          count(share.count),
          unit(0),
          tile(share.count ? blockIdx.x : tiles),
          tiles(tiles),
          slot(0),
          parity(0) {}

    // Fills a slot, which has been read. All lanes come here; one copies codes. row: the lane's; after: as of
    // Ring.
    WOOTZ_FN void copy(uint32_t to_slot, int row, uint32_t after = 0) {
        if (tile < tiles) {
            if (elect()) {
                const uint32_t barrier = barriers + to_slot * 8 + after;
                barrier_expect(barrier, Tile::slot_bytes);
                copy_tensor(to + to_slot * Tile::slot_bytes, with.codes, (begin + unit) * Tile::piece,
                            tile * 16, barrier);
            }
            const uint32_t column = (begin + unit) * 256 + lane_id() % 4 * 64;
            unroll<2>([&](auto half) {
                const uint64_t at = min(tile * 16 + row + half.value * 8, with.n - 1);
                Tile::Scale::start(scale_of(to_slot, half.value), with.scale + at * with.scale_pitch, column);
                Tile::Zero::start(zero_of(to_slot, half.value), with.zero + at * with.zero_pitch, column);
            });
            if (++unit == count) {
                unit = 0;
                tile += gridDim.x;
            }
        }
        cp_async_commit();
    }
    // Where this lane's scales of a row are, and its zero points.
    WOOTZ_FN uint8_t* scale_of(uint32_t of_slot, int half) const {
        return sides + of_slot * Tile::side_bytes + (half * 32 + lane_id()) * Tile::Scale::size;
    }
    WOOTZ_FN uint8_t* zero_of(uint32_t of_slot, int half) const {
        return sides + of_slot * Tile::side_bytes + Tile::zero_at +
               (half * 32 + lane_id()) * Tile::Zero::size;
    }
    WOOTZ_FN void wait() const {
        cp_async_wait<Tile::slots - 1>();
        barrier_wait(barriers + slot * 8, parity);
    }
    WOOTZ_FN void advance() {
        slot++;
        if (slot == Tile::slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// ---- x

// Puts this warp's columns of x into shared memory, as they are multiplied: vector i of block b of a unit at
// (8 i + b) * 16. totals: of x over the parts of blocks. -> the power of two that x was multiplied by.
template <class Tile>
WOOTZ_FN int stage_natural(const NaturalArguments& with, const Share<Tile>& share, uint8_t* staged,
                           float* totals, int lane) {
    using Type = typename Tile::Type;
    constexpr uint32_t held = 2;  // blocks that a lane has in registers, for one latency
    const uint32_t all = share.count * 8, begin = share.begin * 8;
    const bool whole = all <= 32 * held;
    const auto place = [&](uint32_t i, int vector) {
        const uint32_t block = begin + i;
        return reinterpret_cast<uint4*>(staged + block / 8 * Tile::unit_x + (vector * 8 + block % 8) * 16);
    };
    uint32_t most = 0;
    int power = 0;
#pragma unroll 1
    for (uint32_t first = lane; first < (all + 31) / 32 * 32; first += 32 * held) {
        uint4 v[held][4];
#pragma unroll
        for (uint32_t c = 0; c < held; c++) {
            const bool there = first + 32 * c < all;
#pragma unroll
            for (int i = 0; i < 4; i++)
                v[c][i] =
                    there ? load_16(with.x + (begin + first + 32 * c) * 32 + i * 8) : make_uint4(0, 0, 0, 0);
        }
        if constexpr (Tile::lift) {
#pragma unroll
            for (uint32_t c = 0; c < held; c++)
                for (int i = 0; i < 4; i++) most = largest(most, v[c][i]);
            if (whole) power = lift_of(most);
        }
#pragma unroll
        for (uint32_t c = 0; c < held; c++) {
            const uint32_t at = first + 32 * c;
            if (at >= all) continue;
            if constexpr (Tile::lift)
                for (int i = 0; i < 4; i++) v[c][i] = lifted<Type>(v[c][i], power);
            if constexpr (Tile::summed) {
                const float low = sum_of<Type>(v[c][0]) + sum_of<Type>(v[c][1]);
                const float high = sum_of<Type>(v[c][2]) + sum_of<Type>(v[c][3]);
                float* to = totals + (begin + at) * Tile::halves;
                to[0] = Tile::halves == 1 ? low + high : low;
                if constexpr (Tile::halves == 2) to[1] = high;
            }
            uint4 pairs[4];
            if (Tile::apart && lane % 2) {
                Tile::Weight::template arrange<true>(pairs, v[c]);
            } else {
                Tile::Weight::template arrange<false>(pairs, v[c]);
            }
            for (int i = 0; i < 4; i++) *place(at, i) = pairs[i];
        }
    }
    if (!Tile::lift || whole) return power;
    power = lift_of(most);
#pragma unroll 1
    for (uint32_t at = lane; at < all; at += 32)
        for (int i = 0; i < 4; i++) *place(at, i) = lifted<Type>(*place(at, i), power);
    return power;
}

// ---- a lane

// A lane's part of units: rows `row` and row + 8, blocks t and t + 4.
template <class Tile>
struct NaturalLane {
    using Weight = typename Tile::Weight;
    using Type = typename Tile::Type;
    int lane, row;
    const float* tensor;

    // The codes of block t + 4 Part of a row in a slot. Where rows are 128 bytes their vectors are swizzled;
    // where every other block begins 2 bytes off a word, its codes are turned by 2 bytes.
    template <int Part>
    WOOTZ_FN void block(uint32_t (&w)[4], const uint8_t* from_row) const {
        const int t = lane % 4;
        if constexpr (Tile::vectors) {
            const uint4 v = *reinterpret_cast<const uint4*>(from_row + ((t + 4 * Part) ^ row) * 16);
            w[0] = v.x;
            w[1] = v.y;
            w[2] = v.z;
            w[3] = v.w;
        } else {
            const bool off = Tile::apart && t % 2 == 0;
            const uint32_t* from = reinterpret_cast<const uint32_t*>(
                from_row + (t + 4 * Part) * Weight::block_bytes + Weight::codes_at + off * 2);
            for (int i = 0; i < 4; i++) w[i] = from[i];
            if constexpr (Tile::apart) w[3] = fragment::prmt(w[3], from[-1], off ? 0x7610 : 0x3210);
        }
    }

    // Adds a unit's products to the sums of this lane's rows. column: the unit's first; x: this lane's;
    // totals: of x over the unit's parts of blocks; slot: codes of the ring's.
    WOOTZ_FN void multiply(float (&sums)[2], uint32_t column, const uint8_t* x, const float* totals,
                           const uint8_t* slot, const NaturalRing<Tile>& ring) const {
        const uint8_t* from_row = slot + row * Tile::piece;
        uint32_t b[16];
        unroll<4>([&](auto i) {
            const uint4 v = *reinterpret_cast<const uint4*>(x + i.value * 128);
            b[4 * i.value] = v.x;
            b[4 * i.value + 1] = v.y;
            b[4 * i.value + 2] = v.z;
            b[4 * i.value + 3] = v.w;
        });
        float run[2][Tile::halves][4];
        unroll<2>([&](auto part) {
            uint32_t low[4], high[4], words[8];
            block<part.value>(low, from_row);
            block<part.value>(high, from_row + 8 * Tile::piece);
            unroll<4>([&](auto i) {
                words[2 * i.value] = fragment::prmt(low[i.value], high[i.value], 0x6240);
                words[2 * i.value + 1] = fragment::prmt(low[i.value], high[i.value], 0x7351);
            });
            unroll<8>([&](auto step) {
                constexpr int at = step.value, steps = 8 / Tile::halves;
                uint32_t a[4];
                Weight::template numbers<at>(words, a);
                // Pairs 0 and 1 are of the first row, 2 and 3 of the other.
                const uint32_t rows[4] = {a[0], a[2], a[1], a[3]}, pairs[2] = {b[2 * at], b[2 * at + 1]};
                accumulate<Type, at % steps == 0>(run[part.value][at / steps], rows, pairs);
            });
        });
        // Of the product this lane has the columns of blocks 2 t and 2 t + 1.
        const bool second = lane % 4 >= 2;
        unroll<2>([&](auto half) {
            float by[Tile::Scale::count];
            [[maybe_unused]] float off[Tile::Zero::count] = {};
            const uint8_t* blocks =
                from_row + half.value * 8 * Tile::piece + lane % 4 * 2 * Weight::block_bytes;
            const uint32_t first = column + lane % 4 * 64;
            typename Tile::Scale scale;
            scale.read(ring.scale_of(ring.slot, half.value), blocks, first);
            Weight::scales(by, scale, tensor);
            if constexpr (Weight::zeroed || Weight::value_zero) {
                typename Tile::Zero zero;
                zero.read(ring.zero_of(ring.slot, half.value), blocks, first);
                Weight::zeros(off, zero);
            }
            unroll<2 * Tile::halves>([&](auto i) {
                constexpr int column = i.value / Tile::halves, part = i.value % Tile::halves;
                constexpr int start = column * 32 + part * 16, sum = 2 * half.value + column;
                float v = second ? run[1][part][sum] : run[0][part][sum];
                if constexpr (Tile::summed) {
                    const float total = totals[lane % 4 * 2 * Tile::halves + i.value];
                    const float zero = off[start * Tile::Zero::count / 64];
                    const float excess = (Weight::zeroed ? zero : 0) + Weight::excess;
                    if constexpr (Tile::shifted) v = __fmaf_rn(-excess, total, v);
                    if constexpr (Weight::value_zero)  // the sum of the tile is multiplied by 2^exponent
                        sums[half.value] =
                            __fmaf_rn(zero * power_of_2(-Weight::exponent), total, sums[half.value]);
                }
                sums[half.value] = __fmaf_rn(by[start * Tile::Scale::count / 64], v, sums[half.value]);
            });
        });
    }
};

// Leaves a warp's sums of one tile in shared memory.
WOOTZ_FN void leave_natural(float* to, float (&sums)[2], float factor, int lane, int row) {
#pragma unroll
    for (int i = 0; i < 2; i++) {
        sums[i] *= factor;
        sums[i] += __shfl_xor_sync(0xffffffff, sums[i], 1);
        sums[i] += __shfl_xor_sync(0xffffffff, sums[i], 2);
        if (lane % 4 == 0) to[row + 8 * i] = sums[i];
    }
}

// ---- a block's work

template <class Tile>
WOOTZ_FN void run_natural(const NaturalArguments& with, uint8_t* shared) {
    const int lane = lane_id();
    // By a shuffle: what follows from it is in uniform registers.
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x / 32), 0);
    const uint32_t tiles = (with.n + 15) / 16;
    const Share<Tile> share(with.k, warp);
    NaturalRing<Tile> ring(with, share, shared, warp, tiles);
    if (lane == 0) {
        for (int i = 0; i < Tile::slots; i++) barrier_init(ring.barriers + i * 8, 1);
        barriers_made();
    }
    __syncwarp();
    NaturalLane<Tile> weights;
    weights.lane = lane;
    // So that the rows of eight neighbours are in different banks.
    weights.row = lane / 8 + lane / 4 % 2 * 4;
    weights.tensor = with.tensor;
#pragma unroll
    for (int i = 0; i < Tile::slots; i++) ring.copy(i, weights.row);

    previous_grid_wait();
    next_grid_launch();
    uint8_t* staged = shared + Tile::x_at;
    float* totals = reinterpret_cast<float*>(staged + share.units * Tile::unit_x);
    const int lifted = stage_natural<Tile>(with, share, staged, totals, lane);
    const Factors factor = factors<Tile>(lifted, with.tensor);
    uint8_t* zeros = shared + Tile::zeros_at;
    for (int i = lane; i < Tile::unit_x / 4; i += 32) reinterpret_cast<uint32_t*>(zeros)[i] = 0;
    __syncwarp();

    // The column of lane 4 c + t is that of block c, which the lanes c % 4 of a row decode.
    const bool mine = lane / 4 % 4 == lane % 4;
    const uint32_t stride = mine ? Tile::unit_x : 0;
    const uint8_t* x = mine ? staged + share.begin * Tile::unit_x + lane / 4 * 16 : zeros;
    float* sums_of = reinterpret_cast<float*>(shared + Tile::sums_at);
    const uint8_t* slots = shared + warp * (Tile::slots * Tile::slot_bytes);
#pragma unroll 1
    for (uint32_t first = blockIdx.x; first < tiles; first += Tile::waiting * gridDim.x) {
        if (first != blockIdx.x) __syncthreads();  // sums before have been read
        uint32_t count = 0;
#pragma unroll 1
        for (uint32_t tile = first; tile < tiles && count < Tile::waiting; tile += gridDim.x, count++) {
            float sums[2] = {0, 0};
            const uint8_t* at = x;
            const float* parts = totals + share.begin * (8 * Tile::halves);
#pragma unroll 1
            for (uint32_t unit = 0; unit < share.count; unit++) {
                ring.wait();
                weights.multiply(sums, (share.begin + unit) * 256, at, parts,
                                 slots + ring.slot * Tile::slot_bytes, ring);
                __syncwarp();
                // A copy does not wait for loads in flight. (k has no sign bit.)
                const uint32_t all = fragment::as_bits(sums[0]) | fragment::as_bits(sums[1]);
                ring.copy(ring.slot, weights.row, all & with.k >> 31);
                ring.advance();
                at += stride;
                parts += 8 * Tile::halves;
            }
            leave_natural(sums_of + (count * Tile::warps + warp) * Tile::sums, sums, factor.first, lane,
                          weights.row);
        }
        __syncthreads();
        store<Tile>(with, sums_of, first, count);
    }
}

}  // namespace gemv
