#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

struct Words4 {
    uint32_t x, y, z, w;
};

template <class W> static inline W load_words(const void* from)
{
    W words;
    std::memcpy(&words, from, sizeof words);
    return words;
}

template <class W> static inline void store_words(void* to, const W& words)
{
    std::memcpy(to, &words, sizeof words);
}

extern "C" __attribute__((visibility("default"))) void
wootz_copy_f32(void* const* args, const uint32_t* grid, uint32_t begin, uint32_t end)
{
    const uint32_t* x = *static_cast<const uint32_t* const*>(args[0]);
    uint32_t* y = *static_cast<uint32_t* const*>(args[1]);
    const uint64_t n = *static_cast<const uint64_t*>(args[2]);
    for (uint32_t linear = begin; linear < end; ++linear) {
        const uint32_t block_x = linear % grid[0];
        const uint64_t v0 = uint64_t(block_x) * uint64_t(4096u);
        for (uint32_t i0 = 0u * 4u; i0 < 4096u; i0 += 4u) {
            const uint64_t v1 = v0 + uint64_t(i0);
            if ((v1 + uint64_t(4u)) <= n) {
                const Words4 v2 = load_words<Words4>(x + v1);
                store_words(y + v1, Words4{v2.x, v2.y, v2.z, v2.w});
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
}
