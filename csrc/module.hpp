// Binaries on a CUDA device and their entry points.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "driver.hpp"
#include "launch.hpp"

namespace wootz {

// An image loaded into a device's primary context; unloaded with the object unless the process is ending.
class CudaModule {
  public:
    // `image` is a cubin, or PTX text with a zero byte behind it. Throws DriverFailure.
    CudaModule(int device, const char* image);
    ~CudaModule();
    CudaModule(const CudaModule&) = delete;
    CudaModule& operator=(const CudaModule&) = delete;

    int device() const { return device_; }
    driver::Module handle() const { return handle_; }

  private:
    int device_;
    driver::Module handle_ = nullptr;
};

class CudaFunction {
  public:
    // Throws DriverFailure when there is no such symbol, Error(artifact) when its parameters are not
    // `signature`.
    CudaFunction(std::shared_ptr<CudaModule> module, std::string symbol, Signature signature,
                 unsigned shared);

    const Signature& signature() const { return signature_; }
    // Enqueues one launch and returns. Throws Error(argument) when the grid is out of range, DriverFailure
    // otherwise.
    void launch(Arguments& arguments, const Dim3& grid, const Dim3& block, driver::Stream stream) const;

  private:
    void check_parameters() const;

    std::shared_ptr<CudaModule> module_;
    std::string symbol_;
    Signature signature_;
    unsigned shared_;
    driver::Function handle_ = nullptr;
};

}  // namespace wootz
