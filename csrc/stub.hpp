// Kernels of templates, whose one parameter is a block that a stub fills: see stub_abi.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cpu.hpp"
#include "module.hpp"
#include "stub_abi.h"

namespace wootz {

// A stub, loaded from memory as the kernels of the CPU are.
class Stub {
  public:
    // build: sha256 of the source text that the binary was made of. Throws Error(artifact) when the image is
    // no shared object of this machine, is no stub, or comes from another build.
    Stub(const char* image, std::size_t size, const std::string& name, const std::string& build);

    using Query = int (*)(const wootz_problem*, wootz_launch*);
    using Fill = int (*)(const wootz_problem*, void*, wootz_memset, void*);
    Query query(const std::string& prefix) const;  // both throw Error(artifact) when there is none
    Fill fill(const std::string& prefix) const;
    const std::string& name() const { return name_; }

  private:
    std::string name_;
    CpuModule module_;
};

// What a stub is asked about, in the order of the entry's arguments. arrays: their addresses; when it is
// asked, any that are as aligned as a call's, null for those not given.
struct Problem {
    std::vector<const void*> arrays;
    std::vector<std::int64_t> shape;
    std::vector<double> scalars;
};

// What the device has: multiprocessors, and bytes of shared memory that a block may ask for.
struct Limits {
    int sms;
    unsigned shared;
};

class StubFunction;

// An accepted problem.
class StubCall {
  public:
    StubCall(std::shared_ptr<const StubFunction> function, Problem problem, int clusters,
             const wootz_launch& launch)
        : function_(std::move(function)),
          problem_(std::move(problem)),
          clusters_(clusters),
          launch_(launch) {}

    std::uint64_t workspace_bytes() const { return launch_.workspace_bytes; }
    // Its launch, which fills the parameter block each time. arrays: the numbers of the problem's in a call.
    // packs: see CudaLaunch. Running it throws DriverFailure (a tensor map, the workspace's zeroing, the
    // launch) and Error(artifact) when the stub fails; this Error(argument) for a grid out of range.
    std::shared_ptr<Step> step(std::vector<std::uint32_t> arrays, bool packs) const;

  private:
    friend class StubStep;
    std::shared_ptr<const StubFunction> function_;
    Problem problem_;
    int clusters_;
    wootz_launch launch_;
};

class StubFunction : public std::enable_shared_from_this<StubFunction> {
  public:
    // Throws DriverFailure when the binary has no such symbol, Error(artifact) when the stub has none, or
    // when the entry point takes more than one parameter.
    StubFunction(std::shared_ptr<CudaModule> module, const std::string& symbol,
                 std::shared_ptr<const Stub> stub, const std::string& prefix, bool early, Limits limits);

    // Nothing when the entry point cannot run the problem. Throws Error(artifact) when the stub fails or is
    // at odds with the binary, Error(device) when the device lacks the room.
    std::optional<StubCall> query(Problem problem) const;

  private:
    friend class StubCall;
    friend class StubStep;
    struct Occupancy {
        std::uint32_t shared, block[3], cluster[3];
        int clusters;
    };

    bool ask(const wootz_problem& problem, wootz_launch& launch) const;
    void check(const wootz_launch& launch) const;
    int clusters_of(const wootz_launch& launch) const;
    void fill(const wootz_problem& problem, void* params, wootz_memset set, driver::Stream stream) const;
    wootz_problem describe(const Problem& problem, int clusters) const;

    CudaEntry entry_;
    bool early_;
    std::shared_ptr<const Stub> stub_;
    Stub::Query query_;
    Stub::Fill fill_;
    Limits limits_;
    std::size_t parameter_bytes_ = 0;  // 0: the driver does not tell
    mutable std::mutex mutex_;
    mutable std::vector<Occupancy> occupancies_;  // by launch shape; few
};

}  // namespace wootz
