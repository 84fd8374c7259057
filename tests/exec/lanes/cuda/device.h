// The CUDA device environment for host C++17: force-included before an emitted .cu file.
//
// Types, conversions and most arithmetic are NVIDIA's own headers, which work on the host. Here is only what
// they leave to the device compiler: keywords, built-in variables, barriers, shuffles, intrinsics. A name
// that is missing is a compile error, never a guess.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "../runtime/rt.h"

#undef __global__
#define __global__
#undef __launch_bounds__
#define __launch_bounds__(...)
// Blocks run one after the other on one OS thread, so a block's shared memory is one static object. (A
// thread_local one would have no red zones.) Dynamic shared memory, `extern __shared__`, does not compile.
#undef __shared__
#define __shared__ static

#define threadIdx (lanes::to_uint3(lanes_thread_position()))
#define blockIdx (lanes::to_uint3(lanes_group_position()))
#define blockDim (lanes::to_uint3(lanes_group_size()))
#define gridDim (lanes::to_uint3(lanes_grid_size()))
#define warpSize 32

namespace lanes {

inline uint3 to_uint3(LanesDim dim) { return make_uint3(dim.x, dim.y, dim.z); }

template <class T>
inline T slot(const void* slots, unsigned lane) {
    T value;
    __builtin_memcpy(&value, static_cast<const char*>(slots) + LANES_SLOT_BYTES * lane, sizeof value);
    return value;
}

template <class T>
inline T undefined_value() {
    T value;
    memset(static_cast<void*>(&value), 0xff, sizeof value);
    return value;
}

}  // namespace lanes

#include "half.h"
#include "intrinsics.h"
#include "simd.h"
#include "vectors.h"
#include "wootz_device.cuh"
