// Host twins of cutlass/wgmma.cuh, put after those of sm90.cuh and before a text that uses it.
//
// A product is done when it is waited for, from what its registers and shared memory hold then. So registers
// that change too early show.
#pragma once

#include <algorithm>
#include <map>
#include <vector>

namespace fragment {
struct Bfloat;
struct Half;
}  // namespace fragment

namespace warpgroup {

using namespace sm90;

// a: of registers, or none, and then of the descriptor `left`. add: to what the sums hold.
struct Product {
    LanesMatrixKind kind;
    int columns;
    float* sums;
    const uint32_t* a;
    uint64_t b, left = 0;
    bool add = true;
};

// What a block has under way, beside copies.
struct Products {
    uint64_t block = 0;
    std::map<int, Barrier> named;
    std::vector<std::vector<Product>> of[1024];  // of a thread, by group; the last is being made
};
inline Products products;

inline Products& products_now() {
    if (products.block != lanes_block_count()) {
        products.block = lanes_block_count();
        products.named.clear();
        for (auto& groups : products.of) groups.assign(1, {});
    }
    return products;
}

inline bool copies_for_warp() { return true; }

template <int Threads>
inline void named_barrier(int id, int line = __builtin_LINE()) {
    if (id < 1 || id > 15) lanes_fail("no such named barrier", line);
    Barrier& barrier = products_now().named.try_emplace(id, barrier_of(Threads)).first->second;
    if (barrier.arrivals != Threads) lanes_fail("a named barrier has another number of threads", line);
    const uint32_t phase = barrier.completed;
    now(line).idle = 0;
    if (--barrier.missing == 0) turn(barrier);
    wait_until([&] { return barrier.completed != phase; }, line);
}

// ---- products

template <int Columns, class Type>
struct Wgmma {
    static void multiply(float (&sums)[Columns / 2], const uint32_t (&a)[4], uint64_t b,
                         int line = __builtin_LINE()) {
        constexpr LanesMatrixKind kind = std::is_same_v<Type, fragment::Half> ? LANES_F16 : LANES_BF16;
        products_now().of[threadIdx.x].back().push_back({kind, Columns, sums, a, b});
    }
};

template <int Columns>
struct WgmmaShared {
    template <bool Add>
    static void multiply(float (&sums)[Columns / 2], uint64_t a, uint64_t b) {
        products_now().of[threadIdx.x].back().push_back({LANES_E4M3, Columns, sums, nullptr, b, a, Add});
    }
};

// Two registers of a lane for 8 rows, those from `first` on, of a matrix in shared memory: rows of 128
// swizzled bytes, 8 of them a kilobyte.
inline void operand(uint32_t (&of)[2], uint64_t descriptor, int first, int line) {
    if (descriptor >> 32 != (64 | 1u << 30)) lanes_fail("a descriptor is not of swizzled kilobytes", line);
    const int lane = threadIdx.x % 32, row = first + lane / 4;
    const uint32_t at = (descriptor & 0x3fff) * 16 + row / 8 * 1024 + row % 8 * 128 + lane % 4 * 4;
    memcpy(&of[0], shared_place(swizzled(at)), 4);
    memcpy(&of[1], shared_place(swizzled(at + 16)), 4);
}

// Operand A's registers, of its own or of shared memory.
inline void operand_a(uint32_t (&a)[4], const Product& product, int line) {
    if (product.a) {
        memcpy(a, product.a, sizeof a);
        return;
    }
    const int first = threadIdx.x / 32 % 4 * 16;
    for (int half = 0; half < 2; half++) {
        uint32_t of[2];
        operand(of, product.left, first + 8 * half, line);
        a[half] = of[0];
        a[2 + half] = of[1];
    }
}

inline void wgmma_fence() {}
inline void wgmma_commit() { products_now().of[threadIdx.x].emplace_back(); }

template <int Groups>
inline void wgmma_wait(int line = __builtin_LINE()) {
    auto& groups = products_now().of[threadIdx.x];
    if (!groups.back().empty()) lanes_fail("products are not committed", line);
    while (groups.size() > Groups + 1) {
        for (const Product& each : groups.front()) {
            uint32_t a[4];
            operand_a(a, each, line);
            if (!each.add) std::fill_n(each.sums, each.columns / 2, 0.0f);
            for (int i = 0; i < each.columns / 8; i++) {
                float (&sums)[4] = *reinterpret_cast<float (*)[4]>(each.sums + 4 * i);
                uint32_t b[2];
                operand(b, each.b, 8 * i, line);
                lanes::multiply<float>(each.kind, sums, a, b, sums, line);
            }
        }
        groups.erase(groups.begin());
    }
}

template <int Count>
inline void settle(float (&)[Count]) {}

inline int anew(int value) { return value; }
inline uint32_t kept(uint32_t value) { return value; }

inline uint32_t both_low(uint32_t pair) { return (pair & 0xffff) * 0x10001; }
inline uint32_t both_high(uint32_t pair) { return (pair >> 16) * 0x10001; }

// ---- the rest

template <int Registers>
inline void registers_grow() {}
template <int Registers>
inline void registers_shrink() {}

struct Transposed {
    uint32_t address, words[4];
};

inline void store_transposed(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                             int line = __builtin_LINE()) {
    if (address % 16) lanes_fail("stmatrix: row address not aligned to 16 bytes", line);
    const Transposed mine = {address, {a, b, c, d}};
    const void* slots = lanes_collective(LANES_MATRIX_LOAD, ~0u, &mine, sizeof mine, 0, line);
    const int lane = threadIdx.x % 32;
    for (int i = 0; i < 8; i++) {  // matrix i / 2, half i % 2 of this lane's register
        const int row = lane % 4 * 2 + i % 2, matrix = i / 2;
        const uint16_t value = static_cast<uint16_t>(mine.words[matrix] >> 16 * (i % 2));
        const uint32_t to = lanes::slot<Transposed>(slots, 8 * matrix + row).address + lane / 4 * 2;
        memcpy(shared_place(to), &value, 2);
    }
}

inline void add_release(uint32_t* counter, uint32_t value) { atomicAdd(counter, value); }
inline uint32_t load_acquire(const uint32_t* counter) { return *counter; }

}  // namespace warpgroup
