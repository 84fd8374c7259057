// A stand-in for libcuda.so.1: records every call, hands host memory out as a device's, runs nothing, and
// fails on demand.
//
// A capture is begun by the loader or by fake_capture, and holds the nodes of its stream; fake_instantiate
// ends it and makes an instantiated graph of them. A graph's launch says what its nodes were.
//
// A "binary" is text: a line "FAKE ...", then a line "symbol size size ..." for each entry point.
// Environment: FAKECUDA_LOG=file: each call is appended there at once. Control functions (fake_*) are called
// through ctypes.
//
// It keeps account of what was handed out (fake_live), and notes what a real driver would not survive
// (fake_wrong): a handle used after its end, on another device, or in a context that nobody retains.

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Failure {
    int code, skip, times;  // times < 0: for ever
};
struct FakeFunction {
    std::string symbol;
    std::vector<std::size_t> sizes;
    int device = 0;
    std::map<int, int> attributes{};
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
    std::string text;
};
using Nodes = std::vector<FakeNode*>;
constexpr int kMaxDevices = 16;
struct State {
    std::mutex mutex;  // of all that follows; never held while a call is blocked
    std::condition_variable unblocked;
    std::string log, wrong, blocking;
    int blocked = 0;
    std::map<std::string, Failure> failures;
    std::map<std::uint64_t, Memory> memory;
    std::set<std::uint64_t> allocated;
    std::set<const void*> modules, events, nodes;  // nodes: captured graphs
    std::set<std::uintptr_t> streams;
    std::map<const Nodes*, int> execs;  // those that the loader has instantiated, and their devices
    int devices = 1, version = 13000;
    std::array<std::pair<int, int>, kMaxDevices> capability{};
    std::array<int, kMaxDevices> retained{};
    int clusters = 128;                        // blocks in clusters that run at once
    int static_shared = 0;                     // bytes that kernels declare
    std::map<std::uintptr_t, Nodes> captures;  // by stream, the last one at the end
    std::vector<Nodes*> graphs;                // instantiated
};

State& state() {
    static State* instance = [] {
        auto* made = new State;
        made->capability.fill({9, 0});
        return made;
    }();
    return *instance;
}

using Lock = std::unique_lock<std::mutex>;

thread_local std::vector<std::intptr_t> contexts;  // of this thread; a context is its device's number + 1

constexpr int kInvalidValue = 1, kInvalidDevice = 101, kInvalidImage = 200, kInvalidContext = 201,
              kNoBinary = 209, kInvalidHandle = 400, kNotFound = 500, kTimeout = 909;
constexpr std::chrono::seconds kPatience{20};  // of a blocked call

// The text of a binary: of a fat one, what is behind its head of 16 bytes.
const char* unwrapped(const char* image) {
    return std::strncmp(image, "\x50\xed\x55\xba", 4) == 0 ? image + 16 : image;
}

int current() { return contexts.empty() ? 0 : static_cast<int>(contexts.back()) - 1; }

void append(const std::string& line) {
    state().log += line + "\n";
    if (const char* path = std::getenv("FAKECUDA_LOG")) {
        if (FILE* file = std::fopen(path, "a")) {
            std::fprintf(file, "%s\n", line.c_str());
            std::fclose(file);
        }
    }
}

int injected(const std::string& name) {
    const auto found = state().failures.find(name);
    if (found == state().failures.end() || found->second.skip-- > 0 || found->second.times == 0) return 0;
    if (found->second.times > 0) --found->second.times;
    return found->second.code;
}

// Records a call; returns the result it has to give. What fails has no effect.
int enter(const std::string& name, const std::string& detail = "") {
    State& s = state();
    Lock lock(s.mutex);
    const int result = injected(name);
    append(name + (detail.empty() ? "" : " " + detail) +
           (result != 0 ? " failed=" + std::to_string(result) : ""));
    if (s.blocking != name) return result;
    ++s.blocked;
    const bool released = s.unblocked.wait_for(lock, kPatience, [&] { return s.blocking != name; });
    --s.blocked;
    return released ? result : kTimeout;
}

int misuse(const std::string& what, int result) {
    const Lock lock(state().mutex);
    state().wrong += what + "\n";
    return result;
}

bool retained(int device) {
    const Lock lock(state().mutex);
    return state().retained.at(static_cast<std::size_t>(device)) > 0;
}

int enter_in_context(const std::string& name, const std::string& detail = "") {
    const int result = enter(name, detail);
    if (result != 0) return result;
    if (contexts.empty()) return misuse(name + " with no context", kInvalidContext);
    return retained(current()) ? 0 : misuse(name + " in a context that was given back", kInvalidContext);
}

// As enter_in_context, for a call with something that belongs to a device.
int enter_on(int device, const std::string& name, const std::string& detail = "") {
    const int result = enter_in_context(name, detail);
    if (result != 0 || device == current()) return result;
    return misuse(name + " with a handle of another device", kInvalidHandle);
}

// True if a handle is among those that live. `forget`: it ends.
template <typename Set, typename Handle>
bool known(Set& set, Handle handle, bool forget = false) {
    const Lock lock(state().mutex);
    return forget ? set.erase(handle) != 0 : set.count(handle) != 0;
}

const std::map<int, std::pair<const char*, const char*>> kNames{
#include "codes.inc"
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
int record(int result, std::uintptr_t stream, FakeFunction* function, const std::string& text) {
    const Lock lock(state().mutex);
    const auto found = state().captures.find(stream);
    if (result == 0 && found != state().captures.end()) found->second.push_back(new FakeNode{function, text});
    return result;
}

// Of what the loader makes a graph of.
const char* captured(std::uintptr_t stream) { return known(state().streams, stream) ? " captured" : ""; }

// More shared memory than a kernel has leave for is an invalid argument.
int check_launch(const FakeFunction& function, const Config& config, int result) {
    constexpr unsigned kNoLeave = 48 * 1024;
    if (result != 0) return result;
    const Lock lock(state().mutex);
    const auto leave = function.attributes.find(8);
    const unsigned allowed = leave == function.attributes.end() ? 0 : static_cast<unsigned>(leave->second);
    const unsigned taken = config.shared + static_cast<unsigned>(state().static_shared);
    return taken <= kNoLeave || config.shared <= allowed ? 0 : kInvalidValue;
}

}  // namespace

extern "C" {

// ---- control
void fake_fail(const char* call, int code, int skip, int times) {
    const Lock lock(state().mutex);
    state().failures[call] = {code, skip, times};
}
void fake_device(int count, int major, int minor, int version) {
    State& s = state();
    const Lock lock(s.mutex);
    s.devices = count, s.version = version;
    s.capability.fill({major, minor});
}
void fake_capability(int device, int major, int minor) {
    const Lock lock(state().mutex);
    state().capability.at(static_cast<std::size_t>(device)) = {major, minor};
}
void fake_clusters(int blocks) { state().clusters = blocks; }
void fake_static_shared(int bytes) { state().static_shared = bytes; }
const char* fake_log() {
    static thread_local std::string copy;
    const Lock lock(state().mutex);
    copy = state().log;
    return copy.c_str();
}
void fake_clear() {
    const Lock lock(state().mutex);
    state().log.clear(), state().failures.clear();
}
int fake_depth() { return static_cast<int>(contexts.size()); }
void fake_capture(std::uintptr_t stream) { state().captures[stream]; }
Nodes* fake_instantiate(std::uintptr_t stream) {
    State& s = state();
    s.graphs.push_back(new Nodes(s.captures[stream]));
    s.captures.erase(stream);
    return s.graphs.back();
}
void fake_own(std::uint64_t address, std::size_t bytes, int device) {
    const Lock lock(state().mutex);
    state().memory[address] = {bytes, device};
}
// What was handed out and not given back: "contexts modules events memory streams graphs execs".
const char* fake_live() {
    static thread_local std::string text;
    const State& s = state();
    const Lock lock(state().mutex);
    int contexts_held = 0;
    for (const int each : s.retained) contexts_held += each;
    const std::array<std::size_t, 7> live{static_cast<std::size_t>(contexts_held),
                                          s.modules.size(),
                                          s.events.size(),
                                          s.allocated.size(),
                                          s.streams.size(),
                                          s.nodes.size(),
                                          s.execs.size()};
    text = join(live.data(), live.size(), " ");
    return text.c_str();
}
const char* fake_wrong() {
    static thread_local std::string copy;
    const Lock lock(state().mutex);
    copy = state().wrong;
    return copy.c_str();
}
// Calls of this name wait, up to kPatience, until another is named. "" for none.
void fake_block(const char* call) {
    const Lock lock(state().mutex);
    state().blocking = call;
    state().unblocked.notify_all();
}
int fake_blocked() {
    const Lock lock(state().mutex);
    return state().blocked;
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
    if (result == 0 && (device < 0 || device >= state().devices)) return kInvalidDevice;
    *handle = device;
    return result;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
    const auto& [major, minor] = state().capability.at(static_cast<std::size_t>(device));
    *value = attribute == 75   ? major
             : attribute == 76 ? minor
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
    const int result = enter("cuDevicePrimaryCtxRetain", std::to_string(device));
    if (result != 0) return result;
    const Lock lock(state().mutex);
    *context = device + 1;
    ++state().retained.at(static_cast<std::size_t>(device));
    return 0;
}
int cuDevicePrimaryCtxRelease_v2(int device) {
    const int result = enter("cuDevicePrimaryCtxRelease", std::to_string(device));
    if (result != 0) return result;
    if (!retained(device)) return misuse("a context given back twice", kInvalidContext);
    const Lock lock(state().mutex);
    --state().retained.at(static_cast<std::size_t>(device));
    return 0;
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
    if (result != 0) return result;
    if (!retained(static_cast<int>(context) - 1))
        return misuse("a context made current that was given back", kInvalidContext);
    contexts.push_back(context);
    return 0;
}
int cuCtxPopCurrent_v2(std::intptr_t* context) {
    const int result = enter("cuCtxPopCurrent");
    if (result != 0) return result;
    if (contexts.empty()) return misuse("no context to pop", kInvalidContext);
    *context = contexts.back();
    contexts.pop_back();
    return 0;
}
int cuModuleLoadData(FakeModule** module, const char* image) {
    image = unwrapped(image);
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
        function.device = current();
        (*module)->functions[function.symbol] = function;
    }
    const Lock lock(state().mutex);
    state().modules.insert(*module);
    return 0;
}
int cuModuleUnload(FakeModule* module) {
    const int result = enter_in_context("cuModuleUnload");
    if (result != 0) return result;
    if (!known(state().modules, module, true)) return misuse("a module unloaded twice", kInvalidHandle);
    delete module;
    return 0;
}
int cuModuleGetFunction(FakeFunction** function, FakeModule* module, const char* name) {
    if (!known(state().modules, module)) return misuse("a module used after its end", kInvalidHandle);
    const int result = enter_on(module->device, "cuModuleGetFunction", name);
    if (result != 0) return result;
    const auto found = module->functions.find(name);
    if (found == module->functions.end()) return kNotFound;
    *function = &found->second;
    return 0;
}
int cuFuncGetAttribute(int* value, int attribute, FakeFunction* function) {
    const int result = enter_on(function->device, "cuFuncGetAttribute");
    if (result != 0) return result;
    const Lock lock(state().mutex);
    const auto found = function->attributes.find(attribute);
    *value = attribute == 1 ? state().static_shared : found != function->attributes.end() ? found->second : 0;
    return 0;
}
int cuFuncSetAttribute(FakeFunction* function, int attribute, int value) {
    const std::string detail = std::to_string(attribute) + "=" + std::to_string(value);
    const int result = enter_on(function->device, "cuFuncSetAttribute", detail);
    if (result != 0) return result;
    const Lock lock(state().mutex);
    function->attributes[attribute] = value;
    return 0;
}
#ifndef FAKECUDA_OLD
int cuFuncGetParamInfo(FakeFunction* function, std::size_t index, std::size_t* offset, std::size_t* size) {
    const int result = enter_on(function->device, "cuFuncGetParamInfo");
    if (result != 0) return result;
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
         << captured(stream) << " args=" << values(*function, arguments);
    const int result =
        check_launch(*function, config, enter_on(function->device, "cuLaunchKernel", text.str()));
    return record(result, stream, function, text.str());
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
    text << captured(config->stream) << " args=" << values(*function, arguments);
    const int result =
        check_launch(*function, *config, enter_on(function->device, "cuLaunchKernelEx", text.str()));
    return record(result, config->stream, function, text.str());
}
int cuOccupancyMaxActiveClusters(int* clusters, FakeFunction* function, const Config* config) {
    const auto* cluster =
        config->count == 1 && config->attributes[0].id == 4 ? config->attributes[0].value : nullptr;
    *clusters =
        cluster == nullptr ? 0 : state().clusters / static_cast<int>(cluster[0] * cluster[1] * cluster[2]);
    return enter_on(function->device, "cuOccupancyMaxActiveClusters",
                    function->symbol + " " + extents(*config));
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
    return record(result, stream, nullptr, "memset");
}
int cuPointerGetAttribute(int* value, int, std::uint64_t address) {
    const int result = enter("cuPointerGetAttribute");
    if (result != 0) return result;
    const Lock lock(state().mutex);
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
int cuStreamWaitEvent(std::uintptr_t stream, int* event, unsigned) {
    if (!known(state().events, event)) return misuse("a wait for an event after its end", kInvalidHandle);
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
    const std::vector<Nodes*>& graphs = state().graphs;
    if (std::find(graphs.begin(), graphs.end(), graph) == graphs.end() && !known(state().execs, graph))
        return kInvalidValue;
    const bool held = std::find(graph->begin(), graph->end(), node) != graph->end();
    return held && params->function == node->function ? 0 : kInvalidValue;
}
#endif
#ifndef FAKECUDA_OLD
int cuStreamCreate(std::uintptr_t* stream, unsigned) {
    const int result = enter_in_context("cuStreamCreate");
    if (result != 0) return result;
    *stream = reinterpret_cast<std::uintptr_t>(new int(current()));
    const Lock lock(state().mutex);
    state().streams.insert(*stream);
    return 0;
}
int cuStreamDestroy_v2(std::uintptr_t stream) {
    const int result = enter_in_context("cuStreamDestroy");
    if (result != 0) return result;
    if (known(state().captures, stream)) return misuse("a stream destroyed under capture", kInvalidHandle);
    return known(state().streams, stream, true) ? 0 : misuse("a stream destroyed twice", kInvalidHandle);
}
int cuThreadExchangeStreamCaptureMode(int* mode) {
    static thread_local int held = 0;
    const int result = enter("cuThreadExchangeStreamCaptureMode", std::to_string(*mode));
    if (result == 0) std::swap(held, *mode);
    return result;
}
int cuStreamBeginCapture_v2(std::uintptr_t stream, int) {
    const int result = enter_in_context("cuStreamBeginCapture");
    if (result != 0) return result;
    const Lock lock(state().mutex);
    state().captures[stream];
    return 0;
}
// As the driver does, it ends the capture though it fails.
int cuStreamEndCapture(std::uintptr_t stream, Nodes** graph) {
    const int result = enter_in_context("cuStreamEndCapture");
    const Lock lock(state().mutex);
    const auto found = state().captures.find(stream);
    if (found == state().captures.end()) return kInvalidValue;
    *graph = result != 0 ? nullptr : new Nodes(found->second);
    state().captures.erase(found);
    if (result == 0) state().nodes.insert(*graph);
    return result;
}
int cuGraphInstantiateWithFlags(Nodes** exec, Nodes* graph, unsigned long long) {
    if (!known(state().nodes, graph)) return misuse("a graph used after its end", kInvalidHandle);
    const int result = enter_in_context("cuGraphInstantiateWithFlags");
    if (result != 0) return result;
    *exec = new Nodes(*graph);
    const Lock lock(state().mutex);
    state().execs[*exec] = current();
    return 0;
}
int cuGraphLaunch(Nodes* exec, std::uintptr_t stream) {
    int device = 0;
    {
        const Lock lock(state().mutex);
        const auto found = state().execs.find(exec);
        device = found == state().execs.end() ? -1 : found->second;
    }
    if (device < 0) return misuse("a graph launched after its end", kInvalidHandle);
    if (known(state().captures, stream)) return misuse("a graph launched under capture", kInvalidHandle);
    std::string text = "stream=" + std::to_string(stream);
    for (const FakeNode* node : *exec) {
        if (node->function != nullptr && state().modules.empty())
            return misuse("a graph launched without its module", kInvalidHandle);
        text += " " + node->text.substr(0, node->text.find(" captured")) +
                node->text.substr(std::min(node->text.size(), node->text.find(" args=")));
    }
    return enter_on(device, "cuGraphLaunch", text);
}
int cuGraphDestroy(Nodes* graph) {
    const int result = enter_in_context("cuGraphDestroy");
    if (result != 0) return result;
    return known(state().nodes, graph, true) ? 0 : misuse("a graph destroyed twice", kInvalidHandle);
}
int cuGraphExecDestroy(Nodes* exec) {
    const int result = enter_in_context("cuGraphExecDestroy");
    if (result != 0) return result;
    return known(state().execs, exec, true) ? 0
                                            : misuse("an executable graph destroyed twice", kInvalidHandle);
}
#endif
int cuStreamIsCapturing(std::uintptr_t stream, int* status) {
    *status = state().captures.count(stream) != 0;
    return enter_in_context("cuStreamIsCapturing", std::to_string(stream));
}
int cuEventCreate(int** event, unsigned) {
    const int result = enter_in_context("cuEventCreate");
    if (result != 0) return result;
    *event = new int(current());
    const Lock lock(state().mutex);
    state().events.insert(*event);
    return 0;
}
int cuEventRecord(int* event, std::uintptr_t stream) {
    if (!known(state().events, event)) return misuse("an event recorded after its end", kInvalidHandle);
    return enter_on(*event, "cuEventRecord", std::to_string(stream));
}
int cuEventDestroy_v2(int* event) {
    const int result = enter_in_context("cuEventDestroy");
    if (result != 0) return result;
    if (!known(state().events, event, true)) return misuse("an event destroyed twice", kInvalidHandle);
    delete event;
    return 0;
}
int cuMemAlloc_v2(std::uint64_t* address, std::size_t bytes) {
    const int result = enter_in_context("cuMemAlloc", std::to_string(bytes));
    if (result != 0) return result;
    *address = reinterpret_cast<std::uint64_t>(std::aligned_alloc(256, (bytes + 255) / 256 * 256));
    const Lock lock(state().mutex);
    state().memory[*address] = {bytes, current()};
    state().allocated.insert(*address);
    return 0;
}
int cuMemFree_v2(std::uint64_t address) {
    const int result = enter_in_context("cuMemFree");
    if (result != 0) return result;
    if (!known(state().allocated, address, true)) return misuse("memory freed twice", kInvalidValue);
    const Lock lock(state().mutex);
    state().memory.erase(address);
    std::free(reinterpret_cast<void*>(address));
    return 0;
}
int cuMemcpyHtoD_v2(std::uint64_t to, const void* from, std::size_t bytes) {
    const int result = enter_in_context("cuMemcpyHtoD", std::to_string(bytes));
    if (result == 0) std::memcpy(reinterpret_cast<void*>(to), from, bytes);
    return result;
}
int cuMemcpyDtoH_v2(void* to, std::uint64_t from, std::size_t bytes) {
    const int result = enter_in_context("cuMemcpyDtoH", std::to_string(bytes));
    if (result == 0) std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
    return result;
}

}  // extern "C"
