// What a lane of the product with few rows of x keeps of a unit of packed weights, and what it adds to the
// sums of a tile: codes decoded or looked up, multiplied, and scaled.
#pragma once

#include <stdint.h>

#include <type_traits>

#include "fragment.cuh"
#include "mma.cuh"
#include "qgemv_sm90_plan.cuh"

namespace gemv {

// The instruction of a decoder's type.
WOOTZ_FN void multiply(fragment::Half, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const float (&c)[4]) {
    mma_m16n8k16_f16_f32(d, a, b, c);
}
WOOTZ_FN void multiply(fragment::Bfloat, float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                       const float (&c)[4]) {
    mma_m16n8k16_bf16_f32(d, a, b, c);
}

// The sum of a product and, unless it is Fresh, of what was there.
template <class Type, bool Fresh>
WOOTZ_FN void accumulate(float (&sum)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (Fresh) {
        const float none[4] = {0, 0, 0, 0};
        multiply(Type(), sum, a, b, none);
    } else {
        multiply(Type(), sum, a, b, sum);
    }
}

// Adds a * b where `mine`, as one instruction: chains of selections become more.
WOOTZ_FN void add_where(bool mine, float& sum, float a, float b) {
#ifdef __CUDACC__
    asm("{\n.reg .pred p;\nsetp.ne.u32 p, %3, 0;\n@p fma.rn.f32 %0, %1, %2, %0;\n}"
        : "+f"(sum)
        : "f"(a), "f"(b), "r"(static_cast<uint32_t>(mine)));
#else
    if (mine) sum = __fmaf_rn(a, b, sum);
#endif
}

// A table of pairs: those of code l and code h at 128 (l + 16 h), once for each lane, so that no two lanes of
// a warp meet in a bank.
template <class Tile>
WOOTZ_FN void make_table(uint8_t* table) {
    uint32_t* to = reinterpret_cast<uint32_t*>(table) + threadIdx.x % 32;
#pragma unroll 4
    for (uint32_t pair = threadIdx.x / 32; pair < 256; pair += Tile::warps)
        to[pair * 32] = Tile::Weight::number(pair % 16) | Tile::Weight::number(pair / 16) << 16;
}

// A word times a number of few bits, on the multiplier: with a constant the compiler would shift, on the pipe
// of logic, which is the busiest. So it is not told that a grid's extent has no sign bit.
WOOTZ_FN uint32_t times(uint32_t word, uint32_t number) {
#ifdef __CUDACC__
    uint32_t blocks;
    asm("mov.u32 %0, %%nctaid.x;" : "=r"(blocks));
    return word * (number + (blocks >> 31));
#else
    return word * number;
#endif
}

// a + a / 2^12, on the multiplier.
WOOTZ_FN uint32_t fold_down(uint32_t a) {
#ifdef __CUDACC__
    uint32_t result;
    asm("mad.hi.u32 %0, %1, %2, %1;" : "=r"(result) : "r"(a), "r"(1u << 20));
    return result;
#else
    return a + (a >> 12);
#endif
}

// Four pairs from a word of eight codes: pair r has bits 4 r of both half-words.
WOOTZ_FN void look_up(uint32_t (&a)[4], uint32_t word, const uint8_t* table, uint32_t lane) {
    // Bytes 0 and 1: the pair's second code above its first.
    const uint32_t even = fold_down(word & 0x0f0f0f0f), odd = fold_down(word >> 4 & 0x0f0f0f0f);
    const uint32_t at[4] = {fragment::and_or(even << 7, 0x7f80, lane * 4),
                            fragment::and_or(odd << 7, 0x7f80, lane * 4),
                            times(fragment::prmt(even, 0, 0x4441), 128) + lane * 4,
                            times(fragment::prmt(odd, 0, 0x4441), 128) + lane * 4};
#pragma unroll
    for (int r = 0; r < 4; r++) a[r] = *reinterpret_cast<const uint32_t*>(table + at[r]);
}

// Bits that depend on all words that were added, two of them by one instruction of the multiplier.
struct Mixed {
    uint32_t bits = 0, left = 0;
    int count = 0;

    WOOTZ_FN void add(uint32_t word) {
        if (count == 0) {
            bits = word;
        } else if (count % 2) {
            left = word;
        } else {
            bits = bits * left + word;
            left = 0;
        }
        count++;
    }
};

// ---- scales

// A byte of shared memory, alone: bytes that are loaded together have to be taken apart.
WOOTZ_FN uint32_t load_byte(const uint8_t* from) {
#ifdef __CUDACC__
    uint32_t result;
    asm volatile("ld.shared.u8 %0, [%1];" : "=r"(result) : "r"(shared_address(from)));
    return result;
#else
    return *from;
#endif
}

// 2^(code - 127); 0 is 2^-127, 255 is NaN. A mantissa of ones makes numbers of the right kind of all, which
// are twice as large, 0 as well, but for a last bit: Doubled leaves it at that, else rounding puts it right.
template <bool Doubled>
WOOTZ_FN float power_of_code(uint32_t code) {
    const float twice = fragment::as_float((code << 23) + 0x7fffff);
    return Doubled ? twice : twice * fragment::as_float(0x3f000001);
}

// The numbers of the E4M3 codes in half-word `High` of a word.
template <int High>
WOOTZ_FN void numbers_of_codes(float (&to)[2], uint32_t word) {
#ifdef __CUDACC__
    uint32_t pair;
    if constexpr (High == 0) {
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, low;}"
            : "=r"(pair)
            : "r"(word));
    } else {
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.rn.f16x2.e4m3x2 %0, high;}"
            : "=r"(pair)
            : "r"(word));
    }
    to[0] = fragment::Half::low(pair);
    to[1] = fragment::Half::high(pair);
#else
    to[0] = fragment::float_f32<4, 3, 7, 0x7f, false, true>(word >> 16 * High & 255);
    to[1] = fragment::float_f32<4, 3, 7, 0x7f, false, true>(word >> (16 * High + 8) & 255);
#endif
}

// The scales of rows g and g + 8 in a lane's runs, from run `first` on.
template <class Tile, Levels = Tile::levels>
struct Scales {
    float held[Tile::shares][2];

    WOOTZ_FN void load(const uint8_t* sides, const float* tensor, int g, int first) {
        unroll<Tile::shares>(
            [&](auto i) { Tile::Weight::levels(sides, tensor, g, first + i.value, held[i.value]); });
    }
    template <int Share>
    WOOTZ_FN void of(float (&to)[2]) const {
        to[0] = held[Share][0];
        to[1] = held[Share][1];
    }
    // Mixes every register that was loaded.
    WOOTZ_FN void mix(Mixed& with) const {
        unroll<2 * Tile::shares>(
            [&](auto i) { with.add(fragment::as_bits(held[i.value / 2][i.value % 2])); });
    }
};

template <class Tile>
struct Scales<Tile, Levels::Powers> : Scales<Tile, Levels::Any> {
    WOOTZ_FN void load(const uint8_t* sides, const float*, int g, int first) {
        const uint8_t* from = sides + Tile::Weight::at(g, first, 0);
        unroll<2 * Tile::shares>([&](auto i) {
            this->held[i.value / 2][i.value % 2] = power_of_code<Tile::doubled>(load_byte(from + i.value));
        });
    }
};

// Their codes: two runs' in a word.
template <class Tile>
struct Scales<Tile, Levels::Floats> {
    static constexpr int words = (Tile::shares + 1) / 2;
    uint32_t held[words];

    WOOTZ_FN void load(const uint8_t* sides, const float*, int g, int first) {
        const uint8_t* from = sides + Tile::Weight::at(g, first, 0);
        if constexpr (Tile::shares == 1) {
            held[0] = *reinterpret_cast<const uint16_t*>(from);
        } else if constexpr (words % 4 == 0) {
            unroll<words / 4>([&](auto i) {
                const uint4 v = reinterpret_cast<const uint4*>(from)[i.value];
                held[4 * i.value] = v.x;
                held[4 * i.value + 1] = v.y;
                held[4 * i.value + 2] = v.z;
                held[4 * i.value + 3] = v.w;
            });
        } else if constexpr (words == 2) {
            const uint2 v = *reinterpret_cast<const uint2*>(from);
            held[0] = v.x;
            held[1] = v.y;
        } else {
            unroll<words>([&](auto i) { held[i.value] = reinterpret_cast<const uint32_t*>(from)[i.value]; });
        }
    }
    template <int Share>
    WOOTZ_FN void of(float (&to)[2]) const {
        numbers_of_codes<Share % 2>(to, held[Share / 2]);
    }
    WOOTZ_FN void mix(Mixed& with) const {
        unroll<words>([&](auto i) { with.add(held[i.value]); });
    }
};

struct None {};

// ---- a lane

// A lane's part of a unit, and what it adds to the sums of its tile.
template <class Tile>
struct Lane {
    using Weight = typename Tile::Weight;
    using Type = typename Tile::Type;
    int lane;
    const float* tensor;
    const uint8_t *sides, *table;
    uint32_t words[Weight::words];
    std::conditional_t<Tile::scaled, Scales<Tile>, None> scales;
    float shifts[Tile::shift ? Tile::shares : 1][2];

    // The run of this lane's share `i`.
    WOOTZ_FN int run_of(int i) const {
        if constexpr (Tile::spread) return lane % 4 * Weight::runs / 4 + i;
        return (Tile::sharers > 1 ? lane % Tile::sharers * Tile::shares : 0) + i;
    }

    // The words and scales of a unit.
    WOOTZ_FN void load(const uint8_t* unit) {
        load_words<Weight>(words, unit, lane);
        sides = unit + Weight::code_bytes;
        if constexpr (Tile::scaled) scales.load(sides, tensor, lane >> 2, run_of(0));
        if constexpr (Tile::shift) {
            unroll<Tile::shares>([&](auto i) {
                shifts[i.value][0] = Weight::shift(sides, lane >> 2, run_of(i.value), 0);
                shifts[i.value][1] = Weight::shift(sides, lane >> 2, run_of(i.value), 1);
            });
        }
    }

    // Bits that depend on every register that was loaded.
    WOOTZ_FN uint32_t loaded() const {
        Mixed with;
        unroll<Weight::vectors>([&](auto i) { with.add(words[4 * i.value]); });
        if constexpr (Tile::scaled) scales.mix(with);
        if constexpr (Tile::shift && Weight::zeroed) {
            unroll<2 * Tile::shares>(
                [&](auto i) { with.add(fragment::as_bits(shifts[i.value / 2][i.value % 2])); });
        }
        return with.bits | with.left;
    }

    // Takes away what the numbers of a unit are too large. totals: of x over its runs.
    WOOTZ_FN void correct(float (&sums)[4], const float* totals) const {
        // Of lanes with a run in common the first takes it.
        const bool mine = lane % 4 * Weight::runs % 4 == 0;
        unroll<Tile::shares>([&](auto i) {
            const float total = mine ? totals[run_of(i.value)] : 0.0f;
            float by[2];
            scales.template of<i.value>(by);
            sums[0] = __fmaf_rn(-(shifts[i.value][0] * total), by[0], sums[0]);
            sums[2] = __fmaf_rn(-(shifts[i.value][1] * total), by[1], sums[2]);
        });
    }

    // The scales of a run.
    template <int Run>
    WOOTZ_FN void scale(float (&by)[2]) const {
        scales.template of<Run % Tile::shares>(by);
        if constexpr (Tile::handed)
            for (float& each : by) each = __shfl_sync(0xffffffff, each, Run / Tile::shares, Tile::sharers);
    }

    // Scaled products of the steps up to Step; ones: the sum of x.
    template <int Step>
    WOOTZ_FN void add(float (&sums)[4], const float (&run)[4], const float (&ones)[4]) const {
        constexpr int Run = Step * 16 / Weight::run, column = Step / Tile::part * Tile::repeats;
        float by[2];
        scale<Run>(by);
        const bool mine = !Tile::spread || (lane & 3) == column / 2;
#pragma unroll
        for (int i = 0; i < 4; i++) {
            if (Tile::tokens == 1 && i % 2) continue;
            const int from = Tile::spread ? i + column % 2 : i;
            add_where(mine, sums[i], by[i >> 1], run[from]);
            if constexpr (Tile::linear) {  // the sum of the tile is multiplied by 2^exponent
                constexpr float lacking = power_of_2(-Weight::exponent);
                add_where(mine, sums[i], Weight::zero(sides, lane >> 2, Run, i >> 1) * lacking, ones[from]);
            }
        }
    }

    // The place of this lane's x in that of a unit, in bytes.
    WOOTZ_FN uint32_t place() const {
        if constexpr (!Tile::spread) return lane / 8 * 16;  // in this lane's row of the first two steps
        return (lane / 4 / Tile::repeats * Tile::vectors * 4 + lane % 4) * 16;
    }

    // x of a unit: of this lane's column, or of two steps at a time.
    struct Columns {
        uint32_t held[4 * Tile::vectors];

        WOOTZ_FN void load(const uint8_t* x) {
            if constexpr (!Tile::spread) return;
            unroll<Tile::vectors>([&](auto i) {
                const uint4 v = *reinterpret_cast<const uint4*>(x + i.value * 64);
                held[4 * i.value] = v.x;
                held[4 * i.value + 1] = v.y;
                held[4 * i.value + 2] = v.z;
                held[4 * i.value + 3] = v.w;
            });
        }
        template <int Step>
        WOOTZ_FN void of(uint32_t (&b)[2], const uint8_t* x) {
            if constexpr (!Tile::spread && Step % 2 == 0) {
                uint32_t loaded[4];
                load_matrices(loaded, shared_address(x) + Step * 32);
                for (int i = 0; i < 4; i++) held[i] = loaded[i];
            }
            constexpr int at = Step % (Tile::spread ? Tile::part : 2) * 2;
            b[0] = held[at];
            b[1] = held[at + 1];
        }
    };

    // Adds a unit's products. x: at `place` of the unit's; read: called once its words and scales are in
    // registers.
    template <class Read>
    WOOTZ_FN void multiply(float (&sums)[4], const uint8_t* x, const uint8_t* unit, Read&& read) {
        float run[4] = {0, 0, 0, 0}, ones[4] = {0, 0, 0, 0};
        Columns columns;
        columns.load(x);
        load(unit);
        read();
        unroll<Weight::steps>([&](auto step) {
            constexpr int at = step.value, piece = Tile::piece;
            constexpr bool first = at % piece == 0, last = at % piece == piece - 1;
            uint32_t b[2];
            columns.template of<at>(b, x);
            uint32_t a[4];
            if constexpr (Tile::fold) {
                Weight::template decode_folded<at>(words, sides, tensor, lane, a);
            } else if constexpr (Tile::table) {
                look_up(a, words[at], table, lane);
            } else {
                Weight::template decode<at>(words, sides, lane, a);
            }
            if constexpr (!Tile::scaled) {
                accumulate<Type, false>(sums, a, b);
            } else {
                accumulate<Type, first>(run, a, b);
                if constexpr (Tile::linear) {
                    const uint32_t one = Type::round(1.0f, 1.0f), all[4] = {one, one, one, one};
                    accumulate<Type, first>(ones, all, b);
                }
                if constexpr (last) add<at>(sums, run, ones);
            }
        });
    }
};

}  // namespace gemv
