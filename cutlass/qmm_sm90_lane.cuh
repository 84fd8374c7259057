// What a lane of the product on warpgroup MMA keeps of a unit of packed weights, and how it becomes the left
// operand: codes decoded and multiplied by their scales.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// A format's decoder, with how scales go into weights of 16 bits. Scales from 2^Least to 2^Most are normal
// numbers times 2^exponent, which decoded values lack. Where a unit has others, too, decoded values times
// 2^Power are brought to about 1 first, and scales take the rest: so no product overflows, and no scale is
// subnormal, unless the weights are. Power 0: exponent is 0, and scales of any size are as good.
// Powers: they are in E8M0.
template <class Weight, int Power, int Least, int Most, bool Powers>
struct Folded : Weight {
    static constexpr int power = Power, least = Least, most = Most;
    static constexpr bool powers = Powers;
};

// Packed pairs of scales (rows g and g + 8) of some runs of a unit. Of many runs each of a row's four lanes
// converts every fourth; the pairs are handed round when they are used.
template <class Weight, bool Powers = Weight::powers>
struct Scales {
    using Type = typename Weight::Type;
    static constexpr int sharers = Weight::runs >= 4 ? 4 : 1, count = Weight::runs / sharers;
    uint32_t held[count];
    bool apart;  // in all of the warp: some scale is out of range

    WOOTZ_FN void load(const uint8_t* sides, const float* tensors, int lane) {
        bool usual = true;
        fill(sides, tensors, lane, power_of_2(Weight::exponent), usual);
        if constexpr (Weight::power != 0) {
            apart = __any_sync(0xffffffff, !usual);
            if (apart) fill(sides, tensors, lane, power_of_2(Weight::exponent - Weight::power), usual);
        }
    }

    // The scales times `rest`, and whether all are in range.
    WOOTZ_FN void fill(const uint8_t* sides, const float* tensors, int lane, float rest, bool& usual) {
        unroll<count>([&](auto i) {
            const int run = i.value * sharers + (sharers > 1 ? lane % sharers : 0);
            float levels[2];
            Weight::levels(sides, tensors, lane >> 2, run, levels);
            held[i.value] = Type::round(levels[0] * rest, levels[1] * rest);
            if constexpr (Weight::power != 0) usual = usual && in_range(levels[0]) && in_range(levels[1]);
        });
    }

    WOOTZ_FN static bool in_range(float level) {
        constexpr float least = power_of_2(Weight::least), most = power_of_2(Weight::most);
        const float size = fabsf(level);
        return size <= most && (least == 0 || size >= least || size == 0);  // NaN is not
    }

    // That of a run.
    template <int Run, bool>
    WOOTZ_FN uint32_t pair() const {
        const uint32_t own = held[Run / sharers];
        if constexpr (sharers == 1) return own;
        return __shfl_sync(0xffffffff, own, Run % sharers, sharers);
    }
};

// The same of scales in E8M0, all of a lane's: their codes, whose bits are those of a bf16's exponent.
template <class Weight>
struct Scales<Weight, true> {
    using Type = typename Weight::Type;
    static constexpr int count = Weight::runs / 2;  // a word has two runs' of two rows
    uint32_t held[count];
    bool apart;

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
        apart = __any_sync(0xffffffff, beyond != 0);
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

    // Apart: `apart`, which the caller knows.
    template <int Run, bool Apart>
    WOOTZ_FN uint32_t pair() const {
        constexpr int at = Run % 2 * 2;
        const uint32_t codes = __byte_perm(held[Run / 2], 0, 0x4140 + at * 0x101);
        if constexpr (Apart) {
            constexpr float rest = power_of_2(Weight::exponent - Weight::power);
            return Type::round(fragment::power_f32(codes & 255) * rest,
                               fragment::power_f32(codes >> 16) * rest);
        } else {
            return codes * 128 + Weight::exponent * 128 * 0x10001;
        }
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
            const auto scale = [&](auto apart) {
                unroll<Count>([&](auto i) {
                    constexpr int run = (First + i.value) * 16 / Weight::run;
                    const uint32_t pair = of.template pair<run, apart.value>();
                    uint32_t (&to)[4] = a[i.value];
                    to[0] = Type::mul2(to[0], both_low(pair));
                    to[1] = Type::mul2(to[1], both_high(pair));
                    to[2] = Type::mul2(to[2], both_low(pair));
                    to[3] = Type::mul2(to[3], both_high(pair));
                });
            };
            if constexpr (!Weight::powers) {
                if constexpr (Weight::power != 0)
                    if (of.apart) lift(a);
                scale(Index<0>{});
            } else if (of.apart) {
                if constexpr (Weight::power != 0) lift(a);
                scale(Index<1>{});
            } else {
                scale(Index<0>{});
            }
        }
    }

    // Decoded values times 2^power.
    template <int Count>
    WOOTZ_FN static void lift(uint32_t (&a)[Count][4]) {
        constexpr float factor = power_of_2(Weight::power);
        const uint32_t power = Type::round(factor, factor);
#pragma unroll
        for (int i = 0; i < Count; i++)
            for (int r = 0; r < 4; r++) a[i][r] = Type::mul2(a[i][r], power);
    }
};

}  // namespace warpgroup
