// Binaries on a CUDA device and their entry points.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "driver.hpp"
#include "launch.hpp"
#include "steps.hpp"

namespace wootz {

// An image loaded into a device's primary context; unloaded with the object unless the process is ending.
class CudaModule {
  public:
    // `image` is a cubin or a fat binary, or PTX text with a zero byte behind it. Throws DriverFailure.
    CudaModule(int device, const char* image);
    ~CudaModule();
    CudaModule(const CudaModule&) = delete;
    CudaModule& operator=(const CudaModule&) = delete;

    int device() const { return device_; }
    driver::Module handle() const { return handle_; }
    // Lets launches of a function ask for this much dynamic shared memory, or more: what one user of the
    // function was given, another never takes back. Needs the device's context to be current.
    void raise_shared(driver::Function function, unsigned bytes);

  private:
    int device_;
    driver::Module handle_ = nullptr;
    std::mutex mutex_;  // of what follows
    std::map<driver::Function, unsigned> allowed_;
};

// One launch's extents. cluster: blocks that run together; 1, 1, 1 for no clusters.
struct Shape {
    Dim3 grid, block, cluster{1, 1, 1};
    unsigned shared = 0;  // dynamic, in bytes
};

// The driver's form of a launch, and the attributes that it points to.
class Config {
  public:
    // early: launches may begin while the kernel before them in the stream is still running, which they wait
    // for themselves.
    Config(const Shape& shape, bool early);
    Config(const Config&) = delete;
    Config& operator=(const Config&) = delete;

    // late: without the leave to begin early.
    driver::LaunchConfig on(driver::Stream stream, bool late = false) const;
    bool early() const { return early_; }

  private:
    driver::LaunchConfig launch_{};
    std::array<driver::LaunchAttribute, 2> attributes_{};
    bool early_;
};

// An entry point in a loaded module. No method may be called with Python's lock held.
class CudaEntry {
  public:
    // Throws DriverFailure when there is no such symbol.
    CudaEntry(std::shared_ptr<CudaModule> module, std::string symbol);

    const std::string& symbol() const { return symbol_; }
    int device() const { return module_->device(); }
    driver::Function handle() const { return handle_; }
    // The size of a parameter; 0: there is none. `known`: whether the driver tells.
    std::size_t parameter_bytes(std::size_t index, bool& known) const;
    // How many clusters of a shape the device runs at once. Throws Error(device) when it takes none.
    int max_active_clusters(const Shape& shape) const;
    // Says once that launches will have this shape. Throws Error(argument) when an extent is out of range,
    // Error(artifact) when the clusters do not fit the grid, DriverFailure otherwise.
    void allow(const Shape& shape) const;
    // Enqueues one launch, whose shape was allowed, and returns. Needs a context. Throws DriverFailure.
    void launch(const driver::LaunchConfig& config, void** arguments) const;
    // Says once that launches will ask for this much shared memory.
    void allow_shared(unsigned bytes) const;
    unsigned static_shared() const {
        return static_shared_;
    }  // bytes of a block that the code declares itself

  private:
    void allow_cluster(std::uint64_t blocks) const;

    std::shared_ptr<CudaModule> module_;
    std::string symbol_;
    driver::Function handle_ = nullptr;
    unsigned static_shared_ = 0;
    mutable std::atomic<unsigned> allowed_shared_{0};
    mutable std::atomic<bool> allowed_cluster_{false};
};

// An entry point with a shape. packs: it writes a quantised tensor; kernels that may begin early read weights
// before they wait for the launch before them, so that the next one on the same stream may not.
class CudaLaunch {
  public:
    // Throws what CudaEntry::allow does.
    CudaLaunch(std::shared_ptr<const CudaEntry> entry, const Shape& shape, bool early, bool packs);

    // Both need a context, and throw DriverFailure.
    void enqueue(driver::Stream stream, void** arguments) const;
    void update(driver::GraphExec graph, driver::GraphNode node, void** arguments) const;
    const CudaEntry& entry() const { return *entry_; }
    // Whether it neither looks at the launch before it nor is looked at by the next.
    bool alone() const { return !packs_ && !config_.early(); }

  private:
    std::shared_ptr<const CudaEntry> entry_;
    Config config_;
    bool packs_;
};

class CudaFunction {
  public:
    // early: see Config. Throws DriverFailure when there is no such symbol, Error(artifact) when its
    // parameters are not `signature`.
    CudaFunction(std::shared_ptr<CudaModule> module, std::string symbol, Signature signature, unsigned shared,
                 const Dim3& cluster, bool early);

    const Signature& signature() const { return signature_; }
    unsigned shared() const { return shared_; }
    // A launch with these extents. shared: dynamic. packs: see CudaLaunch. Throws what CudaEntry::allow does.
    std::shared_ptr<Step> step(Pattern pattern, std::size_t reach, const Dim3& grid, const Dim3& block,
                               unsigned shared, bool packs) const;

  private:
    void check_parameters() const;

    std::shared_ptr<const CudaEntry> entry_;
    Signature signature_;
    unsigned shared_;
    Dim3 cluster_;
    bool early_;
};

}  // namespace wootz
