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
