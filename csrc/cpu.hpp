// Kernels of the CPU: shared objects loaded from memory, and a parallel loop over their blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "launch.hpp"
#include "steps.hpp"

namespace wootz {

// True if this processor and its system run code of the named level ("" and "baseline" always; unknown names
// never).
bool cpu_supports(const std::string& isa);

// WOOTZ_NUM_THREADS, or the number of processors this process may use. Throws Error(argument) for a bad
// value.
unsigned thread_limit();

class CpuModule {
  public:
    // Throws Error(artifact) when the image is no shared object of this machine.
    CpuModule(const char* image, std::size_t size, const std::string& name);
    ~CpuModule();
    CpuModule(const CpuModule&) = delete;
    CpuModule& operator=(const CpuModule&) = delete;

    void* symbol(const std::string& name) const;  // throws Error(artifact) when there is none

  private:
    void* handle_;
    std::string name_;
};

class CpuFunction {
  public:
    // Runs the linear blocks [begin, end) of the grid; args[i] is the address of the i-th argument's value.
    using Entry = void (*)(void* const* args, const std::uint32_t* grid, std::uint32_t begin,
                           std::uint32_t end);

    CpuFunction(std::shared_ptr<CpuModule> module, std::string symbol, Signature signature);

    const Signature& signature() const { return signature_; }
    // A launch, which returns when every block has run. Threads are made for it and joined in it, so that
    // forking stays safe. Throws Error(argument) when the grid is out of range; running it, when
    // WOOTZ_NUM_THREADS is.
    std::shared_ptr<Step> step(Pattern pattern, std::size_t reach, const Dim3& grid) const;

  private:
    std::shared_ptr<CpuModule> module_;
    std::string symbol_;
    Signature signature_;
    Entry entry_;
};

}  // namespace wootz
