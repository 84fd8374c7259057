#include <metal_stdlib>
using namespace metal;

// The names that emitted kernels use, over one group of 64 threads. x holds 16 bytes a thread.
constant float table[4] = {1.0f, -2.0f, 0.5f, 4.0f};

static inline float looked_up(uint code) { return table[code & 3u]; }

kernel void words(
    device const uchar* x        [[buffer(0)]],
    device float* y              [[buffer(1)]],
    device uint* bits            [[buffer(2)]],
    constant uint& m             [[buffer(3)]],
    constant ulong& n            [[buffer(4)]],
    constant float& f            [[buffer(5)]],
    uint3 groups                 [[threadgroups_per_grid]],
    ushort3 position             [[thread_position_in_threadgroup]],
    uint t                       [[thread_index_in_threadgroup]])
{
    threadgroup uint swapped[64];
    const uint4 v = *(device const uint4*)(x + 16 * t);
    const uint2 v2 = *(device const uint2*)(x + 16 * t);
    swapped[t] = v.x;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint other = swapped[63u - position.x];

    float sum = looked_up(v.x);
    for (ushort o = 16; o > 0; o >>= 1) { sum += simd_shuffle_xor(sum, o); }
    const float h = float(as_type<half>(ushort(v.y & 0x3fffu)));
    const float b = float(as_type<bfloat>(ushort(v.y >> 18)));
    const half2 pair = half2(half(1.0f), half(2.0f)) * half2(half(f)) + half2(half(0.5f));
    y[4 * t] = sum;
    y[4 * t + 1] = fma(h, f, b);
    y[4 * t + 2] = float(pair.x) + float(pair.y);
    y[4 * t + 3] = as_type<float>(as_type<uint>(f) ^ 0x80000000u) + float(min(m, t)) + float(max(n, ulong(7))) + float(groups.y - 1);

    bits[4 * t] = other;
    bits[4 * t + 1] = v2.y;
    bits[4 * t + 2] = (v.x & 0xffu) | ((v.y & 0xffu) << 8) | ((v.x & 0xff00u) << 8) | ((v.y & 0xff00u) << 16);
    bits[4 * t + 3] = uint(as_type<ushort>(half(h))) | (uint(as_type<ushort>(bfloat(b))) << 16);
}
