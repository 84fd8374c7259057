#include <metal_stdlib>
using namespace metal;

kernel void wootz_copy_f32(
    device const uint* x [[buffer(0)]],
    device uint* y [[buffer(1)]],
    constant ulong& n [[buffer(2)]],
    uint thread_index [[thread_index_in_threadgroup]],
    uint3 block [[threadgroup_position_in_grid]])
{
    const ulong v0 = ulong(block.x) * ulong(1024u);
    for (uint i0 = thread_index * 4u; i0 < 1024u; i0 += 1024u) {
        const ulong v1 = v0 + ulong(i0);
        if ((v1 + ulong(4u)) <= n) {
            const uint4 v2 = *(device const uint4*)(x + v1);
            *(device uint4*)(y + v1) = uint4(v2.x, v2.y, v2.z, v2.w);
        } else {
            for (uint i1 = 0u; i1 < 4u; ++i1) {
                const ulong v3 = v1 + ulong(i1);
                if (v3 < n) {
                    y[v3] = x[v3];
                }
            }
        }
    }
}
