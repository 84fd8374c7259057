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

// What a block works on: whole tiles (neighbours; those of P::many matrices in turn with the other blocks, so
// that all at work at one time are neighbours), then its part.
template <class Weight, class Shape, class P = Problem>
struct Work : Division<Weight, Shape, P> {
    using Base = Division<Weight, Shape, P>;
    const P& p;
    uint32_t tile;        // of 128 rows x Columns tokens
    uint32_t begin, end;  // units along k

    WOOTZ_FN explicit Work(const P& problem) : p(problem), begin(0), end(Base::units(p)) {
        const uint32_t whole = Base::all(p) / gridDim.x;
        tile = P::many ? blockIdx.x : blockIdx.x * whole;
        if (whole == 0) take_part();
    }
    WOOTZ_FN bool more() const { return begin < end; }
    WOOTZ_FN Place place() const { return p.template place<Shape>(tile); }
    WOOTZ_FN uint32_t first() const { return begin; }
    WOOTZ_FN uint32_t last() const { return end; }
    WOOTZ_FN bool whole() const { return end - begin == Base::units(p); }
    WOOTZ_FN void next() {
        const uint32_t whole = Base::all(p) / gridDim.x, rest_from = whole * gridDim.x;
        if (tile >= rest_from) {
            end = begin;
            return;
        }
        tile += P::many ? gridDim.x : 1;
        if (tile >= (P::many ? rest_from : (blockIdx.x + 1) * whole)) take_part();
    }
    WOOTZ_FN void take_part() {
        const uint32_t rest = Base::all(p) % gridDim.x, count = Base::parts(p), part = blockIdx.x % count;
        tile = Base::all(p) - rest + blockIdx.x / count;
        begin = part * Base::units(p) / count;
        end = blockIdx.x < rest * count ? (part + 1) * Base::units(p) / count : begin;
    }
    // Units of the block, over all its tiles.
    WOOTZ_FN uint32_t total() const {
        Work part = *this;
        part.take_part();
        return Base::all(p) / gridDim.x * Base::units(p) + part.end - part.begin;
    }
};

}  // namespace warpgroup
