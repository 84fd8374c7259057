#include "stub.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <utility>

#include "errors.hpp"
#include "tensor_map.hpp"

namespace wootz {
namespace {

constexpr std::size_t kAlignment = 128;         // of parameter blocks, at least
constexpr std::size_t kMaxParameters = 32764;   // bytes of a kernel's parameters
constexpr std::size_t kSmallParameters = 4096;  // blocks up to here stay on the stack

// What happens inside a stub, on this thread: a stub cannot throw.
struct Trace {
    bool dry = false;  // while it is asked, nothing is encoded
    driver::Result encoding = driver::kSuccess, memory = driver::kSuccess;
    bool no_encoder = false;
    std::string map;  // the first one that failed
};
thread_local Trace trace;

// Stands for cuTensorMapEncodeTiled.
driver::Result encode_for_stub(void* map, int element, std::uint32_t rank, void* address,
                               const std::uint64_t* dims, const std::uint64_t* strides,
                               const std::uint32_t* box, const std::uint32_t* element_strides, int interleave,
                               int swizzle, int promotion, int fill) noexcept {
    if (trace.dry) {
        std::memset(map, 0, kMapBytes);
        return driver::kSuccess;
    }
    try {
        const driver::Api& api = driver::api();
        trace.no_encoder = api.encode_tiled == nullptr;
        if (trace.no_encoder) return driver::kInvalidValue;
        const driver::Result result = api.encode_tiled(map, element, rank, address, dims, strides, box,
                                                       element_strides, interleave, swizzle, promotion, fill);
        if (result != driver::kSuccess && trace.encoding == driver::kSuccess) {
            trace.encoding = result;
            trace.map = describe_map(std::min<std::uint32_t>(rank, kMaxMapRank),
                                     reinterpret_cast<std::uintptr_t>(address), dims, strides, box);
        }
        return result;
    } catch (const std::exception&) {  // the driver went away: the launch will say so
        return driver::kInvalidValue;
    }
}

int set_for_stub(void* context, void* address, int value, std::size_t bytes) noexcept {
    try {
        trace.memory = driver::api().memory_set(reinterpret_cast<std::uintptr_t>(address),
                                                static_cast<unsigned char>(value), bytes,
                                                static_cast<driver::Stream>(context));
        return trace.memory;
    } catch (const std::exception&) {
        return driver::kInvalidValue;
    }
}

// For a node of a graph, whose memory is set by a node of its own.
int set_nothing(void*, void*, int, std::size_t) noexcept { return 0; }

// Memory for a parameter block: on the stack while it is small.
class Block {
  public:
    Block(std::size_t size, std::size_t alignment) : alignment_(std::max(alignment, kAlignment)) {
        if (size > small_.size() || alignment_ > kAlignment)
            large_ = ::operator new(size, std::align_val_t{alignment_});
    }
    ~Block() {
        if (large_ != nullptr) ::operator delete(large_, std::align_val_t{alignment_});
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    void* data() { return large_ != nullptr ? large_ : small_.data(); }

  private:
    std::size_t alignment_;
    void* large_ = nullptr;
    alignas(kAlignment) std::array<unsigned char, kSmallParameters> small_;
};

Dim3 wide(const std::uint32_t (&extents)[3]) { return {extents[0], extents[1], extents[2]}; }

Shape shape_of(const wootz_launch& launch) {
    return {wide(launch.grid), wide(launch.block), wide(launch.cluster), launch.shared};
}

bool clustered(const wootz_launch& launch) {
    return launch.cluster[0] != 1 || launch.cluster[1] != 1 || launch.cluster[2] != 1;
}

}  // namespace

// ---- the shared object

Stub::Stub(const char* image, std::size_t size, const std::string& name, const std::string& build)
    : name_(name), module_(image, size, name) {
    const auto text = reinterpret_cast<const char* (*)()>(module_.symbol("wootz_stub_build"))();
    if (text == nullptr || text != build) {
        throw Error(ErrorKind::artifact,
                    name + " was made of source " + (text != nullptr ? text : "unknown") +
                        ", its kernels of " + build +
                        ": a stub and a binary of different builds; rebuild the artifacts");
    }
    reinterpret_cast<void (*)(void*)>(module_.symbol("wootz_stub_encode"))(
        reinterpret_cast<void*>(&encode_for_stub));
}

Stub::Query Stub::query(const std::string& prefix) const {
    return reinterpret_cast<Query>(module_.symbol(prefix + "_query"));
}

Stub::Fill Stub::fill(const std::string& prefix) const {
    return reinterpret_cast<Fill>(module_.symbol(prefix + "_fill"));
}

// ---- entry points

StubFunction::StubFunction(std::shared_ptr<CudaModule> module, const std::string& symbol,
                           std::shared_ptr<const Stub> stub, const std::string& prefix, bool early,
                           Limits limits)
    : entry_(std::move(module), symbol),
      early_(early),
      stub_(std::move(stub)),
      query_(stub_->query(prefix)),
      fill_(stub_->fill(prefix)),
      limits_(limits) {
    const driver::Scope scope(entry_.device());
    bool known = false;
    parameter_bytes_ = entry_.parameter_bytes(0, known);
    if (known && (parameter_bytes_ == 0 || entry_.parameter_bytes(1, known) != 0)) {
        throw Error(ErrorKind::artifact, symbol + " takes " + (parameter_bytes_ == 0 ? "no" : "several") +
                                             " parameters, not one block as its stub fills it; "
                                             "rebuild the artifacts");
    }
}

wootz_problem StubFunction::describe(const Problem& problem, int clusters) const {
    return {problem.arrays.data(),
            problem.shape.data(),
            problem.scalars.data(),
            nullptr,
            0,
            limits_.sms,
            clusters};
}

// False when the entry point cannot run the problem.
bool StubFunction::ask(const wootz_problem& problem, wootz_launch& launch) const {
    trace = {};
    trace.dry = true;
    launch = {};
    const int code = query_(&problem, &launch);
    trace.dry = false;
    if (code == WOOTZ_STUB_CANNOT) return false;
    if (code != WOOTZ_STUB_OK) {
        throw Error(ErrorKind::artifact, stub_->name() + ": the query of " + entry_.symbol() +
                                             " failed with code " + std::to_string(code) +
                                             "; rebuild the artifacts");
    }
    return true;
}

void StubFunction::check(const wootz_launch& launch) const {
    if (parameter_bytes_ != 0 && launch.params_size != parameter_bytes_) {
        throw Error(ErrorKind::artifact,
                    entry_.symbol() + " takes a parameter block of " + std::to_string(parameter_bytes_) +
                        " bytes, " + stub_->name() + " fills one of " + std::to_string(launch.params_size) +
                        ": a stub and a binary of different builds; rebuild the artifacts");
    }
    const std::uint64_t alignment = launch.params_align;
    if (launch.params_size == 0 || launch.params_size > kMaxParameters || alignment == 0 ||
        alignment > 4096 || (alignment & (alignment - 1)) != 0 ||
        std::count(launch.cluster, launch.cluster + 3, 0U) != 0) {
        throw Error(ErrorKind::artifact, stub_->name() + ": the query of " + entry_.symbol() +
                                             " describes no launch; rebuild the artifacts");
    }
    const std::uint64_t shared = std::uint64_t{launch.shared} + entry_.static_shared();
    if (shared > limits_.shared) {
        throw Error(ErrorKind::device, entry_.symbol() + " needs " + std::to_string(shared) +
                                           " bytes of shared memory a block; the device has " +
                                           std::to_string(limits_.shared));
    }
}

int StubFunction::clusters_of(const wootz_launch& launch) const {
    if (!clustered(launch)) return 0;
    Occupancy wanted{};
    wanted.shared = launch.shared;
    std::copy(launch.block, launch.block + 3, wanted.block);
    std::copy(launch.cluster, launch.cluster + 3, wanted.cluster);
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const Occupancy& known : occupancies_) {
        if (std::memcmp(&known, &wanted, offsetof(Occupancy, clusters)) == 0) return known.clusters;
    }
    wanted.clusters = entry_.max_active_clusters(shape_of(launch));
    occupancies_.push_back(wanted);
    return wanted.clusters;
}

std::optional<StubCall> StubFunction::query(Problem problem) const {
    int clusters = 0;
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (!occupancies_.empty()) clusters = occupancies_.back().clusters;
    }
    wootz_launch launch{};
    // The shape of a launch says how many clusters run at once, and its grid may depend on that number.
    for (int round = 0; round < 3; ++round) {
        if (!ask(describe(problem, clusters), launch)) return std::nullopt;
        check(launch);
        const int found = clusters_of(launch);
        if (found == clusters) return StubCall(shared_from_this(), std::move(problem), clusters, launch);
        clusters = found;
    }
    throw Error(ErrorKind::artifact, stub_->name() + ": the query of " + entry_.symbol() +
                                         " never settles on a cluster; rebuild the artifacts");
}

void StubFunction::fill(const wootz_problem& problem, void* params, wootz_memset set,
                        driver::Stream stream) const {
    trace = {};
    const int code = fill_(&problem, params, set, stream);
    if (trace.no_encoder) driver::need(false, "cuTensorMapEncodeTiled", "12.0");
    try {
        driver::check(trace.encoding, "cuTensorMapEncodeTiled");
    } catch (const DriverFailure& failure) {
        throw DriverFailure(failure.code(), failure.name(), failure.call(),
                            entry_.symbol() + ": " + trace.map);
    }
    driver::check(trace.memory, "cuMemsetD8Async");
    if (code == WOOTZ_STUB_OK) return;
    throw Error(ErrorKind::artifact, stub_->name() + ": filling the parameters of " + entry_.symbol() +
                                         " failed with code " + std::to_string(code) +
                                         "; rebuild the artifacts");
}

// ---- launches

class StubStep final : public Step {
  public:
    StubStep(StubCall call, std::vector<std::uint32_t> arrays, std::size_t reach, bool packs)
        : Step(reach),
          call_(std::move(call)),
          arrays_(std::move(arrays)),
          launch_({call_.function_, &call_.function_->entry_}, shape_of(call_.launch_),
                  call_.function_->early_, packs) {}

    void run(const Call& call) const override {
        with_params(call, &set_for_stub, [&](void** params) { launch_.enqueue(call.stream, params); });
    }

    bool alone() const override { return launch_.alone(); }

    void update(const Call& call, driver::GraphExec graph, driver::GraphNode node) const override {
        with_params(call, &set_nothing, [&](void** params) { launch_.update(graph, node, params); });
    }

  private:
    template <typename Use>
    void with_params(const Call& call, wootz_memset set, Use use) const {
        std::array<const void*, kMaxArguments> arrays;
        for (std::size_t i = 0; i < arrays_.size(); ++i)
            arrays[i] = reinterpret_cast<const void*>(call.addresses[arrays_[i]]);
        wootz_problem problem = call_.function_->describe(call_.problem_, call_.clusters_);
        problem.arrays = arrays.data();
        problem.workspace = reinterpret_cast<void*>(call.workspace);
        problem.workspace_bytes = call.workspace_bytes;
        Block params(call_.launch_.params_size, call_.launch_.params_align);
        call_.function_->fill(problem, params.data(), set, call.stream);
        std::array<void*, 1> arguments{params.data()};
        use(arguments.data());
    }

    StubCall call_;
    std::vector<std::uint32_t> arrays_;
    CudaLaunch launch_;
};

std::shared_ptr<Step> StubCall::step(std::vector<std::uint32_t> arrays, bool packs) const {
    if (arrays.size() != problem_.arrays.size() || arrays.size() > kMaxArguments)
        throw Error(ErrorKind::artifact, "a stub's launch has other arrays than it was asked about");
    std::size_t reach = 0;
    for (const std::uint32_t array : arrays) reach = std::max<std::size_t>(reach, array + 1);
    return std::make_shared<StubStep>(*this, std::move(arrays), reach, packs);
}

}  // namespace wootz
