#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

// The device names that emitted kernels use, over one block of 64 threads. x holds 16 bytes a thread.
static __device__ const float table[4] = {1.0f, -2.0f, 0.5f, 4.0f};

extern "C" __global__ void __launch_bounds__(64)
    words(const uint8_t* __restrict__ x, float* __restrict__ y, uint32_t* __restrict__ bits, uint32_t m, uint64_t n,
          float f)
{
    __shared__ uint32_t swapped[64];
    const uint32_t t = threadIdx.x;
    const uint4 v = *reinterpret_cast<const uint4*>(x + 16 * t);
    const uint2 v2 = __ldg(reinterpret_cast<const uint2*>(x + 16 * t));
    swapped[t] = v.x;
    __syncthreads();
    const uint32_t other = swapped[63 - t];

    float sum = table[v.x & 3u];
    for (int o = 16; o > 0; o >>= 1) { sum += __shfl_xor_sync(0xffffffffu, sum, o); }
    const float h = __half2float(__ushort_as_half(static_cast<unsigned short>(v.y & 0x3fffu)));
    const float b = __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(v.y >> 18)));
    const __half2 pair = __hfma2(__floats2half2_rn(1.0f, 2.0f), __floats2half2_rn(f, f), __floats2half2_rn(0.5f, 0.5f));
    y[4 * t] = sum;
    y[4 * t + 1] = __fmaf_rn(h, f, b);
    y[4 * t + 2] = __low2float(pair) + __high2float(pair);
    y[4 * t + 3] = __uint_as_float(__float_as_uint(f) ^ 0x80000000u) + float(min(m, t)) + float(max(n, uint64_t(7)));

    bits[4 * t] = other;
    bits[4 * t + 1] = v2.y;
    bits[4 * t + 2] = __byte_perm(v.x, v.y, 0x5140);
    bits[4 * t + 3] = __half_as_ushort(__float2half_rn(h)) | (uint32_t(__bfloat16_as_ushort(__float2bfloat16_rn(b))) << 16);
}
