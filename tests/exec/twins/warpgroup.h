// Host twins of cutlass/wgmma.cuh, put before a text that uses it.
//
// What is asynchronous happens as late as it may: a copy's destination becomes all ones when it starts and
// gets the data when the phase is waited for; a product is done when it is waited for, from what its
// registers and shared memory hold then. So a slot that is filled or read too early, or registers that change
// too early, show. Waits that never end, and copies that a block leaves behind, are errors.
//
// A lane that waits lets others run by meeting those of its warp: all of them come here together.
#pragma once

#include <map>
#include <vector>

namespace fragment {
struct Bfloat;
struct Half;
}  // namespace fragment

namespace warpgroup {

struct Barrier {
    uint32_t arrivals, missing, completed, expected;
};

// x as a tensor map has it: dims innermost first, strides in bytes, box in elements; 16-bit elements in rows
// of 128 bytes, swizzled.
struct TensorMap {
    const void* data;
    uint64_t dims[3], strides[2];
    uint32_t box[3];
};

struct Copy {
    uint32_t to, barrier, bytes;
    const uint8_t* from;   // of a bulk copy
    const TensorMap* map;  // of a box
    uint32_t at[3];
};

struct Product {
    LanesMatrixKind kind;
    int columns;
    float* sums;
    const uint32_t* a;
    uint64_t b;
};

// What a block has under way.
struct State {
    uint64_t block = 0, idle = 0;
    uint8_t* origin = nullptr;
    std::map<uint32_t, Barrier> barriers;
    std::map<int, Barrier> named;
    std::vector<Copy> copies;
    std::vector<std::vector<Product>> products[1024];  // of a thread, by group; the last is being made
};
inline State state;

inline State& now(int line) {
    if (state.block != lanes_block_count()) {
        if (!state.copies.empty())
            lanes_fail("a block ended while copies into its shared memory were under way", line);
        state.block = lanes_block_count();
        state.idle = 0;
        state.barriers.clear();
        state.named.clear();
        for (auto& groups : state.products) groups.assign(1, {});
    }
    return state;
}

inline bool first_lane() { return threadIdx.x % 32 == 0; }
inline bool copies_for_warp() { return true; }

// ---- shared memory: addresses count from a 1024-byte boundary at or before the block's first byte

inline uint32_t shared_address(const void* pointer) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(pointer);
    if (!state.origin) state.origin = reinterpret_cast<uint8_t*>(at & ~uintptr_t{1023});
    return static_cast<uint32_t>(at - reinterpret_cast<uintptr_t>(state.origin));
}
inline uint8_t* shared_place(uint32_t address) { return state.origin + address; }
inline uint32_t swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// ---- barriers

inline Barrier& barrier_at(uint32_t address, int line) {
    const auto found = now(line).barriers.find(address);
    if (address % 8) lanes_fail("a barrier is not aligned to 8 bytes", line);
    if (found == state.barriers.end()) lanes_fail("a barrier is used before it is made", line);
    return found->second;
}

inline void barrier_init(uint32_t address, int arrivals, int line = __builtin_LINE()) {
    const uint32_t count = static_cast<uint32_t>(arrivals);
    now(line).barriers[address] = {count, count, 0, 0};
}
inline void barrier_init_visible() {}

inline void turn(Barrier& barrier) {
    barrier.missing = barrier.arrivals;
    barrier.expected = 0;
    barrier.completed++;
}

inline void arrive(uint32_t address, uint32_t bytes, int line) {
    Barrier& barrier = barrier_at(address, line);
    if (barrier.missing == 0) lanes_fail("a barrier has more arrivals in a phase than it was made for", line);
    barrier.missing--;
    barrier.expected += bytes;
    state.idle = 0;
    if (barrier.missing == 0 && barrier.expected == 0) turn(barrier);
}

inline void barrier_expect(uint32_t address, uint32_t bytes, int line = __builtin_LINE()) {
    if (first_lane()) arrive(address, bytes, line);
}
inline void barrier_arrive(uint32_t address, int line = __builtin_LINE()) { arrive(address, 0, line); }

inline void deliver(const Copy& copy) {
    if (!copy.map) {
        memcpy(shared_place(copy.to), copy.from, copy.bytes);
        return;
    }
    const TensorMap& map = *copy.map;
    uint32_t to = copy.to;
    for (uint32_t z = 0; z < map.box[2]; z++)
        for (uint32_t y = 0; y < map.box[1]; y++)
            for (uint32_t x = 0; x < map.box[0]; x++, to += 2) {
                const uint64_t at[3] = {uint64_t{copy.at[0]} + x, uint64_t{copy.at[1]} + y,
                                        uint64_t{copy.at[2]} + z};
                const bool inside = at[0] < map.dims[0] && at[1] < map.dims[1] && at[2] < map.dims[2];
                const uint8_t* from = static_cast<const uint8_t*>(map.data) + at[0] * 2 +
                                      at[1] * map.strides[0] + at[2] * map.strides[1];
                uint16_t value = 0;
                if (inside) memcpy(&value, from, 2);
                memcpy(shared_place(swizzled(to)), &value, 2);
            }
}

// Whether the phase has ended; it does when all have arrived and copies of the bytes expected are here.
inline bool ended(uint32_t address, uint32_t parity, int line) {
    Barrier& barrier = barrier_at(address, line);
    if ((barrier.completed & 1) != parity) return true;
    if (barrier.missing) return false;
    uint32_t bytes = 0;
    for (const Copy& each : state.copies) bytes += each.barrier == address ? each.bytes : 0;
    if (bytes > barrier.expected) lanes_fail("copies bring more than their barrier expects", line);
    if (bytes != barrier.expected) return false;
    std::vector<Copy> rest;
    for (const Copy& each : state.copies) {
        if (each.barrier == address) {
            deliver(each);
        } else {
            rest.push_back(each);
        }
    }
    state.copies = rest;
    state.idle = 0;
    turn(barrier);
    return true;
}

// Lets other warps run.
inline void pause(int line) {
    if (++state.idle > 1000000) lanes_fail("this wait never ends", line);
    const int none = 0;
    lanes_collective(LANES_SIMD_BARRIER, ~0u, &none, sizeof none, 0, line);
}

// For a warp, its first lane looks; so all go on together.
template <class Done>
inline void wait_until(Done done, int line) {
    for (;;) {
        const int mine = first_lane() && done();
        if (lanes::slot<int>(lanes_collective(LANES_VOTE, ~0u, &mine, sizeof mine, 0, line), 0)) return;
        pause(line);
    }
}

inline void barrier_wait(uint32_t address, uint32_t parity, int line = __builtin_LINE()) {
    wait_until([&] { return ended(address, parity, line); }, line);
}

template <int Threads>
inline void named_barrier(int id, int line = __builtin_LINE()) {
    if (id < 1 || id > 15) lanes_fail("no such named barrier", line);
    Barrier& barrier = now(line).named[id];
    if (barrier.arrivals == 0) barrier = {Threads, Threads, 0, 0};
    if (barrier.arrivals != Threads) lanes_fail("a named barrier has another number of threads", line);
    const uint32_t phase = barrier.completed;
    state.idle = 0;
    if (--barrier.missing == 0) turn(barrier);
    wait_until([&] { return barrier.completed != phase; }, line);
}

// ---- copies

inline void start(const Copy& copy, uint32_t aligned, int line) {
    if (!first_lane()) return;
    if (copy.to % aligned || (!copy.map && (reinterpret_cast<uintptr_t>(copy.from) | copy.bytes) % 16))
        lanes_fail("a copy into shared memory is not aligned", line);
    barrier_at(copy.barrier, line);
    memset(shared_place(copy.to), 0xff, copy.bytes);
    state.idle = 0;
    state.copies.push_back(copy);
}

inline void copy_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                      int line = __builtin_LINE()) {
    start({to, barrier, bytes, static_cast<const uint8_t*>(from), nullptr, {}}, 16, line);
}

inline void copy_tensor(uint32_t to, const TensorMap* map, uint32_t x, uint32_t y, uint32_t z,
                        uint32_t barrier, int line = __builtin_LINE()) {
    start({to, barrier, map->box[0] * map->box[1] * map->box[2] * 2, nullptr, map, {x, y, z}}, 1024, line);
}
inline void copy_tensor(uint32_t to, const TensorMap* map, uint32_t x, uint32_t y, uint32_t barrier,
                        int line = __builtin_LINE()) {
    copy_tensor(to, map, x, y, 0, barrier, line);
}
inline void prefetch_map(const TensorMap*) {}

// ---- products

template <int Columns, class Type>
struct Wgmma {
    static void multiply(float (&sums)[Columns / 2], const uint32_t (&a)[4], uint64_t b,
                         int line = __builtin_LINE()) {
        constexpr LanesMatrixKind kind = std::is_same_v<Type, fragment::Half> ? LANES_F16 : LANES_BF16;
        now(line).products[threadIdx.x].back().push_back({kind, Columns, sums, a, b});
    }
};

// Operand B's two registers of a lane for 8 columns: rows of 128 swizzled bytes, 8 of them a kilobyte.
inline void operand_b(uint32_t (&b)[2], uint64_t descriptor, int first, int line) {
    if (descriptor >> 32 != (64 | 1u << 30)) lanes_fail("a descriptor is not of swizzled kilobytes", line);
    const int lane = threadIdx.x % 32, column = first + lane / 4;
    const uint32_t at = (descriptor & 0x3fff) * 16 + column / 8 * 1024 + column % 8 * 128 + lane % 4 * 4;
    memcpy(&b[0], shared_place(swizzled(at)), 4);
    memcpy(&b[1], shared_place(swizzled(at + 16)), 4);
}

inline void wgmma_fence() {}
inline void wgmma_commit(int line = __builtin_LINE()) { now(line).products[threadIdx.x].emplace_back(); }

template <int Groups>
inline void wgmma_wait(int line = __builtin_LINE()) {
    auto& groups = now(line).products[threadIdx.x];
    if (!groups.back().empty()) lanes_fail("products are not committed", line);
    while (groups.size() > Groups + 1) {
        for (const Product& each : groups.front()) {
            const uint32_t (&a)[4] = *reinterpret_cast<const uint32_t (*)[4]>(each.a);
            for (int i = 0; i < each.columns / 8; i++) {
                float (&sums)[4] = *reinterpret_cast<float (*)[4]>(each.sums + 4 * i);
                uint32_t b[2];
                operand_b(b, each.b, 8 * i, line);
                lanes::multiply<float>(each.kind, sums, a, b, sums, line);
            }
        }
        groups.erase(groups.begin());
    }
}

template <int Count>
inline void settle(float (&)[Count]) {}

inline int anew(int value) { return value; }

inline uint32_t both_low(uint32_t pair) { return (pair & 0xffff) * 0x10001; }
inline uint32_t both_high(uint32_t pair) { return (pair >> 16) * 0x10001; }

// ---- the rest

template <int Registers>
inline void registers_grow() {}
template <int Registers>
inline void registers_shrink() {}
inline void previous_grid_wait() {}
inline void next_grid_launch() {}

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
