// y[m][n] = x[m][k] * w[n][k]^T on warpgroup MMA. x and y are natural arrays; w is in packed units (16 rows x
// unit_k weights, rows of units along k), decoded in registers to the fragments of the left operand, so that
// a result tile is 128 weights' rows x Columns tokens. Producer warps copy units (three warps) and boxes of x
// (one) into rings of shared memory; 2 * Groups warpgroups decode and multiply, each group every Groups-th
// unit; the groups' sums are added last.
//
// Scales are multiplied into the decoded weights, in x's type: a scale is rounded to it, then each weight.
#pragma once
#include <limits.h>

#include "fragment.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// A format's decoder, with how scales go into weights of 16 bits. Scales from 2^Least to 2^Most are normal
// numbers times 2^exponent, which decoded values lack. Where a unit has others, too, decoded values times
// 2^Power are brought to about 1 first, and scales take the rest: so no product overflows, and no scale is
// subnormal, unless the weights are. Power 0: exponent is 0, and scales of any size are as good.
// Powers: they are in E8M0.
template <class Weight, int Power, int Least, int Most, bool Powers>
struct Folded : Weight {
    static constexpr int power = Power, least = Least, most = Most;
    static constexpr bool powers = Powers;
};

// The rings and who uses them. Batch: k16 steps a decode-and-multiply round. Box: k64 chunks of x a copy.
// Part: tokens of other copies of x. Narrower: whole parts, ascending, that a tile of fewer tokens than
// Columns takes.
template <int Columns_, int Groups_, int Box_, int XSlots_, int WSlots_, int Batch_, int Part_ = Columns_,
          int... Narrower>
struct Tile {
    static constexpr int columns = Columns_, groups = Groups_, box = Box_, x_slots = XSlots_,
                         w_slots = WSlots_, part = Part_;
    static constexpr int batch = Batch_, rows = 128, chunk = Columns_ < 64 ? Columns_ : 64;
    static constexpr int consumers = 256 * Groups_, threads = consumers + 128;
    // Together no more than the launch allocated (384 threads x 168, 640 x 96), or the block hangs.
    static constexpr int consumer_registers = Groups_ == 1 ? 232 : 112;
    static constexpr int producer_registers = Groups_ == 1 ? 40 : 32;
    static constexpr int weight_warps = 3;

    // How many tokens are read and multiplied for `left` of them, one at least.
    WOOTZ_FN static int width(uint32_t left) {
        int found = 0;
        ((found = found == 0 && left <= Narrower ? Narrower : found), ...);
        return found ? found : columns;
    }
    // body(Index<width>), for the one that is `wanted`.
    template <class Body>
    WOOTZ_FN static void of_width(int wanted, Body&& body) {
        if constexpr (sizeof...(Narrower) == 0) {
            body(Index<columns>{});
        } else {
            (..., (wanted == Narrower ? body(Index<Narrower>{}) : void()));
            if (wanted == columns) body(Index<columns>{});
        }
    }
};

// Shared memory, from a 1024-byte boundary on. gen/kernels/_qmm_sm90.py computes the same sum.
template <class Weight, class Shape>
struct Layout {
    static constexpr int x_slot = Shape::columns * 128 * Shape::box,
                         w_slot = Shape::rows / 16 * Weight::unit_bytes;
    static constexpr int x = 0, w = x + Shape::x_slots * x_slot, results = w + Shape::w_slots * w_slot;
    // A half's (warpgroup's) results: the second group's sums, and after them `chunk` tokens of its 64 rows.
    static constexpr int half = Shape::groups > 1 ? Shape::columns * 256 : Shape::chunk * 128;
    static constexpr int x_full = results + 2 * half, x_empty = x_full + 8 * Shape::x_slots;
    static constexpr int w_full = x_empty + 8 * Shape::x_slots, w_empty = w_full + 8 * Shape::w_slots;
    static constexpr int flags = w_empty + 8 * Shape::w_slots, end = flags + 16;
    static constexpr int bytes = end + 1024;
};

// The block's shared memory, from a 1024-byte boundary on.
WOOTZ_FN uint8_t* shared_memory() {
    extern __shared__ uint8_t unaligned[];
    return unaligned + ((1024 - (shared_address(unaligned) & 1023)) & 1023);
}

// A slot of a ring and the parity of its current use.
template <int Slots>
struct Ring {
    int slot;
    uint32_t parity;
    WOOTZ_FN void advance(int by) {
        slot += by;
        if (slot >= Slots) {
            slot -= Slots;
            parity ^= 1;
        }
    }
};

// Where a tile lies: its matrix and first row there, its first token, and where the tokens end that are its
// matrix's.
struct Place {
    uint32_t matrix, row, token, end;
};

// One matrix and all tokens. A block's tiles are neighbours, tokens innermost, so that they share weights in
// the cache.
struct Problem {
    const TensorMap* boxes;   // x as [k / 64][m][64]: whole boxes
    const TensorMap* chunks;  // x as [m][k]: a k64 chunk of Part tokens a copy, up to a ragged row's end
    const uint8_t* units;
    const void* tensors[2];  // fields of scales that are one per tensor
    uint16_t* y;
    uint8_t* workspace;
    uint32_t m, n, k;
    static constexpr bool many = false;  // matrices
    static constexpr int bytes = 0;      // of shared memory beside the Layout's

    template <class Shape>
    WOOTZ_FN uint32_t tokens() const {
        return (m + Shape::columns - 1) / Shape::columns;
    }
    template <class Shape>
    WOOTZ_FN uint32_t tiles() const {
        return (n + Shape::rows - 1) / Shape::rows * tokens<Shape>();
    }
    template <class Shape>
    WOOTZ_FN Place place(uint32_t tile) const {
        return {0, tile / tokens<Shape>() * Shape::rows, tile % tokens<Shape>() * Shape::columns, m};
    }
    WOOTZ_FN const void* tensor(int i, uint32_t) const { return tensors[i]; }
    template <class Shape>
    WOOTZ_FN void prepare() const {}
};

// What is to be divided. Whole tiles first, the same number for every block. Of the tiles left over, too few
// for all, each is cut along k into `parts`, one a block.
template <class Weight, class Shape, class P>
struct Division {
    WOOTZ_FN static uint32_t units(const P& p) { return (p.k + Weight::unit_k - 1) / Weight::unit_k; }
    WOOTZ_FN static uint32_t all(const P& p) { return p.template tiles<Shape>(); }
    // Into how many the tiles left over are cut: no part is shorter than two units.
    WOOTZ_FN static uint32_t parts(const P& p) {
        const uint32_t rest = all(p) % gridDim.x;
        return rest ? max(1u, min(gridDim.x / rest, units(p) / 2)) : 1;
    }
};

// What a block works on: whole tiles that are neighbours, then its part. What follows from the problem is
// computed anew: consumers have no register to spare.
template <class Weight, class Shape, class P = Problem>
struct Work : Division<Weight, Shape, P> {
    using Base = Division<Weight, Shape, P>;
    const P& p;
    uint32_t tile;        // of 128 rows x Columns tokens
    uint32_t begin, end;  // units along k
    uint32_t tiles;       // whole tiles left, this one included if it is whole

    WOOTZ_FN explicit Work(const P& problem) : p(problem) {
        tiles = Base::all(p) / gridDim.x;
        tile = blockIdx.x * tiles;
        begin = 0;
        end = Base::units(p);
        if (tiles == 0) left_over();
    }
    WOOTZ_FN bool more() const { return begin < end; }
    WOOTZ_FN Place place() const { return p.template place<Shape>(tile); }
    WOOTZ_FN uint32_t first() const { return begin; }
    WOOTZ_FN uint32_t last() const { return end; }
    WOOTZ_FN bool whole() const { return end - begin == Base::units(p); }
    WOOTZ_FN void next() {
        tile++;
        if (tiles == 0) {
            end = begin;
        } else if (--tiles == 0) {
            left_over();
        }
    }
    WOOTZ_FN void left_over() {
        const uint32_t rest = Base::all(p) % gridDim.x, count = Base::parts(p), part = blockIdx.x % count;
        tile = Base::all(p) - rest + blockIdx.x / count;
        begin = part * Base::units(p) / count;
        end = blockIdx.x < rest * count ? (part + 1) * Base::units(p) / count : begin;
    }
    // Units of the block, over all its tiles.
    WOOTZ_FN uint32_t total() const {
        Work last = *this;
        last.left_over();
        return tiles * Base::units(p) + last.end - last.begin;
    }
};

// Copies warp `warp`'s share of the units of each row tile. Row tiles past n are left out.
template <class Weight, class Shape, class P>
WOOTZ_FN void produce_weights(const P& p, uint32_t base, int warp) {
    using Plan = Layout<Weight, Shape>;
    constexpr int tiles = Shape::rows / 16;
    const uint32_t full = base + Plan::w_full, empty = base + Plan::w_empty;
    const int begin = warp * tiles / Shape::weight_warps, end = (warp + 1) * tiles / Shape::weight_warps;
    const uint32_t row_tiles = (p.n + 15) / 16;
    const uint64_t pitch = static_cast<uint64_t>(Work<Weight, Shape, P>::units(p)) * Weight::unit_bytes;
    Ring<Shape::w_slots> ring = {0, 1};
    for (Work<Weight, Shape, P> work(p); work.more(); work.next()) {
        const Place place = work.place();
        const uint32_t row = place.row / 16 + begin;
        const int count = row >= row_tiles ? 0 : min(end - begin, static_cast<int>(row_tiles - row));
        const uint8_t* from = p.units + (static_cast<uint64_t>(place.matrix) * row_tiles + row) * pitch +
                              static_cast<uint64_t>(work.first()) * Weight::unit_bytes;
#pragma unroll 1
        for (uint32_t units = work.last() - work.first(); units; units--) {
            uint32_t to = base + Plan::w + ring.slot * Plan::w_slot + begin * Weight::unit_bytes;
            const uint8_t* tile = from;
            barrier_wait(empty + ring.slot * 8, ring.parity);
            barrier_expect(full + ring.slot * 8, count * Weight::unit_bytes);
#pragma unroll 1
            for (int i = 0; i < count; i++) {
                copy_bulk(to, tile, Weight::unit_bytes, full + ring.slot * 8);
                to += Weight::unit_bytes;
                tile += pitch;
            }
            from += Weight::unit_bytes;
            ring.advance(1);
        }
    }
}

template <class Weight, class Shape, class P>
WOOTZ_FN void produce_activations(const P& p, uint32_t base) {
    using Plan = Layout<Weight, Shape>;
    constexpr int chunks = Weight::unit_k / 64;
    const int whole = p.k % 64 ? p.k / 64 : INT_MAX;  // chunks that may be read as parts of a box
    Ring<Shape::x_slots> ring = {0, 1};
    for (Work<Weight, Shape, P> work(p); work.more(); work.next()) {
        const Place place = work.place();
        const int token = place.token, tokens = Shape::width(place.end - place.token),
                  end = work.last() * chunks;
#pragma unroll 1
        for (int chunk = work.first() * chunks; chunk < end; chunk += Shape::box) {
            const uint32_t to = base + Plan::x + ring.slot * Plan::x_slot;
            const uint32_t full = base + Plan::x_full + ring.slot * 8;
            barrier_wait(base + Plan::x_empty + ring.slot * 8, ring.parity);
            barrier_expect(full, tokens * (128 * Shape::box));
            if (tokens == Shape::columns && chunk + Shape::box <= whole) {
                copy_tensor(to, p.boxes, 0, token, chunk, full);
            } else {
#pragma unroll 1
                for (int i = 0; i < Shape::box; i++) {
#pragma unroll 1
                    for (int t = 0; t < tokens; t += Shape::part)
                        copy_tensor(to + (i * Shape::columns + t) * 128, p.chunks, (chunk + i) * 64,
                                    token + t, full);
                }
            }
            ring.advance(1);
        }
    }
}

// 0 where float32 has none so small.
WOOTZ_FN constexpr float power_of_2(int exponent) {
    if (exponent < -149) return 0;
    float value = 1;
    for (int i = 0; i < (exponent < 0 ? -exponent : exponent); i++) value *= exponent < 0 ? 0.5f : 2.0f;
    return value;
}

// Packed pairs of scales (rows g and g + 8) of some runs of a unit. Of many runs each of a row's four lanes
// converts every fourth; the pairs are handed round when they are used.
template <class Weight, bool Powers = Weight::powers>
struct Scales {
    using Type = typename Weight::Type;
    static constexpr int sharers = Weight::runs >= 4 ? 4 : 1, count = Weight::runs / sharers;
    uint32_t held[count];
    bool apart;  // in all of the warp: some scale is out of range

    WOOTZ_FN void load(const uint8_t* sides, const float* tensors, int lane) {
        bool usual = true;
        fill(sides, tensors, lane, power_of_2(Weight::exponent), usual);
        if constexpr (Weight::power != 0) {
            apart = __any_sync(0xffffffff, !usual);
            if (apart) fill(sides, tensors, lane, power_of_2(Weight::exponent - Weight::power), usual);
        }
    }

    // The scales times `rest`, and whether all are in range.
    WOOTZ_FN void fill(const uint8_t* sides, const float* tensors, int lane, float rest, bool& usual) {
        unroll<count>([&](auto i) {
            const int run = i.value * sharers + (sharers > 1 ? lane % sharers : 0);
            float levels[2];
            Weight::levels(sides, tensors, lane >> 2, run, levels);
            held[i.value] = Type::round(levels[0] * rest, levels[1] * rest);
            if constexpr (Weight::power != 0) usual = usual && in_range(levels[0]) && in_range(levels[1]);
        });
    }

    WOOTZ_FN static bool in_range(float level) {
        constexpr float least = power_of_2(Weight::least), most = power_of_2(Weight::most);
        const float size = fabsf(level);
        return size <= most && (least == 0 || size >= least || size == 0);  // NaN is not
    }

    // That of a run.
    template <int Run, bool>
    WOOTZ_FN uint32_t pair() const {
        const uint32_t own = held[Run / sharers];
        if constexpr (sharers == 1) return own;
        return __shfl_sync(0xffffffff, own, Run % sharers, sharers);
    }
};

// The same of scales in E8M0, all of a lane's: their codes, whose bits are those of a bf16's exponent.
template <class Weight>
struct Scales<Weight, true> {
    using Type = typename Weight::Type;
    static constexpr int count = Weight::runs / 2;  // a word has two runs' of two rows
    uint32_t held[count];
    bool apart;

    WOOTZ_FN void load(const uint8_t* sides, const float*, int lane) {
        const uint8_t* from = sides + (lane >> 2) * (4 * count);
        if constexpr (count % 4 == 0) {
            unroll<count / 4>([&](auto i) {
                const uint4 v = reinterpret_cast<const uint4*>(from)[i.value];
                held[4 * i.value] = v.x;
                held[4 * i.value + 1] = v.y;
                held[4 * i.value + 2] = v.z;
                held[4 * i.value + 3] = v.w;
            });
        } else {
            unroll<count>([&](auto i) { held[i.value] = reinterpret_cast<const uint32_t*>(from)[i.value]; });
        }
        uint32_t beyond = 0;
        unroll<count>([&](auto i) { beyond |= out_of_range(held[i.value]); });
        apart = __any_sync(0xffffffff, beyond != 0);
    }

    // Not 0 where one of four codes, or what it is with the exponent, is not of a normal number.
    WOOTZ_FN static uint32_t out_of_range(uint32_t codes) {
        constexpr uint32_t ones = 0x01010101, tops = 0x80808080;
        if constexpr (Weight::exponent == 0) {
            return ((codes - ones) & ~codes | (~codes - ones) & codes) & tops;  // 0, or 255
        } else {
            static_assert(Weight::exponent >= 1 && Weight::exponent <= 127, "127 is in range, and all below");
            return codes & tops;
        }
    }

    // Apart: `apart`, which the caller knows.
    template <int Run, bool Apart>
    WOOTZ_FN uint32_t pair() const {
        constexpr int at = Run % 2 * 2;
        const uint32_t codes = __byte_perm(held[Run / 2], 0, 0x4140 + at * 0x101);
        if constexpr (Apart) {
            constexpr float rest = power_of_2(Weight::exponent - Weight::power);
            return Type::round(fragment::power_f32(codes & 255) * rest,
                               fragment::power_f32(codes >> 16) * rest);
        } else {
            return codes * 128 + Weight::exponent * 128 * 0x10001;
        }
    }
};

// What a lane keeps of a unit: its words, and scales.
template <class Weight>
struct Lane {
    using Type = typename Weight::Type;
    static constexpr bool scales = Weight::scaled && !Weight::fold_only;
    // Whether decoding reads the unit's side fields, so that its slot is held until the last step.
    static constexpr bool held = Weight::zeroed || Weight::fold_only;
    int lane;
    uint32_t words[Weight::words];
    Scales<Weight> of;
    const uint8_t* sides;

    WOOTZ_FN void load(const uint8_t* unit, const float* tensors) {
        unroll<Weight::vectors>([&](auto i) {
            const uint4 v = *reinterpret_cast<const uint4*>(unit + (i.value * 32 + lane) * 16);
            words[4 * i.value] = v.x;
            words[4 * i.value + 1] = v.y;
            words[4 * i.value + 2] = v.z;
            words[4 * i.value + 3] = v.w;
        });
        sides = unit + Weight::code_bytes;
        if constexpr (scales) of.load(sides, tensors, lane);
    }

    // Of bits that depend on every register that was loaded.
    WOOTZ_FN uint32_t loaded() const {
        uint32_t bits = 0;
        unroll<Weight::vectors>([&](auto i) { bits |= words[4 * i.value]; });
        if constexpr (scales) unroll<Scales<Weight>::count>([&](auto i) { bits |= of.held[i.value]; });
        return bits;
    }

    // The weights of `Count` steps from step First on.
    template <int First, int Count>
    WOOTZ_FN void decode(const float* tensors, uint32_t (&a)[Count][4]) const {
        unroll<Count>([&](auto i) {
            constexpr int step = First + i.value;
            if constexpr (Weight::fold_only) {
                Weight::template decode_folded<step>(words, sides, tensors, lane, a[i.value]);
            } else {
                Weight::template decode<step>(words, sides, lane, a[i.value]);
            }
        });
        if constexpr (scales) {
            const auto scale = [&](auto apart) {
                unroll<Count>([&](auto i) {
                    constexpr int run = (First + i.value) * 16 / Weight::run;
                    const uint32_t pair = of.template pair<run, apart.value>();
                    uint32_t (&to)[4] = a[i.value];
                    to[0] = Type::mul2(to[0], both_low(pair));
                    to[1] = Type::mul2(to[1], both_high(pair));
                    to[2] = Type::mul2(to[2], both_low(pair));
                    to[3] = Type::mul2(to[3], both_high(pair));
                });
            };
            if constexpr (!Weight::powers) {
                if constexpr (Weight::power != 0)
                    if (of.apart) lift(a);
                scale(Index<0>{});
            } else if (of.apart) {
                if constexpr (Weight::power != 0) lift(a);
                scale(Index<1>{});
            } else {
                scale(Index<0>{});
            }
        }
    }

    // Decoded values times 2^power.
    template <int Count>
    WOOTZ_FN static void lift(uint32_t (&a)[Count][4]) {
        constexpr float factor = power_of_2(Weight::power);
        const uint32_t power = Type::round(factor, factor);
#pragma unroll
        for (int i = 0; i < Count; i++)
            for (int r = 0; r < 4; r++) a[i][r] = Type::mul2(a[i][r], power);
    }
};

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

// One consumer warpgroup: half `half` of the rows, in group `group`.
template <class Weight, class Shape, class P>
WOOTZ_FN void consume(const P& p, uint8_t* shared) {
    using Plan = Layout<Weight, Shape>;
    using Type = typename Weight::Type;
    constexpr int columns = Shape::columns, batches = Weight::steps / Shape::batch;
    constexpr int box_batches = Shape::box * 4 / Shape::batch, boxes = batches / box_batches;
    static_assert(batches % box_batches == 0 && batches % 2 == 0,
                  "a unit is whole boxes, and an even run of batches");
    static_assert(
        Shape::groups == 1 || (Shape::x_slots % (Shape::groups * boxes) == 0 &&
                               Shape::w_slots % Shape::groups == 0 && Shape::x_slots > Shape::groups * boxes),
        "each group waits on its own slots");
    const int thread = threadIdx.x & 127, lane = thread & 31, warp = thread >> 5;
    // Of one lane, so that the compiler knows it to be the warp's, and what follows from it.
    const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x >> 7), 0);
    const int half = warpgroup & 1, group = warpgroup >> 1;
    const uint8_t* units = shared + Plan::w + (half * 4 + warp) * Weight::unit_bytes;
    const uint32_t base = shared_address(shared);

    static_assert(Weight::tensors <= 2, "no room for so many fields");
    // Levels that are one per matrix change with the tile: then no unit is loaded before its tile begins.
    constexpr bool apart = P::many && Weight::tensors;
    float tensors[Weight::tensors ? Weight::tensors : 1];
    const auto load_levels = [&](uint32_t matrix) {
        unroll<Weight::tensors>([&](auto i) {
            tensors[i.value] = Weight::template tensor_level<i.value>(p.tensor(i.value, matrix));
        });
    };
    if constexpr (!apart) load_levels(0);
    Lane<Weight> weights;
    weights.lane = lane;
    float sums[columns / 2];
    uint32_t a[2][Shape::batch][4];
    Ring<Shape::w_slots> w_ring = {group, 0};
    Ring<Shape::x_slots> x_ring = {group * boxes, 0};
    Work<Weight, Shape, P> work(p);
    uint32_t mine = (work.total() + Shape::groups - 1 - group) / Shape::groups;  // units left to this group
    const auto load = [&]() {
        barrier_wait(base + Plan::w_full + w_ring.slot * 8, w_ring.parity);
        weights.load(units + w_ring.slot * Plan::w_slot, tensors);
    };
    // An arrival does not wait for loads in flight, and once all have arrived the copies into the slot begin:
    // so the barrier's address is made to depend on what was loaded. (k has no sign bit, which the compiler
    // does not know.)
    const auto release = [&](uint32_t loaded) {
        __syncwarp();
        if (lane == 0) barrier_arrive(base + Plan::w_empty + w_ring.slot * 8 + (loaded & p.k >> 31));
        w_ring.advance(Shape::groups);
    };
    const auto load_first = [&]() {
        load();
        if constexpr (!Lane<Weight>::held) release(weights.loaded());
    };
    if (!apart && mine) load_first();
    uint32_t done = 0;  // units of the block before this tile, of interest modulo the groups
    for (bool first = true; work.more(); first = false) {
        const uint32_t here = work.last() - work.first();
        const uint32_t turn = (group + Shape::groups - done % Shape::groups) % Shape::groups;
        int read = -1;  // slot of x that the MMAs in flight before this batch read last
        int tokens = columns;
        if constexpr (P::many) {
            const Place place = work.place();
            tokens = Shape::width(place.end - place.token);
            if constexpr (apart) load_levels(place.matrix);
        }
        if (apart && turn < here) load_first();
        // The tile's units, of which the first `Tokens` tokens are multiplied.
        const auto multiply = [&](auto tokens) {
            constexpr int Tokens = tokens.value;
            float (&some)[Tokens / 2] = reinterpret_cast<float (&)[Tokens / 2]>(sums);
#pragma unroll
            for (int i = 0; i < columns / 2; i++) sums[i] = 0;
#pragma unroll 1
            for (uint32_t u = turn; u < here; u += Shape::groups) {
                mine--;
                const bool next = apart ? u + Shape::groups < here : mine;
                unroll<batches>([&](auto index) {
                    constexpr int batch = index.value, set = batch % 2;
                    constexpr bool last = batch == batches - 1;
                    weights.template decode<batch * Shape::batch>(tensors, a[set]);
                    if constexpr (last) {
                        if constexpr (Lane<Weight>::held) {
                            uint32_t decoded = 0;
                            unroll<Shape::batch>([&](auto step) {
                                for (int r = 0; r < 4; r++) decoded |= a[set][step.value][r];
                            });
                            release(decoded);
                        }
                        if (next) load();
                    }
                    if constexpr (batch % box_batches == 0)
                        barrier_wait(base + Plan::x_full + x_ring.slot * 8, x_ring.parity);
                    const uint32_t b = descriptor_low(base + Plan::x + x_ring.slot * Plan::x_slot);
                    wgmma_fence();
                    unroll<Shape::batch>([&](auto step) {
                        constexpr int at =
                            batch % box_batches * Shape::batch + step.value;  // k16 step of the box
                        Wgmma<Tokens, Type>::multiply(
                            some, a[set][step.value],
                            descriptor(b + (at / 4 * (columns * 128) + at % 4 * 32) / 16));
                    });
                    wgmma_commit();
                    if constexpr (last && !Lane<Weight>::held)
                        if (next) release(weights.loaded());
                    wgmma_wait<1>();
                    if constexpr (batch % box_batches == 0) {
                        if (read >= 0 && lane == 0) barrier_arrive(base + Plan::x_empty + read * 8);
                        read = x_ring.slot;
                    }
                    if constexpr (batch % box_batches == box_batches - 1)
                        x_ring.advance(last ? 1 + (Shape::groups - 1) * boxes : 1);
                });
            }
            wgmma_wait<0>();
            settle(some);
        };
        Shape::of_width(tokens, multiply);
        if (read >= 0 && lane == 0) barrier_arrive(base + Plan::x_empty + read * 8);

        if constexpr (!P::many)
            if (first) previous_grid_wait();  // which may still read y or use the workspace
        uint8_t* results = shared + Plan::results + half * Plan::half;
        bool whole = add_groups<Shape>(sums, reinterpret_cast<float4*>(results), group, half, first);
        if (whole && !work.whole())
            whole =
                add_parts<Weight, Shape>(p, sums, reinterpret_cast<uint32_t*>(shared + Plan::flags), half);
        if (whole) store_tile<Type, Shape>(p, sums, results, work.place(), half);
        done += here;
        work.next();
    }
}

template <class Weight, class Shape, class P = Problem>
WOOTZ_FN void qmm(const P& p) {
    using Plan = Layout<Weight, Shape>;
    uint8_t* shared = shared_memory();
    const uint32_t base = shared_address(shared);
    const int warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) {
        for (int i = 0; i < Shape::x_slots; i++) {
            barrier_init(base + Plan::x_full + i * 8, 1);
            barrier_init(base + Plan::x_empty + i * 8, 8);
        }
        for (int i = 0; i < Shape::w_slots; i++) {
            barrier_init(base + Plan::w_full + i * 8, Shape::weight_warps);
            barrier_init(base + Plan::w_empty + i * 8, 8);
        }
        barrier_init_visible();
    }
    p.template prepare<Shape>();
    __syncthreads();
    constexpr int first_producer = Shape::consumers / 32;
    if (warp < first_producer) {
        registers_grow<Shape::consumer_registers>();
        consume<Weight, Shape>(p, shared);
        return;
    }
    registers_shrink<Shape::producer_registers>();
    if (!copies_for_warp()) return;
    if (warp == first_producer) {
        prefetch_map(p.boxes);
        previous_grid_wait();
        produce_activations<Weight, Shape>(p, base);
        next_grid_launch();
    } else {
        produce_weights<Weight, Shape>(p, base, warp - first_producer - 1);
        next_grid_launch();
    }
}

}  // namespace warpgroup
