#include <metal_stdlib>
using namespace metal;

inline float half_low(uint word)
{
    return float(as_type<half>(ushort(word & 0xffffu)));
}

inline float half_high(uint word)
{
    return float(as_type<half>(ushort(word >> 16)));
}

kernel void wootz_dequant_small_f32_lines(
    device const uchar* w_codes [[buffer(0)]],
    device const uchar* w_scale [[buffer(1)]],
    device float* y [[buffer(2)]],
    constant uint& n [[buffer(3)]],
    constant uint& k [[buffer(4)]],
    constant uint& w_codes_pitch [[buffer(5)]],
    constant uint& w_scale_pitch [[buffer(6)]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint3 block [[threadgroup_position_in_grid]])
{
    const uint v0 = (block.x * 128u) + thread_index;
    const uint v1 = v0 % 32u;
    const uint v2 = (k + 1023u) / 1024u;
    const uint v3 = ((k + 7u) / 8u) - 1u;
    const uint v4 = v0 / 32u;
    const uint v5 = v4 / v2;
    const uint v6 = (v4 % v2) * 128u;
    const uint v7 = (v5 < n) ? k : 0u;
    uint words[4];
    const uint v8 = min((v6 + v1), v3);
    const uint v9 = min(((v6 + 32u) + v1), v3);
    const uint v10 = min(((v6 + 64u) + v1), v3);
    const uint v11 = min(((v6 + 96u) + v1), v3);
    const ulong v12 = ulong(min(v5, (n - 1u)));
    const ulong v13 = v12 * ulong(w_codes_pitch);
    device const uchar* w_codes_at0 = w_codes + v13;
    words[0u] = *(device const uint*)(w_codes_at0 + (v8 * 4u));
    device const uchar* w_codes_at1 = w_codes + v13;
    words[1u] = *(device const uint*)(w_codes_at1 + (v9 * 4u));
    device const uchar* w_codes_at2 = w_codes + v13;
    words[2u] = *(device const uint*)(w_codes_at2 + (v10 * 4u));
    device const uchar* w_codes_at3 = w_codes + v13;
    words[3u] = *(device const uint*)(w_codes_at3 + (v11 * 4u));
    const uint v14 = ((v6 + (((v1 / 8u) * 8u) + (v1 % 4u))) * 8u) + (((v1 % 8u) / 4u) * 4u);
    device float* y_at0 = y + (ulong(v5) * ulong(k)) + ulong(v14);
    uint made[8];
    const uint v15 = words[0u];
    const uint v16 = ((v15 << 9u) & 0xe000e00u) | ((v15 << 12u) & 0x80008000u);
    const uint v17 = ((v15 << 5u) & 0xe000e00u) | ((v15 << 8u) & 0x80008000u);
    const uint v18 = ((v15 << 1u) & 0xe000e00u) | ((v15 << 4u) & 0x80008000u);
    const uint v19 = ((v15 >> 3u) & 0xe000e00u) | (v15 & 0x80008000u);
    const ulong v20 = v12 * ulong(w_scale_pitch);
    device const uchar* w_scale_at0 = w_scale + v20;
    const uint v21 = uint(w_scale_at0[min(((v8 * 8u) / 8u), v3)]) & 255u;
    const float v22 = as_type<float>(((v21 == 255u) ? 0x7fc00000u : ((v21 == 0u) ? 0x400000u : (v21 << 23u))));
    made[0u] = as_type<uint>(((half_low(v16) * 16384.0f) * v22));
    made[1u] = as_type<uint>(((half_low(v17) * 16384.0f) * v22));
    made[2u] = as_type<uint>(((half_low(v18) * 16384.0f) * v22));
    made[3u] = as_type<uint>(((half_low(v19) * 16384.0f) * v22));
    made[4u] = as_type<uint>(((half_high(v16) * 16384.0f) * v22));
    made[5u] = as_type<uint>(((half_high(v17) * 16384.0f) * v22));
    made[6u] = as_type<uint>(((half_high(v18) * 16384.0f) * v22));
    made[7u] = as_type<uint>(((half_high(v19) * 16384.0f) * v22));
    const uint v23 = made[0u];
    const uint v24 = made[1u];
    const uint v25 = made[2u];
    const uint v26 = made[3u];
    const uint v27 = made[4u];
    const uint v28 = made[5u];
    const uint v29 = made[6u];
    const uint v30 = made[7u];
    const bool v31 = (v1 & 4u) != 0u;
    const uint v32 = simd_shuffle_xor((v31 ? v23 : v27), ushort(4));
    const uint v33 = simd_shuffle_xor((v31 ? v24 : v28), ushort(4));
    const uint v34 = simd_shuffle_xor((v31 ? v25 : v29), ushort(4));
    const uint v35 = simd_shuffle_xor((v31 ? v26 : v30), ushort(4));
    const uint v36 = v31 ? v32 : v23;
    const uint v37 = v31 ? v33 : v24;
    const uint v38 = v31 ? v34 : v25;
    const uint v39 = v31 ? v35 : v26;
    const uint v40 = v31 ? v27 : v32;
    const uint v41 = v31 ? v28 : v33;
    const uint v42 = v31 ? v29 : v34;
    const uint v43 = v31 ? v30 : v35;
    if (v14 < v7) {
        *(device uint4*)(y_at0 + 0u) = uint4(v36, v37, v38, v39);
    }
    if ((v14 + 32u) < v7) {
        *(device uint4*)(y_at0 + 32u) = uint4(v40, v41, v42, v43);
    }
    uint made1[8];
    const uint v44 = words[1u];
    const uint v45 = ((v44 << 9u) & 0xe000e00u) | ((v44 << 12u) & 0x80008000u);
    const uint v46 = ((v44 << 5u) & 0xe000e00u) | ((v44 << 8u) & 0x80008000u);
    const uint v47 = ((v44 << 1u) & 0xe000e00u) | ((v44 << 4u) & 0x80008000u);
    const uint v48 = ((v44 >> 3u) & 0xe000e00u) | (v44 & 0x80008000u);
    device const uchar* w_scale_at1 = w_scale + v20;
    const uint v49 = uint(w_scale_at1[min(((v9 * 8u) / 8u), v3)]) & 255u;
    const float v50 = as_type<float>(((v49 == 255u) ? 0x7fc00000u : ((v49 == 0u) ? 0x400000u : (v49 << 23u))));
    made1[0u] = as_type<uint>(((half_low(v45) * 16384.0f) * v50));
    made1[1u] = as_type<uint>(((half_low(v46) * 16384.0f) * v50));
    made1[2u] = as_type<uint>(((half_low(v47) * 16384.0f) * v50));
    made1[3u] = as_type<uint>(((half_low(v48) * 16384.0f) * v50));
    made1[4u] = as_type<uint>(((half_high(v45) * 16384.0f) * v50));
    made1[5u] = as_type<uint>(((half_high(v46) * 16384.0f) * v50));
    made1[6u] = as_type<uint>(((half_high(v47) * 16384.0f) * v50));
    made1[7u] = as_type<uint>(((half_high(v48) * 16384.0f) * v50));
    const uint v51 = made1[0u];
    const uint v52 = made1[1u];
    const uint v53 = made1[2u];
    const uint v54 = made1[3u];
    const uint v55 = made1[4u];
    const uint v56 = made1[5u];
    const uint v57 = made1[6u];
    const uint v58 = made1[7u];
    const uint v59 = simd_shuffle_xor((v31 ? v51 : v55), ushort(4));
    const uint v60 = simd_shuffle_xor((v31 ? v52 : v56), ushort(4));
    const uint v61 = simd_shuffle_xor((v31 ? v53 : v57), ushort(4));
    const uint v62 = simd_shuffle_xor((v31 ? v54 : v58), ushort(4));
    const uint v63 = v31 ? v59 : v51;
    const uint v64 = v31 ? v60 : v52;
    const uint v65 = v31 ? v61 : v53;
    const uint v66 = v31 ? v62 : v54;
    const uint v67 = v31 ? v55 : v59;
    const uint v68 = v31 ? v56 : v60;
    const uint v69 = v31 ? v57 : v61;
    const uint v70 = v31 ? v58 : v62;
    if ((v14 + 256u) < v7) {
        *(device uint4*)(y_at0 + 256u) = uint4(v63, v64, v65, v66);
    }
    if ((v14 + 288u) < v7) {
        *(device uint4*)(y_at0 + 288u) = uint4(v67, v68, v69, v70);
    }
    uint made2[8];
    const uint v71 = words[2u];
    const uint v72 = ((v71 << 9u) & 0xe000e00u) | ((v71 << 12u) & 0x80008000u);
    const uint v73 = ((v71 << 5u) & 0xe000e00u) | ((v71 << 8u) & 0x80008000u);
    const uint v74 = ((v71 << 1u) & 0xe000e00u) | ((v71 << 4u) & 0x80008000u);
    const uint v75 = ((v71 >> 3u) & 0xe000e00u) | (v71 & 0x80008000u);
    device const uchar* w_scale_at2 = w_scale + v20;
    const uint v76 = uint(w_scale_at2[min(((v10 * 8u) / 8u), v3)]) & 255u;
    const float v77 = as_type<float>(((v76 == 255u) ? 0x7fc00000u : ((v76 == 0u) ? 0x400000u : (v76 << 23u))));
    made2[0u] = as_type<uint>(((half_low(v72) * 16384.0f) * v77));
    made2[1u] = as_type<uint>(((half_low(v73) * 16384.0f) * v77));
    made2[2u] = as_type<uint>(((half_low(v74) * 16384.0f) * v77));
    made2[3u] = as_type<uint>(((half_low(v75) * 16384.0f) * v77));
    made2[4u] = as_type<uint>(((half_high(v72) * 16384.0f) * v77));
    made2[5u] = as_type<uint>(((half_high(v73) * 16384.0f) * v77));
    made2[6u] = as_type<uint>(((half_high(v74) * 16384.0f) * v77));
    made2[7u] = as_type<uint>(((half_high(v75) * 16384.0f) * v77));
    const uint v78 = made2[0u];
    const uint v79 = made2[1u];
    const uint v80 = made2[2u];
    const uint v81 = made2[3u];
    const uint v82 = made2[4u];
    const uint v83 = made2[5u];
    const uint v84 = made2[6u];
    const uint v85 = made2[7u];
    const uint v86 = simd_shuffle_xor((v31 ? v78 : v82), ushort(4));
    const uint v87 = simd_shuffle_xor((v31 ? v79 : v83), ushort(4));
    const uint v88 = simd_shuffle_xor((v31 ? v80 : v84), ushort(4));
    const uint v89 = simd_shuffle_xor((v31 ? v81 : v85), ushort(4));
    const uint v90 = v31 ? v86 : v78;
    const uint v91 = v31 ? v87 : v79;
    const uint v92 = v31 ? v88 : v80;
    const uint v93 = v31 ? v89 : v81;
    const uint v94 = v31 ? v82 : v86;
    const uint v95 = v31 ? v83 : v87;
    const uint v96 = v31 ? v84 : v88;
    const uint v97 = v31 ? v85 : v89;
    if ((v14 + 512u) < v7) {
        *(device uint4*)(y_at0 + 512u) = uint4(v90, v91, v92, v93);
    }
    if ((v14 + 544u) < v7) {
        *(device uint4*)(y_at0 + 544u) = uint4(v94, v95, v96, v97);
    }
    uint made3[8];
    const uint v98 = words[3u];
    const uint v99 = ((v98 << 9u) & 0xe000e00u) | ((v98 << 12u) & 0x80008000u);
    const uint v100 = ((v98 << 5u) & 0xe000e00u) | ((v98 << 8u) & 0x80008000u);
    const uint v101 = ((v98 << 1u) & 0xe000e00u) | ((v98 << 4u) & 0x80008000u);
    const uint v102 = ((v98 >> 3u) & 0xe000e00u) | (v98 & 0x80008000u);
    device const uchar* w_scale_at3 = w_scale + v20;
    const uint v103 = uint(w_scale_at3[min(((v11 * 8u) / 8u), v3)]) & 255u;
    const float v104 = as_type<float>(((v103 == 255u) ? 0x7fc00000u : ((v103 == 0u) ? 0x400000u : (v103 << 23u))));
    made3[0u] = as_type<uint>(((half_low(v99) * 16384.0f) * v104));
    made3[1u] = as_type<uint>(((half_low(v100) * 16384.0f) * v104));
    made3[2u] = as_type<uint>(((half_low(v101) * 16384.0f) * v104));
    made3[3u] = as_type<uint>(((half_low(v102) * 16384.0f) * v104));
    made3[4u] = as_type<uint>(((half_high(v99) * 16384.0f) * v104));
    made3[5u] = as_type<uint>(((half_high(v100) * 16384.0f) * v104));
    made3[6u] = as_type<uint>(((half_high(v101) * 16384.0f) * v104));
    made3[7u] = as_type<uint>(((half_high(v102) * 16384.0f) * v104));
    const uint v105 = made3[0u];
    const uint v106 = made3[1u];
    const uint v107 = made3[2u];
    const uint v108 = made3[3u];
    const uint v109 = made3[4u];
    const uint v110 = made3[5u];
    const uint v111 = made3[6u];
    const uint v112 = made3[7u];
    const uint v113 = simd_shuffle_xor((v31 ? v105 : v109), ushort(4));
    const uint v114 = simd_shuffle_xor((v31 ? v106 : v110), ushort(4));
    const uint v115 = simd_shuffle_xor((v31 ? v107 : v111), ushort(4));
    const uint v116 = simd_shuffle_xor((v31 ? v108 : v112), ushort(4));
    const uint v117 = v31 ? v113 : v105;
    const uint v118 = v31 ? v114 : v106;
    const uint v119 = v31 ? v115 : v107;
    const uint v120 = v31 ? v116 : v108;
    const uint v121 = v31 ? v109 : v113;
    const uint v122 = v31 ? v110 : v114;
    const uint v123 = v31 ? v111 : v115;
    const uint v124 = v31 ? v112 : v116;
    if ((v14 + 768u) < v7) {
        *(device uint4*)(y_at0 + 768u) = uint4(v117, v118, v119, v120);
    }
    if ((v14 + 800u) < v7) {
        *(device uint4*)(y_at0 + 800u) = uint4(v121, v122, v123, v124);
    }
}

kernel void wootz_dequant_small_f32(
    device const uchar* w_codes [[buffer(0)]],
    device const uchar* w_scale [[buffer(1)]],
    device float* y [[buffer(2)]],
    constant uint& n [[buffer(3)]],
    constant uint& k [[buffer(4)]],
    constant uint& w_codes_pitch [[buffer(5)]],
    constant uint& w_scale_pitch [[buffer(6)]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint3 block [[threadgroup_position_in_grid]])
{
    const uint v0 = (block.x * 128u) + thread_index;
    const uint v1 = (k + 31u) / 32u;
    if (v0 < (n * v1)) {
        const uint v2 = v0 % v1;
        const ulong v3 = ulong((v0 / v1));
        device float* y_at0 = y + v3 * ulong(k);
        uint words[4];
        float values[8];
        device const uchar* w_codes_at0 = w_codes + v3 * ulong(w_codes_pitch);
        const uint4 v4 = *(device const uint4*)(w_codes_at0 + (v2 * 16u));
        words[0u] = v4.x;
        words[1u] = v4.y;
        words[2u] = v4.z;
        words[3u] = v4.w;
        #pragma unroll
        for (uint i0 = 0u; i0 < 4u; ++i0) {
            const uint v5 = words[i0];
            const uint v6 = (v2 * 32u) + (i0 * 8u);
            const uint v7 = ((v5 << 9u) & 0xe000e00u) | ((v5 << 12u) & 0x80008000u);
            const uint v8 = ((v5 << 5u) & 0xe000e00u) | ((v5 << 8u) & 0x80008000u);
            const uint v9 = ((v5 << 1u) & 0xe000e00u) | ((v5 << 4u) & 0x80008000u);
            const uint v10 = ((v5 >> 3u) & 0xe000e00u) | (v5 & 0x80008000u);
            device const uchar* w_scale_at0 = w_scale + v3 * ulong(w_scale_pitch);
            const uint v11 = uint(w_scale_at0[min((v6 / 8u), (((k + 7u) / 8u) - 1u))]) & 255u;
            const float v12 = as_type<float>(((v11 == 255u) ? 0x7fc00000u : ((v11 == 0u) ? 0x400000u : (v11 << 23u))));
            const float v13 = (half_low(v7) * 16384.0f) * v12;
            const float v14 = (half_low(v8) * 16384.0f) * v12;
            const float v15 = (half_low(v9) * 16384.0f) * v12;
            const float v16 = (half_low(v10) * 16384.0f) * v12;
            const float v17 = (half_high(v7) * 16384.0f) * v12;
            const float v18 = (half_high(v8) * 16384.0f) * v12;
            const float v19 = (half_high(v9) * 16384.0f) * v12;
            const float v20 = (half_high(v10) * 16384.0f) * v12;
            if (((k % 8u) == 0u) && (v6 < k)) {
                *(device uint4*)(y_at0 + v6) = uint4(as_type<uint>(v13), as_type<uint>(v14), as_type<uint>(v15), as_type<uint>(v16));
                *(device uint4*)(y_at0 + v6 + 4u) = uint4(as_type<uint>(v17), as_type<uint>(v18), as_type<uint>(v19), as_type<uint>(v20));
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
                for (uint i1 = 0u; i1 < 8u; ++i1) {
                    const uint v21 = v6 + i1;
                    if (v21 < k) {
                        y_at0[v21] = values[i1];
                    }
                }
            }
        }
    }
}
