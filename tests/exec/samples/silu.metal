#include <metal_stdlib>
using namespace metal;

// y = silu(x) * scale, four elements a thread.
kernel void silu_f16(
    device const half4* x        [[buffer(0)]],
    device half4* y              [[buffer(1)]],
    constant uint& n4            [[buffer(2)]],
    constant float& scale        [[buffer(3)]],
    uint gid                     [[thread_position_in_grid]])
{
    if (gid >= n4) { return; }
    float4 v = float4(x[gid]);
    float4 r = float4(0.0f);
    for (int i = 0; i < 4; ++i) { r[i] = v[i] / (1.0f + exp(-v[i])); }
    y[gid] = half4(r * scale);
}
