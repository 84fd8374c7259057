#include "grid.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>

#include "fiber.h"

namespace lanes {
namespace {

constexpr unsigned kWidth = LANES_WIDTH;
constexpr unsigned kSlots = kWidth + 1;  // one result may be held by each lane, and one is being filled
constexpr unsigned kNoSlot = ~0u;
constexpr unsigned kShownThreads = 8;

enum class State { kReady, kWaiting, kDone };

struct Thread {
    Fiber fiber;
    LanesDim position{};
    unsigned index = 0;
    State state = State::kDone;
    // The collective or barrier that the thread waits in.
    int op = LANES_NONE;
    int line = 0;
    uint32_t mask = 0;
    const void* value = nullptr;
    unsigned bytes = 0;
    unsigned slot = kNoSlot;  // the result that the thread may still read
};

// Results of collectives. A result is reused when no lane holds it any more.
struct SimdGroup {
    uint32_t arrived = 0;
    unsigned generation = 0;
    unsigned holders[kSlots] = {};
    char edge[2] = {};  // objects for acquire and release, by parity of the generation
    alignas(32) char results[kSlots][kWidth * LANES_SLOT_BYTES] = {};
};

// A small xorshift generator: the same shuffles on every machine.
struct Random {
    uint64_t state = 0x9E3779B97F4A7C15ull;
    uint64_t next() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return state;
    }
    void shuffle(std::vector<unsigned>& items) {
        for (size_t i = items.size(); i > 1; --i) {
            std::swap(items[i - 1], items[next() % i]);
        }
    }
};

struct Block {
    LanesDim grid{}, size{}, position{};
    unsigned count = 0;  // threads
    unsigned done = 0;
    unsigned waiting = 0;  // at the group barrier
    int barrier_line = 0;
    unsigned generation = 0;
    char edge[2] = {};
    char start_edge = 0, end_edge = 0;
    void (*kernel)(void**) = nullptr;
    void** arguments = nullptr;
} block;

std::vector<std::unique_ptr<Thread>> threads;  // kept from launch to launch
std::vector<std::unique_ptr<SimdGroup>> simd_groups;
Thread* current = nullptr;
unsigned long block_count = 0;
Stats stats;

// Not memcpy and not memset: the sanitizers intercept those, and the runtime's own accesses are not the
// kernel's.
void copy(void* to, const void* from, size_t size) {
    asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size)::"memory");
}

void poison(void* to, size_t size) {
    asm volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(0xff) : "memory");
}

SimdGroup& simd_group_of(const Thread& thread) { return *simd_groups[thread.index / kWidth]; }

void let_go(Thread& thread) {
    if (thread.slot != kNoSlot) {
        --simd_group_of(thread).holders[thread.slot];
        thread.slot = kNoSlot;
    }
}

void wait(Thread& thread) {
    thread.state = State::kWaiting;
    thread.fiber.suspend(false);
}

// Whether a lane waits in a collective whose mask has this thread.
bool expected(const Thread& thread) {
    const unsigned base = thread.index / kWidth * kWidth, lane = thread.index - base;
    for (unsigned i = base; i < std::min(base + kWidth, block.count); ++i) {
        if (simd_group_of(thread).arrived >> (i - base) & 1 && threads[i]->mask >> lane & 1) {
            return true;
        }
    }
    return false;
}

void thread_main() {
    current->fiber.started();
    acquire(&block.start_edge);
    block.kernel(block.arguments);
    release(&block.end_edge);
    Thread& self = *current;
    self.state = State::kDone;
    ++block.done;
    ++stats.threads;
    if (block.waiting) {
        fail("a thread returned while others wait at a group barrier (barrier in divergent control flow)");
    }
    if (expected(self)) {
        fail("a lane returned while others wait for it in a SIMD-group collective");
    }
    let_go(self);
    self.fiber.suspend(true);
    abort();  // a finished fiber is never resumed
}

// The lanes that are in `mask` have all arrived: checks that they agree, and hands out their values.
void complete(SimdGroup& group, unsigned base, const Thread& last) {
    unsigned slot = 0;
    while (group.holders[slot]) {
        ++slot;
    }
    for (unsigned lane = 0; lane < kWidth; ++lane) {
        if (!(last.mask >> lane & 1)) {
            continue;
        }
        Thread& other = *threads[base + lane];
        if (other.op != last.op || other.line != last.line || other.mask != last.mask) {
            fail("lanes of one SIMD group meet in different collectives (divergent control flow)");
        }
        copy(group.results[slot] + lane * LANES_SLOT_BYTES, other.value, other.bytes);
        other.slot = slot;
        ++group.holders[slot];
        other.state = State::kReady;
    }
    group.arrived &= ~last.mask;
    ++group.generation;
    ++stats.collectives;
}

void prepare(const Launch& launch) {
    block = Block{};
    block.grid = launch.grid;
    block.size = launch.block;
    block.count = launch.block.x * launch.block.y * launch.block.z;
    block.kernel = launch.kernel;
    block.arguments = launch.arguments;
    while (threads.size() < block.count) {
        threads.push_back(std::make_unique<Thread>());
    }
    for (unsigned i = 0; i < block.count; ++i) {
        threads[i]->index = i;
        threads[i]->position = {i % launch.block.x, i / launch.block.x % launch.block.y,
                                i / (launch.block.x * launch.block.y)};
    }
    simd_groups.clear();
    for (unsigned i = 0; i < block.count; i += kWidth) {
        simd_groups.push_back(std::make_unique<SimdGroup>());
    }
}

void run_block(const Launch& launch, unsigned linear, std::vector<unsigned>& turns, Random& random) {
    block.position = {linear % launch.grid.x, linear / launch.grid.x % launch.grid.y,
                      linear / (launch.grid.x * launch.grid.y)};
    block.done = block.waiting = 0;
    ++block_count;
    for (const GroupArray& array : launch.group_arrays) {
        poison(array.address, array.size);
    }
    release(&block.start_edge);
    for (unsigned i = 0; i < block.count; ++i) {
        threads[i]->fiber.reset(thread_main);
        threads[i]->state = State::kReady;
        threads[i]->op = LANES_NONE;
    }
    while (block.done < block.count) {
        if (launch.order == Order::kShuffled) {
            random.shuffle(turns);
        }
        bool ran = false;
        for (unsigned i : turns) {
            if (threads[i]->state == State::kReady) {
                current = threads[i].get();
                ++stats.switches;
                current->fiber.resume();
                ran = true;
            }
        }
        current = nullptr;
        if (!ran && block.done < block.count) {
            fail("deadlock: barrier or collective in divergent control flow");
        }
    }
    acquire(&block.end_edge);
}

std::vector<unsigned> sequence(unsigned count, Order order, Random& random) {
    std::vector<unsigned> items(count);
    for (unsigned i = 0; i < count; ++i) {
        items[i] = order == Order::kReverse ? count - 1 - i : i;
    }
    if (order == Order::kShuffled) {
        random.shuffle(items);
    }
    return items;
}

}  // namespace

Stats run(const Launch& launch) {
    stats = Stats{};
    prepare(launch);
    Random random;
    std::vector<unsigned> turns = sequence(block.count, launch.order, random);
    for (unsigned i : sequence(launch.grid.x * launch.grid.y * launch.grid.z, launch.order, random)) {
        run_block(launch, i, turns, random);
    }
    return stats;
}

void fail(const char* message) {
    fprintf(stderr, "lanes: error: %s\n  block (%u,%u,%u), %u of %u threads finished\n", message,
            block.position.x, block.position.y, block.position.z, block.done, block.count);
    unsigned shown = 0;
    for (unsigned i = 0; i < block.count && shown < kShownThreads; ++i) {
        const Thread& thread = *threads[i];
        const bool running = &thread == current;
        if (running || thread.state == State::kWaiting) {
            fprintf(stderr, "  thread %u: %s, op %d, line %d, mask %08x\n", thread.index,
                    running ? "running" : "waiting", thread.op, thread.line, thread.mask);
            ++shown;
        }
    }
    fflush(stderr);
    _exit(kFailed);
}

long overflowed_thread(const void* address) {
    for (const auto& thread : threads) {
        if (thread->fiber.in_guard(address)) {
            return thread->index;
        }
    }
    return -1;
}

}  // namespace lanes

using lanes::block;
using lanes::current;

extern "C" {

LanesDim lanes_thread_position() { return current->position; }
LanesDim lanes_group_position() { return block.position; }
LanesDim lanes_group_size() { return block.size; }
LanesDim lanes_grid_size() { return block.grid; }
unsigned lanes_thread_index() { return current->index; }
unsigned long lanes_block_count() { return lanes::block_count; }

void lanes_group_barrier(int fence, int line) {
    lanes::Thread& self = *current;
    self.op = LANES_GROUP_BARRIER;
    self.line = line;
    self.mask = ~0u;
    if (block.waiting && block.barrier_line != line) {
        lanes::fail("threads wait at different group barriers");
    }
    if (block.done) {
        lanes::fail("group barrier after some threads returned");
    }
    char* edge = &block.edge[block.generation & 1];
    block.barrier_line = line;
    if (fence) {
        lanes::release(edge);
    }
    if (++block.waiting == block.count) {
        block.waiting = 0;
        ++block.generation;
        ++lanes::stats.barriers;
        for (unsigned i = 0; i < block.count; ++i) {
            lanes::threads[i]->state = lanes::State::kReady;
        }
    } else {
        lanes::wait(self);
    }
    if (fence) {
        lanes::acquire(edge);
    }
}

void* lanes_collective(int op, unsigned mask, const void* value, unsigned bytes, int fence, int line) {
    lanes::Thread& self = *current;
    lanes::SimdGroup& group = lanes::simd_group_of(self);
    const unsigned base = self.index / LANES_WIDTH * LANES_WIDTH, lane = self.index - base;
    const unsigned present = std::min<unsigned>(block.count - base, LANES_WIDTH);
    const uint32_t full = present == LANES_WIDTH ? ~0u : (1u << present) - 1;
    lanes::let_go(self);
    self.op = op;
    self.line = line;
    self.mask = (mask ? mask : full) & full;
    self.value = value;
    self.bytes = bytes;
    if (!(self.mask >> lane & 1)) {
        lanes::fail("a lane is not in the mask of its own collective");
    }
    char* edge = &group.edge[group.generation & 1];
    if (fence) {
        lanes::release(edge);
    }
    group.arrived |= 1u << lane;
    if ((group.arrived & self.mask) == self.mask) {
        lanes::complete(group, base, self);
    } else {
        lanes::wait(self);
    }
    if (fence) {
        lanes::acquire(edge);
    }
    return group.results[self.slot];
}

void lanes_fail(const char* message, int line) {
    current->line = line;
    lanes::fail(message);
}

}  // extern "C"
