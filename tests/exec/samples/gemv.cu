#include <cuda_fp16.h>
#include <cstdint>

// y[row] = sum over k of (q(row, k) - 8) * scale(row, k / 32) * x[k]; eight 4-bit codes a word, one block a row.
extern "C" __global__ void __launch_bounds__(128)
    gemv_f16(const uint32_t* __restrict__ codes, const __half* __restrict__ scales, const __half* __restrict__ x,
             float* __restrict__ y, uint32_t k)
{
    __shared__ float part[4];
    const uint32_t row = blockIdx.x, tid = threadIdx.x;
    const uint32_t* w = codes + row * (k / 8);
    const __half* s = scales + row * (k / 32);
    float acc = 0.0f;
    for (uint32_t i = tid; i < k / 8; i += 128) {
        const uint32_t q = __ldg(&w[i]);
        const float scale = __half2float(s[i / 4]);
        #pragma unroll
        for (uint32_t j = 0; j < 8; ++j) {
            acc += (float((q >> (4 * j)) & 0xFu) - 8.0f) * scale * __half2float(x[i * 8 + j]);
        }
    }
    for (int o = 16; o > 0; o >>= 1) { acc += __shfl_down_sync(0xffffffffu, acc, o); }
    if (tid % 32 == 0) { part[tid / 32] = acc; }
    __syncthreads();
    if (tid == 0) { y[row] = part[0] + part[1] + part[2] + part[3]; }
}
