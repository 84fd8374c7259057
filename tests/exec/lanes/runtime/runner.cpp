// runner LIBRARY: loads a compiled kernel file and runs the launches it is sent, until its input ends.
//
// A launch comes in on stdin and its result goes out on stdout, both binary and little-endian:
//   request: u32 kRequest, string symbol, u32 grid[3], u32 block[3], u32 order, u32 seconds,
//            u32 count, {u64 offset in the library, u64 size} * count    (group memory)
//            u32 count, {string name, u32 writable, u64 size, bytes} * count   (buffers, scalars included;
//                                                                              writable 2: a null pointer)
//   reply:   u32 kReply, u64 {threads, switches, barriers, collectives}, the bytes of each writable buffer
// with string = u32 length, bytes. Whatever goes wrong in a launch ends the process with a message on stderr;
// addresses in it are "LIBRARY+0xoffset", for a symboliser.
#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "buffer.h"
#include "grid.h"

namespace {

constexpr uint32_t kRequest = 0x514e414c, kReply = 0x524e414c, kNull = 2;
constexpr int kBadRequest = 87;

std::vector<std::unique_ptr<lanes::Buffer>> buffers;
int reply_fd = 1;

[[noreturn]] void refuse(const std::string& message) {
    fprintf(stderr, "lanes: runner: %s\n", message.c_str());
    exit(kBadRequest);
}

bool read_exactly(void* to, size_t size) {
    char* p = static_cast<char*>(to);
    while (size) {
        const ssize_t got = read(0, p, size);
        if (got <= 0) {
            return false;
        }
        p += got;
        size -= static_cast<size_t>(got);
    }
    return true;
}

template <class T>
T take() {
    T value;
    if (!read_exactly(&value, sizeof value)) {
        refuse("the request ends early");
    }
    return value;
}

std::vector<char> take_bytes(size_t size) {
    std::vector<char> bytes(size);
    if (!read_exactly(bytes.data(), size)) {
        refuse("the request ends early");
    }
    return bytes;
}

std::string take_string() {
    const std::vector<char> bytes = take_bytes(take<uint32_t>());
    return std::string(bytes.begin(), bytes.end());
}

LanesDim take_dim() {
    LanesDim dim;
    dim.x = take<uint32_t>();
    dim.y = take<uint32_t>();
    dim.z = take<uint32_t>();
    return dim;
}

void give(const void* from, size_t size) {
    const char* p = static_cast<const char*>(from);
    while (size) {
        const ssize_t put = write(reply_fd, p, size);
        if (put <= 0) {
            refuse("cannot write the reply");
        }
        p += put;
        size -= static_cast<size_t>(put);
    }
}

// Says in which library and where an instruction lies.
void print_place(const void* address) {
    Dl_info info;
    if (address && dladdr(address, &info) && info.dli_fbase) {
        fprintf(stderr, "  at %s+0x%zx\n", info.dli_fname,
                static_cast<size_t>(static_cast<const char*>(address) -
                                    static_cast<const char*>(info.dli_fbase)));
    }
}

const char* describe(int signal) {
    switch (signal) {
        case SIGSEGV:
        case SIGBUS:
            return "access outside every buffer";
        case SIGFPE:
            return "division by zero";
        case SIGALRM:
            return "timed out: a loop that does not end, or a case too large for its time limit";
        default:
            return "illegal instruction (unreachable code reached)";
    }
}

void on_signal(int signal, siginfo_t* info, void* context) {
    std::string message = describe(signal);
    if (signal == SIGSEGV || signal == SIGBUS) {
        for (const auto& buffer : buffers) {
            const std::string place = buffer->locate(info->si_addr);
            if (!place.empty()) {
                message = "bad access " + place;
            }
        }
        const long thread = lanes::overflowed_thread(info->si_addr);
        if (thread >= 0) {
            message = "stack overflow in thread " + std::to_string(thread);
        }
    }
    print_place(reinterpret_cast<void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]));
    lanes::fail(message.c_str());
}

void handle_signals() {
    static char stack[64 << 10];
    stack_t alternative{};
    alternative.ss_sp = stack;
    alternative.ss_size = sizeof stack;
    sigaltstack(&alternative, nullptr);
    struct sigaction action{};
    action.sa_sigaction = on_signal;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGALRM, &action, nullptr);
#if !defined(LANES_ASAN)  // which reports these itself
    for (int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) {
        sigaction(signal, &action, nullptr);
    }
#endif
}

std::vector<lanes::GroupArray> take_group_arrays(char* base) {
    std::vector<lanes::GroupArray> arrays(take<uint32_t>());
    for (lanes::GroupArray& array : arrays) {
        array.address = base + take<uint64_t>();
        array.size = take<uint64_t>();
    }
    return arrays;
}

std::vector<void*> take_buffers() {
    std::vector<void*> addresses(take<uint32_t>());
    buffers.clear();
    for (void*& address : addresses) {
        const std::string name = take_string();
        const uint32_t kind = take<uint32_t>();
        const uint64_t size = take<uint64_t>();
        if (kind == kNull) {
            address = nullptr;
            continue;
        }
        buffers.push_back(std::make_unique<lanes::Buffer>(name, kind != 0, take_bytes(size)));
        address = buffers.back()->data();
    }
    return addresses;
}

void serve(void* library) {
    const std::string symbol = take_string();
    const auto kernel = reinterpret_cast<void (*)(void**)>(dlsym(library, ("lanes_call_" + symbol).c_str()));
    if (!kernel) {
        refuse("no entry " + symbol + " in the library");
    }
    link_map* map = nullptr;
    dlinfo(library, RTLD_DI_LINKMAP, &map);
    lanes::Launch launch{};
    launch.grid = take_dim();
    launch.block = take_dim();
    launch.order = static_cast<lanes::Order>(take<uint32_t>());
    const unsigned seconds = take<uint32_t>();
    launch.kernel = kernel;
    launch.group_arrays = take_group_arrays(reinterpret_cast<char*>(map->l_addr));
    std::vector<void*> addresses = take_buffers();
    launch.arguments = addresses.data();

    for (const auto& buffer : buffers) {
        buffer->protect();
    }
    alarm(seconds);
    const lanes::Stats stats = lanes::run(launch);
    alarm(0);
    for (const auto& buffer : buffers) {
        const std::string damage = buffer->damage();
        if (!damage.empty()) {
            lanes::fail(damage.c_str());
        }
    }
    give(&kReply, sizeof kReply);
    const uint64_t counts[] = {stats.threads, stats.switches, stats.barriers, stats.collectives};
    give(counts, sizeof counts);
    for (const auto& buffer : buffers) {
        if (buffer->writable()) {
            give(buffer->data(), buffer->size());
        }
    }
}

}  // namespace

#if !defined(LANES_ASAN) && !defined(LANES_TSAN)
// The plain build compiles kernels with -fsanitize-minimal-runtime, whose handlers are these.
#define LANES_HANDLER(name, message)                                      \
    extern "C" [[noreturn]] void __ubsan_handle_##name() {                \
        print_place(static_cast<char*>(__builtin_return_address(0)) - 1); \
        lanes::fail("undefined behaviour: " message);                     \
    }
#define LANES_UNDEFINED(kind, message) LANES_HANDLER(kind##_minimal_abort, message)
LANES_UNDEFINED(type_mismatch, "misaligned or null pointer")
LANES_UNDEFINED(alignment_assumption, "misaligned pointer")
LANES_UNDEFINED(out_of_bounds, "index outside an array")
LANES_UNDEFINED(pointer_overflow, "pointer arithmetic overflows")
LANES_UNDEFINED(float_cast_overflow, "float out of the range of the integer type that it becomes")
LANES_UNDEFINED(shift_out_of_bounds, "shift by at least the width, or of a negative number")
LANES_UNDEFINED(divrem_overflow, "division by zero or overflowing division")
LANES_UNDEFINED(add_overflow, "signed addition overflows")
LANES_UNDEFINED(sub_overflow, "signed subtraction overflows")
LANES_UNDEFINED(mul_overflow, "signed multiplication overflows")
LANES_UNDEFINED(negate_overflow, "signed negation overflows")
LANES_HANDLER(builtin_unreachable_minimal, "unreachable code reached")
LANES_HANDLER(missing_return_minimal, "a function ends without returning a value")
LANES_UNDEFINED(vla_bound_not_positive, "array of no elements")
LANES_UNDEFINED(load_invalid_value, "load of a value that its type does not have")
LANES_UNDEFINED(invalid_builtin, "builtin with an invalid argument")
LANES_UNDEFINED(nonnull_arg, "null argument")
LANES_UNDEFINED(nonnull_return, "null returned")
#endif

int main(int argc, char** argv) {
    if (argc != 2) {
        refuse("usage: runner LIBRARY < requests > replies");
    }
    reply_fd = dup(1);
    dup2(2, 1);  // what a kernel prints is not part of a reply
    void* library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        refuse(dlerror());
    }
    handle_signals();
    uint32_t magic;
    while (read_exactly(&magic, sizeof magic)) {
        if (magic != kRequest) {
            refuse("not a request");
        }
        serve(library);
    }
    return 0;
}
