// The Metal backend. It has never been compiled or run: no machine with macOS was at hand when it was
// written. It follows Apple's documentation, and its first run on such a machine is to be treated as a test
// of this file.
//
// Arrays are host arrays: each is copied into a shared buffer before the launch, and outputs are copied back
// after it. A launch returns when the device is done.

#import <Foundation/Foundation.h>
#import <Metal/Metal.h>

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "errors.hpp"
#include "launch.hpp"
#include "metal.hpp"
#include "packing.hpp"
#include "steps.hpp"
#include "unlocked.hpp"

#if !__has_feature(objc_arc)
#error "metal.mm is written for automatic reference counting: compile it with -fobjc-arc"
#endif

namespace py = pybind11;

namespace wootz {
namespace {

std::string text_of(NSError* error) {
    return error == nil ? "no reason given" : std::string(error.localizedDescription.UTF8String);
}

// The default device and one queue on it; made on first use, never at import.
struct Gpu {
    id<MTLDevice> device;
    id<MTLCommandQueue> queue;
};

const Gpu& gpu() {
    static Gpu* instance = nullptr;
    static std::mutex mutex;
    const std::lock_guard<std::mutex> lock(mutex);
    if (instance != nullptr) return *instance;
    id<MTLDevice> device = MTLCreateSystemDefaultDevice();
    if (device == nil) throw Error(ErrorKind::device, "this machine has no Metal device; use device=\"cpu\"");
    id<MTLCommandQueue> queue = [device newCommandQueue];
    if (queue == nil) throw Error(ErrorKind::device, "the Metal device gives no command queue");
    instance = new Gpu{device, queue};
    return *instance;
}

std::pair<int, int> system_version() {
    const NSOperatingSystemVersion version = NSProcessInfo.processInfo.operatingSystemVersion;
    return {static_cast<int>(version.majorVersion), static_cast<int>(version.minorVersion)};
}

class MetalModule {
  public:
    MetalModule(const char* image, std::size_t size, std::string name) : name_(std::move(name)) {
        @autoreleasepool {
            // The data is copied: the caller's bytes go away.
            dispatch_data_t data = dispatch_data_create(image, size, dispatch_get_main_queue(),
                                                        DISPATCH_DATA_DESTRUCTOR_DEFAULT);
            NSError* error = nil;
            library_ = [gpu().device newLibraryWithData:data error:&error];
            if (library_ == nil)
                throw Error(ErrorKind::artifact, name_ + " is no Metal library here: " + text_of(error));
        }
    }

    id<MTLComputePipelineState> pipeline(const std::string& symbol) const {
        @autoreleasepool {
            id<MTLFunction> function =
                [library_ newFunctionWithName:[NSString stringWithUTF8String:symbol.c_str()]];
            if (function == nil) {
                throw Error(ErrorKind::artifact,
                            name_ + " has no function " + symbol + ", which the index names");
            }
            NSError* error = nil;
            id<MTLComputePipelineState> made = [gpu().device newComputePipelineStateWithFunction:function
                                                                                           error:&error];
            if (made == nil)
                throw Error(ErrorKind::device, symbol + " cannot be prepared: " + text_of(error));
            return made;
        }
    }

  private:
    std::string name_;
    id<MTLLibrary> library_;
};

// The pipeline is made once, with the function.
class MetalFunction {
  public:
    MetalFunction(std::shared_ptr<MetalModule> module, const std::string& symbol, Signature signature,
                  unsigned shared)
        : module_(std::move(module)),
          symbol_(symbol),
          signature_(std::move(signature)),
          shared_(shared),
          pipeline_(module_->pipeline(symbol)) {}

    const Signature& signature() const { return signature_; }

    void check_launch(const Dim3& grid, const Dim3& block) const {
        constexpr std::uint64_t kLimit = 4294967295;
        check_extents(grid, {kLimit, kLimit, kLimit}, "grid", symbol_);
        const std::uint64_t most = pipeline_.maxTotalThreadsPerThreadgroup;
        check_extents(block, {most, most, most}, "block", symbol_);
        if (block[0] * block[1] * block[2] > most) {
            throw Error(ErrorKind::device, symbol_ + " has more threads a group than this device takes, " +
                                               std::to_string(most));
        }
    }

    void launch(const Arguments& arguments, const std::vector<std::size_t>& sizes,
                const std::vector<bool>& outputs, const Dim3& grid, const Dim3& block) const {
        @autoreleasepool {
            id<MTLCommandBuffer> commands = [gpu().queue commandBuffer];
            id<MTLComputeCommandEncoder> encoder = [commands computeCommandEncoder];
            if (encoder == nil) throw Error(ErrorKind::device, symbol_ + ": Metal gives no command encoder");
            [encoder setComputePipelineState:pipeline_];
            NSMutableArray<id<MTLBuffer>>* buffers = [NSMutableArray array];
            for (std::size_t i = 0; i < signature_.size(); ++i) bind(encoder, buffers, arguments, i, sizes);
            if (shared_ > 0) [encoder setThreadgroupMemoryLength:(shared_ + 15) / 16 * 16 atIndex:0];
            [encoder dispatchThreadgroups:extents(grid) threadsPerThreadgroup:extents(block)];
            [encoder endEncoding];
            [commands commit];
            [commands waitUntilCompleted];
            if (commands.status == MTLCommandBufferStatusError) {
                throw Error(ErrorKind::device, symbol_ + " failed on the device: " + text_of(commands.error));
            }
            NSUInteger next = 0;
            for (std::size_t i = 0; i < signature_.size(); ++i) {
                if (signature_[i].type != ArgType::ptr) continue;
                id<MTLBuffer> buffer = buffers[next++];
                if (outputs[i] && sizes[i] > 0)
                    std::memcpy(host_pointer(arguments, i), buffer.contents, sizes[i]);
            }
        }
    }

  private:
    static MTLSize extents(const Dim3& size) { return MTLSizeMake(size[0], size[1], size[2]); }

    static void* host_pointer(const Arguments& arguments, std::size_t index) {
        return *static_cast<void**>(arguments.addresses()[index]);
    }

    // Buffers take the index of their argument, and so do plain values.
    void bind(id<MTLComputeCommandEncoder> encoder, NSMutableArray<id<MTLBuffer>>* buffers,
              const Arguments& arguments, std::size_t index, const std::vector<std::size_t>& sizes) const {
        if (signature_[index].type != ArgType::ptr) {
            [encoder setBytes:arguments.addresses()[index] length:signature_[index].size() atIndex:index];
            return;
        }
        const std::size_t bytes = std::max<std::size_t>(sizes[index], 16);  // Metal makes no empty buffers
        id<MTLBuffer> buffer = [gpu().device newBufferWithLength:bytes options:MTLResourceStorageModeShared];
        if (buffer == nil) {
            throw Error(ErrorKind::device, "Metal has no memory for " + std::to_string(bytes) + " bytes of " +
                                               signature_[index].name);
        }
        if (sizes[index] > 0) std::memcpy(buffer.contents, host_pointer(arguments, index), sizes[index]);
        [buffers addObject:buffer];
        [encoder setBuffer:buffer offset:0 atIndex:index];
    }

    std::shared_ptr<MetalModule> module_;
    std::string symbol_;
    Signature signature_;
    unsigned shared_;
    id<MTLComputePipelineState> pipeline_;
};

// sizes: of each argument's array, in bytes. outputs: whether it is written.
class MetalStep final : public Step {
  public:
    MetalStep(const MetalFunction& function, Pattern pattern, std::size_t reach,
              std::vector<std::size_t> sizes, std::vector<bool> outputs, const Dim3& grid, const Dim3& block)
        : Step(reach),
          function_(function),
          pattern_(std::move(pattern)),
          sizes_(std::move(sizes)),
          outputs_(std::move(outputs)),
          grid_(grid),
          block_(block) {
        function_.check_launch(grid_, block_);
    }

    void run(const Call& call) const override {
        function_.launch(Arguments(pattern_, call), sizes_, outputs_, grid_, block_);
    }

  private:
    MetalFunction function_;
    Pattern pattern_;
    std::vector<std::size_t> sizes_;
    std::vector<bool> outputs_;
    Dim3 grid_, block_;
};

}  // namespace

void bind_metal(py::module_& module) {
    module.def("metal_system", &system_version);
    py::class_<MetalFunction>(module, "MetalFunction")
        .def(
            "step",
            [](const MetalFunction& self, const py::tuple& values, std::vector<std::size_t> sizes,
               std::vector<bool> outputs, const py::tuple& grid, const py::tuple& block) {
                auto [pattern, reach] = read_sources(self.signature(), values);
                if (sizes.size() != self.signature().size() || outputs.size() != sizes.size()) {
                    throw Error(ErrorKind::argument,
                                "a launch has one size and one direction for each argument");
                }
                return std::shared_ptr<Step>(std::make_shared<MetalStep>(
                    self, std::move(pattern), reach, std::move(sizes), std::move(outputs),
                    read_extents(grid, "grid"), read_extents(block, "block")));
            },
            py::arg("values"), py::arg("sizes"), py::arg("outputs"), py::arg("grid"), py::arg("block"));
    py::class_<MetalModule, std::shared_ptr<MetalModule>>(module, "MetalModule")
        .def(py::init([](const py::bytes& image, const std::string& name) {
                 const std::string_view view = image;
                 const Unlocked unlocked;
                 return std::make_shared<MetalModule>(view.data(), view.size(), name);
             }),
             py::arg("image"), py::arg("name"))
        .def(
            "function",
            [](const std::shared_ptr<MetalModule>& self, const std::string& symbol,
               const py::sequence& parameters,
               unsigned shared) { return MetalFunction(self, symbol, read_signature(parameters), shared); },
            py::arg("symbol"), py::arg("parameters"), py::arg("shared"));
}

}  // namespace wootz
