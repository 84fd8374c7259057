#include <cuda_fp16.h>
#include <cstdint>
#include "wootz_device.cuh"

// c(m, n) = a(m, k) * b(k, n), f32 = f16 * f16; 32x32 a block of 128 threads, 16x16 a warp.
extern "C" __global__ void __launch_bounds__(128)
    mm_f16(const __half* __restrict__ a, const __half* __restrict__ b, float* __restrict__ c, uint32_t n, uint32_t k)
{
    __shared__ __align__(16) __half sa[32 * 40];
    __shared__ __align__(16) __half sb[32 * 40];
    const uint32_t tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
    const uint32_t m0 = blockIdx.y * 32, n0 = blockIdx.x * 32, sm = (warp / 2) * 16, sn = (warp % 2) * 16;
    float acc[2][4] = {{0.0f, 0.0f, 0.0f, 0.0f}, {0.0f, 0.0f, 0.0f, 0.0f}};
    for (uint32_t k0 = 0; k0 < k; k0 += 32) {
        for (uint32_t i = tid; i < 1024; i += 128) {
            sa[(i / 32) * 40 + i % 32] = a[(m0 + i / 32) * k + k0 + i % 32];
            sb[(i / 32) * 40 + i % 32] = b[(k0 + i / 32) * n + n0 + i % 32];
        }
        __syncthreads();
        for (uint32_t kk = 0; kk < 32; kk += 16) {
            uint32_t fa[4], fb[4];
            ldmatrix_x4(fa, &sa[(sm + lane % 16) * 40 + kk + (lane / 16) * 8]);
            ldmatrix_x4_trans(fb, &sb[(kk + lane % 16) * 40 + sn + (lane / 16) * 8]);
            const uint32_t b0[2] = {fb[0], fb[1]}, b1[2] = {fb[2], fb[3]};
            mma_m16n8k16_f16_f32(acc[0], fa, b0, acc[0]);
            mma_m16n8k16_f16_f32(acc[1], fa, b1, acc[1]);
        }
        __syncthreads();
    }
    for (uint32_t j = 0; j < 2; ++j) {
        for (uint32_t i = 0; i < 4; ++i) {
            c[(m0 + sm + lane / 4 + 8 * (i / 2)) * n + n0 + sn + 8 * j + 2 * (lane % 4) + i % 2] = acc[j][i];
        }
    }
}
