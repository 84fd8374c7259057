#include <metal_stdlib>
#include <metal_simdgroup_matrix>
using namespace metal;

// c(m, n) = a(m, k) * b(k, n), f32 = f16 * f16; 32x32 a group of 128 threads, 16x16 a SIMD group.
kernel void mm_f16(
    device const half* a         [[buffer(0)]],
    device const half* b         [[buffer(1)]],
    device float* c              [[buffer(2)]],
    constant uint& n             [[buffer(3)]],
    constant uint& k             [[buffer(4)]],
    uint3 tg                     [[threadgroup_position_in_grid]],
    uint tid                     [[thread_index_in_threadgroup]],
    uint sg                      [[simdgroup_index_in_threadgroup]])
{
    threadgroup half sa[32 * 32];
    threadgroup half sb[32 * 32];
    simdgroup_float8x8 acc[2][2];
    for (uint i = 0; i < 2; ++i) {
        for (uint j = 0; j < 2; ++j) { acc[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f); }
    }
    const uint m0 = tg.y * 32, n0 = tg.x * 32;
    const uint sm = (sg / 2) * 16, sn = (sg % 2) * 16;
    for (uint k0 = 0; k0 < k; k0 += 32) {
        for (uint i = tid; i < 1024; i += 128) {
            sa[i] = a[(m0 + i / 32) * k + k0 + i % 32];
            sb[i] = b[(k0 + i / 32) * n + n0 + i % 32];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (uint kk = 0; kk < 32; kk += 8) {
            simdgroup_half8x8 fa[2];
            simdgroup_half8x8 fb[2];
            for (uint i = 0; i < 2; ++i) {
                simdgroup_load(fa[i], sa + (sm + 8 * i) * 32 + kk, 32);
                simdgroup_load(fb[i], sb + kk * 32 + sn + 8 * i, 32);
            }
            for (uint i = 0; i < 2; ++i) {
                for (uint j = 0; j < 2; ++j) {
                    simdgroup_multiply_accumulate(acc[i][j], fa[i], fb[j], acc[i][j]);
                }
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (uint i = 0; i < 2; ++i) {
        for (uint j = 0; j < 2; ++j) {
            simdgroup_store(acc[i][j], c + (m0 + sm + 8 * i) * n + n0 + sn + 8 * j, n);
        }
    }
}
