// Barriers, shuffles, votes and atomics. Included by device.h.
//
// Every collective takes the line of its call, so that lanes that meet in different places are told apart.
#pragma once

inline void __syncthreads(int line = __builtin_LINE()) { lanes_group_barrier(1, line); }

inline void __syncwarp(unsigned mask = ~0u, int line = __builtin_LINE()) {
    const int none = 0;
    lanes_collective(LANES_SIMD_BARRIER, mask, &none, sizeof none, 1, line);
}

inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

namespace lanes {

// Exchanges `value` and returns that of the lane `source`; what CUDA leaves undefined (a lane outside the
// mask or the SIMD group) is all ones.
template <class T>
inline T exchange(LanesOp op, unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) <= LANES_SLOT_BYTES, "value too large for a shuffle");
    const void* slots = lanes_collective(op, mask, &value, sizeof value, 0, line);
    const LanesDim size = lanes_group_size();
    const unsigned base = lanes_thread_index() / LANES_WIDTH * LANES_WIDTH;
    const bool present = base + source < size.x * size.y * size.z;
    return present && (mask >> source & 1) ? slot<T>(slots, source) : undefined_value<T>();
}

inline int lane() { return static_cast<int>(lanes_thread_index() % LANES_WIDTH); }

}  // namespace lanes

// As PTX shfl.sync has it: a source outside the segment of `width` lanes leaves the caller's own value,
// except for the indexed form, which wraps.
template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    const int segment = lanes::lane() / width * width;
    return lanes::exchange(LANES_SHUFFLE, mask, value, segment + (source & (width - 1)), line);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    const int lane = lanes::lane(), source = lane - static_cast<int>(delta);
    return lanes::exchange(LANES_SHUFFLE_UP, mask, value, source >= lane / width * width ? source : lane,
                           line);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                          int line = __builtin_LINE()) {
    const int lane = lanes::lane(), source = lane + static_cast<int>(delta);
    const int end = lane / width * width + width;
    return lanes::exchange(LANES_SHUFFLE_DOWN, mask, value, source < end ? source : lane, line);
}

template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    const int lane = lanes::lane(), source = lane ^ bits, end = lane / width * width + width;
    return lanes::exchange(LANES_SHUFFLE_XOR, mask, value, source < end ? source : lane, line);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    const void* slots = lanes_collective(LANES_VOTE, mask, &predicate, sizeof predicate, 0, line);
    const LanesDim size = lanes_group_size();
    const unsigned base = lanes_thread_index() / LANES_WIDTH * LANES_WIDTH, count = size.x * size.y * size.z;
    unsigned votes = 0;
    for (unsigned i = 0; i < LANES_WIDTH && base + i < count; ++i) {
        if (mask >> i & 1 && lanes::slot<int>(slots, i)) {
            votes |= 1u << i;
        }
    }
    return votes;
}

inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, line) == 0;
}

namespace lanes {

// An atomic read-modify-write for types that the host has no instruction for; returns the old value.
template <class Word, class T, class Update>
inline T exchange_atomically(T* place, Update update) {
    static_assert(sizeof(Word) == sizeof(T), "");
    Word* word = reinterpret_cast<Word*>(place);
    Word old = __atomic_load_n(word, __ATOMIC_RELAXED), next;
    T before;
    do {
        memcpy(static_cast<void*>(&before), &old, sizeof old);
        const T after = update(before);
        memcpy(&next, static_cast<const void*>(&after), sizeof next);
    } while (!__atomic_compare_exchange_n(word, &old, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return before;
}

}  // namespace lanes

inline int atomicAdd(int* place, int value) { return __atomic_fetch_add(place, value, __ATOMIC_RELAXED); }
inline unsigned atomicAdd(unsigned* place, unsigned value) {
    return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}
inline unsigned long long atomicAdd(unsigned long long* place, unsigned long long value) {
    return __atomic_fetch_add(place, value, __ATOMIC_RELAXED);
}
inline float atomicAdd(float* place, float value) {
    return lanes::exchange_atomically<uint32_t>(place, [=](float old) { return old + value; });
}
inline __half2 atomicAdd(__half2* place, __half2 value) {
    return lanes::exchange_atomically<uint32_t>(place, [=](__half2 old) { return __hadd2(old, value); });
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* place, __nv_bfloat162 value) {
    return lanes::exchange_atomically<uint32_t>(place,
                                                [=](__nv_bfloat162 old) { return __hadd2(old, value); });
}
inline unsigned atomicMax(unsigned* place, unsigned value) {
    return __atomic_fetch_max(place, value, __ATOMIC_RELAXED);
}
inline unsigned atomicMin(unsigned* place, unsigned value) {
    return __atomic_fetch_min(place, value, __ATOMIC_RELAXED);
}
inline unsigned atomicCAS(unsigned* place, unsigned expected, unsigned value) {
    __atomic_compare_exchange_n(place, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}
