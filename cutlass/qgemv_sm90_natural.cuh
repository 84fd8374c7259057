// y[n] = x[k] * w[n, k]^T for one row of x, w with codes of 4 bits as a format stores them, row by row.
//
// Weights are operand A of mma.sync. A unit is 16 rows by 256 columns of w, in each row eight blocks of 32. Of
// the four lanes of a row each decodes two blocks, one after the other; a block has a column of the product
// for itself, in which the lanes of other blocks have zeros for x. So each sum is of one row and one block,
// and is scaled once.
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

// Of a lane's 64 columns, in a field of its own: a number of Bits bits each Run columns.
template <int Bits, int Run>
struct Beside {
    static constexpr int count = Run < 64 ? 64 / Run : 1, bits = Bits * count;
    uint32_t held[bits <= 32 ? 1 : bits / 32];

    // row: of the field; column: the lane's first.
    WOOTZ_FN void load(const uint8_t* row, uint32_t column) {
        const uint32_t bit = column / Run * Bits;
        const uint8_t* from = row + bit / 8;
        if constexpr (bits <= 8) {
            held[0] = *from >> bit % 8;
        } else if constexpr (bits == 16) {
            held[0] = *reinterpret_cast<const uint16_t*>(from);
        } else if constexpr (bits == 32) {
            held[0] = *reinterpret_cast<const uint32_t*>(from);
        } else if constexpr (bits == 64) {
            const uint2 v = *reinterpret_cast<const uint2*>(from);
            held[0] = v.x;
            held[1] = v.y;
        } else {
            static_assert(bits == 128, "");
            const uint4 v = *reinterpret_cast<const uint4*>(from);
            held[0] = v.x;
            held[1] = v.y;
            held[2] = v.z;
            held[3] = v.w;
        }
    }
    WOOTZ_FN void read(const uint8_t*) {}
    template <int I>
    WOOTZ_FN uint32_t code() const {
        const uint32_t word = held[I * Bits / 32] >> I * Bits % 32;
        return Bits == 32 ? word : word & ((1u << Bits % 32) - 1);
    }
};

// Of a lane's two blocks of Bytes bytes: 16 bits in each, at byte At.
template <int Bytes, int At>
struct Within {
    static constexpr int count = 2;
    uint32_t held[2];

    WOOTZ_FN void load(const uint8_t*, uint32_t) {}
    WOOTZ_FN void read(const uint8_t* blocks) {
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
    static constexpr int count = 1;
};

// ---- a variant

// Weight: a decoder of codes in a plain stream, with what a row is made of: blocks of `block_bytes`, their 16
// bytes of codes at `codes_at`; order(i): the two columns, low and high byte, of pair i % 16 of a block that
// has the parity i / 16; Scale and Zero: as above; scales(to, held, tensor), zeros(to, held): their numbers.
// Slots: of a warp's ring, of a unit each. Lift: as of Tile.
template <class Weight_, int Warps_, int Slots_, bool Lift_>
struct NaturalTile {
    using Weight = Weight_;
    using Type = typename Weight::Type;
    using Scale = typename Weight::Scale;
    using Zero = typename Weight::Zero;
    static constexpr int tokens = 1, warps = Warps_, slots = Slots_, units = 1, threads = 32 * warps;
    static constexpr bool lift = Lift_, fold = false, rest = false;
    static constexpr int waiting = 8, sums = 16;  // as of Tile
    // Bytes of a row in a unit, and of x.
    static constexpr int piece = 8 * Weight::block_bytes, unit_x = 256 * 2;
    static constexpr int slot_bytes = 16 * piece;
    static constexpr bool summed = Weight::zeroed || Weight::value_zero;
    // Parts of a block with sums, and scales, of their own.
    static constexpr int halves = Scale::count == 4 ? 2 : 1;

    // Shared memory: rings, barriers, sums, as many zeros as a unit has x, x, sums of x.
    // gen/kernels/_natural_sm90.py computes the same.
    static constexpr int barriers_at = warps * slots * slot_bytes;
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

// A warp's ring of units, in the order in which they are taken: along k, then tile by tile. Rows past the last
// are zeros.
template <class Tile>
struct NaturalRing {
    const TensorMap* codes;
    uint32_t to, barriers;
    uint32_t begin, count, unit, tile, tiles;  // next to be copied, and the end
    uint32_t slot, parity;                     // that is read

    WOOTZ_FN NaturalRing(const NaturalArguments& with, const Share<Tile>& share, uint8_t* shared, int warp,
                         uint32_t tiles)
        : codes(with.codes),
          to(shared_address(shared + warp * (Tile::slots * Tile::slot_bytes))),
          barriers(shared_address(shared + Tile::barriers_at + warp * (Tile::slots * 8))),
          begin(share.begin),
          count(share.count),
          unit(0),
          tile(share.count ? blockIdx.x : tiles),
          tiles(tiles),
          slot(0),
          parity(0) {}

    // Fills a slot, which has been read. All lanes come here; one copies. after: as of Ring.
    WOOTZ_FN void copy(uint32_t to_slot, uint32_t after = 0) {
        if (tile >= tiles) return;
        if (elect()) {
            const uint32_t barrier = barriers + to_slot * 8 + after;
            barrier_expect(barrier, Tile::slot_bytes);
            copy_tensor(to + to_slot * Tile::slot_bytes, codes, (begin + unit) * Tile::piece, tile * 16,
                        barrier);
        }
        if (++unit == count) {
            unit = 0;
            tile += gridDim.x;
        }
    }
    WOOTZ_FN void wait() const { barrier_wait(barriers + slot * 8, parity); }
    WOOTZ_FN void advance() {
        slot++;
        if (slot == Tile::slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// ---- x

// Puts this warp's columns of x into shared memory, a pair for each that a lane decodes. totals: of x over the
// parts of blocks. -> the power of two that x was multiplied by.
template <class Tile>
WOOTZ_FN int stage_natural(const NaturalArguments& with, const Share<Tile>& share, uint8_t* staged,
                           float* totals, int lane) {
    using Type = typename Tile::Type;
    constexpr uint32_t columns = 8;  // pairs that a lane has in registers, each of other two blocks
    const uint32_t pair = Tile::Weight::order(lane), all = share.count * 4;
    const uint32_t low = lane / 16 * 32 + (pair & 255), high = lane / 16 * 32 + (pair >> 8);
    const bool whole = all <= columns;
    const auto place = [&](uint32_t i) {
        const uint32_t block = (share.begin * 4 + i) * 2 + lane / 16;
        return staged + block / 8 * Tile::unit_x + lane % 16 / 4 * 128 + block % 8 * 16 + lane % 4 * 4;
    };
    const auto lifted_by = [](int power) { return static_cast<uint32_t>(127 + power) << 7; };
    uint32_t most = 0;
    int power = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < all; first += columns) {
        uint32_t v[columns];
#pragma unroll
        for (uint32_t c = 0; c < columns; c++) {
            if (first + c >= all) continue;
            const uint16_t* from = with.x + (share.begin * 4 + first + c) * 64;
            v[c] = from[low] | static_cast<uint32_t>(from[high]) << 16;
        }
        if constexpr (Tile::lift) {
#pragma unroll
            for (uint32_t c = 0; c < columns; c++)
                if (first + c < all) most = max_pair(most, v[c] & 0x7fff7fff);
            if (whole) power = lift_of(most);
        }
#pragma unroll
        for (uint32_t c = 0; c < columns; c++) {
            if (first + c >= all) continue;
            if (Tile::lift) v[c] = Type::mul2(v[c], lifted_by(power) * 0x10001u);
            *reinterpret_cast<uint32_t*>(place(first + c)) = v[c];
            if constexpr (Tile::summed) {
                constexpr int lanes = 16 / Tile::halves;
                float total = Type::low(v[c]) + Type::high(v[c]);
#pragma unroll
                for (int apart = 1; apart < lanes; apart *= 2)
                    total += __shfl_xor_sync(0xffffffff, total, apart);
                if (lane % lanes == 0)
                    totals[(share.begin * 4 + first + c) * 2 * Tile::halves + lane / lanes] = total;
            }
        }
    }
    if (!Tile::lift || whole) return power;
    power = lift_of(most);
#pragma unroll 4
    for (uint32_t i = 0; i < all; i++) {
        uint32_t* at = reinterpret_cast<uint32_t*>(place(i));
        *at = Type::mul2(*at, lifted_by(power) * 0x10001u);
    }
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
    typename Tile::Scale scale[2], next_scale[2];
    typename Tile::Zero zero[2], next_zero[2];

    // Scales and zero points of the unit after this one, which need not be there yet.
    WOOTZ_FN void ahead(const NaturalArguments& with, uint32_t tile, uint32_t unit) {
        const uint32_t column = unit * 256 + lane % 4 * 64;
        unroll<2>([&](auto half) {
            const uint64_t at = min(tile * 16 + row + half.value * 8, with.n - 1);
            next_scale[half.value].load(with.scale + at * with.scale_pitch, column);
            if constexpr (Tile::summed)
                next_zero[half.value].load(with.zero + at * with.zero_pitch, column);
        });
    }
    WOOTZ_FN void advance() {
        unroll<2>([&](auto half) {
            scale[half.value] = next_scale[half.value];
            zero[half.value] = next_zero[half.value];
        });
    }

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

    // Adds a unit's products to the sums of this lane's rows. x: this lane's; totals: of x over the unit's
    // parts of blocks.
    WOOTZ_FN void multiply(float (&sums)[2], const uint8_t* x, const float* totals, const uint8_t* slot) {
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
                Weight::template values<at>(words, a);
                // Pairs 0 and 1 are of the first row, 2 and 3 of the other.
                const uint32_t rows[4] = {a[0], a[2], a[1], a[3]}, pairs[2] = {b[2 * at], b[2 * at + 1]};
                accumulate<Type, at % steps == 0>(run[part.value][at / steps], rows, pairs);
            });
        });
        // Of the product this lane has the columns of blocks 2 t and 2 t + 1.
        const bool second = lane % 4 >= 2;
        unroll<2>([&](auto half) {
            float by[Tile::Scale::count];
            [[maybe_unused]] float off[Tile::Zero::count];
            const uint8_t* blocks =
                from_row + half.value * 8 * Tile::piece + lane % 4 * 2 * Weight::block_bytes;
            scale[half.value].read(blocks);
            Weight::scales(by, scale[half.value], tensor);
            if constexpr (Tile::summed) {
                zero[half.value].read(blocks);
                Weight::zeros(off, zero[half.value]);
            }
            unroll<2 * Tile::halves>([&](auto i) {
                constexpr int column = i.value / Tile::halves, part = i.value % Tile::halves;
                constexpr int start = column * 32 + part * 16, sum = 2 * half.value + column;
                float v = second ? run[1][part][sum] : run[0][part][sum];
                if constexpr (Tile::summed) {
                    const float total = totals[lane % 4 * 2 * Tile::halves + i.value];
                    const float zero_point = off[start * Tile::Zero::count / 64];
                    if constexpr (Weight::zeroed) {
                        v = __fmaf_rn(-zero_point, total, v);
                    } else {  // the sum of the tile is multiplied by 2^exponent
                        sums[half.value] = __fmaf_rn(zero_point * power_of_2(-Weight::exponent), total,
                                                     sums[half.value]);
                    }
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
#pragma unroll
    for (int i = 0; i < Tile::slots; i++) ring.copy(i);
    NaturalLane<Tile> weights;
    weights.lane = lane;
    // So that the rows of eight neighbours are in different banks.
    weights.row = lane / 8 + lane / 4 % 2 * 4;
    weights.tensor = with.tensor;
    weights.ahead(with, blockIdx.x, share.begin);

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
                weights.advance();
                const bool last = unit + 1 == share.count;
                if (!last || tile + gridDim.x < tiles)
                    weights.ahead(with, last ? tile + gridDim.x : tile,
                                  share.begin + (last ? 0 : unit + 1));
                ring.wait();
                weights.multiply(sums, at, parts, slots + ring.slot * Tile::slot_bytes);
                __syncwarp();
                // A copy does not wait for loads in flight. (k has no sign bit.)
                const uint32_t all = fragment::as_bits(sums[0]) | fragment::as_bits(sums[1]);
                ring.copy(ring.slot, all & with.k >> 31);
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
