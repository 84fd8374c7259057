// What blocks of the product on warpgroup MMA work on: a tile of the result and the rings that feed it, where
// they lie in shared memory, and how tiles are divided among blocks.
#pragma once

#include <stdint.h>

#include "wgmma.cuh"

namespace warpgroup {

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

// What is to be divided. Whole tiles first, the same number for every block. The tiles left over, too few for
// all, are one run of units, of which blocks that are neighbours take equal parts, wherever tiles end in it;
// or one each, where parts would save less than two units.
template <class Weight, class Shape, class P>
struct Division {
    WOOTZ_FN static uint32_t units(const P& p) { return (p.k + Weight::unit_k - 1) / Weight::unit_k; }
    WOOTZ_FN static uint32_t all(const P& p) { return p.template tiles<Shape>(); }

    uint32_t rest;    // tiles left over
    uint32_t blocks;  // that share them
    uint32_t each;    // units of one of those, or one more
    uint32_t more;    // of them have one more: the first

    WOOTZ_FN explicit Division(const P& p) : rest(all(p) % gridDim.x) {
        const uint32_t tile = units(p), run = rest * tile;
        blocks = min(gridDim.x, run / 2);
        each = blocks ? run / blocks : 0;
        more = run - each * blocks;
        if (each + (more != 0) + 2 <= tile) return;
        blocks = rest;
        each = tile;
        more = 0;
    }
    // The first unit of a block, in the run.
    WOOTZ_FN uint32_t start(uint32_t block) const {
        block = min(block, blocks);
        return block * each + min(block, more);
    }
    // The block that has a unit of the run.
    WOOTZ_FN uint32_t owner(uint32_t unit) const {
        const uint32_t longer = more * (each + 1);
        return unit < longer ? unit / (each + 1) : more + (unit - longer) / each;
    }
};

// What a block works on: whole tiles (neighbours, or of P::many matrices in turn with the other blocks), then
// its part. What follows from the problem is computed anew: consumers have no register to spare.
template <class Weight, class Shape, class P = Problem>
struct Work {
    using Divided = Division<Weight, Shape, P>;
    const P& p;
    uint32_t tile;        // of 128 rows x Columns tokens
    uint32_t begin, end;  // units along k

    WOOTZ_FN explicit Work(const P& problem) : p(problem), begin(0), end(units()) {
        const uint32_t whole = all() / gridDim.x;
        tile = P::many ? blockIdx.x : blockIdx.x * whole;
        if (whole == 0) take_part();
    }
    WOOTZ_FN bool more() const { return begin < end; }
    WOOTZ_FN Place place() const { return p.template place<Shape>(tile); }
    WOOTZ_FN uint32_t first() const { return begin; }
    WOOTZ_FN uint32_t last() const { return end; }
    WOOTZ_FN bool whole() const { return end - begin == units(); }
    // Its number among the tiles left over.
    WOOTZ_FN uint32_t number() const { return tile - all() / gridDim.x * gridDim.x; }
    WOOTZ_FN void next() {
        const uint32_t whole = all() / gridDim.x;
        if (tile >= whole * gridDim.x) {
            take(Divided(p), number() + 1);
            return;
        }
        tile += P::many ? gridDim.x : 1;
        if (tile >= (P::many ? whole * gridDim.x : (blockIdx.x + 1) * whole)) take_part();
    }
    // Units of the block, over all its tiles.
    WOOTZ_FN uint32_t total() const {
        const Divided divided(p);
        return all() / gridDim.x * units() + divided.start(blockIdx.x + 1) - divided.start(blockIdx.x);
    }

  private:
    WOOTZ_FN uint32_t units() const { return Divided::units(p); }
    WOOTZ_FN uint32_t all() const { return Divided::all(p); }
    WOOTZ_FN void take_part() {
        const Divided divided(p);
        take(divided, divided.start(blockIdx.x) / units());
    }
    // What the block has of a tile left over; nothing past its part.
    WOOTZ_FN void take(const Divided& divided, uint32_t number) {
        const uint32_t tile_begin = number * units(), tile_end = tile_begin + units();
        tile = all() - divided.rest + number;
        begin = max(divided.start(blockIdx.x), tile_begin) - tile_begin;
        end = min(max(divided.start(blockIdx.x + 1), tile_begin), tile_end) - tile_begin;
    }
};

}  // namespace warpgroup
