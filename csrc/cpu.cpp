#include "cpu.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>
#include <vector>

#include "errors.hpp"

#if defined(__linux__)
#include <sched.h>
#include <sys/mman.h>
#ifndef MFD_EXEC
#define MFD_EXEC 0x0010U
#endif
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace wootz {
namespace {

#if defined(__x86_64__)
bool cpuid_bit(unsigned leaf, unsigned bit) {  // a bit of ecx
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return __get_cpuid(leaf, &eax, &ebx, &ecx, &edx) != 0 && ((ecx >> bit) & 1U) != 0;
}

bool level2() { return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt"); }

// The compiler's own test of AVX2 includes that the system saves the registers.
bool level3() {
    constexpr unsigned kExtended = 0x80000001U;
    return level2() && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && cpuid_bit(1, 29) /* f16c */ &&
           cpuid_bit(1, 22) /* movbe */ && cpuid_bit(kExtended, 5) /* lzcnt */;
}

bool level4() {
    return level3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}

struct Level {
    const char* name;
    bool (*supported)();
};
constexpr std::array<Level, 3> kLevels{{{"x86-64-v2", level2}, {"x86-64-v3", level3}, {"x86-64-v4", level4}}};
#endif

class File {
  public:
    explicit File(int descriptor) : descriptor_(descriptor) {}
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    explicit operator bool() const { return descriptor_ >= 0; }
    int descriptor() const { return descriptor_; }

    bool write_all(const char* data, std::size_t size) const {
        while (size > 0) {
            const ssize_t written = ::write(descriptor_, data, size);
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) return false;
            data += written;
            size -= static_cast<std::size_t>(written);
        }
        return true;
    }

  private:
    int descriptor_;
};

#if defined(__linux__)
// The dynamic linker takes two paths of one spelling for one object, and descriptors are reused. So each path
// is spelt in a way of its own: the bits of a counter as "./" and "/".
std::string descriptor_path(int descriptor) {
    static std::atomic<std::uint32_t> counter{0};
    std::string path = "/proc/self/fd/";
    const std::uint32_t id = counter.fetch_add(1);
    for (unsigned bit = 0; bit < 32; ++bit) path += ((id >> bit) & 1U) != 0 ? "./" : "/";
    return path + std::to_string(descriptor);
}

void* open_in_memory(const char* image, std::size_t size) {
    int descriptor = memfd_create("wootz", MFD_CLOEXEC | MFD_EXEC);
    if (descriptor < 0) descriptor = memfd_create("wootz", MFD_CLOEXEC);  // kernels before 6.3
    const File file(descriptor);
    if (!file || !file.write_all(image, size)) return nullptr;
    return dlopen(descriptor_path(descriptor).c_str(), RTLD_NOW | RTLD_LOCAL);
}
#else
void* open_in_memory(const char*, std::size_t) { return nullptr; }
#endif

// For systems without memory files, and for those that forbid to execute them.
void* open_in_folder(const char* image, std::size_t size) {
    const char* folder = std::getenv("TMPDIR");
    std::string path = std::string(folder != nullptr && *folder != '\0' ? folder : "/tmp") + "/wootz-XXXXXX";
    const File file(mkstemp(path.data()));
    if (!file) return nullptr;
    void* handle = nullptr;
    if (file.write_all(image, size) && fchmod(file.descriptor(), 0700) == 0) {
        handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    unlink(path.c_str());
    return handle;
}

unsigned available_processors() {
#if defined(__linux__)
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return static_cast<unsigned>(std::max(1, CPU_COUNT(&set)));
#endif
    return std::max(1U, std::thread::hardware_concurrency());
}

// Below this many seconds of work in all, starting a thread costs more than it gains.
constexpr double kWorthThreads = 100e-6;

struct Work {
    CpuFunction::Entry entry;
    void* const* arguments;
    const std::uint32_t* grid;
    std::uint32_t total, chunk;
    std::atomic<std::uint32_t> next;

    void run() {
        while (true) {
            const std::uint64_t begin =
                next.fetch_add(chunk);  // total + threads * chunk stays below 2^32: see step()
            if (begin >= total) return;
            entry(arguments, grid, static_cast<std::uint32_t>(begin),
                  static_cast<std::uint32_t>(std::min<std::uint64_t>(begin + chunk, total)));
        }
    }
};

void run_parallel(Work& work, unsigned threads) {
    std::vector<std::thread> helpers;
    helpers.reserve(threads - 1);
    try {
        while (helpers.size() + 1 < threads) helpers.emplace_back([&work] { work.run(); });
    } catch (const std::system_error&) {  // no more threads to be had: those there are do it all
    }
    work.run();
    for (std::thread& helper : helpers) helper.join();
}

}  // namespace

bool cpu_supports(const std::string& isa) {
    if (isa.empty() || isa == "baseline") return true;
#if defined(__x86_64__)
    for (const Level& level : kLevels) {
        if (isa == level.name) return level.supported();
    }
#endif
    return false;
}

unsigned thread_limit() {
    const char* text = std::getenv("WOOTZ_NUM_THREADS");
    if (text == nullptr || *text == '\0') return available_processors();
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (*end != '\0' || value < 1 || value > 1024) {
        throw Error(ErrorKind::argument,
                    std::string("WOOTZ_NUM_THREADS is \"") + text + "\"; want a number from 1 to 1024");
    }
    return static_cast<unsigned>(value);
}

CpuModule::CpuModule(const char* image, std::size_t size, const std::string& name) : name_(name) {
    handle_ = open_in_memory(image, size);
    if (handle_ == nullptr) handle_ = open_in_folder(image, size);
    if (handle_ == nullptr) {
        const char* reason = dlerror();
        throw Error(ErrorKind::artifact,
                    name + " cannot be loaded: " +
                        (reason != nullptr ? reason : std::string("the temporary folder is not writable")));
    }
}

CpuModule::~CpuModule() { dlclose(handle_); }

void* CpuModule::symbol(const std::string& name) const {
    void* found = dlsym(handle_, name.c_str());
    if (found == nullptr) {
        throw Error(ErrorKind::artifact,
                    name_ + " has no symbol " + name + ", which the index names; rebuild the artifacts");
    }
    return found;
}

CpuFunction::CpuFunction(std::shared_ptr<CpuModule> module, std::string symbol, Signature signature)
    : module_(std::move(module)),
      symbol_(std::move(symbol)),
      signature_(std::move(signature)),
      entry_(reinterpret_cast<Entry>(module_->symbol(symbol_))) {}

namespace {

class CpuStep final : public Step {
  public:
    CpuStep(std::shared_ptr<const CpuModule> module, CpuFunction::Entry entry, Pattern pattern,
            std::size_t reach, const std::array<std::uint32_t, 3>& grid)
        : Step(reach), module_(std::move(module)), entry_(entry), pattern_(std::move(pattern)), grid_(grid) {}

    void run(const Call& call) const override {
        const Arguments arguments(pattern_, call);
        run_blocks(arguments.addresses(), grid_[0] * grid_[1] * grid_[2]);
    }

  private:
    void run_blocks(void* const* arguments, std::uint32_t total) const {
        const unsigned threads = std::min(thread_limit(), total);
        if (threads <= 1) return entry_(arguments, grid_.data(), 0, total);

        // The first block is timed: only the caller's thread runs when the rest is expected to be short.
        const auto start = std::chrono::steady_clock::now();
        entry_(arguments, grid_.data(), 0, 1);
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
        if (elapsed.count() * (total - 1) < kWorthThreads) return entry_(arguments, grid_.data(), 1, total);

        const std::uint32_t chunk = std::max(1U, total / (threads * 8));
        Work work{entry_, arguments, grid_.data(), total, chunk, {1}};
        run_parallel(work, std::min(threads, total - 1));
    }

    std::shared_ptr<const CpuModule> module_;
    CpuFunction::Entry entry_;
    Pattern pattern_;
    std::array<std::uint32_t, 3> grid_;
};

}  // namespace

std::shared_ptr<Step> CpuFunction::step(Pattern pattern, std::size_t reach, const Dim3& grid) const {
    constexpr std::uint64_t kMaxBlocks = 1U << 31;
    check_extents(grid, {kMaxBlocks, kMaxBlocks, kMaxBlocks}, "grid", symbol_);
    // Each factor is below 2^32, so that the first product cannot wrap, and it is checked before the second.
    const std::uint64_t plane = grid[0] * grid[1];
    if (plane > kMaxBlocks || plane * grid[2] > kMaxBlocks) {
        throw Error(ErrorKind::argument,
                    symbol_ + ": the launch would have more than 2147483648 blocks: use a smaller problem");
    }
    const std::array<std::uint32_t, 3> extents{static_cast<std::uint32_t>(grid[0]),
                                               static_cast<std::uint32_t>(grid[1]),
                                               static_cast<std::uint32_t>(grid[2])};
    return std::make_shared<CpuStep>(module_, entry_, std::move(pattern), reach, extents);
}

}  // namespace wootz
