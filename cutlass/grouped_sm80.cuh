// Rows of x in groups, each with a matrix of its own from a bank. What groups there are is known to the
// device alone: a grid has as many blocks as any division of the rows can need, and each finds its part or
// ends.
#pragma once

#include <stdint.h>

#include "function.cuh"

// A block's part: block `block` of the `count` rows from row `first` on, times matrix `matrix`. No rows:
// none.
struct GroupPart {
    uint32_t matrix, first, count, block;
};

// Group g has rows offsets[g] to offsets[g] + counts[g] - 1 of the m rows and matrix g. Its blocks of
// `tokens` rows follow those of the groups before it. A group that does not lie in the m rows is taken as
// empty. Every lane of a warp calls this, and all get the same.
WOOTZ_FN GroupPart part_of_groups(const int32_t* counts, const int32_t* offsets, uint32_t groups, uint32_t m,
                                  uint32_t tokens, uint32_t block) {
    const uint32_t lane = threadIdx.x % 32;
    for (uint32_t base = 0; base < groups; base += 32) {
        const uint32_t g = base + lane;
        uint32_t first = 0, count = 0;
        if (g < groups && counts[g] > 0 && offsets[g] >= 0) {
            first = offsets[g];
            count = counts[g];
            count = first <= m && count <= m - first ? count : 0;
        }
        const uint32_t blocks = (count + tokens - 1) / tokens;
        uint32_t end = blocks;  // of the blocks of groups base to g
        for (int step = 1; step < 32; step *= 2) {
            const uint32_t before = __shfl_up_sync(0xffffffffu, end, step);
            end += lane >= static_cast<uint32_t>(step) ? before : 0;
        }
        const uint32_t here = __ballot_sync(0xffffffffu, block < end);
        if (here) {
            const int owner = __ffs(static_cast<int>(here)) - 1;
            const uint32_t start = __shfl_sync(0xffffffffu, end - blocks, owner);
            first = __shfl_sync(0xffffffffu, first, owner);
            count = __shfl_sync(0xffffffffu, count, owner);
            return {base + owner, first, count, block - start};
        }
        block -= __shfl_sync(0xffffffffu, end, 31);
    }
    return {0, 0, 0, 0};
}

// Group g has `rows` rows and matrix indices[g]; an index that the bank does not have leaves its rows alone.
WOOTZ_FN GroupPart part_of_indices(const int32_t* indices, uint32_t matrices, uint32_t rows, uint32_t tokens,
                                   uint32_t block) {
    const uint32_t blocks = (rows + tokens - 1) / tokens, group = block / blocks;
    const int32_t matrix = indices[group];
    if (matrix < 0 || static_cast<uint32_t>(matrix) >= matrices) {
        return {0, 0, 0, 0};
    }
    return {static_cast<uint32_t>(matrix), group * rows, rows, block % blocks};
}
