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

static inline float multiply_add(float a, float b, float c)
{
#ifdef __FMA__
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
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
                const uint32_t v7 = ((v5 << 22u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v8 = std::min(v7, float_to_bits(multiply_add(bits_to_float(v7), 2.0f, (-1.0f)))) | ((v5 << 28u) & 0x80000000u);
                const uint32_t v9 = ((v5 << 18u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v10 = std::min(v9, float_to_bits(multiply_add(bits_to_float(v9), 2.0f, (-1.0f)))) | ((v5 << 24u) & 0x80000000u);
                const uint32_t v11 = ((v5 << 14u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v12 = std::min(v11, float_to_bits(multiply_add(bits_to_float(v11), 2.0f, (-1.0f)))) | ((v5 << 20u) & 0x80000000u);
                const uint32_t v13 = ((v5 << 10u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v14 = std::min(v13, float_to_bits(multiply_add(bits_to_float(v13), 2.0f, (-1.0f)))) | ((v5 << 16u) & 0x80000000u);
                const uint32_t v15 = ((v5 << 6u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v16 = std::min(v15, float_to_bits(multiply_add(bits_to_float(v15), 2.0f, (-1.0f)))) | ((v5 << 12u) & 0x80000000u);
                const uint32_t v17 = ((v5 << 2u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v18 = std::min(v17, float_to_bits(multiply_add(bits_to_float(v17), 2.0f, (-1.0f)))) | ((v5 << 8u) & 0x80000000u);
                const uint32_t v19 = ((v5 >> 2u) & 0x1c00000u) + 0x3f000000u;
                const uint32_t v20 = std::min(v19, float_to_bits(multiply_add(bits_to_float(v19), 2.0f, (-1.0f)))) | ((v5 << 4u) & 0x80000000u);
                const uint32_t v21 = ((v5 >> 6u) & 0x1c00000u) + 0x3f000000u;
                const float v22 = bits_to_float((std::min(v21, float_to_bits(multiply_add(bits_to_float(v21), 2.0f, (-1.0f)))) | (v5 & 0x80000000u)));
                const uint8_t* __restrict w_scale_at0 = w_scale + v3 * uint64_t(w_scale_pitch);
                const uint32_t v23 = uint32_t(w_scale_at0[std::min((v6 / 8u), (((k + 7u) / 8u) - 1u))]) & 255u;
                const float v24 = bits_to_float(((v23 == 255u) ? 0x7fc00000u : ((v23 == 0u) ? 0x400000u : (v23 << 23u))));
                const float v25 = bits_to_float(v8) * v24;
                const float v26 = bits_to_float(v10) * v24;
                const float v27 = bits_to_float(v12) * v24;
                const float v28 = bits_to_float(v14) * v24;
                const float v29 = bits_to_float(v16) * v24;
                const float v30 = bits_to_float(v18) * v24;
                const float v31 = bits_to_float(v20) * v24;
                const float v32 = v22 * v24;
                if (((k % 8u) == 0u) && (v6 < k)) {
                    store_words(y_at0 + v6, Words4{float_to_bits(v25), float_to_bits(v26), float_to_bits(v27), float_to_bits(v28)});
                    store_words(y_at0 + v6 + 4u, Words4{float_to_bits(v29), float_to_bits(v30), float_to_bits(v31), float_to_bits(v32)});
                } else {
                    values[0u] = v25;
                    values[1u] = v26;
                    values[2u] = v27;
                    values[3u] = v28;
                    values[4u] = v29;
                    values[5u] = v30;
                    values[6u] = v31;
                    values[7u] = v32;
                    #pragma GCC unroll 8
                    for (uint32_t i1 = 0u; i1 < 8u; ++i1) {
                        const uint32_t v33 = v6 + i1;
                        if (v33 < k) {
                            y_at0[v33] = values[i1];
                        }
                    }
                }
            }
        }
    }
}
