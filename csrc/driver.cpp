#include "driver.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "errors.hpp"

namespace wootz::driver {
namespace {

constexpr int kMaxDevices = 256;
constexpr int kMultiprocessors = 16, kMajor = 75, kMinor = 76, kSharedOptIn = 97;  // CUdevice_attribute
constexpr int kIntegrated = 18;
constexpr int kPointerDevice = 9;  // CUpointer_attribute
constexpr unsigned kEventNoTiming = 2;
constexpr std::chrono::milliseconds kPatience{1000};  // of shutdown(), with calls under way

// Devices are retained independently: the first use of one may take long, and no other waits for it.
struct Primary {
    std::mutex mutex;
    DeviceHandle handle = 0;
    std::atomic<Context> context{nullptr};  // set last
};

// Never destroyed: objects of other threads or of a late collection may still look at it while the process
// ends.
struct State {
    std::mutex mutex;  // of the start
    void* library = nullptr;
    Api api;
    std::atomic<bool> ready{false}, closed{false}, forked{false};
    std::atomic<pid_t> owner{0};  // the process that started the driver, or is about to
    std::atomic<int> uses{0};     // scopes that are open
    std::array<Primary, kMaxDevices> devices{};
};

State& state() {
    static State* instance = new State;
    return *instance;
}

[[noreturn]] void no_driver(const std::string& what) {
    throw Error(ErrorKind::device,
                what + "; a CUDA device needs NVIDIA's driver (device=\"cpu\" needs none)");
}

void* open_library() {
    const char* named = std::getenv("WOOTZ_LIBCUDA");
    const char* path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
    void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* reason = dlerror();
        no_driver("the CUDA driver cannot be loaded: " + std::string(reason != nullptr ? reason : path));
    }
    return library;
}

void resolve(void* library, Api& api) {
    const auto find = [library](auto& member, const char* symbol, bool needed) {
        void* found = dlsym(library, symbol);
        if (found == nullptr && needed)
            no_driver(std::string("the CUDA driver is too old: it lacks ") + symbol);
        member = reinterpret_cast<std::decay_t<decltype(member)>>(found);
    };
#define WOOTZ_DRIVER_RESOLVE(member, symbol, needed, ...) find(api.member, symbol, needed);
    WOOTZ_DRIVER_ENTRIES(WOOTZ_DRIVER_RESOLVE)
#undef WOOTZ_DRIVER_RESOLVE
}

void refuse_unusable(const State& s) {
    if (s.closed) throw Error(ErrorKind::device, "the CUDA driver was given back: the process is ending");
    if (s.forked) {
        throw Error(ErrorKind::device,
                    "CUDA was used before this process was forked (by process " + std::to_string(s.owner) +
                        "); start workers with the \"spawn\" method, or fork before the first use");
    }
}

// Runs in the child of a fork. Locks that another thread held stay locked there: nothing may take one again.
void after_fork() {
    State& s = state();
    if (s.owner != 0) s.forked = true;
}

// After a failure the next call starts anew. A fork while the driver starts leaves the child without one.
void start(State& s) {
    static const int watched = pthread_atfork(nullptr, nullptr, &after_fork);
    if (watched != 0) throw Error(ErrorKind::device, "the system has no memory left to watch for forks");
    s.owner = getpid();
    try {
        if (s.library == nullptr) s.library = open_library();
        resolve(s.library, s.api);
        check(s.api.init(0), "cuInit");
    } catch (...) {
        s.owner = 0;
        throw;
    }
    s.ready.store(true, std::memory_order_release);
}

Context retain(int device, const Api& driver) {
    if (device < 0 || device >= kMaxDevices) {
        throw Error(ErrorKind::device, "cuda:" + std::to_string(device) + " is no device number");
    }
    Primary& primary = state().devices[static_cast<std::size_t>(device)];
    if (Context known = primary.context.load(std::memory_order_acquire)) return known;
    const std::lock_guard<std::mutex> lock(primary.mutex);
    if (Context known = primary.context.load(std::memory_order_acquire)) return known;
    check(driver.device_get(&primary.handle, device), "cuDeviceGet");
    Context context = nullptr;
    check(driver.context_retain(&context, primary.handle), "cuDevicePrimaryCtxRetain");
    primary.context.store(context, std::memory_order_release);
    return context;
}

// Whether all scopes were closed before patience ran out. None opens any more: the state is closed.
bool calls_ended(const State& s) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    while (s.uses != 0) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

int attribute(const Api& driver, DeviceHandle handle, int which) {
    int value = 0;
    check(driver.device_attribute(&value, which, handle), "cuDeviceGetAttribute");
    return value;
}

}  // namespace

const Api& api() {
    State& s = state();
    refuse_unusable(s);
    if (s.ready.load(std::memory_order_acquire)) return s.api;
    const std::lock_guard<std::mutex> lock(s.mutex);
    if (!s.ready) start(s);
    return s.api;
}

void check(Result result, const char* call) {
    if (result == kSuccess) return;
    const State& s = state();
    const char *name = nullptr, *text = nullptr;
    if (s.api.error_name != nullptr) s.api.error_name(result, &name);
    if (s.api.error_string != nullptr) s.api.error_string(result, &text);
    throw DriverFailure(result, name != nullptr ? name : "an unknown error", call,
                        text != nullptr ? text : "");
}

void need(bool found, const char* call, const char* release) {
    if (found) return;
    throw Error(ErrorKind::device, std::string("the CUDA driver is too old: it lacks ") + call +
                                       ", which this kernel needs; update it to the one of CUDA " + release +
                                       " or later");
}

bool usable() {
    const State& s = state();
    return s.ready && !s.closed && !s.forked;
}

void shutdown() {
    State& s = state();
    const bool was_usable = usable();
    s.closed = true;
    // A thread that is still inside a call keeps its context, which then goes with the process.
    if (!was_usable || !calls_ended(s)) return;
    for (Primary& primary : s.devices) {
        // A failure here has nobody left to tell: the driver may be gone already.
        if (primary.context.exchange(nullptr) != nullptr) s.api.context_release(primary.handle);
    }
}

Scope::Use::Use() { ++state().uses; }

Scope::Use::~Use() { --state().uses; }

Scope::Scope(int device) : api_(api()) {
    const Context wanted = retain(device, api_);
    Context current = nullptr;
    pushed_ = api_.context_current(&current) != kSuccess || current != wanted;
    if (pushed_) check(api_.context_push(wanted), "cuCtxPushCurrent");
}

Scope::~Scope() {
    Context popped = nullptr;
    if (pushed_) api_.context_pop(&popped);
}

int device_count() {
    int count = 0;
    check(api().device_count(&count), "cuDeviceGetCount");
    return count;
}

DeviceInfo device_info(int device) {
    const Api& driver = api();
    DeviceHandle handle = 0;
    check(driver.device_get(&handle, device), "cuDeviceGet");
    std::array<char, 256> name{};
    check(driver.device_name(name.data(), static_cast<int>(name.size()) - 1, handle), "cuDeviceGetName");
    int version = 0;
    check(driver.driver_version(&version), "cuDriverGetVersion");
    return {name.data(),
            attribute(driver, handle, kMajor),
            attribute(driver, handle, kMinor),
            attribute(driver, handle, kMultiprocessors),
            attribute(driver, handle, kSharedOptIn),
            version};
}

DeviceMemory device_memory(int device, bool ask_free) {
    const Api& driver = api();
    DeviceHandle handle = 0;
    check(driver.device_get(&handle, device), "cuDeviceGet");
    std::size_t total = 0, free = 0;
    check(driver.device_memory(&total, handle), "cuDeviceTotalMem");
    unsigned flags = 0;
    int active = 0;
    check(driver.context_state(handle, &flags, &active), "cuDevicePrimaryCtxGetState");
    const bool known = ask_free || active != 0;
    if (known) {
        Scope scope(device);
        std::size_t same = 0;
        check(driver.memory_info(&free, &same), "cuMemGetInfo");
    }
    return {static_cast<std::int64_t>(total), known ? static_cast<std::int64_t>(free) : -1,
            attribute(driver, handle, kIntegrated) != 0};
}

int device_of_pointer(Address address) {
    int device = 0;
    check(api().pointer_attribute(&device, kPointerDevice, address), "cuPointerGetAttribute");
    return device;
}

void order_streams(int device, Stream before, Stream after) {
    Scope scope(device);
    const Api& driver = api();
    Event event = nullptr;
    check(driver.event_create(&event, kEventNoTiming), "cuEventCreate");
    const Result recorded = driver.event_record(event, before);
    const Result waited = recorded == kSuccess ? driver.stream_wait(after, event, 0) : kSuccess;
    driver.event_destroy(event);  // the driver frees it once the work is done
    check(recorded, "cuEventRecord");
    check(waited, "cuStreamWaitEvent");
}

bool capturing(Stream stream) {
    int status = 0;
    return api().stream_capturing(stream, &status) != kSuccess || status != 0;
}

GraphNode last_node(Stream stream) {
    const Api& driver = api();
    int status = 0;
    std::uint64_t id = 0;
    Graph graph = nullptr;
    const GraphNode* nodes = nullptr;
    const void* edges =
        nullptr;  // asked for, because early launches have edges that say more than their ends
    std::size_t count = 0;
    if (driver.capture_info_edges != nullptr) {
        check(driver.capture_info_edges(stream, &status, &id, &graph, &nodes, &edges, &count),
              "cuStreamGetCaptureInfo");
    } else {
        need(driver.capture_info != nullptr, "cuStreamGetCaptureInfo_v2", "11.3");
        check(driver.capture_info(stream, &status, &id, &graph, &nodes, &count), "cuStreamGetCaptureInfo");
    }
    need(driver.node_get != nullptr && driver.node_update != nullptr, "cuGraphExecKernelNodeSetParams_v2",
         "12.0");
    KernelNodeParams found{};
    if (status == 1 && count == 1 && driver.node_get(nodes[0], &found) == kSuccess) return nodes[0];
    throw Error(ErrorKind::device, "the capture does not show which node the launch became: its stream " +
                                       std::string(status != 1 ? "is not being captured any more"
                                                               : "was joined with another one meanwhile"));
}

void synchronize(int device, Stream stream) {
    Scope scope(device);
    check(api().stream_synchronize(stream), "cuStreamSynchronize");
}

Address allocate(int device, std::size_t bytes) {
    Scope scope(device);
    Address address = 0;
    if (bytes != 0) check(api().memory_alloc(&address, bytes), "cuMemAlloc");
    return address;
}

void release(int device, Address address) noexcept {
    if (address == 0 || !usable()) return;
    try {
        Scope scope(device);
        api().memory_free(address);
    } catch (const std::exception&) {  // a lost context frees its memory itself
    }
}

void set_memory(int device, Address address, int value, std::size_t bytes, Stream stream) {
    Scope scope(device);
    if (bytes != 0) {
        check(api().memory_set(address, static_cast<unsigned char>(value), bytes, stream), "cuMemsetD8Async");
    }
}

void copy_from_host(int device, Address to, const void* from, std::size_t bytes) {
    Scope scope(device);
    if (bytes != 0) check(api().memory_from_host(to, from, bytes), "cuMemcpyHtoD");
}

void copy_to_host(int device, void* to, Address from, std::size_t bytes) {
    Scope scope(device);
    if (bytes != 0) check(api().memory_to_host(to, from, bytes), "cuMemcpyDtoH");
}

}  // namespace wootz::driver
