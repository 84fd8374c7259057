// A stand-in for libcuda.so.1: records every call, hands host memory out as a device's, runs nothing, and
// fails on demand.
//
// A capture is begun and ended by fake_capture: it holds the nodes of its stream, which fake_instantiate
// makes an instantiated graph of.
//
// A "binary" is text: a line "FAKE ...", then a line "symbol size size ..." for each entry point.
// Environment: FAKECUDA_LOG=file: each call is appended there at once. Control functions (fake_*) are called
// through ctypes.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

namespace {

struct Failure {
    int code, skip;
};
struct FakeFunction {
    std::string symbol;
    std::vector<std::size_t> sizes;
};
struct FakeModule {
    std::map<std::string, FakeFunction> functions;
    int device;
};
struct Memory {
    std::size_t bytes;
    int device;
};
struct FakeNode {
    FakeFunction* function;  // null: no kernel's
};
using Nodes = std::vector<FakeNode*>;
struct State {
    std::mutex mutex;  // of what every call changes
    std::string log;
    std::map<std::string, Failure> failures;
    std::map<std::uint64_t, Memory> memory;
    int devices = 1, major = 9, minor = 0, version = 13000;
    int retained[16] = {};
    int modules = 0;
    int clusters = 128;                        // blocks in clusters that run at once
    int static_shared = 0;                     // bytes that kernels declare
    std::map<std::uintptr_t, Nodes> captures;  // by stream, the last one at the end
    std::vector<Nodes*> graphs;                // instantiated
};

State& state() {
    static State* instance = new State;
    return *instance;
}

thread_local std::vector<std::intptr_t> contexts;  // of this thread; a context is its device's number + 1

constexpr int kInvalidValue = 1, kInvalidImage = 200, kInvalidContext = 201, kNoBinary = 209, kNotFound = 500;

// Records a call; returns the result it has to give.
int enter(const std::string& name, const std::string& detail = "") {
    State& s = state();
    const std::lock_guard<std::mutex> lock(s.mutex);
    const std::string line = detail.empty() ? name : name + " " + detail;
    s.log += line + "\n";
    if (const char* path = std::getenv("FAKECUDA_LOG")) {
        if (FILE* file = std::fopen(path, "a")) {
            std::fprintf(file, "%s\n", line.c_str());
            std::fclose(file);
        }
    }
    const auto found = s.failures.find(name);
    if (found == s.failures.end()) return 0;
    return found->second.skip-- > 0 ? 0 : found->second.code;
}

int enter_in_context(const std::string& name, const std::string& detail = "") {
    const int result = enter(name, detail);
    return result == 0 && contexts.empty() ? kInvalidContext : result;
}

const std::map<int, std::pair<const char*, const char*>> kNames{
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {4, {"CUDA_ERROR_DEINITIALIZED", "driver shutting down"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
};

// CUlaunchAttribute and CUlaunchConfig.
struct Attribute {
    int id;
    alignas(8) std::uint32_t value[16];
};
struct Config {
    unsigned grid[3], block[3], shared;
    std::uintptr_t stream;
    const Attribute* attributes;
    unsigned count;
};

template <typename Number>
std::string join(const Number* numbers, std::size_t count, const char* between = ",") {
    std::ostringstream text;
    for (std::size_t i = 0; i < count; ++i) text << (i == 0 ? "" : between) << numbers[i];
    return text.str();
}

std::string extents(const Config& config) {
    std::ostringstream text;
    text << "grid=" << join(config.grid, 3) << " block=" << join(config.block, 3)
         << " shared=" << config.shared;
    return text.str();
}

// Numbers as they are; larger parameters as {word;word;...}, with "misaligned" where they do not lie on 64
// bytes (tensor maps) or 128 (blocks).
std::string values(const FakeFunction& function, void** arguments) {
    std::string text;
    for (std::size_t i = 0; i < function.sizes.size(); ++i) {
        const std::size_t size = function.sizes[i], words = (size + 7) / 8;
        std::vector<std::uint64_t> value(words);
        std::memcpy(value.data(), arguments[i], size);
        text += i == 0 ? "" : ",";
        if (size <= 8) {
            text += std::to_string(value[0]);
            continue;
        }
        if (reinterpret_cast<std::uintptr_t>(arguments[i]) % (size == 128 ? 64 : 128) != 0)
            text += "misaligned";
        text += "{" + join(value.data(), words, ";") + "}";
    }
    return text;
}

// What a capture makes of a call on a stream.
int record(int result, std::uintptr_t stream, FakeFunction* function) {
    const auto found = state().captures.find(stream);
    if (result == 0 && found != state().captures.end()) found->second.push_back(new FakeNode{function});
    return result;
}

int current() { return contexts.empty() ? 0 : static_cast<int>(contexts.back()) - 1; }

}  // namespace

extern "C" {

// ---- control
void fake_fail(const char* call, int code, int skip) { state().failures[call] = {code, skip}; }
void fake_device(int count, int major, int minor, int version) {
    State& s = state();
    s.devices = count, s.major = major, s.minor = minor, s.version = version;
}
void fake_clusters(int blocks) { state().clusters = blocks; }
void fake_static_shared(int bytes) { state().static_shared = bytes; }
const char* fake_log() { return state().log.c_str(); }
void fake_clear() { state().log.clear(), state().failures.clear(); }
int fake_depth() { return static_cast<int>(contexts.size()); }
void fake_capture(std::uintptr_t stream) { state().captures[stream]; }
Nodes* fake_instantiate(std::uintptr_t stream) {
    State& s = state();
    s.graphs.push_back(new Nodes(s.captures[stream]));
    s.captures.erase(stream);
    return s.graphs.back();
}
void fake_own(std::uint64_t address, std::size_t bytes, int device) {
    state().memory[address] = {bytes, device};
}

// ---- driver
int cuInit(unsigned) { return enter("cuInit"); }
int cuDriverGetVersion(int* version) {
    *version = state().version;
    return enter("cuDriverGetVersion");
}
int cuGetErrorName(int code, const char** name) {
    const auto found = kNames.find(code);
    *name = found == kNames.end() ? nullptr : found->second.first;
    return 0;
}
int cuGetErrorString(int code, const char** text) {
    const auto found = kNames.find(code);
    *text = found == kNames.end() ? nullptr : found->second.second;
    return 0;
}
int cuDeviceGetCount(int* count) {
    *count = state().devices;
    return enter("cuDeviceGetCount");
}
int cuDeviceGet(int* handle, int device) {
    const int result = enter("cuDeviceGet", std::to_string(device));
    if (result == 0 && device >= state().devices) return 101;
    *handle = device;
    return result;
}
int cuDeviceGetAttribute(int* value, int attribute, int) {
    const State& s = state();
    *value = attribute == 75   ? s.major
             : attribute == 76 ? s.minor
             : attribute == 16 ? 132
             : attribute == 18 ? 0
                               : 232448;
    return enter("cuDeviceGetAttribute");
}
int cuDeviceGetName(char* name, int size, int) {
    std::snprintf(name, static_cast<std::size_t>(size), "Fake GPU");
    return enter("cuDeviceGetName");
}
int cuDevicePrimaryCtxRetain(std::intptr_t* context, int device) {
    *context = device + 1;
    ++state().retained[device];
    return enter("cuDevicePrimaryCtxRetain", std::to_string(device));
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    --state().retained[device];
    return enter("cuDevicePrimaryCtxRelease", std::to_string(device));
}
int cuDevicePrimaryCtxGetState(int device, unsigned* flags, int* active) {
    *flags = 0, *active = state().retained[device] > 0 ? 1 : 0;
    return enter("cuDevicePrimaryCtxGetState", std::to_string(device));
}
int cuDeviceTotalMem_v2(std::size_t* bytes, int) {
    *bytes = std::size_t{141} << 30;
    return enter("cuDeviceTotalMem");
}
int cuMemGetInfo_v2(std::size_t* free, std::size_t* total) {
    *total = std::size_t{141} << 30, *free = std::size_t{100} << 30;
    return enter_in_context("cuMemGetInfo");
}
int cuCtxGetCurrent(std::intptr_t* context) {
    *context = contexts.empty() ? 0 : contexts.back();
    return 0;
}
int cuCtxPushCurrent_v2(std::intptr_t context) {
    const int result = enter("cuCtxPushCurrent");
    if (result == 0) contexts.push_back(context);
    return result;
}
int cuCtxPopCurrent_v2(std::intptr_t* context) {
    if (contexts.empty()) return kInvalidContext;
    *context = contexts.back();
    contexts.pop_back();
    return enter("cuCtxPopCurrent");
}
int cuModuleLoadData(FakeModule** module, const char* image) {
    const int result =
        enter_in_context("cuModuleLoadData", std::string(image).substr(0, std::strcspn(image, "\n")));
    if (result != 0) return result;
    if (std::strncmp(image, "OTHER", 5) == 0) return kNoBinary;
    if (std::strncmp(image, "FAKE", 4) != 0) return kInvalidImage;
    *module = new FakeModule{{}, current()};
    std::istringstream text(image);
    std::string line;
    std::getline(text, line);
    while (std::getline(text, line)) {
        std::istringstream words(line);
        FakeFunction function;
        words >> function.symbol;
        for (std::size_t size; words >> size;) function.sizes.push_back(size);
        (*module)->functions[function.symbol] = function;
    }
    ++state().modules;
    return 0;
}
int cuModuleUnload(FakeModule* module) {
    const int result = enter_in_context("cuModuleUnload");
    if (result == 0) --state().modules, delete module;
    return result;
}
int cuModuleGetFunction(FakeFunction** function, FakeModule* module, const char* name) {
    const int result = enter_in_context("cuModuleGetFunction", name);
    if (result != 0) return result;
    const auto found = module->functions.find(name);
    if (found == module->functions.end()) return kNotFound;
    *function = &found->second;
    return 0;
}
int cuFuncGetAttribute(int* value, int attribute, FakeFunction*) {
    *value = attribute == 1 ? state().static_shared : 0;
    return enter_in_context("cuFuncGetAttribute");
}
int cuFuncSetAttribute(FakeFunction*, int attribute, int value) {
    return enter_in_context("cuFuncSetAttribute", std::to_string(attribute) + "=" + std::to_string(value));
}
#ifndef FAKECUDA_OLD
int cuFuncGetParamInfo(FakeFunction* function, std::size_t index, std::size_t* offset, std::size_t* size) {
    if (index >= function->sizes.size()) return kInvalidValue;
    *offset = 8 * index, *size = function->sizes[index];
    return 0;
}
#endif
int cuLaunchKernel(FakeFunction* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, std::uintptr_t stream, void** arguments, void**) {
    const Config config{{gx, gy, gz}, {bx, by, bz}, shared, stream, nullptr, 0};
    std::ostringstream text;
    text << function->symbol << " device=" << current() << " " << extents(config) << " stream=" << stream
         << " args=" << values(*function, arguments);
    return record(enter_in_context("cuLaunchKernel", text.str()), stream, function);
}
#ifndef FAKECUDA_OLD
int cuLaunchKernelEx(const Config* config, FakeFunction* function, void** arguments, void**) {
    std::ostringstream text;
    text << function->symbol << " device=" << current() << " " << extents(*config)
         << " stream=" << config->stream;
    for (unsigned i = 0; i < config->count; ++i) {
        const Attribute& attribute = config->attributes[i];
        text << " attribute" << attribute.id << "=" << join(attribute.value, attribute.id == 4 ? 3 : 1);
    }
    text << " args=" << values(*function, arguments);
    return record(enter_in_context("cuLaunchKernelEx", text.str()), config->stream, function);
}
int cuOccupancyMaxActiveClusters(int* clusters, FakeFunction* function, const Config* config) {
    const auto* cluster =
        config->count == 1 && config->attributes[0].id == 4 ? config->attributes[0].value : nullptr;
    *clusters =
        cluster == nullptr ? 0 : state().clusters / static_cast<int>(cluster[0] * cluster[1] * cluster[2]);
    return enter_in_context("cuOccupancyMaxActiveClusters", function->symbol + " " + extents(*config));
}
// The map becomes the address, the rank and the extents.
int cuTensorMapEncodeTiled(std::uint64_t* map, int element, std::uint32_t rank, std::uint64_t address,
                           const std::uint64_t* dims, const std::uint64_t* strides, const std::uint32_t* box,
                           const std::uint32_t* steps, int interleave, int swizzle, int promotion, int fill) {
    std::ostringstream text;
    text << "type=" << element << " address=" << address << " dims=" << join(dims, rank)
         << " strides=" << join(strides, rank - 1) << " box=" << join(box, rank)
         << " steps=" << join(steps, rank) << " interleave=" << interleave << " swizzle=" << swizzle
         << " promotion=" << promotion << " fill=" << fill;
    const int result = enter_in_context("cuTensorMapEncodeTiled", text.str());
    if (result != 0) return result;
    for (std::uint32_t i = 0; i + 1 < rank; ++i) {
        if (strides[i] % 16 != 0) return kInvalidValue;
    }
    std::memset(map, 0, 128);
    map[0] = address, map[1] = rank;
    std::memcpy(map + 2, dims, rank * sizeof *dims);
    return 0;
}
#endif
int cuMemsetD8Async(std::uint64_t address, unsigned char value, std::size_t bytes, std::uintptr_t stream) {
    const int result = enter_in_context(
        "cuMemsetD8Async", std::to_string(address) + " value=" + std::to_string(value) +
                               " bytes=" + std::to_string(bytes) + " stream=" + std::to_string(stream));
    if (result == 0) std::memset(reinterpret_cast<void*>(address), value, bytes);
    return record(result, stream, nullptr);
}
int cuPointerGetAttribute(int* value, int, std::uint64_t address) {
    const int result = enter("cuPointerGetAttribute");
    if (result != 0) return result;
    for (const auto& [start, memory] : state().memory) {
        if (address < start || address >= start + memory.bytes) continue;
        *value = memory.device;
        return 0;
    }
    return kInvalidValue;
}
int cuStreamSynchronize(std::uintptr_t stream) {
    return enter_in_context("cuStreamSynchronize", std::to_string(stream));
}
int cuStreamWaitEvent(std::uintptr_t stream, int*, unsigned) {
    return enter_in_context("cuStreamWaitEvent", std::to_string(stream));
}
#ifndef FAKECUDA_OLD
// As the driver does, the nodes that the next call would depend on: the last one.
int cuStreamGetCaptureInfo_v3(std::uintptr_t stream, int* status, std::uint64_t* id, Nodes** graph,
                              FakeNode* const** nodes, const void** edges, std::size_t* count) {
    const int result = enter_in_context("cuStreamGetCaptureInfo", std::to_string(stream));
    const auto found = state().captures.find(stream);
    *status = found != state().captures.end();
    if (result != 0 || *status == 0) return result;
    const bool empty = found->second.empty();
    *id = 1, *graph = &found->second, *edges = nullptr, *count = empty ? 0 : 1;
    *nodes = empty ? nullptr : &found->second.back();
    return 0;
}
struct NodeParams {
    FakeFunction* function;
    unsigned grid[3], block[3], shared;
    void** arguments;
    void *extra, *kernel, *context;
};
int cuGraphKernelNodeGetParams_v2(FakeNode* node, NodeParams* params) {
    params->function = node->function;
    return node->function == nullptr ? kInvalidValue : enter_in_context("cuGraphKernelNodeGetParams");
}
int cuGraphExecKernelNodeSetParams_v2(Nodes* graph, FakeNode* node, const NodeParams* params) {
    std::ostringstream text;
    text << params->function->symbol << " grid=" << join(params->grid, 3)
         << " block=" << join(params->block, 3) << " shared=" << params->shared
         << " args=" << values(*params->function, params->arguments);
    const int result = enter_in_context("cuGraphExecKernelNodeSetParams", text.str());
    if (result != 0) return result;
    for (Nodes* known : state().graphs) {
        if (known != graph) continue;
        for (FakeNode* held : *known) {
            if (held == node) return params->function == node->function ? 0 : kInvalidValue;
        }
    }
    return kInvalidValue;
}
#endif
int cuStreamIsCapturing(std::uintptr_t stream, int* status) {
    *status = state().captures.count(stream) != 0;
    return enter_in_context("cuStreamIsCapturing", std::to_string(stream));
}
int cuEventCreate(int** event, unsigned) {
    *event = new int(0);
    return enter_in_context("cuEventCreate");
}
int cuEventRecord(int*, std::uintptr_t stream) {
    return enter_in_context("cuEventRecord", std::to_string(stream));
}
int cuEventDestroy_v2(int* event) {
    delete event;
    return enter_in_context("cuEventDestroy");
}
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
    const int result = enter_in_context("cuMemAlloc", std::to_string(bytes));
    if (result != 0) return result;
    *address = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    state().memory[*address] = {bytes, current()};
    return 0;
}
int cuMemFree_v2(std::uint64_t address) {
    state().memory.erase(address);
    std::free(reinterpret_cast<void*>(address));
    return enter_in_context("cuMemFree");
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
    std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return enter_in_context("cuMemcpyHtoD", std::to_string(bytes));
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return enter_in_context("cuMemcpyDtoH", std::to_string(bytes));
}

}  // extern "C"
