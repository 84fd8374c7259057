// The product on warpgroup MMA for rows of x in groups, each with a matrix of a bank: every block lists the
// groups in its shared memory, and a tile is one of a group's. Tiles of a group follow those of the groups
// before it, rows of weights innermost; blocks take them in turn, so that those at work at one time share
// weights and x in the cache. A tile may begin at any row of x, and reads rows of the next group with its
// last ones.
#pragma once

#include "groups.cuh"
#include "qmm_sm90.cuh"

namespace warpgroup {

// A group in the list: where its tiles end among those of all.
struct alignas(16) Listed {
    uint32_t matrix, first, count, end;
};

// Source: CountedGroups or IndexedGroups, of up to Most groups. At: bytes of shared memory before the list.
// Sizes: bytes of each level that is one per matrix.
template <class Source, int At, int Most, int... Sizes>
struct Bank : Problem {
    Source source;
    static constexpr bool many = true;
    static constexpr int chunks_of_32 = Most / 32, bytes = Most * sizeof(Listed) + chunks_of_32 * 4;
    static_assert(Most % 128 == 0, "whole warps, and 16 bytes of their sums");

    // Computed anew, as is all else: it takes no register.
    WOOTZ_FN static Listed* list() { return reinterpret_cast<Listed*>(shared_memory() + At); }
    template <class Shape>
    WOOTZ_FN uint32_t down() const {
        return (n + Shape::rows - 1) / Shape::rows;
    }
    template <class Shape>
    WOOTZ_FN uint32_t tiles() const {
        return list()[source.groups - 1].end;
    }
    template <class Shape>
    WOOTZ_FN Place place(uint32_t tile) const {
        const Listed* list = Bank::list();
        uint32_t low = 0, high = source.groups - 1;  // the first group that ends past the tile
        while (low < high) {
            const uint32_t middle = (low + high) / 2;
            if (list[middle].end > tile) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        const Listed found = list[low];
        const uint32_t at = tile - (low ? list[low - 1].end : 0);
        return {found.matrix, at % down<Shape>() * Shape::rows,
                found.first + at / down<Shape>() * Shape::columns, found.first + found.count};
    }
    WOOTZ_FN const void* tensor(int i, uint32_t matrix) const {
        constexpr uint32_t sizes[] = {Sizes..., 0};
        return static_cast<const uint8_t*>(tensors[i]) + static_cast<uint64_t>(matrix) * sizes[i];
    }

    // Lists the groups; all threads of the block, of whole warps.
    template <class Shape>
    WOOTZ_FN void prepare() const {
        Listed* list = Bank::list();
        uint32_t* sums = reinterpret_cast<uint32_t*>(list + Most);
        const uint32_t groups = (source.groups + 31) / 32 * 32;
        previous_grid_wait();  // which may have written the groups
        for (uint32_t g = threadIdx.x; g < groups; g += Shape::threads) {
            const GroupRows rows = source.group(g);
            const uint32_t end =
                sum_up_to((rows.count + Shape::columns - 1) / Shape::columns * down<Shape>());
            list[g] = {rows.matrix, rows.first, rows.count, end};
            if (g % 32 == 31) sums[g / 32] = end;
        }
        __syncthreads();
        for (uint32_t g = threadIdx.x; g < groups; g += Shape::threads) {
            uint32_t before = 0;
            for (uint32_t chunk = 0; chunk < g / 32; chunk++) before += sums[chunk];
            list[g].end += before;
        }
    }
};

}  // namespace warpgroup
