// Fibers: one stack and one saved stack pointer each, switched by hand (x86-64 System V) and made known to
// the address and thread sanitizers.
#pragma once

#include <cstddef>

namespace lanes {

class Fiber {
  public:
    // Maps a stack with an inaccessible page below it. entry is run by the first `resume` after `reset`.
    Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    // Makes the next resume start `entry` from the top of the stack.
    void reset(void (*entry)());
    // Host to fiber; returns when the fiber suspends. Never a happens-before edge for the thread sanitizer:
    // only barriers order memory.
    void resume();
    // Fiber to host. last: the fiber will not be resumed before a reset.
    void suspend(bool last);
    // To be called first thing by `entry`.
    void started();
    // Whether the address lies in the guard page below the stack.
    bool in_guard(const void* address) const;

  private:
    char* stack_;
    void* stack_pointer_ = nullptr;
    [[maybe_unused]] void* thread_ = nullptr;      // the thread sanitizer's handle
    [[maybe_unused]] void* fake_stack_ = nullptr;  // the address sanitizer's handle
};

// Tells the thread sanitizer that what happened before release(p) is visible after acquire(p).
void release(void* object);
void acquire(void* object);

}  // namespace lanes
