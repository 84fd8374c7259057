// Host twins of cutlass/sm90.cuh, put before a text that uses it.
//
// A copy may write at any moment until its barrier is waited for. Here its destination becomes all ones when
// it starts and gets the data when the phase is waited for, so that a slot that is filled or read too early
// shows. Waits that never end, and copies that a block leaves behind, are errors.
//
// All lanes of a warp come to its copies, arrivals with bytes, and waits; the first of them acts. One that
// waits lets other warps run by meeting its own.
#pragma once

#include <vector>

namespace sm90 {

struct alignas(8) Barrier {
    uint32_t expected;
    uint32_t arrivals : 10, missing : 10, completed : 4, made : 8;
    static constexpr uint32_t yes = 0x5a;
};

// An array as a tensor map has it: dims innermost first, strides and elements in bytes, box in elements.
// Boxes have rows of 128 bytes where they are swizzled.
struct TensorMap {
    const void* data;
    uint64_t dims[3], strides[2];
    uint32_t box[3], element = 2;
    bool swizzle = true;
};

struct Copy {
    uint32_t to, barrier, bytes;
    const uint8_t* from;   // of a bulk copy
    const TensorMap* map;  // of a box
    uint32_t at[3];
};

// What a block has under way.
struct State {
    uint64_t block = 0, idle = 0;
    uint8_t* origin = nullptr;
    std::vector<Copy> copies;
};
inline State state;

inline State& now(int line) {
    if (state.block != lanes_block_count()) {
        if (!state.copies.empty())
            lanes_fail("a block ended while copies into its shared memory were under way", line);
        state = {};
        state.block = lanes_block_count();
    }
    return state;
}

inline int lane_id() { return threadIdx.x % 32; }
inline bool elect() { return lane_id() == 0; }

}  // namespace sm90

// ---- shared memory: addresses count from a 1024-byte boundary at or before the first that a block asks for

inline uint32_t shared_address(const void* place, int line = __builtin_LINE()) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(place);
    uint8_t*& origin = sm90::now(line).origin;
    if (!origin) origin = reinterpret_cast<uint8_t*>(at & ~uintptr_t{1023});
    return static_cast<uint32_t>(at - reinterpret_cast<uintptr_t>(origin));
}

namespace sm90 {

inline uint8_t* shared_place(uint32_t address) { return state.origin + static_cast<int32_t>(address); }
inline uint32_t swizzled(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// ---- barriers

inline Barrier& barrier_at(uint32_t address, int line) {
    now(line);
    if (address % 8) lanes_fail("a barrier is not aligned to 8 bytes", line);
    Barrier& barrier = *reinterpret_cast<Barrier*>(shared_place(address));
    if (barrier.made != Barrier::yes) lanes_fail("a barrier is used before it is made", line);
    return barrier;
}

inline Barrier barrier_of(int arrivals) {
    const uint32_t count = static_cast<uint32_t>(arrivals);
    return {0, count, count, 0, Barrier::yes};
}

inline void barrier_init(uint32_t address, int arrivals) {
    *reinterpret_cast<Barrier*>(shared_place(address)) = barrier_of(arrivals);
}
inline void barriers_made() {}

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
    if (elect()) arrive(address, bytes, line);
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
            for (uint32_t x = 0; x < map.box[0]; x++, to += map.element) {
                const uint64_t at[3] = {uint64_t{copy.at[0]} + x, uint64_t{copy.at[1]} + y,
                                        uint64_t{copy.at[2]} + z};
                const bool inside = at[0] < map.dims[0] && at[1] < map.dims[1] && at[2] < map.dims[2];
                const uint8_t* from = static_cast<const uint8_t*>(map.data) + at[0] * map.element +
                                      at[1] * map.strides[0] + at[2] * map.strides[1];
                uint8_t* place = shared_place(map.swizzle ? swizzled(to) : to);
                if (inside) {
                    memcpy(place, from, map.element);
                } else {
                    memset(place, 0, map.element);
                }
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
        const int mine = elect() && done();
        if (lanes::slot<int>(lanes_collective(LANES_VOTE, ~0u, &mine, sizeof mine, 0, line), 0)) return;
        pause(line);
    }
}

inline void barrier_wait(uint32_t address, uint32_t parity, int line = __builtin_LINE()) {
    wait_until([&] { return ended(address, parity, line); }, line);
}

// ---- copies

inline void start(const Copy& copy, uint32_t aligned, int line) {
    if (!elect()) return;
    const uintptr_t from = reinterpret_cast<uintptr_t>(copy.from);
    if (copy.to % aligned || copy.bytes == 0 || (!copy.map && (from | copy.bytes) % 16))
        lanes_fail("a copy into shared memory is empty or not aligned", line);
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
    const uint32_t bytes = map->box[0] * map->box[1] * map->box[2] * map->element;
    if (map->swizzle && map->box[0] * map->element != 128)
        lanes_fail("a swizzled box has rows of other than 128 bytes", line);
    start({to, barrier, bytes, nullptr, map, {x, y, z}}, map->swizzle ? 1024 : 128, line);
}
inline void copy_tensor(uint32_t to, const TensorMap* map, uint32_t x, uint32_t y, uint32_t barrier,
                        int line = __builtin_LINE()) {
    copy_tensor(to, map, x, y, 0, barrier, line);
}
template <int Bytes>
inline void cp_async(void* to, const void* from, int line = __builtin_LINE()) {
    lanes::start_copy(to, from, Bytes, Bytes, line);
}
inline void prefetch_map(const TensorMap*) {}

// ---- the rest

inline void previous_grid_wait() {}
inline void next_grid_launch() {}

inline lanes::Uint4 load_16(const void* from) { return *static_cast<const lanes::Uint4*>(from); }

inline void load_matrices(uint32_t (&result)[4], uint32_t row, int line = __builtin_LINE()) {
    lanes::load_matrices(result, shared_place(row), false, line);
}

inline uint32_t warp_max(uint32_t value) {
    for (int bits = 16; bits; bits /= 2) {
        const uint32_t other = __shfl_xor_sync(0xffffffff, value, bits);
        value = value < other ? other : value;
    }
    return value;
}

inline uint32_t max_pair(uint32_t a, uint32_t b) {
    const uint32_t low = (a & 0xffff) < (b & 0xffff) ? b : a, high = a >> 16 < b >> 16 ? b : a;
    return (low & 0xffff) | (high & 0xffff0000);
}

}  // namespace sm90
