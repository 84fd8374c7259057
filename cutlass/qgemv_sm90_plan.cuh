// What blocks of the product with few rows of x work on: a variant and where its things lie in shared memory,
// what a warp takes of each tile, and the ring that brings it.
#pragma once

#include <stdint.h>

#include "sm90.cuh"

namespace gemv {

using namespace sm90;

// Where scales enter. Sums: they multiply the sum of each run; Weights: they go into each weight, which is
// then rounded to x's type.
enum class Scaling { Sums, Weights };

// How scales are stored. Powers: as one code of E8M0; Floats: as one of E4M3, beside at most one level of the
// tensor, which multiplies, and waits for the sums of a tile. Such codes are the first of the side fields.
enum class Levels { Any, Powers, Floats };

// One variant. Weight: a format's decoder with levels(sides, tensor, g, run, to): the scales of rows g and
// g + 8. Tokens: 1 or 8, rows of x at most. Warps: of a block, along k. Slots: of a warp's ring; Units:
// of w in a slot. Linear: zero points are added after scaling, times the sum of x. Lift: decoded numbers lack
// 2^exponent, so much that x is multiplied by a power of two for the products to be normal numbers. Table:
// codes of 4 bits, a plain stream, are looked up two at a time: Weight::number(code) has their bits. Shift:
// decoded numbers of row g + 8 half in run j are Weight::shift(sides, g, j, half) too large, which the sum of
// x over the run takes away.
template <class Weight_, int Tokens_, int Warps_, int Slots_, int Units_, Scaling Scaling_, Levels Levels_,
          bool Linear_, bool Lift_, bool Table_, bool Shift_>
struct Tile {
    using Weight = Weight_;
    using Type = typename Weight::Type;
    static constexpr int tokens = Tokens_, warps = Warps_, slots = Slots_, units = Units_;
    static constexpr Levels levels = Levels_;
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

    // Whether each run's scale is multiplied into its sum.
    static constexpr bool scaled = Weight::scaled && !fold;

    // One row of x has the product's columns for itself: each has x of another part of the unit, so that a
    // lane's x is a few registers, and of a part's products its columns count alone. Piece: steps that are
    // summed before they are scaled; vectors: of 16 bytes, x of two steps, that a part has; repeats: columns
    // of a part.
    static constexpr bool spread = tokens == 1 && scaled;
    static constexpr int run_steps = fold ? 1 : Weight::run / 16;
    static constexpr int piece = spread && run_steps > 4 ? 4 : run_steps;
    static constexpr int vectors = piece > 2 ? piece / 2 : 1, part = 2 * vectors;
    static constexpr int parts = Weight::steps / part, repeats = 8 / parts;

    // Where runs are fewer than a row's lanes: each has that of its columns, or all. Of E4M3 a lane converts
    // all that it needs: that is less than what hands them round.
    static constexpr bool handed = !spread && Weight::runs >= 4 && levels != Levels::Floats;
    static constexpr int sharers = !spread && !handed ? 1 : Weight::runs >= 4 ? 4 : Weight::runs;
    static constexpr int shares = Weight::runs / sharers;
    // Whether levels that are one per tensor wait for the sums of a tile.
    static constexpr bool rest = scaled && levels == Levels::Floats && Weight::tensors > 0;
    // Whether scales are twice as large: with x lifted, sums are no larger than results for that.
    static constexpr bool doubled = lift && levels == Levels::Powers;

    // Whether decoding reads the unit's side fields, so that its slot is held until the last step.
    static constexpr bool held = (Weight::zeroed && !shift) || fold || linear;

    static_assert(tokens == 1 || tokens == 8, "");
    static_assert(fold || Weight::run % 16 == 0, "scales that change within a step cannot wait for its sum");
    static_assert(!(fold && (linear || lift || table)) && !(linear && lift), "");
    static_assert(!(linear && rest), "");
    static_assert(!table || (Weight::bits == 4 && !Weight::zeroed), "");
    static_assert(!spread || (parts * repeats == 8 && parts * part == Weight::steps), "");
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
    uint32_t to, barriers;
    const uint8_t* from;
    uint32_t chunk, tile, tiles;  // next to be copied, and the end
    uint32_t slot, parity;        // that is read

    WOOTZ_FN Ring(const Arguments& with, const Share<Tile>& share, uint8_t* shared, int warp, uint32_t tiles)
        : to(shared_address(shared + warp * (Tile::slots * Tile::slot_bytes))),
          barriers(shared_address(shared + Tile::barriers_at + warp * (Tile::slots * 8))),
          from(with.units +
               (static_cast<uint64_t>(blockIdx.x) * share.units + share.begin) * Tile::Weight::unit_bytes),
          chunk(0),
          tile(share.chunks ? blockIdx.x : tiles),
          tiles(tiles),
          slot(0),
          parity(0) {}

    // Fills a slot, which has been read. All lanes come here; one copies. after: 0, in a way that the
    // compiler does not know, of what was read.
    WOOTZ_FN void copy(const Share<Tile>& share, uint32_t to_slot, uint32_t after = 0) {
        if (tile >= tiles) return;
        const uint32_t bytes = share.units_of(chunk) * Tile::Weight::unit_bytes;
        if (elect()) {
            barrier_expect(barriers + to_slot * 8 + after, bytes);
            copy_bulk(to + to_slot * Tile::slot_bytes, from, bytes, barriers + to_slot * 8);
        }
        chunk++;
        from += bytes;
        if (chunk == share.chunks) {
            chunk = 0;
            tile += gridDim.x;
            from += (static_cast<uint64_t>(gridDim.x) * share.units - share.count) * Tile::Weight::unit_bytes;
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

}  // namespace gemv
