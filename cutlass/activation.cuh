// Activations chosen at run time: one uniform branch around a loop over a thread's elements.
#pragma once

#include <math.h>
#include <stdint.h>

#include "function.cuh"

enum ActivationKind : uint32_t { kActivationNone, kActivationRelu, kActivationSilu, kActivationGelu };

// x[0..Count) in place. NaN stays; gelu is the exact one, with erf.
template <int Count, class Elements>
WOOTZ_FN void activate(Elements& x, uint32_t kind) {
    if (kind == kActivationRelu) {
#pragma unroll
        for (int i = 0; i < Count; ++i) x[i] = x[i] < 0.f ? 0.f : x[i];
    } else if (kind == kActivationSilu) {
#pragma unroll
        for (int i = 0; i < Count; ++i) x[i] = x[i] / (1.f + expf(-x[i]));
    } else if (kind == kActivationGelu) {
#pragma unroll
        for (int i = 0; i < Count; ++i) x[i] = 0.5f * x[i] * (1.f + erff(x[i] * 0.70710678f));
    }
}
