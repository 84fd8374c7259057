// Blocks of a grid for rows of x in groups. A grid has as many blocks as any division of the rows can need,
// and each finds its part or ends.
#pragma once

#include <stdint.h>

#include "groups.cuh"

// A block's part: block `block` of the `count` rows from row `first` on, times matrix `matrix`. No rows:
// none.
struct GroupPart {
    uint32_t matrix, first, count, block;
};

// The blocks of `tokens` rows of a group follow those of the groups before it. Every lane of a warp calls
// this, and all get the same.
WOOTZ_FN GroupPart part_of_groups(const int32_t* counts, const int32_t* offsets, uint32_t groups, uint32_t m,
                                  uint32_t tokens, uint32_t block) {
    const CountedGroups source{counts, offsets, groups, m};
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t base = 0; base < groups; base += 32) {
        const GroupRows mine = source.group(base + lane);
        const uint32_t blocks = (mine.count + tokens - 1) / tokens;
        const uint32_t end = sum_up_to(blocks);
        const uint32_t here = __ballot_sync(0xffffffffu, block < end);
        if (here) {
            const int owner = __ffs(static_cast<int>(here)) - 1;
            const uint32_t start = __shfl_sync(0xffffffffu, end - blocks, owner);
            const uint32_t first = __shfl_sync(0xffffffffu, mine.first, owner);
            const uint32_t count = __shfl_sync(0xffffffffu, mine.count, owner);
            return {base + owner, first, count, block - start};
        }
        block -= __shfl_sync(0xffffffffu, end, 31);
    }
    return {0, 0, 0, 0};
}

// Of groups of `rows` rows each.
WOOTZ_FN GroupPart part_of_indices(const int32_t* indices, uint32_t matrices, uint32_t rows, uint32_t tokens,
                                   uint32_t block) {
    const uint32_t blocks = (rows + tokens - 1) / tokens, group = block / blocks;
    const GroupRows found = IndexedGroups{indices, group + 1, rows, matrices}.group(group);
    return {found.matrix, found.first, found.count, block % blocks};
}
