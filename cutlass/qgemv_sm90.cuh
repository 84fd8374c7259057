// y[m, n] = x[m, k] * w[n, k]^T for up to 8 rows of x, w in the packed layout: as fast as w can be read.
//
// Weights are operand A of mma.sync, rows of x its columns. A block takes every gridDim.x-th tile of 16 rows
// of w, and its warps share k: each has a ring of slots of its own, which bulk copies fill, and nothing but
// its own slots and its own columns of x to wait for. The sums of a few tiles wait in shared memory and are
// added once.
//
// Weights do not depend on the launch before: they are on their way before its results are waited for.
#pragma once

#include <stdint.h>

#include "bulk.cuh"
#include "fragment.cuh"
#include "mma.cuh"

namespace gemv {

// The instruction of a decoder's type.
WOOTZ_FN void multiply(fragment::Half, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const float (&c)[4]) {
    mma_m16n8k16_f16_f32(d, a, b, c);
}
WOOTZ_FN void multiply(fragment::Bfloat, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const float (&c)[4]) {
    mma_m16n8k16_bf16_f32(d, a, b, c);
}

// The sum of a product and, unless it is Fresh, of what was there.
template <class Type, bool Fresh>
WOOTZ_FN void accumulate(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (Fresh) {
        const float none[4] = {0, 0, 0, 0};
        multiply(Type(), sum, a, b, none);
    } else {
        multiply(Type(), sum, a, b, sum);
    }
}

template <int I>
struct Index {
    static constexpr int value = I;
};

// body(Index<0>), ..., body(Index<Count - 1>).
template <int Count, int First = 0, class Body>
WOOTZ_FN void unroll(Body&& body) {
    if constexpr (First < Count) {
        body(Index<First>{});
        unroll<Count, First + 1>(body);
    }
}

// 2^exponent, of a normal f32.
WOOTZ_FN float power_of_2(int exponent) {
    return fragment::as_float(static_cast<uint32_t>(127 + exponent) << 23);
}

// Where scales enter. Sums: they multiply the sum of each run; Weights: they go into each weight, which is
// then rounded to x's type.
enum class Scaling { Sums, Weights };

// One variant. Weight: a format's decoder with levels(sides, tensor, g, run, to): the scales of rows g and
// g + 8. Tokens: 1 or 8, rows of x at most. Warps: of a block, along k. Slots: of a warp's ring; Units:
// of w in a slot. Linear: zero points are added after scaling, times the sum of x. Lift: decoded numbers lack
// 2^exponent, so much that x is multiplied by a power of two for the products to be normal numbers. Table:
// codes of 4 bits, a plain stream, are looked up two at a time: Weight::number(code) has their bits. Shift:
// decoded numbers of row g + 8 half in run j are Weight::shift(sides, g, j, half) too large, which the sum of
// x over the run takes away.
template <class Weight_, int Tokens_, int Warps_, int Slots_, int Units_, Scaling Scaling_, bool Linear_,
          bool Lift_, bool Table_, bool Shift_>
struct Tile {
    using Weight = Weight_;
    using Type = typename Weight::Type;
    static constexpr int tokens = Tokens_, warps = Warps_, slots = Slots_, units = Units_;
    static constexpr bool fold = Scaling_ == Scaling::Weights, linear = Linear_, lift = Lift_;
    static constexpr bool table = Table_, shift = Shift_;
    static constexpr int threads = 32 * warps;
    static constexpr int slot_bytes = units * Weight::unit_bytes;
    // Tiles whose sums wait in shared memory at a time, and the sums of a warp for one of them.
    static constexpr int waiting = tokens == 1 ? 8 : 2, sums = 16 * tokens;

    // Shared memory: rings, barriers, sums, table, x, sums of x. gen/kernels/_qgemv_sm90.py computes the
    // same.
    static constexpr int barriers_at = warps * slots * slot_bytes;
    static constexpr int sums_at = barriers_at + (warps * slots + 1) / 2 * 16;
    static constexpr int table_at = sums_at + waiting * warps * sums * 4;
    static constexpr int x_at = table_at + (table ? 256 * 128 : 0);

    // Each run's scale is multiplied into its sum. Of one token all columns of the product are alike: then a
    // row's four lanes take the scales, and add the sums, of every fourth run.
    static constexpr bool scaled = Weight::scaled && !fold;
    static constexpr int sharers = Weight::runs >= 4 ? 4 : 1, shares = Weight::runs / sharers;
    static constexpr bool split = tokens == 1 && scaled && sharers > 1;
    // Whether decoding reads the unit's side fields, so that its slot is held until the last step.
    static constexpr bool held = (Weight::zeroed && !shift) || fold || linear;

    static_assert(tokens == 1 || tokens == 8, "");
    static_assert(fold || Weight::run % 16 == 0, "scales that change within a step cannot wait for its sum");
    static_assert(!(fold && (linear || lift || table)) && !(linear && lift), "");
    static_assert(!table || (Weight::bits == 4 && !Weight::zeroed), "");
    static_assert(!shift || (tokens == 1 && scaled && !linear && !lift && !table), "");
};

// x and y may not be declared free of aliases: loads of x must stay behind the wait for the launch before.
struct Arguments {
    const uint16_t* x;
    const uint8_t* units;
    const float* tensor;  // levels that are one per tensor
    uint16_t* y;
    uint32_t m, n, k;
};

// What a warp takes of each tile: `count` units along k from unit `begin` on, `Units` of them at a time.
template <class Tile>
struct Share {
    uint32_t units, begin, count, chunks;

    WOOTZ_FN Share(uint32_t k, int warp) {
        units = (k + Tile::Weight::unit_k - 1) / Tile::Weight::unit_k;
        begin = static_cast<uint64_t>(units) * static_cast<uint32_t>(warp) / Tile::warps;
        count = static_cast<uint64_t>(units) * static_cast<uint32_t>(warp + 1) / Tile::warps - begin;
        chunks = (count + Tile::units - 1) / Tile::units;
    }
    WOOTZ_FN uint32_t units_of(uint32_t chunk) const {
        if (Tile::units == 1) return 1;
        const uint32_t left = count - chunk * Tile::units;
        return left < Tile::units ? left : Tile::units;
    }
};

// A warp's ring. Chunks are copied in the order in which they are taken: along k, then tile by tile. No other
// warp waits on its slots, each of which is waited for once a copy.
template <class Tile>
struct Ring {
    bulk::Address to, barriers;
    const uint8_t* from;
    uint32_t chunk, left;   // next to be copied, and how many are not
    uint32_t slot, parity;  // that is read

    WOOTZ_FN Ring(const Arguments& with, const Share<Tile>& share, uint8_t* shared, int warp, uint32_t tiles)
        : to(bulk::address_of(shared + warp * (Tile::slots * Tile::slot_bytes))),
          barriers(bulk::address_of(shared + Tile::barriers_at + warp * (Tile::slots * 8))),
          from(with.units +
               (static_cast<uint64_t>(blockIdx.x) * share.units + share.begin) * Tile::Weight::unit_bytes),
          chunk(0),
          left(tiles * share.chunks),
          slot(0),
          parity(0) {}

    // Fills a slot, which has been read. All lanes come here; one copies. after: 0, in a way that the
    // compiler does not know, of what was read.
    WOOTZ_FN void copy(const Share<Tile>& share, uint32_t to_slot, uint32_t after = 0) {
        if (left == 0) return;
        const uint32_t bytes = share.units_of(chunk) * Tile::Weight::unit_bytes;
        if (bulk::elect()) {
            bulk::barrier_expect(barriers + to_slot * 8 + after, bytes);
            bulk::copy(to + to_slot * Tile::slot_bytes, from, bytes, barriers + to_slot * 8);
        }
        left--;
        chunk++;
        from += bytes;
        if (chunk == share.chunks) {
            chunk = 0;
            from += (static_cast<uint64_t>(gridDim.x) * share.units - share.count) * Tile::Weight::unit_bytes;
        }
    }
    WOOTZ_FN void wait() const { bulk::barrier_wait(barriers + slot * 8, parity); }
    WOOTZ_FN void advance() {
        slot++;
        if (slot == Tile::slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// The sum of eight numbers.
template <class Type>
WOOTZ_FN float sum_of(const uint4& v) {
    const float x = Type::low(v.x) + Type::high(v.x), y = Type::low(v.y) + Type::high(v.y);
    const float z = Type::low(v.z) + Type::high(v.z), w = Type::low(v.w) + Type::high(v.w);
    return (x + y) + (z + w);
}

// Puts this warp's columns of x into shared memory, zero past k; rows are `pitch` elements apart. totals: of
// x over each run, if they are wanted. -> the power of two that x was multiplied by.
template <class Tile>
WOOTZ_FN int stage(const Arguments& with, const Share<Tile>& share, uint16_t* staged, uint32_t pitch,
                   float* totals, int lane) {
    constexpr uint32_t each = Tile::Weight::unit_k / 8;  // 16 bytes of a unit
    const uint32_t all = share.count * each;
    const auto column = [&](uint32_t i) { return (share.begin * each + i) * 8; };
    const auto load = [&](uint32_t token, uint32_t at, bool there) {
        return there && at < with.k ? bulk::load_16(with.x + static_cast<uint64_t>(token) * with.k + at)
                                    : make_uint4(0, 0, 0, 0);
    };
    uint32_t most = 0;
    const auto put = [&](uint32_t token, uint32_t at, uint4 v) {
        if (Tile::lift) {
            most = bulk::max_pair(most, bulk::max_pair(v.x & 0x7fff7fff, v.y & 0x7fff7fff));
            most = bulk::max_pair(most, bulk::max_pair(v.z & 0x7fff7fff, v.w & 0x7fff7fff));
        }
        *reinterpret_cast<uint4*>(staged + token * pitch + at) = v;
    };
    constexpr int batch = Tile::tokens == 1 ? 4 : Tile::tokens;  // all rows of a column, for one latency
    uint4 v[batch];
    if constexpr (Tile::tokens == 1) {
#pragma unroll 1
        for (uint32_t first = 0; first < all; first += 32 * batch) {
            const uint32_t i = first + lane;
#pragma unroll
            for (int j = 0; j < batch; j++) v[j] = load(0, column(i + 32 * j), i + 32 * j < all);
#pragma unroll
            for (int j = 0; j < batch; j++) {
                const bool there = i + 32 * j < all;
                if (there) put(0, column(i + 32 * j), v[j]);
                if constexpr (Tile::shift) {  // the lanes of a run are neighbours
                    constexpr int lanes = Tile::Weight::run / 8;
                    float total = sum_of<typename Tile::Type>(v[j]);
#pragma unroll
                    for (int apart = 1; apart < lanes; apart *= 2)
                        total += __shfl_xor_sync(0xffffffff, total, apart);
                    if (there && lane % lanes == 0) totals[column(i + 32 * j) / Tile::Weight::run] = total;
                }
            }
        }
    } else {
#pragma unroll 1
        for (uint32_t i = lane; i < all; i += 32) {
            const uint32_t at = column(i);
#pragma unroll
            for (int j = 0; j < batch; j++) v[j] = load(j, at, j < with.m);
#pragma unroll
            for (int j = 0; j < batch; j++)
                if (j < with.m) put(j, at, v[j]);
        }
    }
    if constexpr (!Tile::lift) return 0;
    most = most > 0xffff && (most >> 16) > (most & 0xffff) ? most >> 16 : most & 0xffff;
    const int exponent = static_cast<int>(bulk::warp_max(most) >> 7), room = 253 - exponent;
    const int power = room < 0 ? 0 : room < 127 ? room : 127;
    const uint32_t factor = (static_cast<uint32_t>(127 + power) << 7) * 0x10001u;
#pragma unroll 1
    for (uint32_t i = lane; i < all; i += 32) {  // what this lane has put there
#pragma unroll 4
        for (uint32_t token = 0; token < with.m; token++) {
            uint4* place = reinterpret_cast<uint4*>(staged + token * pitch + column(i));
            const uint4 before = *place;
            *place = make_uint4(Tile::Type::mul2(before.x, factor), Tile::Type::mul2(before.y, factor),
                                Tile::Type::mul2(before.z, factor), Tile::Type::mul2(before.w, factor));
        }
    }
    return power;
}

// A table of pairs: those of code l and code h at 128 (l + 16 h), once for each lane, so that no two lanes of
// a warp meet in a bank.
template <class Tile>
WOOTZ_FN void make_table(uint8_t* table) {
    uint32_t* to = reinterpret_cast<uint32_t*>(table) + threadIdx.x % 32;
#pragma unroll 4
    for (uint32_t pair = threadIdx.x / 32; pair < 256; pair += Tile::warps)
        to[pair * 32] = Tile::Weight::number(pair % 16) | Tile::Weight::number(pair / 16) << 16;
}

// a + a / 2^12, on the multiplier.
WOOTZ_FN uint32_t fold_down(uint32_t a) {
#ifdef __CUDACC__
    uint32_t result;
    asm("mad.hi.u32 %0, %1, %2, %1;" : "=r"(result) : "r"(a), "r"(1u << 20));
    return result;
#else
    return a + (a >> 12);
#endif
}

// Four pairs from a word of eight codes: pair r has bits 4 r of both half-words.
WOOTZ_FN void look_up(uint32_t (&a)[4], uint32_t word, const uint8_t* table, uint32_t lane) {
    // Bytes 0 and 1: the pair's second code above its first.
    const uint32_t even = fold_down(word & 0x0f0f0f0f), odd = fold_down(word >> 4 & 0x0f0f0f0f);
    const uint32_t at[4] = {even << 7, odd << 7, even >> 1, odd >> 1};
#pragma unroll
    for (int r = 0; r < 4; r++)
        a[r] = *reinterpret_cast<const uint32_t*>(table + fragment::and_or(at[r], 0x7f80, lane * 4));
}

// A lane's part of a unit, and what it adds to the sums of its tile.
template <class Tile>
struct Lane {
    using Weight = typename Tile::Weight;
    using Type = typename Tile::Type;
    int lane;
    const float* tensor;
    const uint8_t *sides, *table;
    uint32_t words[Weight::words];
    float scales[Tile::scaled ? Tile::shares : 1][2], shifts[Tile::shift ? Tile::shares : 1][2];

    // The run of this lane's share `i`.
    WOOTZ_FN int run_of(int i) const {
        return i * Tile::sharers + (Tile::sharers > 1 ? lane % Tile::sharers : 0);
    }

    // The words and scales of a unit.
    WOOTZ_FN void load(const uint8_t* unit) {
        unroll<Weight::vectors>([&](auto index) {
            constexpr int i = index.value;
            const uint4 v = *reinterpret_cast<const uint4*>(unit + (i * 32 + lane) * 16);
            words[4 * i] = v.x;
            words[4 * i + 1] = v.y;
            words[4 * i + 2] = v.z;
            words[4 * i + 3] = v.w;
        });
        sides = unit + Weight::code_bytes;
        if constexpr (Tile::scaled) {
            unroll<Tile::shares>([&](auto i) {
                const int run = run_of(i.value);
                Weight::levels(sides, tensor, lane >> 2, run, scales[i.value]);
                if constexpr (Tile::shift) {
                    shifts[i.value][0] = Weight::shift(sides, lane >> 2, run, 0);
                    shifts[i.value][1] = Weight::shift(sides, lane >> 2, run, 1);
                }
            });
        }
    }

    // Of bits that depend on every register that was loaded.
    WOOTZ_FN uint32_t loaded() const {
        uint32_t bits = 0;
        unroll<Weight::vectors>([&](auto i) { bits |= words[4 * i.value]; });
        if constexpr (Tile::scaled) {
            unroll<Tile::shares>([&](auto i) {
                bits |= fragment::as_bits(scales[i.value][0]) | fragment::as_bits(scales[i.value][1]);
                if constexpr (Tile::shift && Weight::zeroed)
                    bits |= fragment::as_bits(shifts[i.value][0]) | fragment::as_bits(shifts[i.value][1]);
            });
        }
        return bits;
    }

    // Takes away what the numbers of a unit are too large. totals: of x over its runs.
    WOOTZ_FN void correct(float (&sums)[4], const float* totals) const {
        unroll<Tile::shares>([&](auto i) {
            const float total = totals[run_of(i.value)];
            sums[0] = __fmaf_rn(-(shifts[i.value][0] * total), scales[i.value][0], sums[0]);
            sums[2] = __fmaf_rn(-(shifts[i.value][1] * total), scales[i.value][1], sums[2]);
        });
    }

    template <int Run>
    WOOTZ_FN float scale(int half) const {
        const float own = scales[Run / Tile::sharers][half];
        if constexpr (Tile::sharers == 1 || Tile::split) return own;
        return __shfl_sync(0xffffffff, own, Run % Tile::sharers, Tile::sharers);
    }

    // The sum of a run, scaled; ones: the sum of x.
    template <int Run>
    WOOTZ_FN void add(float (&sums)[4], const float (&run)[4], const float (&ones)[4]) const {
        const float by[2] = {scale<Run>(0), scale<Run>(1)};
        const bool mine = !Tile::split || (lane & 3) == Run % Tile::sharers;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (Tile::tokens == 1 && i % 2) continue;
            float sum = __fmaf_rn(by[i >> 1], run[i], sums[i]);
            if constexpr (Tile::linear) {  // the sum of the tile is multiplied by 2^exponent
                const float zero = Weight::zero(sides, lane >> 2, Run, i >> 1);
                sum = __fmaf_rn(zero * power_of_2(-Weight::exponent), ones[i], sum);
            }
            sums[i] = mine ? sum : sums[i];
        }
    }

    // Adds a unit's products. x: this lane's row of the matrices of its first two steps; read: called once
    // its words and scales are in registers.
    template <class Read>
    WOOTZ_FN void multiply(float (&sums)[4], bulk::Address x, const uint8_t* unit, Read&& read) {
        float run[4] = {0, 0, 0, 0}, ones[4] = {0, 0, 0, 0};
        uint32_t loaded[4];
        load(unit);
        read();
        unroll<Weight::steps>([&](auto step) {
            constexpr int at = step.value, run_steps = Tile::fold ? 1 : Weight::run / 16;
            constexpr bool first = at % run_steps == 0, last = at % run_steps == run_steps - 1;
            if constexpr (at % 2 == 0) bulk::load_matrices(loaded, x + at * 32);
            const uint32_t b[2] = {loaded[at % 2 * 2], loaded[at % 2 * 2 + 1]};
            uint32_t a[4];
            if constexpr (Tile::fold) {
                Weight::template decode_folded<at>(words, sides, tensor, lane, a);
            } else if constexpr (Tile::table) {
                look_up(a, words[at], table, lane);
            } else {
                Weight::template decode<at>(words, sides, lane, a);
            }
            if constexpr (!Tile::scaled) {
                accumulate<Type, false>(sums, a, b);
            } else {
                accumulate<Type, first>(run, a, b);
                if constexpr (Tile::linear) {
                    const uint32_t one = Type::round(1.0f, 1.0f), all[4] = {one, one, one, one};
                    accumulate<Type, first>(ones, all, b);
                }
                if constexpr (last) add<at * 16 / Weight::run>(sums, run, ones);
            }
        });
    }
};

// Leaves a warp's sums of one tile in shared memory.
template <class Tile>
WOOTZ_FN void leave(float* to, const float (&sums)[4], float factor, int lane) {
    const int g = lane >> 2, t = lane & 3;
    float low = sums[0] * factor, high = sums[2] * factor;
    if constexpr (Tile::tokens == 1) {
        if constexpr (Tile::split) {
            low += __shfl_xor_sync(0xffffffff, low, 1);
            high += __shfl_xor_sync(0xffffffff, high, 1);
            low += __shfl_xor_sync(0xffffffff, low, 2);
            high += __shfl_xor_sync(0xffffffff, high, 2);
        }
        if (t == 0) {
            to[g] = low;
            to[g + 8] = high;
        }
    } else {
        to[g * 8 + 2 * t] = low;
        to[g * 8 + 2 * t + 1] = sums[1] * factor;
        to[(g + 8) * 8 + 2 * t] = high;
        to[(g + 8) * 8 + 2 * t + 1] = sums[3] * factor;
    }
}

// Adds the sums of all warps for `count` tiles, the first of them the block's tile `first`.
template <class Tile>
WOOTZ_FN void store(const Arguments& with, const float* sums, uint32_t first, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count * Tile::sums; i += Tile::threads) {
        const uint32_t tile = i / Tile::sums, place = i % Tile::sums;
        const uint32_t row = (blockIdx.x + (first + tile) * gridDim.x) * 16 + place / Tile::tokens;
        const uint32_t token = place % Tile::tokens;
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < Tile::warps; warp++)
            sum += sums[(tile * Tile::warps + warp) * Tile::sums + place];
        if (row < with.n && token < with.m)
            with.y[static_cast<uint64_t>(token) * with.n + row] =
                static_cast<uint16_t>(Tile::Type::round(sum, 0.0f));
    }
}

// A block's work. Blocks past the last tile have none.
template <class Tile>
WOOTZ_FN void run(const Arguments& with, uint8_t* shared) {
    using Weight = typename Tile::Weight;
    const int lane = bulk::lane(), warp = threadIdx.x / 32;
    const uint32_t all = (with.n + 15) / 16;
    const uint32_t tiles = all > blockIdx.x ? (all - blockIdx.x + gridDim.x - 1) / gridDim.x : 0;
    const Share<Tile> share(with.k, warp);
    Ring<Tile> ring(with, share, shared, warp, tiles);
    if (lane == 0) {
        for (int i = 0; i < Tile::slots; i++) bulk::barrier_init(ring.barriers + i * 8);
        bulk::barriers_made();
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < Tile::slots; i++) ring.copy(share, i);

    if constexpr (Tile::table) make_table<Tile>(shared + Tile::table_at);

    bulk::previous_grid_wait();
    bulk::next_grid_launch();
    uint16_t* staged = reinterpret_cast<uint16_t*>(shared + Tile::x_at);
    const uint32_t pitch = share.units * Weight::unit_k + 8;
    float* totals = reinterpret_cast<float*>(staged + pitch);  // of one row of x
    const int lifted = stage<Tile>(with, share, staged, pitch, totals, lane);
    const float factor = Tile::fold ? 1.0f : power_of_2(Weight::exponent - lifted);
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
    const bulk::Address x =
        bulk::address_of(staged + row * pitch + share.begin * Weight::unit_k + lane / 8 * 8);
    const uint8_t* slots = shared + warp * (Tile::slots * Tile::slot_bytes);
    float* sums_of = reinterpret_cast<float*>(shared + Tile::sums_at);

#pragma unroll 1
    for (uint32_t first = 0; first < tiles; first += Tile::waiting) {
        const uint32_t count = min(tiles - first, static_cast<uint32_t>(Tile::waiting));
        if (first) __syncthreads();  // sums before have been read
#pragma unroll 1
        for (uint32_t i = 0; i < count; i++) {
            float sums[4] = {0, 0, 0, 0};
            bulk::Address at = x;
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
            leave<Tile>(sums_of + (i * Tile::warps + warp) * Tile::sums, sums, factor, lane);
        }
        __syncthreads();
        store<Tile>(with, sums_of, first, count);
    }
}

}  // namespace gemv
