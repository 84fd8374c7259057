// What a lane of the product on warpgroup MMA keeps of a unit of packed weights, and how it becomes the left
// operand: codes decoded and multiplied by their scales.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// A format's decoder, with how scales go into weights of 16 bits. Decoded values lack 2^exponent, which their
// scales take. Some are far: of a size above 2^Bound (Power > 0), they would be infinite so, or below it and
// not 0 (Power < 0), subnormal where their weights are not. Those take less by 2^Power, which the weights of
// their run and row are multiplied by in the end. Power 0: none is far. Powers: scales are in E8M0.
template <class Weight, int Power, int Bound, bool Powers>
struct Folded : Weight {
    static constexpr int power = Power, bound = Bound;
    static constexpr bool powers = Powers;
};

// Packed pairs of scales (rows g and g + 8) of some runs of a unit. Of many runs each of a row's four lanes
// converts every fourth; the pairs are handed round when they are used.
template <class Weight, bool Powers = Weight::powers>
struct Scales {
    using Type = typename Weight::Type;
    static constexpr int sharers = Weight::runs >= 4 ? 4 : 1, count = Weight::runs / sharers;
    static_assert(2 * count <= 32, "two bits of a word each");
    uint32_t held[count];
    uint32_t far;   // bit 2 i + h: whether that of row g + 8 h in held[i] is
    bool some_far;  // in the warp

    WOOTZ_FN void load(const uint8_t* sides, const float* tensors, int lane) {
        far = 0;
        fill(sides, tensors, lane);
        if constexpr (Weight::power != 0) {
            some_far = __any_sync(0xffffffff, far != 0);
            if (some_far) fill(sides, tensors, lane);
        }
    }

    // The scales, with what those take that are known to be far; and which are.
    WOOTZ_FN void fill(const uint8_t* sides, const float* tensors, int lane) {
        constexpr float usual = power_of_2(Weight::exponent);
        constexpr float rest = power_of_2(Weight::exponent - Weight::power);
        const uint32_t known = far;
        unroll<count>([&](auto i) {
            const int run = i.value * sharers + (sharers > 1 ? lane % sharers : 0);
            const uint32_t low = 1u << 2 * i.value, high = 2 * low;
            float levels[2];
            Weight::levels(sides, tensors, lane >> 2, run, levels);
            held[i.value] = Type::round(levels[0] * (known & low ? rest : usual),
                                        levels[1] * (known & high ? rest : usual));
            if constexpr (Weight::power != 0)
                far |= (is_far(levels[0]) ? low : 0) | (is_far(levels[1]) ? high : 0);
        });
    }

    WOOTZ_FN static bool is_far(float level) {
        constexpr float bound = power_of_2(Weight::bound);
        const float size = fabsf(level);
        return Weight::power > 0 ? size > bound : size < bound && size != 0;
    }

    // What a run's lane has.
    template <int Run>
    WOOTZ_FN static uint32_t of_run(uint32_t own) {
        if constexpr (sharers == 1) return own;
        return __shfl_sync(0xffffffff, own, Run % sharers, sharers);
    }
    // The scales of a run, and what they lack.
    template <int Run>
    WOOTZ_FN uint32_t pair() const {
        return of_run<Run>(held[Run / sharers]);
    }
    template <int Run>
    WOOTZ_FN uint32_t lift() const {
        constexpr float factor = power_of_2(Weight::power);
        const uint32_t bits = of_run<Run>(far) >> (2 * (Run / sharers));
        return Type::round(bits & 1 ? factor : 1, bits & 2 ? factor : 1);
    }
};

// The same of scales in E8M0, all of a lane's: their codes, whose bits are those of a bf16's exponent.
template <class Weight>
struct Scales<Weight, true> {
    using Type = typename Weight::Type;
    static constexpr int count = Weight::runs / 2;  // a word has two runs' of two rows
    uint32_t held[count];
    bool some_far;  // in the warp: then all are taken for it

    WOOTZ_FN void load(const uint8_t* sides, const float*, int lane) {
        const uint8_t* from = sides + (lane >> 2) * (4 * count);
        if constexpr (count % 4 == 0) {
            unroll<count / 4>([&](auto i) {
                const uint4 v = reinterpret_cast<const uint4*>(from)[i.value];
                held[4 * i.value] = v.x;
                held[4 * i.value + 1] = v.y;
                held[4 * i.value + 2] = v.z;
                held[4 * i.value + 3] = v.w;
            });
        } else {
            unroll<count>([&](auto i) { held[i.value] = reinterpret_cast<const uint32_t*>(from)[i.value]; });
        }
        uint32_t beyond = 0;
        unroll<count>([&](auto i) { beyond |= out_of_range(held[i.value]); });
        some_far = __any_sync(0xffffffff, beyond != 0);
    }

    // Not 0 where one of four codes, or what it is with the exponent, is not of a normal number.
    WOOTZ_FN static uint32_t out_of_range(uint32_t codes) {
        constexpr uint32_t ones = 0x01010101, tops = 0x80808080;
        if constexpr (Weight::exponent == 0) {
            return ((codes - ones) & ~codes | (~codes - ones) & codes) & tops;  // 0, or 255
        } else {
            static_assert(Weight::exponent >= 1 && Weight::exponent <= 127, "127 is in range, and all below");
            return codes & tops;
        }
    }

    // The codes of a run, in the low bytes of each half-word.
    template <int Run>
    WOOTZ_FN uint32_t codes() const {
        return __byte_perm(held[Run / 2], 0, 0x4140 + Run % 2 * 0x202);
    }
    template <int Run>
    WOOTZ_FN uint32_t pair() const {
        return codes<Run>() * 128 + Weight::exponent * 128 * 0x10001;
    }
    template <int Run>
    WOOTZ_FN uint32_t far_pair() const {
        constexpr float rest = power_of_2(Weight::exponent - Weight::power);
        const uint32_t both = codes<Run>();
        return Type::round(fragment::power_f32(both & 255) * rest, fragment::power_f32(both >> 16) * rest);
    }
    template <int Run>
    WOOTZ_FN uint32_t lift() const {
        constexpr float factor = power_of_2(Weight::power);
        return Type::round(factor, factor);
    }
};

// What a lane keeps of a unit: its words, and scales.
template <class Weight>
struct Lane {
    using Type = typename Weight::Type;
    static constexpr bool scales = Weight::scaled && !Weight::fold_only;
    // Whether decoding reads the unit's side fields, so that its slot is held until the last step.
    static constexpr bool held = Weight::zeroed || Weight::fold_only;
    int lane;
    uint32_t words[Weight::words];
    Scales<Weight> of;
    const uint8_t* sides;

    WOOTZ_FN void load(const uint8_t* unit, const float* tensors) {
        load_words<Weight>(words, unit, lane);
        sides = unit + Weight::code_bytes;
        if constexpr (scales) of.load(sides, tensors, lane);
    }

    // Of bits that depend on every register that was loaded.
    WOOTZ_FN uint32_t loaded() const {
        uint32_t bits = 0;
        unroll<Weight::vectors>([&](auto i) { bits |= words[4 * i.value]; });
        if constexpr (scales) unroll<Scales<Weight>::count>([&](auto i) { bits |= of.held[i.value]; });
        return bits;
    }

    // The weights of `Count` steps from step First on.
    template <int First, int Count>
    WOOTZ_FN void decode(const float* tensors, uint32_t (&a)[Count][4]) const {
        unroll<Count>([&](auto i) {
            constexpr int step = First + i.value;
            if constexpr (Weight::fold_only) {
                Weight::template decode_folded<step>(words, sides, tensors, lane, a[i.value]);
            } else {
                Weight::template decode<step>(words, sides, lane, a[i.value]);
            }
        });
        if constexpr (scales) {
            // pair: of a run, rows g and g + 8.
            const auto multiply = [&](auto pair) {
                unroll<Count>([&](auto i) {
                    const uint32_t both = pair(Index<(First + i.value) * 16 / Weight::run>{});
                    uint32_t (&to)[4] = a[i.value];
                    to[0] = Type::mul2(to[0], both_low(both));
                    to[1] = Type::mul2(to[1], both_high(both));
                    to[2] = Type::mul2(to[2], both_low(both));
                    to[3] = Type::mul2(to[3], both_high(both));
                });
            };
            const auto usual = [&](auto run) { return of.template pair<run.value>(); };
            const auto lift = [&](auto run) { return of.template lift<run.value>(); };
            if constexpr (!Weight::powers) {
                multiply(usual);
                if constexpr (Weight::power != 0)
                    if (of.some_far) multiply(lift);
            } else if (of.some_far) {  // small ones, too
                if constexpr (Weight::power != 0) multiply(lift);
                multiply([&](auto run) { return of.template far_pair<run.value>(); });
            } else {
                multiply(usual);
            }
        }
    }
};

}  // namespace warpgroup
