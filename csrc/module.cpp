#include "module.hpp"

#include <algorithm>
#include <array>
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

std::uint64_t count(const Dim3& extents) { return extents[0] * extents[1] * extents[2]; }

// The driver's form of a launch, and the attributes that it points to.
struct Config {
    driver::LaunchConfig launch{};
    std::array<driver::LaunchAttribute, 2> attributes{};

    Config(const Shape& shape, driver::Stream stream, bool early) {
        for (std::size_t i = 0; i < 3; ++i) {
            launch.grid[i] = static_cast<unsigned>(shape.grid[i]);
            launch.block[i] = static_cast<unsigned>(shape.block[i]);
        }
        launch.shared = shape.shared;
        launch.stream = stream;
        launch.attributes = attributes.data();
        if (count(shape.cluster) > 1) {
            driver::LaunchAttribute& cluster = attributes[launch.attribute_count++];
            cluster.id = kClusterExtents;
            for (std::size_t i = 0; i < 3; ++i)
                cluster.value[i] = static_cast<std::uint32_t>(shape.cluster[i]);
        }
        if (early) {
            driver::LaunchAttribute& attribute = attributes[launch.attribute_count++];
            attribute.id = kEarlyLaunch;
            attribute.value[0] = 1;
        }
    }
    Config(const Config&) = delete;
    Config& operator=(const Config&) = delete;
};

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

CudaEntry::CudaEntry(std::shared_ptr<CudaModule> module, std::string symbol, bool early)
    : module_(std::move(module)), symbol_(std::move(symbol)), early_(early) {
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
    const Config config(one, nullptr, false);
    int clusters = 0;
    driver::check(api.max_clusters(&clusters, handle_, &config.launch), "cuOccupancyMaxActiveClusters");
    if (clusters < 1) {
        throw Error(ErrorKind::device, symbol_ + " runs in clusters of " +
                                           std::to_string(count(shape.cluster)) + " blocks with " +
                                           std::to_string(shape.shared) +
                                           " bytes of shared memory each; the device has room for none");
    }
    return clusters;
}

void CudaEntry::launch(const Shape& shape, driver::Stream stream, void** arguments) const {
    check_extents(shape.grid, kGridLimits, "grid");
    check_extents(shape.block, kBlockLimits, "block");
    allow_shared(shape.shared);
    const std::uint64_t cluster = count(shape.cluster);
    if (cluster != 1) check_cluster(shape, symbol_);
    driver::Scope scope(device());
    const driver::Api& api = driver::api();
    if (cluster != 1 || early_) {
        driver::need(api.launch_ex != nullptr, "cuLaunchKernelEx", "11.8");
        allow_cluster(cluster);
        const Config config(shape, stream, early_);
        driver::check(api.launch_ex(&config.launch, handle_, arguments, nullptr), "cuLaunchKernelEx");
        return;
    }
    const auto narrow = [](std::uint64_t value) { return static_cast<unsigned>(value); };
    driver::check(api.launch(handle_, narrow(shape.grid[0]), narrow(shape.grid[1]), narrow(shape.grid[2]),
                             narrow(shape.block[0]), narrow(shape.block[1]), narrow(shape.block[2]),
                             shape.shared, stream, arguments, nullptr),
                  "cuLaunchKernel");
}

// ---- functions of plain arguments

CudaFunction::CudaFunction(std::shared_ptr<CudaModule> module, std::string symbol, Signature signature,
                           unsigned shared, const Dim3& cluster, bool early)
    : entry_(std::make_shared<const CudaEntry>(std::move(module), std::move(symbol), early)),
      signature_(std::move(signature)),
      shared_(shared),
      cluster_(cluster) {
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

void CudaFunction::launch(Arguments& arguments, const Dim3& grid, const Dim3& block, unsigned shared,
                          driver::Stream stream) const {
    if (arguments.has_maps()) {
        const driver::Scope scope(entry_->device());
        arguments.encode_maps();
    }
    entry_->launch({grid, block, cluster_, shared}, stream, arguments.addresses());
}

}  // namespace wootz
