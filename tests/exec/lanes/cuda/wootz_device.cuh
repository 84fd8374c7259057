// Host twins of the named device helpers that hold inline PTX (the emission rules keep PTX out of kernels).
// Same names and signatures; the fragment layouts are the PTX ISA's. They agree with an H200 to 1.4e-6.
#pragma once

#include <cstddef>
#include <vector>

#include "../runtime/matrix.h"

namespace lanes {

struct MmaOperands {
    uint32_t a[4];
    uint32_t b[2];
};

template <class Sum>
inline void multiply(LanesMatrixKind kind, Sum (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                     const Sum (&c)[4], int line) {
    const MmaOperands mine = {{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
    const void* slots = lanes_collective(LANES_MATRIX, ~0u, &mine, sizeof mine, 0, line);
    lanes_matrix_multiply(kind, slots, static_cast<unsigned>(lane()), c, d);
}

}  // namespace lanes

#define LANES_MMA(name, Sum, kind)                                                                 \
    inline void name(Sum(&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Sum(&c)[4], \
                     int line = __builtin_LINE()) {                                                \
        lanes::multiply<Sum>(kind, d, a, b, c, line);                                              \
    }
LANES_MMA(mma_m16n8k16_f16_f32, float, LANES_F16)
LANES_MMA(mma_m16n8k16_bf16_f32, float, LANES_BF16)
LANES_MMA(mma_m16n8k32_e4m3_f32, float, LANES_E4M3)
LANES_MMA(mma_m16n8k32_e5m2_f32, float, LANES_E5M2)
LANES_MMA(mma_m16n8k32_s8_s32, int, LANES_S8)
#undef LANES_MMA

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

namespace lanes {

// An asynchronous copy may write at any moment until it is waited for. Here its destination becomes all ones
// (NaN) when it starts and gets the data when its group is waited for: a wait that is missing, or a buffer
// that is filled while it is still read, shows in the result and to the thread sanitizer.
struct AsyncCopy {
    void* to;
    const void* from;
    uint32_t bytes;
    uint32_t size;
};

// The copies of one thread, by group; the last group is the one being made.
struct AsyncCopies {
    uint64_t block = 0;
    std::vector<std::vector<AsyncCopy>> groups;
};
inline AsyncCopies async_copies[1024];

inline AsyncCopies& own_copies() {
    AsyncCopies& own = async_copies[lanes_thread_index()];
    if (own.block != lanes_block_count()) {
        own.block = lanes_block_count();
        own.groups.assign(1, {});
    }
    return own;
}

inline void start_copy(void* to, const void* from, uint32_t bytes, uint32_t size, int line) {
    if (reinterpret_cast<uintptr_t>(to) % size || (bytes && reinterpret_cast<uintptr_t>(from) % size)) {
        lanes_fail("cp.async: address not aligned to the size of the copy", line);
    }
    if (bytes > size) {
        lanes_fail("cp.async: more source bytes than the copy has", line);
    }
    memset(to, 0xff, size);
    own_copies().groups.back().push_back({to, from, bytes, size});
}

inline void wait_for_copies(size_t left) {
    std::vector<std::vector<AsyncCopy>>& groups = own_copies().groups;
    while (groups.size() > left + 1) {
        for (const AsyncCopy& copy : groups.front()) {
            memset(copy.to, 0, copy.size);
            memcpy(copy.to, copy.from, copy.bytes);
        }
        groups.erase(groups.begin());
    }
}

}  // namespace lanes

inline void cp_async_16(void* to, const void* from, uint32_t bytes, int line = __builtin_LINE()) {
    lanes::start_copy(to, from, bytes, 16, line);
}
inline void cp_async_commit() { lanes::own_copies().groups.emplace_back(); }
template <int Left>
inline void cp_async_wait() {
    lanes::wait_for_copies(Left);
}

inline lanes::Uint4 load_once_16(const void* from) { return *static_cast<const lanes::Uint4*>(from); }
