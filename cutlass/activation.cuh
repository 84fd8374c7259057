// Activations chosen at run time: one uniform branch around a loop over a thread's elements.
#pragma once
#include <cuda_runtime.h>

#include <cmath>
#include <cstdint>

namespace wootz {
enum ActivationKind : uint32_t { kNone, kRelu, kSilu, kGelu };

// gelu is the exact one, with erf.
template <class Elements>
__host__ __device__ __forceinline__ void activate(Elements& x, int count, uint32_t kind) {
  if (kind == kRelu) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = x[i] < 0.f ? 0.f : x[i];  // NaN stays
  } else if (kind == kSilu) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = x[i] / (1.f + expf(-x[i]));
  } else if (kind == kGelu) {
#pragma unroll
    for (int i = 0; i < count; ++i) x[i] = 0.5f * x[i] * (1.f + erff(x[i] * 0.70710678f));
  }
}
}  // namespace wootz
