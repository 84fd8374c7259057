#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

static inline uint32_t float_to_bits(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

static inline float bits_to_float(uint32_t bits)
{
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

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
wootz_dequant_small_f32(void* const* args, const uint32_t* grid, uint32_t begin, uint32_t end)
{
    const uint8_t* __restrict w_codes = *static_cast<const uint8_t* const*>(args[0]);
    const uint8_t* __restrict w_scale = *static_cast<const uint8_t* const*>(args[1]);
    float* __restrict y = *static_cast<float* const*>(args[2]);
    const uint32_t n = *static_cast<const uint32_t*>(args[3]);
    const uint32_t k = *static_cast<const uint32_t*>(args[4]);
    const uint32_t w_codes_pitch = *static_cast<const uint32_t*>(args[5]);
    const uint32_t w_scale_pitch = *static_cast<const uint32_t*>(args[6]);
    for (uint32_t linear = begin; linear < end; ++linear) {
        const uint32_t block_x = linear % grid[0];
        const uint32_t v0 = block_x + 0u;
        const uint32_t v1 = (k + 31u) / 32u;
        if (v0 < (n * v1)) {
            const uint32_t v2 = v0 % v1;
            const uint64_t v3 = uint64_t((v0 / v1));
            float* __restrict y_at0 = y + v3 * uint64_t(k);
            uint32_t words[4];
            float values[8];
            const uint8_t* __restrict w_codes_at0 = w_codes + v3 * uint64_t(w_codes_pitch);
            const Words4 v4 = load_words<Words4>(w_codes_at0 + (v2 * 16u));
            words[0u] = v4.x;
            words[1u] = v4.y;
            words[2u] = v4.z;
            words[3u] = v4.w;
            #pragma GCC unroll 4
            for (uint32_t i0 = 0u; i0 < 4u; ++i0) {
                const uint32_t v5 = words[i0];
                const uint32_t v6 = (v2 * 32u) + (i0 * 8u);
                const uint32_t v7 = v5 & 15u;
                const uint32_t v8 = v7 & 7u;
                const uint32_t v9 = float_to_bits(((v8 < 2u) ? (float(v8) * 0.5f) : bits_to_float(((v8 << 22u) + 0x3f000000u)))) | ((v7 >> 3u) << 31u);
                const uint32_t v10 = (v5 >> 4u) & 15u;
                const uint32_t v11 = v10 & 7u;
                const uint32_t v12 = float_to_bits(((v11 < 2u) ? (float(v11) * 0.5f) : bits_to_float(((v11 << 22u) + 0x3f000000u)))) | ((v10 >> 3u) << 31u);
                const uint32_t v13 = (v5 >> 8u) & 15u;
                const uint32_t v14 = v13 & 7u;
                const uint32_t v15 = float_to_bits(((v14 < 2u) ? (float(v14) * 0.5f) : bits_to_float(((v14 << 22u) + 0x3f000000u)))) | ((v13 >> 3u) << 31u);
                const uint32_t v16 = (v5 >> 12u) & 15u;
                const uint32_t v17 = v16 & 7u;
                const uint32_t v18 = float_to_bits(((v17 < 2u) ? (float(v17) * 0.5f) : bits_to_float(((v17 << 22u) + 0x3f000000u)))) | ((v16 >> 3u) << 31u);
                const uint32_t v19 = (v5 >> 16u) & 15u;
                const uint32_t v20 = v19 & 7u;
                const uint32_t v21 = float_to_bits(((v20 < 2u) ? (float(v20) * 0.5f) : bits_to_float(((v20 << 22u) + 0x3f000000u)))) | ((v19 >> 3u) << 31u);
                const uint32_t v22 = (v5 >> 20u) & 15u;
                const uint32_t v23 = v22 & 7u;
                const uint32_t v24 = float_to_bits(((v23 < 2u) ? (float(v23) * 0.5f) : bits_to_float(((v23 << 22u) + 0x3f000000u)))) | ((v22 >> 3u) << 31u);
                const uint32_t v25 = (v5 >> 24u) & 15u;
                const uint32_t v26 = v25 & 7u;
                const uint32_t v27 = float_to_bits(((v26 < 2u) ? (float(v26) * 0.5f) : bits_to_float(((v26 << 22u) + 0x3f000000u)))) | ((v25 >> 3u) << 31u);
                const uint32_t v28 = v5 >> 28u;
                const uint32_t v29 = v28 & 7u;
                const uint32_t v30 = float_to_bits(((v29 < 2u) ? (float(v29) * 0.5f) : bits_to_float(((v29 << 22u) + 0x3f000000u)))) | ((v28 >> 3u) << 31u);
                const uint8_t* __restrict w_scale_at0 = w_scale + v3 * uint64_t(w_scale_pitch);
                const uint32_t v31 = uint32_t(w_scale_at0[std::min((v6 / 8u), (((k + 7u) / 8u) - 1u))]) & 255u;
                const float v32 = bits_to_float(((v31 == 255u) ? 0x7fc00000u : ((v31 == 0u) ? 0x400000u : (v31 << 23u))));
                const float v33 = bits_to_float(v9) * v32;
                const float v34 = bits_to_float(v12) * v32;
                const float v35 = bits_to_float(v15) * v32;
                const float v36 = bits_to_float(v18) * v32;
                const float v37 = bits_to_float(v21) * v32;
                const float v38 = bits_to_float(v24) * v32;
                const float v39 = bits_to_float(v27) * v32;
                const float v40 = bits_to_float(v30) * v32;
                if (((k % 8u) == 0u) && (v6 < k)) {
                    store_words(y_at0 + v6, Words4{float_to_bits(v33), float_to_bits(v34), float_to_bits(v35), float_to_bits(v36)});
                    store_words(y_at0 + v6 + 4u, Words4{float_to_bits(v37), float_to_bits(v38), float_to_bits(v39), float_to_bits(v40)});
                } else {
                    values[0u] = v33;
                    values[1u] = v34;
                    values[2u] = v35;
                    values[3u] = v36;
                    values[4u] = v37;
                    values[5u] = v38;
                    values[6u] = v39;
                    values[7u] = v40;
                    #pragma GCC unroll 8
                    for (uint32_t i1 = 0u; i1 < 8u; ++i1) {
                        const uint32_t v41 = v6 + i1;
                        if (v41 < k) {
                            y_at0[v41] = values[i1];
                        }
                    }
                }
            }
        }
    }
}
