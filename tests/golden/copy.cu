#include <cstdint>

extern "C" __global__ void __launch_bounds__(256)
wootz_copy_f32(
    const uint32_t* x,
    uint32_t* y,
    uint64_t n)
{
    const uint64_t v0 = uint64_t(blockIdx.x) * uint64_t(1024u);
    for (uint32_t i0 = threadIdx.x * 4u; i0 < 1024u; i0 += 1024u) {
        const uint64_t v1 = v0 + uint64_t(i0);
        if ((v1 + uint64_t(4u)) <= n) {
            const uint4 v2 = *reinterpret_cast<const uint4*>(x + v1);
            *reinterpret_cast<uint4*>(y + v1) = make_uint4(v2.x, v2.y, v2.z, v2.w);
        } else {
            for (uint32_t i1 = 0u; i1 < 4u; ++i1) {
                const uint64_t v3 = v1 + uint64_t(i1);
                if (v3 < n) {
                    y[v3] = x[v3];
                }
            }
        }
    }
}
