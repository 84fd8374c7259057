#include "fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#if defined(LANES_ASAN)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(LANES_TSAN)
#include <sanitizer/tsan_interface.h>
#endif

#if !defined(__x86_64__) || !defined(__linux__)
#error "the lanes runtime switches stacks by hand and knows x86-64 Linux only"
#endif

// lanes_switch(&save, to): pushes the callee-saved registers, stores the stack pointer in *save and goes on
// at the stack `to`.
extern "C" void lanes_switch(void** save, void* to);
asm(R"(
    .text
    .globl lanes_switch
    .type lanes_switch, @function
lanes_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
)");

namespace lanes {
namespace {

constexpr size_t kGuard = 4096;
#if defined(LANES_ASAN) || defined(LANES_TSAN)
constexpr size_t kStack = 256 << 10;
#else
constexpr size_t kStack = 128 << 10;
#endif

// The host side: the one OS thread that schedules the fibers.
struct Host {
    void* stack_pointer = nullptr;
    void* thread = nullptr;
    void* fake_stack = nullptr;
    const void* stack = nullptr;
    size_t stack_size = 0;
} host;

}  // namespace

Fiber::Fiber() {
    void* memory = mmap(nullptr, kGuard + kStack, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) {
        perror("lanes: cannot map a fiber's stack");
        abort();
    }
    stack_ = static_cast<char*>(memory) + kGuard;
#if defined(LANES_TSAN)
    thread_ = __tsan_create_fiber(0);
#endif
}

void Fiber::reset(void (*entry)()) {
    // As lanes_switch leaves a stack: six registers, then the return address; entry sees a null return
    // address.
    void** top = reinterpret_cast<void**>(stack_ + kStack);
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(entry);
    for (int i = 0; i < 6; ++i) {
        *--top = nullptr;
    }
    stack_pointer_ = top;
}

void Fiber::resume() {
#if defined(LANES_ASAN)
    __sanitizer_start_switch_fiber(&host.fake_stack, stack_, kStack);
#endif
#if defined(LANES_TSAN)
    host.thread = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(thread_, __tsan_switch_to_fiber_no_sync);
#endif
    lanes_switch(&host.stack_pointer, stack_pointer_);
#if defined(LANES_ASAN)
    __sanitizer_finish_switch_fiber(host.fake_stack, nullptr, nullptr);
#endif
}

void Fiber::suspend(bool last) {
#if defined(LANES_ASAN)
    __sanitizer_start_switch_fiber(last ? nullptr : &fake_stack_, host.stack, host.stack_size);
#else
    (void)last;
#endif
#if defined(LANES_TSAN)
    __tsan_switch_to_fiber(host.thread, __tsan_switch_to_fiber_no_sync);
#endif
    lanes_switch(&stack_pointer_, host.stack_pointer);
#if defined(LANES_ASAN)
    __sanitizer_finish_switch_fiber(fake_stack_, &host.stack, &host.stack_size);
#endif
}

void Fiber::started() {
#if defined(LANES_ASAN)
    __sanitizer_finish_switch_fiber(nullptr, &host.stack, &host.stack_size);
#endif
}

bool Fiber::in_guard(const void* address) const {
    const char* p = static_cast<const char*>(address);
    return p >= stack_ - kGuard && p < stack_;
}

void release(void* object) {
#if defined(LANES_TSAN)
    __tsan_release(object);
#else
    (void)object;
#endif
}

void acquire(void* object) {
#if defined(LANES_TSAN)
    __tsan_acquire(object);
#else
    (void)object;
#endif
}

}  // namespace lanes
