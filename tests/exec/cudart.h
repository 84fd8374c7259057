// The CUDA runtime calls of an exported program, done by the lanes runtime: device memory is host memory.
//
// Included behind the program and LANES_ENTRY of each of its kernels; KERNELS lists {function, launcher,
// a letter for each parameter: p a pointer, n a number}.
#pragma once

#include <cstdlib>
#include <cstring>
#include <vector>

#include "lanes/runtime/grid.h"

namespace {

struct Kernel {
    const void* function;
    void (*launcher)(void**);
    const char* parameters;
};
const Kernel kernels[] = {KERNELS};

}  // namespace

extern "C" {
cudaError_t cudaMalloc(void** place, size_t size) {
    *place = std::aligned_alloc(256, (size + 255) / 256 * 256);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* place, int value, size_t size) {
    std::memset(place, value, size);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* place, int value, size_t size, cudaStream_t) {
    return cudaMemset(place, value, size);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t size, cudaMemcpyKind) {
    std::memcpy(to, from, size);
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int) {
    *value = 2;
    return cudaSuccess;
}
const char* cudaGetErrorString(cudaError_t error) { return error ? "an error" : "no error"; }

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** given, size_t,
                             cudaStream_t) {
    for (const Kernel& kernel : kernels) {
        if (kernel.function != function) {
            continue;
        }
        std::vector<void*> addresses;
        for (size_t i = 0; kernel.parameters[i]; ++i) {
            addresses.push_back(kernel.parameters[i] == 'p' ? *static_cast<void**>(given[i]) : given[i]);
        }
        lanes::Launch launch{};
        launch.grid = {grid.x, grid.y, grid.z};
        launch.block = {block.x, block.y, block.z};
        launch.order = lanes::Order::kShuffled;
        launch.kernel = kernel.launcher;
        launch.arguments = addresses.data();
        lanes::run(launch);
        return cudaSuccess;
    }
    return cudaErrorInvalidDeviceFunction;
}
}
