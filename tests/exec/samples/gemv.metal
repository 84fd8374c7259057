#include <metal_stdlib>
using namespace metal;

// y[row] = sum over k of (q(row, k) - 8) * scale(row, k / 32) * x[k]; eight 4-bit codes a word, one group a row.
kernel void gemv_f16(
    device const uint* codes     [[buffer(0)]],
    device const half* scales    [[buffer(1)]],
    device const half* x         [[buffer(2)]],
    device float* y              [[buffer(3)]],
    constant uint& k             [[buffer(4)]],
    uint3 tg                     [[threadgroup_position_in_grid]],
    uint tid                     [[thread_index_in_threadgroup]],
    uint lane                    [[thread_index_in_simdgroup]],
    uint sg                      [[simdgroup_index_in_threadgroup]])
{
    threadgroup float part[4];
    const uint row = tg.x;
    device const uint* w = codes + row * (k / 8);
    device const half* s = scales + row * (k / 32);
    float acc = 0.0f;
    for (uint i = tid; i < k / 8; i += 128) {
        const uint q = w[i];
        const float scale = float(s[i / 4]);
        for (uint j = 0; j < 8; ++j) {
            acc += (float((q >> (4 * j)) & 0xFu) - 8.0f) * scale * float(x[i * 8 + j]);
        }
    }
    acc = simd_sum(acc);
    if (lane == 0) { part[sg] = acc; }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (tid == 0) { y[row] = part[0] + part[1] + part[2] + part[3]; }
}
