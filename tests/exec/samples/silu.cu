#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cstdint>

// y = silu(x) * scale, two elements a thread; q is y in E4M3.
extern "C" __global__ void __launch_bounds__(256)
    silu_f16(const __half2* __restrict__ x, __half2* __restrict__ y, __nv_fp8_e4m3* __restrict__ q, uint32_t n2,
             float scale)
{
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n2) { return; }
    float2 v = __half22float2(x[i]);
    v.x = v.x / (1.0f + __expf(-v.x)) * scale;
    v.y = v.y / (1.0f + __expf(-v.y)) * scale;
    y[i] = __floats2half2_rn(v.x, v.y);
    q[2 * i] = __nv_fp8_e4m3(v.x);
    q[2 * i + 1] = __nv_fp8_e4m3(v.y);
}
