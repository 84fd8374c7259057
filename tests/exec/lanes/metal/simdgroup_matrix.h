// 8x8 SIMD-group matrices. A lane holds one row's two neighbouring elements, placed as MLX's fragments are.
#pragma once

#include "simd.h"

namespace metal {

template <class T, int Rows, int Columns>
struct simdgroup_matrix {
    static_assert(Rows == 8 && Columns == 8, "SIMD-group matrices are 8x8");
    vec<T, 2> elements;

    simdgroup_matrix() { elements = (vec<T, 2>)(T)NAN; }  // undefined in Metal
    explicit simdgroup_matrix(T diagonal) {
        elements = (vec<T, 2>)(T)0;
        uint2 at = place();
        if (at.x == at.y) {
            elements[0] = diagonal;
        }
        if (at.x == at.y + 1) {
            elements[1] = diagonal;
        }
    }
    __private vec<T, 2>& thread_elements() { return elements; }

    // (row, first column) of this lane's elements.
    static uint2 place() {
        uint lane = lanes_lane(), quad = lane / 4;
        uint2 at;
        at.x = (quad & 4) + lane / 2 % 4;
        at.y = (quad & 2) * 2 + lane % 2 * 2;
        return at;
    }
    // The lane that holds an element; the inverse of place().
    static uint lane_of(uint row, uint column) {
        return (((row & 4) | (column >> 1 & 2)) << 2) | (row & 3) << 1 | (column >> 1 & 1);
    }
};

METAL_FUNC void lanes_meet(int op, int line) {
    int none = 0;
    lanes_gather(op, none, line);
}

template <class T, int Rows, int Columns>
METAL_FUNC simdgroup_matrix<T, Rows, Columns> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Rows, Columns> result;
    result.elements = (vec<T, 2>)value;
    return result;
}

template <class T, class Pointer>
METAL_FUNC void simdgroup_load(__private simdgroup_matrix<T, 8, 8>& matrix, Pointer from, ulong stride = 8,
                               ulong2 origin = (ulong2)0, bool transposed = false,
                               int line = __builtin_LINE()) {
    lanes_meet(LANES_MATRIX_LOAD, line);
    uint2 at = matrix.place();
    for (int i = 0; i < 2; ++i) {
        ulong row = at.x, column = at.y + i;
        matrix.elements[i] = transposed ? from[(origin.y + column) * stride + origin.x + row]
                                        : from[(origin.y + row) * stride + origin.x + column];
    }
}

template <class T, class Pointer>
METAL_FUNC void simdgroup_store(simdgroup_matrix<T, 8, 8> matrix, Pointer to, ulong stride = 8,
                                ulong2 origin = (ulong2)0, bool transposed = false,
                                int line = __builtin_LINE()) {
    lanes_meet(LANES_MATRIX_LOAD, line);
    uint2 at = matrix.place();
    for (int i = 0; i < 2; ++i) {
        ulong row = at.x, column = at.y + i;
        to[transposed ? (origin.y + column) * stride + origin.x + row
                      : (origin.y + row) * stride + origin.x + column] = matrix.elements[i];
    }
}

// d = a * b + c
template <class D, class A, class B, class C>
METAL_FUNC void simdgroup_multiply_accumulate(__private simdgroup_matrix<D, 8, 8>& d,
                                              simdgroup_matrix<A, 8, 8> a, simdgroup_matrix<B, 8, 8> b,
                                              simdgroup_matrix<C, 8, 8> c, int line = __builtin_LINE()) {
    float4 mine;
    mine.x = a.elements[0];
    mine.y = a.elements[1];
    mine.z = b.elements[0];
    mine.w = b.elements[1];
    LANES_PRIVATE void* slots = lanes_gather(LANES_MATRIX, mine, line);
    uint2 at = d.place();
    float sum0 = c.elements[0], sum1 = c.elements[1];
    for (uint k = 0; k < 8; ++k) {
        float4 left = lanes_slot<float4>(slots, d.lane_of(at.x, k));
        float4 right = lanes_slot<float4>(slots, d.lane_of(k, at.y));
        float factor = k & 1 ? left.y : left.x;
        sum0 += factor * right.z;
        sum1 += factor * right.w;
    }
    d.elements[0] = (D)sum0;
    d.elements[1] = (D)sum1;
}

}  // namespace metal

typedef metal::simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef metal::simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef metal::simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;
