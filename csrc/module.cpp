#include "module.hpp"

#include <utility>

#include "errors.hpp"

namespace wootz {
namespace {

constexpr int kMaxDynamicShared = 8;          // CUfunction_attribute
constexpr unsigned kSharedOptIn = 48 * 1024;  // above this a kernel has to ask for its shared memory
constexpr Dim3 kGridLimits{2147483647, 65535, 65535};
constexpr Dim3 kBlockLimits{1024, 1024, 64};

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

CudaFunction::CudaFunction(std::shared_ptr<CudaModule> module, std::string symbol, Signature signature,
                           unsigned shared)
    : module_(std::move(module)),
      symbol_(std::move(symbol)),
      signature_(std::move(signature)),
      shared_(shared) {
    driver::Scope scope(module_->device());
    const driver::Api& api = driver::api();
    driver::check(api.module_function(&handle_, module_->handle(), symbol_.c_str()), "cuModuleGetFunction");
    check_parameters();
    if (shared_ > kSharedOptIn) {
        driver::check(api.function_set(handle_, kMaxDynamicShared, static_cast<int>(shared_)),
                      "cuFuncSetAttribute");
    }
}

// A kernel reads as many bytes as it was compiled for, whatever it is given: a stale index must not get that
// far.
void CudaFunction::check_parameters() const {
    const driver::Api& api = driver::api();
    if (api.function_parameter == nullptr) return;  // drivers before CUDA 12.4
    std::size_t offset = 0, size = 0;
    for (std::size_t i = 0; i < signature_.size(); ++i) {
        const bool present = api.function_parameter(handle_, i, &offset, &size) == driver::kSuccess;
        if (present && size == signature_[i].size()) continue;
        throw Error(
            ErrorKind::artifact,
            symbol_ + ": the index says that argument " + std::to_string(i) + " (" + signature_[i].name +
                ") has " + std::to_string(signature_[i].size()) + " bytes, the binary has " +
                (present ? std::to_string(size) + " there" : "fewer arguments") + "; rebuild the artifacts");
    }
    if (api.function_parameter(handle_, signature_.size(), &offset, &size) == driver::kSuccess) {
        throw Error(ErrorKind::artifact, symbol_ + ": the index lists " + std::to_string(signature_.size()) +
                                             " arguments, the binary has more; rebuild the artifacts");
    }
}

void CudaFunction::launch(Arguments& arguments, const Dim3& grid, const Dim3& block,
                          driver::Stream stream) const {
    check_extents(grid, kGridLimits, "grid");
    check_extents(block, kBlockLimits, "block");
    const auto narrow = [](std::uint64_t value) { return static_cast<unsigned>(value); };
    driver::Scope scope(module_->device());
    driver::check(driver::api().launch(handle_, narrow(grid[0]), narrow(grid[1]), narrow(grid[2]),
                                       narrow(block[0]), narrow(block[1]), narrow(block[2]), shared_, stream,
                                       arguments.addresses(), nullptr),
                  "cuLaunchKernel");
}

}  // namespace wootz
