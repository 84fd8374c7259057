// Runs a grid of thread blocks, one after the other, each block's threads as fibers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "rt.h"

namespace lanes {

// How the ready threads of a block, and the blocks of a grid, take turns.
enum class Order { kForward, kReverse, kShuffled };

// Group (shared) memory, refilled with 0xff (NaN in every float type) before each block.
struct GroupArray {
    void* address;
    size_t size;
};

struct Launch {
    LanesDim grid;
    LanesDim block;
    Order order;
    void (*kernel)(void**);  // the launcher: calls the emitted kernel with its arguments
    void** arguments;
    std::vector<GroupArray> group_arrays;
};

struct Stats {
    uint64_t threads = 0;
    uint64_t switches = 0;
    uint64_t barriers = 0;
    uint64_t collectives = 0;
};

// Runs every block to the end. Errors of the kernel (divergent barrier, wrong mask, ...) do not return: see
// fail.
Stats run(const Launch& launch);

// Prints "lanes: error: ..." with the block and its threads' states, and exits with kFailed.
[[noreturn]] void fail(const char* message);

// The fiber whose guard page holds the address is out of stack: its thread index, or -1.
long overflowed_thread(const void* address);

constexpr int kFailed = 86;

}  // namespace lanes
