// y[m][n] = x[m][k] * w[n][k]^T on warpgroup MMA. x and y are natural arrays; w is in packed units (16 rows x
// unit_k weights, rows of units along k), decoded in registers to the fragments of the left operand, so that
// a result tile is 128 weights' rows x Columns tokens. Producer warps copy units (three warps) and boxes of x
// (one) into rings of shared memory; 2 * Groups warpgroups decode and multiply, each group every Groups-th
// unit; the groups' sums are added last.
//
// Scales are multiplied into the decoded weights, in x's type: a scale is rounded to it, then each weight.
// Where weights enter the product 2^less smaller, results are made larger.
#pragma once

#include <limits.h>

#include "qmm_sm90_lane.cuh"
#include "qmm_sm90_plan.cuh"
#include "qmm_sm90_results.cuh"

namespace warpgroup {

// Copies warp `warp`'s share of the units of each row tile. Row tiles past n are left out.
template <class Weight, class Shape, class P>
WOOTZ_FN void produce_weights(const P& p, uint32_t base, int warp) {
    using Plan = Layout<Weight, Shape>;
    constexpr int tiles = Shape::rows / 16;
    const uint32_t full = base + Plan::w_full, empty = base + Plan::w_empty;
    const int begin = warp * tiles / Shape::weight_warps, end = (warp + 1) * tiles / Shape::weight_warps;
    const uint32_t row_tiles = (p.n + 15) / 16;
    const uint64_t pitch = static_cast<uint64_t>(Division<Weight, Shape, P>::units(p)) * Weight::unit_bytes;
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
    constexpr bool by_tile = P::many && Weight::tensors;
    float tensors[Weight::tensors ? Weight::tensors : 1];
    const auto load_levels = [&](uint32_t matrix) {
        unroll<Weight::tensors>([&](auto i) {
            tensors[i.value] = Weight::template tensor_level<i.value>(p.tensor(i.value, matrix));
        });
    };
    if constexpr (!by_tile) load_levels(0);
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
    if (!by_tile && mine) load_first();
    uint32_t done = 0;  // units of the block before this tile, of interest modulo the groups
    for (bool first = true; work.more(); first = false) {
        const uint32_t here = work.last() - work.first();
        const uint32_t turn = (group + Shape::groups - done % Shape::groups) % Shape::groups;
        int read = -1;  // slot of x that the MMAs in flight before this batch read last
        int tokens = columns;
        if constexpr (P::many) {
            const Place place = work.place();
            tokens = Shape::width(place.end - place.token);
            if constexpr (by_tile) load_levels(place.matrix);
        }
        if (by_tile && turn < here) load_first();
        // The tile's units, of which the first `Tokens` tokens are multiplied.
        const auto multiply = [&](auto tokens) {
            constexpr int Tokens = tokens.value;
            float (&some)[Tokens / 2] = reinterpret_cast<float (&)[Tokens / 2]>(sums);
#pragma unroll
            for (int i = 0; i < columns / 2; i++) sums[i] = 0;
#pragma unroll 1
            for (uint32_t u = turn; u < here; u += Shape::groups) {
                mine--;
                const bool next = by_tile ? u + Shape::groups < here : mine;
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
        if constexpr (Weight::less != 0) {
#pragma unroll
            for (int i = 0; i < columns / 2; i++) sums[i] *= power_of_2(Weight::less);
        }
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
        barriers_made();
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
