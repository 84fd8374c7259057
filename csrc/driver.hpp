// The CUDA driver, reached through dlopen on first use. Nothing here runs when the extension is imported, and
// no CUDA header or library is needed to build it. No function of this file may be called with Python's lock
// held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace wootz::driver {

using Result = int;
using DeviceHandle = int;
using Context = struct ContextTag*;
using Module = struct ModuleTag*;
using Function = struct FunctionTag*;
using Stream = struct StreamTag*;
using Event = struct EventTag*;
using Graph = struct GraphTag*;
using GraphNode = struct GraphNodeTag*;
using GraphExec = struct GraphExecTag*;
using Address = std::uint64_t;

// CUlaunchAttribute and CUlaunchConfig of the driver's header.
struct LaunchAttribute {
    int id;
    alignas(8) std::uint32_t value[16];
};
struct LaunchConfig {
    unsigned grid[3], block[3], shared;
    Stream stream;
    const LaunchAttribute* attributes;
    unsigned attribute_count;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchConfig) == 56);

// CUDA_KERNEL_NODE_PARAMS_v2. kernel, context: null, the function says both.
struct KernelNodeParams {
    Function function;
    unsigned grid[3], block[3], shared;
    void** arguments;
    void** extra;
    void* kernel;
    Context context;
};
static_assert(sizeof(KernelNodeParams) == 72);

// Of cuTensorMapEncodeTiled: map, element type, rank, address, extents, strides, box, element strides,
// interleaving, swizzle, promotion, fill.
using EncodeTiled = Result(void*, int, std::uint32_t, void*, const std::uint64_t*, const std::uint64_t*,
                           const std::uint32_t*, const std::uint32_t*, int, int, int, int);

inline const Stream kDefaultStream = reinterpret_cast<Stream>(1);  // the legacy one, by its own name
inline const Stream kThreadStream = reinterpret_cast<Stream>(2);   // of whichever thread names it

constexpr Result kSuccess = 0;
constexpr Result kInvalidValue = 1;

// X(member, exported symbol, needed, parameters). The suffix _v2 marks the current revision of an entry
// point.
#define WOOTZ_DRIVER_ENTRIES(X)                                                                              \
    X(init, "cuInit", true, unsigned)                                                                        \
    X(driver_version, "cuDriverGetVersion", true, int*)                                                      \
    X(error_name, "cuGetErrorName", true, Result, const char**)                                              \
    X(error_string, "cuGetErrorString", true, Result, const char**)                                          \
    X(device_count, "cuDeviceGetCount", true, int*)                                                          \
    X(device_get, "cuDeviceGet", true, DeviceHandle*, int)                                                   \
    X(device_attribute, "cuDeviceGetAttribute", true, int*, int, DeviceHandle)                               \
    X(device_name, "cuDeviceGetName", true, char*, int, DeviceHandle)                                        \
    X(context_retain, "cuDevicePrimaryCtxRetain", true, Context*, DeviceHandle)                              \
    X(context_release, "cuDevicePrimaryCtxRelease_v2", true, DeviceHandle)                                   \
    X(context_state, "cuDevicePrimaryCtxGetState", true, DeviceHandle, unsigned*, int*)                      \
    X(device_memory, "cuDeviceTotalMem_v2", true, std::size_t*, DeviceHandle)                                \
    X(memory_info, "cuMemGetInfo_v2", true, std::size_t*, std::size_t*)                                      \
    X(context_current, "cuCtxGetCurrent", true, Context*)                                                    \
    X(context_push, "cuCtxPushCurrent_v2", true, Context)                                                    \
    X(context_pop, "cuCtxPopCurrent_v2", true, Context*)                                                     \
    X(module_load, "cuModuleLoadData", true, Module*, const void*)                                           \
    X(module_unload, "cuModuleUnload", true, Module)                                                         \
    X(module_function, "cuModuleGetFunction", true, Function*, Module, const char*)                          \
    X(function_set, "cuFuncSetAttribute", true, Function, int, int)                                          \
    X(function_get, "cuFuncGetAttribute", true, int*, int, Function)                                         \
    X(function_parameter, "cuFuncGetParamInfo", false, Function, std::size_t, std::size_t*, std::size_t*)    \
    X(launch, "cuLaunchKernel", true, Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,  \
      unsigned, Stream, void**, void**)                                                                      \
    X(launch_ex, "cuLaunchKernelEx", false, const LaunchConfig*, Function, void**, void**)                   \
    X(max_clusters, "cuOccupancyMaxActiveClusters", false, int*, Function, const LaunchConfig*)              \
    X(encode_tiled, "cuTensorMapEncodeTiled", false, void*, int, std::uint32_t, void*, const std::uint64_t*, \
      const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int, int, int, int)                  \
    X(memory_set, "cuMemsetD8Async", true, Address, unsigned char, std::size_t, Stream)                      \
    X(pointer_attribute, "cuPointerGetAttribute", true, void*, int, Address)                                 \
    X(stream_synchronize, "cuStreamSynchronize", true, Stream)                                               \
    X(stream_wait, "cuStreamWaitEvent", true, Stream, Event, unsigned)                                       \
    X(stream_capturing, "cuStreamIsCapturing", true, Stream, int*)                                           \
    X(capture_info, "cuStreamGetCaptureInfo_v2", false, Stream, int*, std::uint64_t*, Graph*,                \
      const GraphNode**, std::size_t*)                                                                       \
    X(capture_info_edges, "cuStreamGetCaptureInfo_v3", false, Stream, int*, std::uint64_t*, Graph*,          \
      const GraphNode**, const void**, std::size_t*)                                                         \
    X(node_get, "cuGraphKernelNodeGetParams_v2", false, GraphNode, KernelNodeParams*)                        \
    X(node_update, "cuGraphExecKernelNodeSetParams_v2", false, GraphExec, GraphNode,                         \
      const KernelNodeParams*)                                                                               \
    X(stream_create, "cuStreamCreate", false, Stream*, unsigned)                                             \
    X(stream_destroy, "cuStreamDestroy_v2", false, Stream)                                                   \
    X(capture_begin, "cuStreamBeginCapture_v2", false, Stream, int)                                          \
    X(capture_end, "cuStreamEndCapture", false, Stream, Graph*)                                              \
    X(capture_mode, "cuThreadExchangeStreamCaptureMode", false, int*)                                        \
    X(graph_instantiate, "cuGraphInstantiateWithFlags", false, GraphExec*, Graph, unsigned long long)        \
    X(graph_launch, "cuGraphLaunch", false, GraphExec, Stream)                                               \
    X(graph_destroy, "cuGraphDestroy", false, Graph)                                                         \
    X(graph_exec_destroy, "cuGraphExecDestroy", false, GraphExec)                                            \
    X(event_create, "cuEventCreate", true, Event*, unsigned)                                                 \
    X(event_record, "cuEventRecord", true, Event, Stream)                                                    \
    X(event_destroy, "cuEventDestroy_v2", true, Event)                                                       \
    X(memory_alloc, "cuMemAlloc_v2", true, Address*, std::size_t)                                            \
    X(memory_free, "cuMemFree_v2", true, Address)                                                            \
    X(memory_from_host, "cuMemcpyHtoD_v2", true, Address, const void*, std::size_t)                          \
    X(memory_to_host, "cuMemcpyDtoH_v2", true, void*, Address, std::size_t)

struct Api {
#define WOOTZ_DRIVER_MEMBER(member, symbol, needed, ...) Result (*member)(__VA_ARGS__) = nullptr;
    WOOTZ_DRIVER_ENTRIES(WOOTZ_DRIVER_MEMBER)
#undef WOOTZ_DRIVER_MEMBER
};

// The initialised driver. Throws Error(device) when there is no libcuda, when it lacks an entry point, after
// shutdown(), or in a process forked after the first use; DriverFailure when cuInit fails.
const Api& api();

// Throws Error(device) for an entry point that drivers may lack: `found` is its address, `release` the CUDA
// that has it.
void need(bool found, const char* call, const char* release);

// Throws DriverFailure unless `result` is success. `call` is the entry point's name.
void check(Result result, const char* call);

// True while driver calls are safe: initialised by this very process, and not shut down.
bool usable();

// Forbids further calls, waits a second at most for scopes of other threads to close, and gives the primary
// contexts back. Runs at Python's exit, before objects are torn down.
void shutdown();

// Makes a device's primary context current for the life of the object, unless it is already. The context is
// retained once per process.
class Scope {
  public:
    explicit Scope(int device);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

  private:
    struct Use {  // of the driver, as shutdown() counts them
        Use();
        ~Use();
    };
    Use use_;  // first: no check of the state may come before it
    const Api& api_;
    bool pushed_;
};

struct DeviceInfo {
    std::string name;
    int major, minor, multiprocessors, shared_bytes, driver_version;
};

int device_count();
DeviceInfo device_info(int device);
// `free` is -1 where it was not asked for and no context of this process is active: making one costs memory.
struct DeviceMemory {
    std::int64_t total, free;
    bool integrated;  // it shares the host's memory
};
DeviceMemory device_memory(int device, bool ask_free);

int device_of_pointer(Address address);  // the ordinal of the device that owns the memory
void order_streams(int device, Stream before, Stream after);
// Whether a stream is being captured, or cannot say so because another one is. Needs a context.
bool capturing(Stream stream);
// The kernel node that the last launch on a stream under capture became. Needs a context. Throws
// Error(device) when the driver cannot tell, DriverFailure.
GraphNode last_node(Stream stream);
void synchronize(int device, Stream stream);

Address allocate(int device, std::size_t bytes);
void release(int device, Address address) noexcept;
void set_memory(int device, Address address, int value, std::size_t bytes, Stream stream);  // in stream order
void copy_from_host(int device, Address to, const void* from, std::size_t bytes);
void copy_to_host(int device, void* to, Address from, std::size_t bytes);

}  // namespace wootz::driver
