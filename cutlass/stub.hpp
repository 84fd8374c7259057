// Host side of a CUTLASS kernel, compiled by a plain C++ compiler: no nvcc, no libcuda, no libcudart. It has
// to come before any CUTLASS header. A stub answers two questions of the loader: how is a problem launched
// (query), and what are the bytes of the kernel's one parameter (fill).
#pragma once
#include <cuda_runtime.h>
#include <device_launch_parameters.h>

// Device functions that CUTLASS' headers mention outside of templates: declared, never called here.
void __syncthreads();
int __syncthreads_and(int);
int __syncthreads_or(int);
void __syncwarp(unsigned = ~0u);
void __threadfence();
int __ffs(int);
unsigned __byte_perm(unsigned, unsigned, unsigned);
int __dp4a(int, int, int);
template <class T>
T __shfl_sync(unsigned, T, int, int = 32);
template <class T>
T __shfl_xor_sync(unsigned, T, int, int = 32);
template <class T>
T __shfl_up_sync(unsigned, T, unsigned, int = 32);
template <class T>
T __shfl_down_sync(unsigned, T, unsigned, int = 32);
template <class T>
T atomicAdd(T*, T);
template <class T>
T atomicCAS(T*, T, T);
namespace cutlass::arch {
int SmId();
int LaneId();
}  // namespace cutlass::arch

// wmma.h needs nvcuda:: once it knows the compiler: it is read before the version is set, which makes it
// empty.
#include <cutlass/arch/wmma.h>
// Types depend on the version: it has to be that of the nvcc that makes the cubin (defined by the build).
#ifndef WOOTZ_NVCC_MAJOR
#error "define WOOTZ_NVCC_MAJOR and WOOTZ_NVCC_MINOR: the version of the nvcc that makes the cubin"
#endif
#define __CUDACC_VER_MAJOR__ WOOTZ_NVCC_MAJOR
#define __CUDACC_VER_MINOR__ WOOTZ_NVCC_MINOR
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <new>

#include "stub_abi.h"

#define WOOTZ_EXPORT extern "C" __attribute__((visibility("default")))
#define WOOTZ_LOCAL extern "C" __attribute__((visibility("hidden")))

namespace wootz {
inline PFN_cuTensorMapEncodeTiled_v12000 encoder = nullptr;

// What a call is doing: a query makes no tensor map, and the first error of a fill is kept.
struct Call {
    bool dry = false;
    int error = 0;
    wootz_memset memset = nullptr;
    void* context = nullptr;
};
inline thread_local Call call;

// CUTLASS drops the driver's answer (it asserts), so it is kept here.
template <class... Rest>
CUresult encode_tiled(CUtensorMap* map, Rest... rest) {
    if (call.dry || !encoder) {
        std::memset(map, 0, sizeof *map);
        if (!call.dry) call.error = WOOTZ_STUB_DEVICE;
    } else if (encoder(map, rest...) != CUDA_SUCCESS) {
        call.error = WOOTZ_STUB_DEVICE;
    }
    return CUDA_SUCCESS;
}
}  // namespace wootz

#define CUTLASS_ENABLE_DIRECT_CUDA_DRIVER_CALL 1
#define cuTensorMapEncodeTiled wootz::encode_tiled

// The few calls of the CUDA run time that CUTLASS' host code can reach.
WOOTZ_LOCAL cudaError_t cudaGetDevice(int*) {
    wootz::call.error = WOOTZ_STUB_DEVICE;
    return cudaErrorNotSupported;
}
WOOTZ_LOCAL cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) {
    wootz::call.error = WOOTZ_STUB_DEVICE;
    return cudaErrorNotSupported;
}
WOOTZ_LOCAL cudaError_t cudaGetLastError() { return cudaSuccess; }
WOOTZ_LOCAL cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t) {
    auto& call = wootz::call;
    return call.memset && !call.memset(call.context, address, value, bytes) ? cudaSuccess
                                                                            : cudaErrorNotSupported;
}

WOOTZ_EXPORT void wootz_stub_encode(void* encode) {
    wootz::encoder = reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(encode);
}

#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>

namespace wootz {
// The problem's arrays, sizes and scalars in the order of the entry's arguments.
struct Problem {
    const wootz_problem& given;
    template <class T>
    T* array(int i) const {
        return static_cast<T*>(const_cast<void*>(given.arrays[i]));
    }
    int size(int i) const { return static_cast<int>(given.shape[i]); }
    float scalar(int i) const { return static_cast<float>(given.scalars[i]); }
    bool fits(int sizes) const {
        for (int i = 0; i < sizes; ++i) {
            if (given.shape[i] < 0 || given.shape[i] > INT32_MAX) return false;
        }
        return true;
    }
};

// Config: Kernel (a CUTLASS 3.x kernel), ClusterShape, sizes (how many the problem has) and
// arguments(const Problem&) -> Kernel::Arguments, which must not touch what pointers point to.
template <class Config>
int query(const wootz_problem* given, wootz_launch* launch) {
    using Kernel = typename Config::Kernel;
    using Cluster = typename Config::ClusterShape;
    Problem problem{*given};
    if (!problem.fits(Config::sizes)) return WOOTZ_STUB_CANNOT;
    auto arguments = Config::arguments(problem);
    if (!Kernel::can_implement(arguments)) return WOOTZ_STUB_CANNOT;
    call = {};
    call.dry = true;
    auto params = Kernel::to_underlying_arguments(arguments, nullptr);
    dim3 grid = Kernel::get_grid_shape(params), block = Kernel::get_block_shape();
    if (call.error) return call.error;
    *launch = wootz_launch{};
    launch->params_size = sizeof(typename Kernel::Params);
    launch->params_align = alignof(typename Kernel::Params);
    launch->workspace_bytes = Kernel::get_workspace_size(arguments);
    launch->shared = static_cast<uint32_t>(Kernel::SharedStorageSize);
    uint32_t blocks[3] = {block.x, block.y, block.z}, grids[3] = {grid.x, grid.y, grid.z};
    uint32_t clusters[3] = {uint32_t(cute::size<0>(Cluster{})), uint32_t(cute::size<1>(Cluster{})),
                            uint32_t(cute::size<2>(Cluster{}))};
    std::memcpy(launch->block, blocks, sizeof blocks);
    std::memcpy(launch->cluster, clusters, sizeof clusters);
    std::memcpy(launch->grid, grids, sizeof grids);
    return WOOTZ_STUB_OK;
}

template <class Config>
int fill(const wootz_problem* given, void* params, wootz_memset set, void* context) {
    using Kernel = typename Config::Kernel;
    using Params = typename Kernel::Params;
    Problem problem{*given};
    if (!problem.fits(Config::sizes)) return WOOTZ_STUB_CANNOT;
    if (reinterpret_cast<uintptr_t>(params) % alignof(Params)) return WOOTZ_STUB_ALIGNMENT;
    auto arguments = Config::arguments(problem);
    call = {};
    call.memset = set;
    call.context = context;
    if (Kernel::get_workspace_size(arguments) > given->workspace_bytes) return WOOTZ_STUB_WORKSPACE;
    if (Kernel::initialize_workspace(arguments, given->workspace, nullptr) != cutlass::Status::kSuccess)
        return WOOTZ_STUB_WORKSPACE;
    // Padding keeps what it held: nobody may compare or hash these bytes.
    new (params) Params(Kernel::to_underlying_arguments(arguments, given->workspace));
    return call.error;
}
}  // namespace wootz
