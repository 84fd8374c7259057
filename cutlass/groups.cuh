// Rows of x in groups, each with a matrix of its own from a bank. What groups there are is known to the
// device alone.
#pragma once

#include <stdint.h>

#include "function.cuh"

// `count` rows from row `first` on, times matrix `matrix`. No rows: none.
struct GroupRows {
    uint32_t matrix, first, count;
};

// Group g has rows offsets[g] to offsets[g] + counts[g] - 1 of the m rows and matrix g. One that does not lie
// in the m rows is taken as empty.
struct CountedGroups {
    const int32_t* counts;
    const int32_t* offsets;
    uint32_t groups, m;

    WOOTZ_FN GroupRows group(uint32_t g) const {
        if (g >= groups || counts[g] <= 0 || offsets[g] < 0) return {g, 0, 0};
        const uint32_t first = offsets[g], count = counts[g];
        return {g, first, first <= m && count <= m - first ? count : 0};
    }
};

// Group g has `rows` rows and matrix indices[g]. An index that the bank does not have leaves its rows alone.
struct IndexedGroups {
    const int32_t* indices;
    uint32_t groups, rows, matrices;

    WOOTZ_FN GroupRows group(uint32_t g) const {
        const uint32_t matrix = g < groups ? indices[g] : matrices;  // a negative one is past all
        return {matrix, g * rows, matrix < matrices ? rows : 0};
    }
};

// The sum of a warp's numbers up to and with this lane's.
WOOTZ_FN uint32_t sum_up_to(uint32_t value) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t end = value;
    for (uint32_t step = 1; step < 32; step *= 2) {
        const uint32_t before = __shfl_up_sync(0xffffffffu, end, step);
        end += lane >= step ? before : 0;
    }
    return end;
}
