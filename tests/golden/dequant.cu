#include <cstdint>
#include <cuda_fp16.h>

__device__ __forceinline__ float half_low(uint32_t word)
{
    return __half2float(__ushort_as_half(uint16_t(word)));
}

__device__ __forceinline__ float half_high(uint32_t word)
{
    return __half2float(__ushort_as_half(uint16_t(word >> 16)));
}

extern "C" __global__ void __launch_bounds__(128)
wootz_dequant_small_f32(
    const uint8_t* __restrict__ w_codes,
    const uint8_t* __restrict__ w_scale,
    float* __restrict__ y,
    uint32_t n,
    uint32_t k,
    uint32_t w_codes_pitch,
    uint32_t w_scale_pitch)
{
    const uint32_t v0 = (blockIdx.x * 128u) + threadIdx.x;
    const uint32_t v1 = (k + 31u) / 32u;
    if (v0 < (n * v1)) {
        const uint32_t v2 = v0 % v1;
        const uint64_t v3 = uint64_t((v0 / v1));
        float* __restrict__ y_at0 = y + v3 * uint64_t(k);
        uint32_t words[4];
        float values[8];
        const uint8_t* __restrict__ w_codes_at0 = w_codes + v3 * uint64_t(w_codes_pitch);
        const uint4 v4 = __ldg(reinterpret_cast<const uint4*>(w_codes_at0 + (v2 * 16u)));
        words[0u] = v4.x;
        words[1u] = v4.y;
        words[2u] = v4.z;
        words[3u] = v4.w;
        #pragma unroll
        for (uint32_t i0 = 0u; i0 < 4u; ++i0) {
            const uint32_t v5 = words[i0];
            const uint32_t v6 = (v2 * 32u) + (i0 * 8u);
            const uint32_t v7 = ((v5 << 9u) & 0xe000e00u) | ((v5 << 12u) & 0x80008000u);
            const uint32_t v8 = ((v5 << 5u) & 0xe000e00u) | ((v5 << 8u) & 0x80008000u);
            const uint32_t v9 = ((v5 << 1u) & 0xe000e00u) | ((v5 << 4u) & 0x80008000u);
            const uint32_t v10 = ((v5 >> 3u) & 0xe000e00u) | (v5 & 0x80008000u);
            const uint8_t* __restrict__ w_scale_at0 = w_scale + v3 * uint64_t(w_scale_pitch);
            const uint32_t v11 = uint32_t(w_scale_at0[min((v6 / 8u), (((k + 7u) / 8u) - 1u))]) & 255u;
            const float v12 = __uint_as_float(((v11 == 255u) ? 0x7fc00000u : ((v11 == 0u) ? 0x400000u : (v11 << 23u))));
            const float v13 = (half_low(v7) * 16384.0f) * v12;
            const float v14 = (half_low(v8) * 16384.0f) * v12;
            const float v15 = (half_low(v9) * 16384.0f) * v12;
            const float v16 = (half_low(v10) * 16384.0f) * v12;
            const float v17 = (half_high(v7) * 16384.0f) * v12;
            const float v18 = (half_high(v8) * 16384.0f) * v12;
            const float v19 = (half_high(v9) * 16384.0f) * v12;
            const float v20 = (half_high(v10) * 16384.0f) * v12;
            if (((k % 8u) == 0u) && (v6 < k)) {
                *reinterpret_cast<uint4*>(y_at0 + v6) = make_uint4(__float_as_uint(v13), __float_as_uint(v14), __float_as_uint(v15), __float_as_uint(v16));
                *reinterpret_cast<uint4*>(y_at0 + v6 + 4u) = make_uint4(__float_as_uint(v17), __float_as_uint(v18), __float_as_uint(v19), __float_as_uint(v20));
            } else {
                values[0u] = v13;
                values[1u] = v14;
                values[2u] = v15;
                values[3u] = v16;
                values[4u] = v17;
                values[5u] = v18;
                values[6u] = v19;
                values[7u] = v20;
                #pragma unroll
                for (uint32_t i1 = 0u; i1 < 8u; ++i1) {
                    const uint32_t v21 = v6 + i1;
                    if (v21 < k) {
                        y_at0[v21] = values[i1];
                    }
                }
            }
        }
    }
}
