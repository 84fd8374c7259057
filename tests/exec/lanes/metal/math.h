// Common, math, integer and geometric functions. Where Metal has fast and precise variants, both are precise
// here.
#pragma once

#include "vectors.h"

namespace metal {

// NaN: fmax and fmin return the other operand; max and min are undefined in Metal, and here return the first.
template <class T>
METAL_FUNC T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
METAL_FUNC T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
METAL_FUNC T clamp(T x, T low, T high) {
    return min(max(x, low), high);
}
template <class T>
METAL_FUNC T select(T otherwise, T then, bool condition) {
    return condition ? then : otherwise;
}
METAL_FUNC float saturate(float x) { return clamp(x, 0.0f, 1.0f); }
METAL_FUNC int abs(int x) { return x < 0 ? -x : x; }

METAL_FUNC float fmax(float a, float b) { return __builtin_fmaxf(a, b); }
METAL_FUNC float fmin(float a, float b) { return __builtin_fminf(a, b); }

#define LANES_FLOAT_MATH                                                                \
    METAL_FUNC float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); } \
    METAL_FUNC float abs(float x) { return __builtin_fabsf(x); }                        \
    METAL_FUNC float fabs(float x) { return __builtin_fabsf(x); }                       \
    METAL_FUNC float ceil(float x) { return __builtin_ceilf(x); }                       \
    METAL_FUNC float floor(float x) { return __builtin_floorf(x); }                     \
    METAL_FUNC float trunc(float x) { return __builtin_truncf(x); }                     \
    METAL_FUNC float rint(float x) { return __builtin_rintf(x); }                       \
    METAL_FUNC float round(float x) { return __builtin_roundf(x); }                     \
    METAL_FUNC float sqrt(float x) { return __builtin_sqrtf(x); }                       \
    METAL_FUNC float rsqrt(float x) { return 1.0f / __builtin_sqrtf(x); }               \
    METAL_FUNC float exp(float x) { return __builtin_expf(x); }                         \
    METAL_FUNC float exp2(float x) { return __builtin_exp2f(x); }                       \
    METAL_FUNC float log(float x) { return __builtin_logf(x); }                         \
    METAL_FUNC float log2(float x) { return __builtin_log2f(x); }                       \
    METAL_FUNC float pow(float x, float y) { return __builtin_powf(x, y); }             \
    METAL_FUNC float sin(float x) { return __builtin_sinf(x); }                         \
    METAL_FUNC float cos(float x) { return __builtin_cosf(x); }                         \
    METAL_FUNC float tanh(float x) { return __builtin_tanhf(x); }                       \
    METAL_FUNC float divide(float a, float b) { return a / b; }
LANES_FLOAT_MATH
namespace fast {
LANES_FLOAT_MATH
}
namespace precise {
LANES_FLOAT_MATH
}
#undef LANES_FLOAT_MATH

METAL_FUNC half fma(half a, half b, half c) { return (half)__builtin_fmaf((float)a, (float)b, (float)c); }
METAL_FUNC half abs(half x) { return (half)__builtin_fabsf((float)x); }
METAL_FUNC float ldexp(float x, int exponent) { return __builtin_ldexpf(x, exponent); }
METAL_FUNC bool isnan(float x) { return x != x; }
METAL_FUNC bool isinf(float x) { return __builtin_fabsf(x) == INFINITY; }

METAL_FUNC uint popcount(uint x) { return (uint)__builtin_popcount(x); }
METAL_FUNC uint clz(uint x) { return x ? (uint)__builtin_clz(x) : 32u; }
METAL_FUNC uint ctz(uint x) { return x ? (uint)__builtin_ctz(x) : 32u; }
METAL_FUNC uint reverse_bits(uint x) { return __builtin_bitreverse32(x); }
METAL_FUNC uint mulhi(uint a, uint b) { return (uint)((ulong)a * b >> 32); }
METAL_FUNC uint extract_bits(uint x, uint offset, uint bits) {
    return bits == 0 ? 0u : x << (32 - offset - bits) >> (32 - bits);
}
METAL_FUNC int extract_bits(int x, uint offset, uint bits) {
    return bits == 0 ? 0 : (int)((uint)x << (32 - offset - bits)) >> (32 - bits);
}

template <class T>
METAL_FUNC typename vector_traits<T>::element dot(T a, T b) {
    typename vector_traits<T>::element sum = 0;
    for (int i = 0; i < vector_traits<T>::length; ++i) {
        sum += a[i] * b[i];
    }
    return sum;
}

}  // namespace metal
