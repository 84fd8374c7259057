// Host twins of cutlass/bulk.cuh, put before a text that uses it.
//
// A bulk copy may write at any moment until its barrier is waited for. Here its destination becomes all ones
// when it starts and gets the data when the phase is waited for, so that a slot that is filled too early, or
// read too early, shows. A wait that would never end, and a copy that a block leaves behind, are errors.
#pragma once

#include <vector>

namespace bulk {

using Address = const uint8_t*;

struct Barrier {
    uint32_t completed : 31, made : 1;
    uint32_t expected;  // bytes of the current phase, 0 before the arrival
};

struct Copy {
    Address barrier;
    uint8_t* to;
    const void* from;
    uint32_t bytes;
};

inline std::vector<Copy> copies;
inline uint64_t of_block = 0;

inline std::vector<Copy>& under_way(int line) {
    if (of_block != lanes_block_count()) {
        of_block = lanes_block_count();
        if (!copies.empty())
            lanes_fail("a block ended while copies into its shared memory were under way", line);
    }
    return copies;
}

inline Address address_of(const void* place) { return static_cast<Address>(place); }

inline Barrier& barrier_at(Address place, int line) {
    Barrier* barrier = reinterpret_cast<Barrier*>(const_cast<uint8_t*>(place));
    if (reinterpret_cast<uintptr_t>(place) % 8) lanes_fail("a barrier is not aligned to 8 bytes", line);
    if (!barrier->made) lanes_fail("a barrier is used before it is made", line);
    return *barrier;
}

inline int lane() { return threadIdx.x % 32; }
inline bool elect() { return lane() == 0; }

inline void barrier_init(Address place) {
    *reinterpret_cast<Barrier*>(const_cast<uint8_t*>(place)) = Barrier{0, 1, 0};
}
inline void barriers_made() {}

inline void barrier_expect(Address place, uint32_t bytes, int line = __builtin_LINE()) {
    Barrier& barrier = barrier_at(place, line);
    if (bytes == 0 || barrier.expected) lanes_fail("a barrier expects nothing, or twice in a phase", line);
    barrier.expected = bytes;
}

inline void copy(Address to, const void* from, uint32_t bytes, Address barrier, int line = __builtin_LINE()) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16 || bytes == 0)
        lanes_fail("a bulk copy is not of whole aligned 16 bytes", line);
    barrier_at(barrier, line);
    uint8_t* place = const_cast<uint8_t*>(to);
    memset(place, 0xff, bytes);
    under_way(line).push_back({barrier, place, from, bytes});
}

inline void barrier_wait(Address place, uint32_t parity, int line = __builtin_LINE()) {
    Barrier& barrier = barrier_at(place, line);
    if ((barrier.completed & 1) != parity) return;  // the phase of this parity has ended
    uint32_t delivered = 0;
    std::vector<Copy> rest;
    for (const Copy& each : under_way(line)) {
        if (each.barrier == place) {
            memcpy(each.to, each.from, each.bytes);
            delivered += each.bytes;
        } else {
            rest.push_back(each);
        }
    }
    if (barrier.expected == 0 || delivered != barrier.expected) lanes_fail("this wait never ends", line);
    copies = rest;
    barrier.expected = 0;
    barrier.completed++;
}

inline void previous_grid_wait() {}
inline void next_grid_launch() {}

inline lanes::Uint4 load_16(const void* from) { return *static_cast<const lanes::Uint4*>(from); }

inline void load_matrices(uint32_t (&result)[4], Address row, int line = __builtin_LINE()) {
    lanes::load_matrices(result, row, false, line);
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

}  // namespace bulk
