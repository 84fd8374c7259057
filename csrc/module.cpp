#include "module.hpp"

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "errors.hpp"

namespace wootz {
namespace {

constexpr int kStaticShared = 1, kMaxDynamicShared = 8, kAnyCluster = 14;  // CUfunction_attribute
constexpr int kClusterExtents = 4, kEarlyLaunch = 6;                       // CUlaunchAttributeID
constexpr unsigned kSharedOptIn = 48 * 1024;   // above this, in all, a kernel has to ask for it
constexpr std::uint64_t kPortableCluster = 8;  // larger ones have to be asked for
constexpr Dim3 kGridLimits{2147483647, 65535, 65535};
constexpr Dim3 kBlockLimits{1024, 1024, 64};
constexpr std::uint64_t kBlockThreads = 1024;

std::uint64_t count(const Dim3& extents) { return extents[0] * extents[1] * extents[2]; }

// The streams, by device, whose last launch wrote weights: few, and mostly none.
class PackedStreams {
  public:
    bool holds(int device, driver::Stream stream) const {
        if (!any_.load(std::memory_order_acquire)) return false;
        if (stream == nullptr) stream = driver::kDefaultStream;  // two names of one stream
        const std::lock_guard<std::mutex> lock(mutex_);
        return streams_.count({device, stream}) != 0;
    }

    // What was launched last on a stream.
    void note(int device, driver::Stream stream, bool packs) {
        if (!packs && !any_.load(std::memory_order_acquire)) return;
        if (stream == nullptr) stream = driver::kDefaultStream;
        const std::lock_guard<std::mutex> lock(mutex_);
        if (packs) {
            streams_.insert({device, stream});
        } else {
            streams_.erase({device, stream});
        }
        any_.store(!streams_.empty(), std::memory_order_release);
    }

  private:
    std::atomic<bool> any_{false};
    mutable std::mutex mutex_;
    std::set<std::pair<int, driver::Stream>> streams_;
};

PackedStreams& packed_streams() {
    static auto* instance = new PackedStreams;  // never destroyed: launches may come late
    return *instance;
}

void check_cluster(const Shape& shape, const std::string& symbol) {
    for (std::size_t i = 0; i < 3; ++i) {
        if (shape.cluster[i] >= 1 && shape.cluster[i] <= shape.grid[i] &&
            shape.grid[i] % shape.cluster[i] == 0)
            continue;
        throw Error(ErrorKind::artifact, symbol + ": a grid of " + std::to_string(shape.grid[i]) +
                                             " blocks along an axis is no multiple of its clusters of " +
                                             std::to_string(shape.cluster[i]) + "; rebuild the artifacts");
    }
}

}  // namespace

// ---- shapes

Config::Config(const Shape& shape, bool early) : early_(early) {
    for (std::size_t i = 0; i < 3; ++i) {
        launch_.grid[i] = static_cast<unsigned>(shape.grid[i]);
        launch_.block[i] = static_cast<unsigned>(shape.block[i]);
    }
    launch_.shared = shape.shared;
    launch_.attributes = attributes_.data();
    if (count(shape.cluster) > 1) {
        driver::LaunchAttribute& cluster = attributes_[launch_.attribute_count++];
        cluster.id = kClusterExtents;
        for (std::size_t i = 0; i < 3; ++i) cluster.value[i] = static_cast<std::uint32_t>(shape.cluster[i]);
    }
    if (early) {  // the last one, so that it can be left out
        driver::LaunchAttribute& attribute = attributes_[launch_.attribute_count++];
        attribute.id = kEarlyLaunch;
        attribute.value[0] = 1;
    }
}

driver::LaunchConfig Config::on(driver::Stream stream, bool late) const {
    driver::LaunchConfig config = launch_;
    config.stream = stream;
    if (late && early_) --config.attribute_count;
    return config;
}

// ---- modules

CudaModule::CudaModule(int device, const char* image) : device_(device) {
    driver::Scope scope(device);
    driver::check(driver::api().module_load(&handle_, image), "cuModuleLoadData");
}

CudaModule::~CudaModule() {
    if (handle_ == nullptr || !driver::usable()) return;
    try {
        driver::Scope scope(device_);
        driver::api().module_unload(handle_);
    } catch (const std::exception&) {  // a lost context has unloaded it already
    }
}

void CudaModule::raise_shared(driver::Function function, unsigned bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    unsigned& allowed = allowed_[function];
    if (bytes <= allowed) return;
    driver::check(driver::api().function_set(function, kMaxDynamicShared, static_cast<int>(bytes)),
                  "cuFuncSetAttribute");
    allowed = bytes;
}

// ---- entry points

CudaEntry::CudaEntry(std::shared_ptr<CudaModule> module, std::string symbol)
    : module_(std::move(module)), symbol_(std::move(symbol)) {
    driver::Scope scope(module_->device());
    driver::check(driver::api().module_function(&handle_, module_->handle(), symbol_.c_str()),
                  "cuModuleGetFunction");
    int bytes = 0;
    driver::check(driver::api().function_get(&bytes, kStaticShared, handle_), "cuFuncGetAttribute");
    static_shared_ = static_cast<unsigned>(bytes);
    allowed_shared_ = kSharedOptIn - std::min(kSharedOptIn, static_shared_);
}

std::size_t CudaEntry::parameter_bytes(std::size_t index, bool& known) const {
    const driver::Api& api = driver::api();
    known = api.function_parameter != nullptr;  // drivers before CUDA 12.4 have no such query
    if (!known) return 0;
    std::size_t offset = 0, size = 0;
    const driver::Result result = api.function_parameter(handle_, index, &offset, &size);
    if (result == driver::kInvalidValue) return 0;  // past the last one
    driver::check(result, "cuFuncGetParamInfo");
    return size;
}

void CudaEntry::allow_shared(unsigned bytes) const {
    if (bytes <= allowed_shared_.load(std::memory_order_relaxed)) return;
    driver::Scope scope(device());
    module_->raise_shared(handle_, bytes);
    allowed_shared_.store(bytes, std::memory_order_relaxed);
}

void CudaEntry::allow_cluster(std::uint64_t blocks) const {
    if (blocks <= kPortableCluster || allowed_cluster_.load(std::memory_order_relaxed)) return;
    driver::check(driver::api().function_set(handle_, kAnyCluster, 1), "cuFuncSetAttribute");
    allowed_cluster_.store(true, std::memory_order_relaxed);
}

int CudaEntry::max_active_clusters(const Shape& shape) const {
    const driver::Api& api = driver::api();
    driver::need(api.max_clusters != nullptr, "cuOccupancyMaxActiveClusters", "11.8");
    allow_shared(shape.shared);
    driver::Scope scope(device());
    allow_cluster(count(shape.cluster));
    Shape one = shape;
    one.grid = shape.cluster;
    const Config config(one, false);
    const driver::LaunchConfig launch = config.on(nullptr);
    int clusters = 0;
    driver::check(api.max_clusters(&clusters, handle_, &launch), "cuOccupancyMaxActiveClusters");
    if (clusters < 1) {
        throw Error(ErrorKind::device, symbol_ + " runs in clusters of " +
                                           std::to_string(count(shape.cluster)) + " blocks with " +
                                           std::to_string(shape.shared) +
                                           " bytes of shared memory each; the device has room for none");
    }
    return clusters;
}

void CudaEntry::allow(const Shape& shape) const {
    check_extents(shape.grid, kGridLimits, "grid", symbol_);
    check_extents(shape.block, kBlockLimits, "block", symbol_);
    if (count(shape.block) > kBlockThreads) {
        throw Error(ErrorKind::argument, symbol_ + ": a block would have " +
                                             std::to_string(count(shape.block)) +
                                             " threads; the device takes " + std::to_string(kBlockThreads) +
                                             ": use a smaller problem");
    }
    allow_shared(shape.shared);
    const std::uint64_t cluster = count(shape.cluster);
    if (cluster == 1) return;
    check_cluster(shape, symbol_);
    driver::Scope scope(device());
    allow_cluster(cluster);
}

void CudaEntry::launch(const driver::LaunchConfig& config, void** arguments) const {
    const driver::Api& api = driver::api();
    if (config.attribute_count != 0) {
        driver::check(api.launch_ex(&config, handle_, arguments, nullptr), "cuLaunchKernelEx");
        return;
    }
    const auto& [gx, gy, gz] = config.grid;
    const auto& [bx, by, bz] = config.block;
    driver::check(
        api.launch(handle_, gx, gy, gz, bx, by, bz, config.shared, config.stream, arguments, nullptr),
        "cuLaunchKernel");
}

// ---- launches

CudaLaunch::CudaLaunch(std::shared_ptr<const CudaEntry> entry, const Shape& shape, bool early, bool packs)
    : entry_(std::move(entry)), config_(shape, early), packs_(packs) {
    entry_->allow(shape);
    if (early || count(shape.cluster) > 1)
        driver::need(driver::api().launch_ex != nullptr, "cuLaunchKernelEx", "11.8");
}

void CudaLaunch::enqueue(driver::Stream stream, void** arguments) const {
    PackedStreams& packed = packed_streams();
    const bool late = config_.early() && packed.holds(entry_->device(), stream);
    entry_->launch(config_.on(stream, late), arguments);
    packed.note(entry_->device(), stream, packs_);
}

// The node keeps its attributes: clusters, and whether it may begin early.
void CudaLaunch::update(driver::GraphExec graph, driver::GraphNode node, void** arguments) const {
    const driver::LaunchConfig config = config_.on(nullptr);
    driver::KernelNodeParams params{};
    params.function = entry_->handle();
    std::copy_n(config.grid, 3, params.grid);
    std::copy_n(config.block, 3, params.block);
    params.shared = config.shared;
    params.arguments = arguments;
    driver::check(driver::api().node_update(graph, node, &params), "cuGraphExecKernelNodeSetParams");
}

namespace {

// bound: the arguments, where all of them are settled.
class CudaStep final : public Step {
  public:
    CudaStep(std::shared_ptr<const CudaLaunch> launch, std::shared_ptr<const Pattern> pattern,
             std::size_t reach, std::unique_ptr<const Arguments> bound)
        : Step(reach), launch_(std::move(launch)), pattern_(std::move(pattern)), bound_(std::move(bound)) {}

    void run(const Call& call) const override {
        if (bound_ != nullptr) return launch_->enqueue(call.stream, bound_->addresses());
        const Arguments arguments(*pattern_, call);
        launch_->enqueue(call.stream, arguments.addresses());
    }

    std::shared_ptr<const Step> bound(const Call& call) const override {
        return std::make_shared<CudaStep>(launch_, pattern_, reach(),
                                          std::make_unique<Arguments>(*pattern_, call));
    }

    bool alone() const override { return launch_->alone(); }

    void update(const Call& call, driver::GraphExec graph, driver::GraphNode node) const override {
        const Arguments arguments(*pattern_, call);
        launch_->update(graph, node, arguments.addresses());
    }

  private:
    std::shared_ptr<const CudaLaunch> launch_;
    std::shared_ptr<const Pattern> pattern_;
    std::unique_ptr<const Arguments> bound_;
};

}  // namespace

// ---- functions of plain arguments

CudaFunction::CudaFunction(std::shared_ptr<CudaModule> module, std::string symbol, Signature signature,
                           unsigned shared, const Dim3& cluster, bool early)
    : entry_(std::make_shared<const CudaEntry>(std::move(module), std::move(symbol))),
      signature_(std::move(signature)),
      shared_(shared),
      cluster_(cluster),
      early_(early) {
    check_parameters();
    entry_->allow_shared(shared_);
}

// A kernel reads as many bytes as it was compiled for, whatever it is given: a stale index must not get that
// far.
void CudaFunction::check_parameters() const {
    const driver::Scope scope(entry_->device());
    bool known = false;
    for (std::size_t i = 0; i < signature_.size(); ++i) {
        const std::size_t size = entry_->parameter_bytes(i, known);
        if (!known) return;
        if (size == signature_[i].size()) continue;
        throw Error(ErrorKind::artifact,
                    entry_->symbol() + ": the index says that argument " + std::to_string(i) + " (" +
                        signature_[i].name + ") has " + std::to_string(signature_[i].size()) +
                        " bytes, the binary has " +
                        (size != 0 ? std::to_string(size) + " there" : "fewer arguments") +
                        "; rebuild the artifacts");
    }
    if (entry_->parameter_bytes(signature_.size(), known) != 0) {
        throw Error(ErrorKind::artifact, entry_->symbol() + ": the index lists " +
                                             std::to_string(signature_.size()) +
                                             " arguments, the binary has more; rebuild the artifacts");
    }
}

std::shared_ptr<Step> CudaFunction::step(Pattern pattern, std::size_t reach, const Dim3& grid,
                                         const Dim3& block, unsigned shared, bool packs) const {
    auto launch = std::make_shared<CudaLaunch>(entry_, Shape{grid, block, cluster_, shared}, early_, packs);
    return std::make_shared<CudaStep>(std::move(launch), std::make_shared<Pattern>(std::move(pattern)), reach,
                                      nullptr);
}

}  // namespace wootz
