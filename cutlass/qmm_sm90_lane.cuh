// What a lane of the product on warpgroup MMA keeps of a unit of packed weights, and how it becomes the left
// operand: codes decoded and multiplied by their scales.
#pragma once

#include <stdint.h>

#include "fragment.cuh"
#include "wgmma.cuh"

namespace warpgroup {

// A format's decoder, with how scales go into weights of 16 bits. Decoded values lack 2^exponent, which their
// scales take. Some are far: of a size above 2^Bound (Far > 0) they would be infinite so, or below it and not
// 0 (Far < 0) subnormal where their weights are not. Far 0: none is. Bias: of the type's exponents. Powers:
// scales are in E8M0.
template <class Weight, int Far, int Bound, int Bias, bool Powers>
struct Folded : Weight {
    static constexpr int far = Far, bound = Bound, bias = Bias;
    static constexpr bool powers = Powers;
};

// Packed pairs (rows g and g + 8) of some runs of a unit. Of many runs each of a row's four lanes makes every
// fourth; the pairs are handed round when they are used.
template <class Weight>
struct Runs {
    static constexpr int sharers = Weight::runs >= 4 ? 4 : 1, count = Weight::runs / sharers;
    uint32_t held[count];

    // body(Index<i>, run) for each that the lane holds.
    template <class Body>
    WOOTZ_FN static void each(int lane, Body&& body) {
        unroll<count>([&](auto i) { body(i, i.value * sharers + (sharers > 1 ? lane % sharers : 0)); });
    }
    // What a run's lane has.
    template <int Run>
    WOOTZ_FN static uint32_t of_run(uint32_t own) {
        if constexpr (sharers == 1) return own;
        return __shfl_sync(0xffffffff, own, Run % sharers, sharers);
    }
    template <int Run>
    WOOTZ_FN uint32_t pair() const {
        return of_run<Run>(held[Run / sharers]);
    }
};

// Zero points that are subtracted in the type.
template <class Weight>
struct Zeros : Runs<Weight> {
    WOOTZ_FN void load(const uint8_t* sides, int lane) {
        this->each(lane, [&](auto i, int run) {
            const int g = lane >> 2;
            this->held[i.value] = Weight::zero_bits(sides, g, run, 0) | Weight::zero_bits(sides, g, run, 1)
                                                                            << 16;
        });
    }
};

// Scales. If some in the warp are far, then either all take as much as brings the largest close to the type's
// largest number (Far > 0), or far ones take what makes normal numbers of them (Far < 0), and weights are
// multiplied by the rest.
template <class Weight, bool Powers = Weight::powers>
struct Scales : Runs<Weight> {
    using Type = typename Weight::Type;
    using Base = Runs<Weight>;
    using Base::held;
    static constexpr int normal = 1 - Weight::bias;  // 2^normal is the smallest normal number
    int taken;       // Far > 0: the exponent of the power of two that is in held
    uint32_t rest;   // Far > 0: what weights are multiplied by, twice
    uint32_t which;  // Far < 0: bit 2 i + h: whether that of row g + 8 h in held[i] is far
    bool some_far;

    WOOTZ_FN void load(const uint8_t* sides, const float* tensors, int lane) {
        const auto usual = [](int) { return Weight::exponent; };
        which = 0;
        float largest = 0;
        fill(sides, tensors, lane, usual, [&](int at, float level) {
            if constexpr (Weight::far > 0) largest = fmaxf(largest, fabsf(level));
            if constexpr (Weight::far < 0) which |= is_far(level) << at;
        });
        if constexpr (Weight::far == 0) return;
        some_far = __any_sync(0xffffffff, Weight::far > 0 ? is_far(largest) : which != 0);
        rest = 0;
        taken = Weight::exponent;
        if (!some_far) return;
        if constexpr (Weight::far > 0) {
            uint32_t most = 0;
            fill(sides, tensors, lane, usual,
                 [&](int, float level) { most = max(most, finite_bits(level)); });
            const int size = static_cast<int>(warp_max(most) >> 23) - 127;
            // No more than usual, where no finite one is far; and what leaves a factor that the type has.
            taken = max(min(-normal - size, Weight::exponent), Weight::exponent - Weight::bias);
            fill(sides, tensors, lane, [&](int) { return taken; }, [](int, float) {});
            const float factor = power_of(Weight::exponent - taken);
            rest = __shfl_sync(0xffffffff, Type::round(factor, factor), 0);  // known to be the warp's
        } else {
            const auto taken = [&](int at) { return Weight::exponent - (which >> at & 1 ? normal : 0); };
            fill(sides, tensors, lane, taken, [](int, float) {});
        }
    }

    WOOTZ_FN static float power_of(int exponent) {
        return fragment::as_float(static_cast<uint32_t>(127 + exponent) << 23);
    }

    // The scales times 2^taken(at); seen(at, scale): called with each.
    template <class Taken, class Seen>
    WOOTZ_FN void fill(const uint8_t* sides, const float* tensors, int lane, Taken&& taken, Seen&& seen) {
        Base::each(lane, [&](auto i, int run) {
            constexpr int at = 2 * i.value;
            float levels[2];
            Weight::levels(sides, tensors, lane >> 2, run, levels);
            held[i.value] = Type::round(levels[0] * power_of(taken(at)), levels[1] * power_of(taken(at + 1)));
            seen(at, levels[0]);
            seen(at + 1, levels[1]);
        });
    }

    WOOTZ_FN static uint32_t is_far(float level) {
        constexpr float bound = power_of_2(Weight::bound);
        const float size = fabsf(level);
        return Weight::far > 0 ? size > bound : Weight::far < 0 && size < bound && size != 0;
    }
    // Of its size; of none where it is infinite or no number.
    WOOTZ_FN static uint32_t finite_bits(float level) {
        const uint32_t bits = fragment::as_bits(level) & 0x7fffffff;
        return bits < 0x7f800000 ? bits : 0;
    }

    // What a run's weights are multiplied by, if some are far.
    template <int Run>
    WOOTZ_FN uint32_t lift() const {
        if constexpr (Weight::far > 0) return rest;
        constexpr float factor = power_of_2(normal);
        const uint32_t bits = Base::template of_run<Run>(which) >> Run / Base::sharers * 2;
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
        const uint32_t both = codes<Run>();
        return Type::round(fragment::power_f32(both & 255), fragment::power_f32(both >> 16));
    }
    template <int>
    WOOTZ_FN uint32_t lift() const {
        constexpr float factor = power_of_2(Weight::exponent);
        return Type::round(factor, factor);
    }
};

// Scales, and what is added after scaling, where the type has both.
template <class Weight>
struct InType {
    Runs<Weight> scale, addend;

    WOOTZ_FN void load(const uint8_t* sides, int lane) {
        Runs<Weight>::each(lane, [&](auto i, int run) {
            const int g = lane >> 2;
            float levels[2];
            Weight::levels(sides, nullptr, g, run, levels);
            scale.held[i.value] = Weight::Type::round(levels[0], levels[1]);
            addend.held[i.value] = Weight::zero_bits(sides, g, run, 0) | Weight::zero_bits(sides, g, run, 1)
                                                                             << 16;
        });
    }
};

// What is added to integers after scaling, and what rounding it and the scales has taken away.
template <class Weight>
struct Added {
    using Type = typename Weight::Type;
    Runs<Weight> scale_rest, addend, addend_rest;
    static constexpr int count = Runs<Weight>::count;

    WOOTZ_FN void load(const uint8_t* sides, const float* tensors, int lane, const Scales<Weight>& of) {
        const float power = Scales<Weight>::power_of(of.taken);
        Runs<Weight>::each(lane, [&](auto i, int run) {
            const int g = lane >> 2;
            float levels[2];
            Weight::levels(sides, tensors, g, run, levels);
            scale_rest.held[i.value] = less(levels[0] * power, levels[1] * power, of.held[i.value]);
            constexpr float smaller = power_of_2(-Weight::less);
            const float low = Weight::added(sides, levels[0], g, run, 0) * smaller,
                        high = Weight::added(sides, levels[1], g, run, 1) * smaller;
            addend.held[i.value] = Type::round(low, high);
            addend_rest.held[i.value] = less(low, high, addend.held[i.value]);
        });
    }
    WOOTZ_FN static uint32_t less(float low, float high, uint32_t pair) {
        return Type::round(low - Type::low(pair), high - Type::high(pair));
    }
    WOOTZ_FN uint32_t loaded() const {
        uint32_t bits = 0;
        unroll<count>([&](auto i) {
            bits |= scale_rest.held[i.value] | addend.held[i.value] | addend_rest.held[i.value];
        });
        return bits;
    }
};

// What a lane keeps of a unit: its words, and scales.
template <class Weight>
struct Lane {
    using Type = typename Weight::Type;
    static constexpr bool folded = Weight::fold_only && !Weight::added_apart && !Weight::added_in_type;
    static constexpr bool scales = Weight::scaled && !folded && !Weight::added_in_type;
    static constexpr bool zeros = Weight::zeros_in_type && !folded && !Weight::added_in_type;
    // Whether decoding reads the unit's side fields, so that its slot is held until the last step.
    static constexpr bool held = (Weight::zeroed && !zeros) || folded;
    int lane;
    uint32_t words[Weight::words];
    Scales<Weight> of;
    Zeros<Weight> zero;
    Added<Weight> added;
    InType<Weight> in_type;
    const uint8_t* sides;
    // Where an integer's offset is last, what scales are multiplied by for it.
    uint32_t offset;
    // Of the run at hand, what codes are multiplied by, and what is added; of both, what is lost by rounding.
    uint32_t factor, addend, factor_rest, addend_rest;

    WOOTZ_FN void load(const uint8_t* unit, const float* tensors) {
        load_words<Weight>(words, unit, lane);
        sides = unit + Weight::code_bytes;
        if constexpr (scales) of.load(sides, tensors, lane);
        if constexpr (zeros) zero.load(sides, lane);
        if constexpr (Weight::offset_last)
            offset = of.some_far ? Type::mul2(Weight::offset, of.rest) : Weight::offset;
        if constexpr (Weight::added_apart) added.load(sides, tensors, lane, of);
        if constexpr (Weight::added_in_type) in_type.load(sides, lane);
    }

    // Of bits that depend on every register that was loaded.
    WOOTZ_FN uint32_t loaded() const {
        uint32_t bits = 0;
        unroll<Weight::vectors>([&](auto i) { bits |= words[4 * i.value]; });
        if constexpr (scales) unroll<Scales<Weight>::count>([&](auto i) { bits |= of.held[i.value]; });
        if constexpr (zeros) unroll<Zeros<Weight>::count>([&](auto i) { bits |= zero.held[i.value]; });
        if constexpr (Weight::added_apart) bits |= added.loaded();
        if constexpr (Weight::added_in_type)
            unroll<Runs<Weight>::count>(
                [&](auto i) { bits |= in_type.scale.held[i.value] | in_type.addend.held[i.value]; });
        return bits;
    }

    // The weights of `Count` steps from step First on.
    template <int First, int Count>
    WOOTZ_FN void decode(const float* tensors, uint32_t (&a)[Count][4]) {
        // one(register, pair(Index<run>) of its row twice) -> what the register becomes.
        const auto by_rows = [&](auto pair, auto one) {
            unroll<Count>([&](auto i) {
                const uint32_t both = pair(Index<(First + i.value) * 16 / Weight::run>{});
                uint32_t (&to)[4] = a[i.value];
                to[0] = one(to[0], both_low(both));
                to[1] = one(to[1], both_high(both));
                to[2] = one(to[2], both_low(both));
                to[3] = one(to[3], both_high(both));
            });
        };
        unroll<Count>([&](auto i) {
            constexpr int step = First + i.value;
            if constexpr (folded) {
                Weight::template decode_folded<step>(words, sides, tensors, lane, a[i.value]);
            } else if constexpr (zeros) {
                Weight::template whole<step>(words, a[i.value]);
            } else if constexpr (Weight::offset_last || Weight::added_apart) {
                Weight::template subnormal<step>(words, a[i.value]);
            } else if constexpr (Weight::added_in_type) {
                Weight::template values<step>(words, a[i.value]);
            } else {
                Weight::template decode<step>(words, sides, lane, a[i.value]);
            }
        });
        if constexpr (zeros) by_rows([&](auto run) { return zero.template pair<run.value>(); }, Type::sub2);
        if constexpr (Weight::offset_last || Weight::added_apart) {
            scale_codes<First>(a);
        } else if constexpr (Weight::added_in_type) {
            unroll<4 * Count>([&](auto i) {
                constexpr int pair = 4 * First + i.value, run = pair * 4 / Weight::run;
                uint32_t& to = a[i.value / 4][i.value % 4];
                to =
                    scaled<pair>(to, in_type.scale.template pair<run>(), in_type.addend.template pair<run>());
            });
        } else if constexpr (scales) {
            const auto multiply = [&](auto pair) { by_rows(pair, Type::mul2); };
            const auto usual = [&](auto run) { return of.template pair<run.value>(); };
            const auto lift = [&](auto run) { return of.template lift<run.value>(); };
            if constexpr (!Weight::powers) {
                // Where nothing is rounded: values below 2 first, larger ones last.
                if constexpr (Weight::far > 0)
                    if (of.some_far) multiply(lift);
                multiply(usual);
                if constexpr (Weight::far < 0)
                    if (of.some_far) multiply(lift);
            } else if (of.some_far) {  // small ones, too
                if constexpr (Weight::exponent != 0) multiply(lift);
                multiply([&](auto run) { return of.template far_pair<run.value>(); });
            } else {
                multiply(usual);
            }
        }
    }

    // Codes that are subnormal numbers become weights.
    template <int First, int Count>
    WOOTZ_FN void scale_codes(uint32_t (&a)[Count][4]) {
        if (of.some_far) {
            unroll<4 * Count>([&](auto i) {
                uint32_t& one = a[i.value / 4][i.value % 4];
                one = Type::mul2(one, of.rest);
            });
        }
        unroll<4 * Count>([&](auto i) {
            constexpr int pair = 4 * First + i.value, run = pair * 4 / Weight::run;
            if constexpr (pair * 4 % Weight::run == 0) {
                factor = of.template pair<run>();
                if constexpr (Weight::added_apart) {
                    addend = added.addend.template pair<run>();
                    factor_rest = added.scale_rest.template pair<run>();
                    addend_rest = added.addend_rest.template pair<run>();
                } else {
                    addend = Type::mul2(factor, offset);
                }
            }
            uint32_t& to = a[i.value / 4][i.value % 4];
            const uint32_t code = to;
            to = scaled<pair>(code, factor, addend);
            if constexpr (Weight::added_apart)
                to = Type::add2(to, scaled<pair>(code, factor_rest, addend_rest));
        });
    }
    // A register times a factor of its row's, and more.
    template <int Pair>
    WOOTZ_FN static uint32_t scaled(uint32_t code, uint32_t by, uint32_t more) {
        constexpr uint32_t smaller = Weight::smaller(Pair);  // a code's place, 0 for others
        if constexpr (smaller != 0) by = Type::mul2(by, smaller);
        return Pair % 2 ? Type::fma2(code, both_high(by), both_high(more))
                        : Type::fma2(code, both_low(by), both_low(more));
    }
};

}  // namespace warpgroup
