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
wootz_dequant_small_f32_lines(
    const uint8_t* __restrict__ w_codes,
    const uint8_t* __restrict__ w_scale,
    float* __restrict__ y,
    uint32_t n,
    uint32_t k,
    uint32_t w_codes_pitch,
    uint32_t w_scale_pitch)
{
    const uint32_t v0 = (blockIdx.x * 128u) + threadIdx.x;
    const uint32_t v1 = v0 % 32u;
    const uint32_t v2 = (k + 1023u) / 1024u;
    const uint32_t v3 = ((k + 7u) / 8u) - 1u;
    const uint32_t v4 = v0 / 32u;
    const uint32_t v5 = v4 / v2;
    const uint32_t v6 = (v4 % v2) * 128u;
    const uint32_t v7 = (v5 < n) ? k : 0u;
    uint32_t words[4];
    const uint32_t v8 = min((v6 + v1), v3);
    const uint32_t v9 = min(((v6 + 32u) + v1), v3);
    const uint32_t v10 = min(((v6 + 64u) + v1), v3);
    const uint32_t v11 = min(((v6 + 96u) + v1), v3);
    const uint64_t v12 = uint64_t(min(v5, (n - 1u)));
    const uint64_t v13 = v12 * uint64_t(w_codes_pitch);
    const uint8_t* __restrict__ w_codes_at0 = w_codes + v13;
    words[0u] = __ldg(reinterpret_cast<const uint32_t*>(w_codes_at0 + (v8 * 4u)));
    const uint8_t* __restrict__ w_codes_at1 = w_codes + v13;
    words[1u] = __ldg(reinterpret_cast<const uint32_t*>(w_codes_at1 + (v9 * 4u)));
    const uint8_t* __restrict__ w_codes_at2 = w_codes + v13;
    words[2u] = __ldg(reinterpret_cast<const uint32_t*>(w_codes_at2 + (v10 * 4u)));
    const uint8_t* __restrict__ w_codes_at3 = w_codes + v13;
    words[3u] = __ldg(reinterpret_cast<const uint32_t*>(w_codes_at3 + (v11 * 4u)));
    const uint32_t v14 = ((v6 + (((v1 / 8u) * 8u) + (v1 % 4u))) * 8u) + (((v1 % 8u) / 4u) * 4u);
    float* __restrict__ y_at0 = y + (uint64_t(v5) * uint64_t(k)) + uint64_t(v14);
    uint32_t made[8];
    const uint32_t v15 = words[0u];
    const uint32_t v16 = ((v15 << 9u) & 0xe000e00u) | ((v15 << 12u) & 0x80008000u);
    const uint32_t v17 = ((v15 << 5u) & 0xe000e00u) | ((v15 << 8u) & 0x80008000u);
    const uint32_t v18 = ((v15 << 1u) & 0xe000e00u) | ((v15 << 4u) & 0x80008000u);
    const uint32_t v19 = ((v15 >> 3u) & 0xe000e00u) | (v15 & 0x80008000u);
    const uint64_t v20 = v12 * uint64_t(w_scale_pitch);
    const uint8_t* __restrict__ w_scale_at0 = w_scale + v20;
    const uint32_t v21 = uint32_t(w_scale_at0[min(((v8 * 8u) / 8u), v3)]) & 255u;
    const float v22 = __uint_as_float(((v21 == 255u) ? 0x7fc00000u : ((v21 == 0u) ? 0x400000u : (v21 << 23u))));
    made[0u] = __float_as_uint(((half_low(v16) * 16384.0f) * v22));
    made[1u] = __float_as_uint(((half_low(v17) * 16384.0f) * v22));
    made[2u] = __float_as_uint(((half_low(v18) * 16384.0f) * v22));
    made[3u] = __float_as_uint(((half_low(v19) * 16384.0f) * v22));
    made[4u] = __float_as_uint(((half_high(v16) * 16384.0f) * v22));
    made[5u] = __float_as_uint(((half_high(v17) * 16384.0f) * v22));
    made[6u] = __float_as_uint(((half_high(v18) * 16384.0f) * v22));
    made[7u] = __float_as_uint(((half_high(v19) * 16384.0f) * v22));
    const uint32_t v23 = made[0u];
    const uint32_t v24 = made[1u];
    const uint32_t v25 = made[2u];
    const uint32_t v26 = made[3u];
    const uint32_t v27 = made[4u];
    const uint32_t v28 = made[5u];
    const uint32_t v29 = made[6u];
    const uint32_t v30 = made[7u];
    const bool v31 = (v1 & 4u) != 0u;
    const uint32_t v32 = __shfl_xor_sync(0xffffffffu, (v31 ? v23 : v27), 4);
    const uint32_t v33 = __shfl_xor_sync(0xffffffffu, (v31 ? v24 : v28), 4);
    const uint32_t v34 = __shfl_xor_sync(0xffffffffu, (v31 ? v25 : v29), 4);
    const uint32_t v35 = __shfl_xor_sync(0xffffffffu, (v31 ? v26 : v30), 4);
    const uint32_t v36 = v31 ? v32 : v23;
    const uint32_t v37 = v31 ? v33 : v24;
    const uint32_t v38 = v31 ? v34 : v25;
    const uint32_t v39 = v31 ? v35 : v26;
    const uint32_t v40 = v31 ? v27 : v32;
    const uint32_t v41 = v31 ? v28 : v33;
    const uint32_t v42 = v31 ? v29 : v34;
    const uint32_t v43 = v31 ? v30 : v35;
    if (v14 < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 0u) = make_uint4(v36, v37, v38, v39);
    }
    if ((v14 + 32u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 32u) = make_uint4(v40, v41, v42, v43);
    }
    uint32_t made1[8];
    const uint32_t v44 = words[1u];
    const uint32_t v45 = ((v44 << 9u) & 0xe000e00u) | ((v44 << 12u) & 0x80008000u);
    const uint32_t v46 = ((v44 << 5u) & 0xe000e00u) | ((v44 << 8u) & 0x80008000u);
    const uint32_t v47 = ((v44 << 1u) & 0xe000e00u) | ((v44 << 4u) & 0x80008000u);
    const uint32_t v48 = ((v44 >> 3u) & 0xe000e00u) | (v44 & 0x80008000u);
    const uint8_t* __restrict__ w_scale_at1 = w_scale + v20;
    const uint32_t v49 = uint32_t(w_scale_at1[min(((v9 * 8u) / 8u), v3)]) & 255u;
    const float v50 = __uint_as_float(((v49 == 255u) ? 0x7fc00000u : ((v49 == 0u) ? 0x400000u : (v49 << 23u))));
    made1[0u] = __float_as_uint(((half_low(v45) * 16384.0f) * v50));
    made1[1u] = __float_as_uint(((half_low(v46) * 16384.0f) * v50));
    made1[2u] = __float_as_uint(((half_low(v47) * 16384.0f) * v50));
    made1[3u] = __float_as_uint(((half_low(v48) * 16384.0f) * v50));
    made1[4u] = __float_as_uint(((half_high(v45) * 16384.0f) * v50));
    made1[5u] = __float_as_uint(((half_high(v46) * 16384.0f) * v50));
    made1[6u] = __float_as_uint(((half_high(v47) * 16384.0f) * v50));
    made1[7u] = __float_as_uint(((half_high(v48) * 16384.0f) * v50));
    const uint32_t v51 = made1[0u];
    const uint32_t v52 = made1[1u];
    const uint32_t v53 = made1[2u];
    const uint32_t v54 = made1[3u];
    const uint32_t v55 = made1[4u];
    const uint32_t v56 = made1[5u];
    const uint32_t v57 = made1[6u];
    const uint32_t v58 = made1[7u];
    const uint32_t v59 = __shfl_xor_sync(0xffffffffu, (v31 ? v51 : v55), 4);
    const uint32_t v60 = __shfl_xor_sync(0xffffffffu, (v31 ? v52 : v56), 4);
    const uint32_t v61 = __shfl_xor_sync(0xffffffffu, (v31 ? v53 : v57), 4);
    const uint32_t v62 = __shfl_xor_sync(0xffffffffu, (v31 ? v54 : v58), 4);
    const uint32_t v63 = v31 ? v59 : v51;
    const uint32_t v64 = v31 ? v60 : v52;
    const uint32_t v65 = v31 ? v61 : v53;
    const uint32_t v66 = v31 ? v62 : v54;
    const uint32_t v67 = v31 ? v55 : v59;
    const uint32_t v68 = v31 ? v56 : v60;
    const uint32_t v69 = v31 ? v57 : v61;
    const uint32_t v70 = v31 ? v58 : v62;
    if ((v14 + 256u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 256u) = make_uint4(v63, v64, v65, v66);
    }
    if ((v14 + 288u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 288u) = make_uint4(v67, v68, v69, v70);
    }
    uint32_t made2[8];
    const uint32_t v71 = words[2u];
    const uint32_t v72 = ((v71 << 9u) & 0xe000e00u) | ((v71 << 12u) & 0x80008000u);
    const uint32_t v73 = ((v71 << 5u) & 0xe000e00u) | ((v71 << 8u) & 0x80008000u);
    const uint32_t v74 = ((v71 << 1u) & 0xe000e00u) | ((v71 << 4u) & 0x80008000u);
    const uint32_t v75 = ((v71 >> 3u) & 0xe000e00u) | (v71 & 0x80008000u);
    const uint8_t* __restrict__ w_scale_at2 = w_scale + v20;
    const uint32_t v76 = uint32_t(w_scale_at2[min(((v10 * 8u) / 8u), v3)]) & 255u;
    const float v77 = __uint_as_float(((v76 == 255u) ? 0x7fc00000u : ((v76 == 0u) ? 0x400000u : (v76 << 23u))));
    made2[0u] = __float_as_uint(((half_low(v72) * 16384.0f) * v77));
    made2[1u] = __float_as_uint(((half_low(v73) * 16384.0f) * v77));
    made2[2u] = __float_as_uint(((half_low(v74) * 16384.0f) * v77));
    made2[3u] = __float_as_uint(((half_low(v75) * 16384.0f) * v77));
    made2[4u] = __float_as_uint(((half_high(v72) * 16384.0f) * v77));
    made2[5u] = __float_as_uint(((half_high(v73) * 16384.0f) * v77));
    made2[6u] = __float_as_uint(((half_high(v74) * 16384.0f) * v77));
    made2[7u] = __float_as_uint(((half_high(v75) * 16384.0f) * v77));
    const uint32_t v78 = made2[0u];
    const uint32_t v79 = made2[1u];
    const uint32_t v80 = made2[2u];
    const uint32_t v81 = made2[3u];
    const uint32_t v82 = made2[4u];
    const uint32_t v83 = made2[5u];
    const uint32_t v84 = made2[6u];
    const uint32_t v85 = made2[7u];
    const uint32_t v86 = __shfl_xor_sync(0xffffffffu, (v31 ? v78 : v82), 4);
    const uint32_t v87 = __shfl_xor_sync(0xffffffffu, (v31 ? v79 : v83), 4);
    const uint32_t v88 = __shfl_xor_sync(0xffffffffu, (v31 ? v80 : v84), 4);
    const uint32_t v89 = __shfl_xor_sync(0xffffffffu, (v31 ? v81 : v85), 4);
    const uint32_t v90 = v31 ? v86 : v78;
    const uint32_t v91 = v31 ? v87 : v79;
    const uint32_t v92 = v31 ? v88 : v80;
    const uint32_t v93 = v31 ? v89 : v81;
    const uint32_t v94 = v31 ? v82 : v86;
    const uint32_t v95 = v31 ? v83 : v87;
    const uint32_t v96 = v31 ? v84 : v88;
    const uint32_t v97 = v31 ? v85 : v89;
    if ((v14 + 512u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 512u) = make_uint4(v90, v91, v92, v93);
    }
    if ((v14 + 544u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 544u) = make_uint4(v94, v95, v96, v97);
    }
    uint32_t made3[8];
    const uint32_t v98 = words[3u];
    const uint32_t v99 = ((v98 << 9u) & 0xe000e00u) | ((v98 << 12u) & 0x80008000u);
    const uint32_t v100 = ((v98 << 5u) & 0xe000e00u) | ((v98 << 8u) & 0x80008000u);
    const uint32_t v101 = ((v98 << 1u) & 0xe000e00u) | ((v98 << 4u) & 0x80008000u);
    const uint32_t v102 = ((v98 >> 3u) & 0xe000e00u) | (v98 & 0x80008000u);
    const uint8_t* __restrict__ w_scale_at3 = w_scale + v20;
    const uint32_t v103 = uint32_t(w_scale_at3[min(((v11 * 8u) / 8u), v3)]) & 255u;
    const float v104 = __uint_as_float(((v103 == 255u) ? 0x7fc00000u : ((v103 == 0u) ? 0x400000u : (v103 << 23u))));
    made3[0u] = __float_as_uint(((half_low(v99) * 16384.0f) * v104));
    made3[1u] = __float_as_uint(((half_low(v100) * 16384.0f) * v104));
    made3[2u] = __float_as_uint(((half_low(v101) * 16384.0f) * v104));
    made3[3u] = __float_as_uint(((half_low(v102) * 16384.0f) * v104));
    made3[4u] = __float_as_uint(((half_high(v99) * 16384.0f) * v104));
    made3[5u] = __float_as_uint(((half_high(v100) * 16384.0f) * v104));
    made3[6u] = __float_as_uint(((half_high(v101) * 16384.0f) * v104));
    made3[7u] = __float_as_uint(((half_high(v102) * 16384.0f) * v104));
    const uint32_t v105 = made3[0u];
    const uint32_t v106 = made3[1u];
    const uint32_t v107 = made3[2u];
    const uint32_t v108 = made3[3u];
    const uint32_t v109 = made3[4u];
    const uint32_t v110 = made3[5u];
    const uint32_t v111 = made3[6u];
    const uint32_t v112 = made3[7u];
    const uint32_t v113 = __shfl_xor_sync(0xffffffffu, (v31 ? v105 : v109), 4);
    const uint32_t v114 = __shfl_xor_sync(0xffffffffu, (v31 ? v106 : v110), 4);
    const uint32_t v115 = __shfl_xor_sync(0xffffffffu, (v31 ? v107 : v111), 4);
    const uint32_t v116 = __shfl_xor_sync(0xffffffffu, (v31 ? v108 : v112), 4);
    const uint32_t v117 = v31 ? v113 : v105;
    const uint32_t v118 = v31 ? v114 : v106;
    const uint32_t v119 = v31 ? v115 : v107;
    const uint32_t v120 = v31 ? v116 : v108;
    const uint32_t v121 = v31 ? v109 : v113;
    const uint32_t v122 = v31 ? v110 : v114;
    const uint32_t v123 = v31 ? v111 : v115;
    const uint32_t v124 = v31 ? v112 : v116;
    if ((v14 + 768u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 768u) = make_uint4(v117, v118, v119, v120);
    }
    if ((v14 + 800u) < v7) {
        *reinterpret_cast<uint4*>(y_at0 + 800u) = make_uint4(v121, v122, v123, v124);
    }
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
