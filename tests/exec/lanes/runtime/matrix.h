// The arithmetic of CUDA's warp-level matrix instructions, out of the kernels' own unoptimised code.
#pragma once

enum LanesMatrixKind { LANES_F16, LANES_BF16, LANES_S8, LANES_E4M3, LANES_E5M2 };

extern "C" {
// d = a * b + c of mma.m16n8k16 (16-bit elements) or .m16n8k32 (8-bit ones) for one lane.
//
// slots: what lanes_collective gave, each lane's a[4] and b[2]. c and d are four floats, or ints for
// LANES_S8. Products are exact and added one after the other, k upwards, each sum rounded to f32 (s32:
// exact).
void lanes_matrix_multiply(int kind, const void* slots, unsigned lane, const void* c, void* d);
}
