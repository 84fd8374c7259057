// The half and bfloat16 functions that NVIDIA's headers keep for the device. Included by device.h.
#pragma once

// Fused: the product and the sum are exact enough in double for one rounding to be the last.
inline __half __hfma(__half a, __half b, __half c) {
    return __double2half(fma(static_cast<double>(__half2float(a)), static_cast<double>(__half2float(b)),
                             static_cast<double>(__half2float(c))));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __halves2half2(__hfma(__low2half(a), __low2half(b), __low2half(c)),
                          __hfma(__high2half(a), __high2half(b), __high2half(c)));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __double2bfloat16(fma(static_cast<double>(__bfloat162float(a)),
                                 static_cast<double>(__bfloat162float(b)),
                                 static_cast<double>(__bfloat162float(c))));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return __halves2bfloat162(__hfma(__low2bfloat16(a), __low2bfloat16(b), __low2bfloat16(c)),
                              __hfma(__high2bfloat16(a), __high2bfloat16(b), __high2bfloat16(c)));
}

#define LANES_UNARY(name, expression)            \
    inline __half name(__half h) {               \
        const float a = __half2float(h);         \
        return __float2half_rn(expression);      \
    }                                            \
    inline __nv_bfloat16 name(__nv_bfloat16 h) { \
        const float a = __bfloat162float(h);     \
        return __float2bfloat16_rn(expression);  \
    }
LANES_UNARY(hceil, ceilf(a))
LANES_UNARY(hfloor, floorf(a))
LANES_UNARY(htrunc, truncf(a))
LANES_UNARY(hrint, rintf(a))
LANES_UNARY(hsqrt, sqrtf(a))
LANES_UNARY(hrsqrt, 1.0f / sqrtf(a))
LANES_UNARY(hrcp, 1.0f / a)
LANES_UNARY(hexp, expf(a))
LANES_UNARY(hexp2, exp2f(a))
LANES_UNARY(hlog, logf(a))
LANES_UNARY(hlog2, log2f(a))
LANES_UNARY(htanh, tanhf(a))
LANES_UNARY(hsin, sinf(a))
LANES_UNARY(hcos, cosf(a))
#undef LANES_UNARY
