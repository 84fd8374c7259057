// Barriers, SIMD-group functions and atomics.
//
// Every collective takes the line of its call, so that lanes that meet in different places are told apart.
#pragma once

#include "../runtime/rt.h"
#include "math.h"

namespace metal {

enum class mem_flags {
    mem_none = 0,
    mem_device = 1,
    mem_threadgroup = 2,
    mem_texture = 4,
    mem_threadgroup_imageblock = 8
};
METAL_FUNC mem_flags operator|(mem_flags a, mem_flags b) { return mem_flags(int(a) | int(b)); }

METAL_FUNC void threadgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
    lanes_group_barrier(int(flags), line);
}

METAL_FUNC void simdgroup_barrier(mem_flags flags, int line = __builtin_LINE()) {
    int none = 0;
    lanes_collective(LANES_SIMD_BARRIER, 0, &none, sizeof(none), int(flags), line);
}

METAL_FUNC uint lanes_lane() { return lanes_thread_index() % LANES_WIDTH; }

// Lanes present in this thread's SIMD group: fewer in a ragged last one.
METAL_FUNC uint lanes_present() {
    LanesDim size = lanes_group_size();
    uint rest = size.x * size.y * size.z - lanes_thread_index() / LANES_WIDTH * LANES_WIDTH;
    return rest < LANES_WIDTH ? rest : LANES_WIDTH;
}

template <class T>
METAL_FUNC T lanes_slot(LANES_PRIVATE void* slots, uint lane) {
    return *(LANES_PRIVATE T*)((LANES_PRIVATE char*)slots + LANES_SLOT_BYTES * lane);
}

template <class T>
METAL_FUNC LANES_PRIVATE void* lanes_gather(int op, T value, int line) {
    static_assert(sizeof(T) <= LANES_SLOT_BYTES, "value too large for a SIMD-group function");
    return lanes_collective(op, 0, &value, sizeof(T), 0, line);
}

#define LANES_REDUCTION(name, expression)                                    \
    template <class T>                                                       \
    METAL_FUNC T name(T value, int line = __builtin_LINE()) {                \
        LANES_PRIVATE void* slots = lanes_gather(LANES_REDUCE, value, line); \
        T a = lanes_slot<T>(slots, 0);                                       \
        for (uint i = 1; i < lanes_present(); ++i) {                         \
            T b = lanes_slot<T>(slots, i);                                   \
            a = expression;                                                  \
        }                                                                    \
        return a;                                                            \
    }
LANES_REDUCTION(simd_sum, a + b)
LANES_REDUCTION(simd_max, max(a, b))
LANES_REDUCTION(simd_min, min(a, b))
#undef LANES_REDUCTION

// The value of a lane; all ones where Metal leaves it undefined (a lane that is not there).
template <class T>
METAL_FUNC T lanes_exchange(int op, T value, uint source, int line) {
    LANES_PRIVATE void* slots = lanes_gather(op, value, line);
    if (source < lanes_present()) {
        return lanes_slot<T>(slots, source);
    }
    T undefined;
    for (uint i = 0; i < sizeof(T); ++i) {
        ((LANES_PRIVATE char*)&undefined)[i] = (char)0xff;
    }
    return undefined;
}

template <class T>
METAL_FUNC T simd_shuffle(T value, ushort lane, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE, value, lane, line);
}
template <class T>
METAL_FUNC T simd_broadcast(T value, ushort lane, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE, value, lane, line);
}
template <class T>
METAL_FUNC T simd_broadcast_first(T value, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE, value, 0, line);
}
template <class T>
METAL_FUNC T simd_shuffle_down(T value, ushort delta, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE_DOWN, value, lanes_lane() + delta, line);
}
template <class T>
METAL_FUNC T simd_shuffle_up(T value, ushort delta, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE_UP, value, lanes_lane() - delta, line);
}
template <class T>
METAL_FUNC T simd_shuffle_xor(T value, ushort mask, int line = __builtin_LINE()) {
    return lanes_exchange(LANES_SHUFFLE_XOR, value, lanes_lane() ^ mask, line);
}

METAL_FUNC ulong lanes_votes(bool condition, int line) {
    int vote = condition;
    LANES_PRIVATE void* slots = lanes_gather(LANES_VOTE, vote, line);
    ulong votes = 0;
    for (uint i = 0; i < lanes_present(); ++i) {
        votes |= (ulong)lanes_slot<int>(slots, i) << i;
    }
    return votes;
}
METAL_FUNC bool simd_any(bool condition, int line = __builtin_LINE()) {
    return lanes_votes(condition, line) != 0;
}
METAL_FUNC bool simd_all(bool condition, int line = __builtin_LINE()) {
    return lanes_votes(!condition, line) == 0;
}

typedef enum { memory_order_relaxed = __ATOMIC_RELAXED } memory_order;

template <class T>
struct _atomic {
    T value;
};
typedef _atomic<uint> atomic_uint;
typedef _atomic<int> atomic_int;
typedef _atomic<float> atomic_float;

#define LANES_ATOMIC(space)                                                                                  \
    METAL_FUNC uint atomic_fetch_add_explicit(volatile space atomic_uint* place, uint value, memory_order) { \
        return __atomic_fetch_add(&place->value, value, __ATOMIC_RELAXED);                                   \
    }                                                                                                        \
    METAL_FUNC int atomic_fetch_add_explicit(volatile space atomic_int* place, int value, memory_order) {    \
        return __atomic_fetch_add(&place->value, value, __ATOMIC_RELAXED);                                   \
    }                                                                                                        \
    METAL_FUNC float atomic_fetch_add_explicit(volatile space atomic_float* place, float value,              \
                                               memory_order) {                                               \
        volatile space uint* word = (volatile space uint*)place;                                             \
        uint old = __atomic_load_n(word, __ATOMIC_RELAXED);                                                  \
        while (!__atomic_compare_exchange_n(word, &old, as_type<uint>(as_type<float>(old) + value), false,   \
                                            __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {                           \
        }                                                                                                    \
        return as_type<float>(old);                                                                          \
    }
LANES_ATOMIC(__global)
LANES_ATOMIC(__local)
#undef LANES_ATOMIC

}  // namespace metal
