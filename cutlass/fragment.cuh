// Building blocks of generated decoders: bit fields of two codes at once, arithmetic on packed pairs of f16
// or bf16, conversions of stored scales. Every function has a twin for a host, which gives the same bits;
// nvcc sees PTX in both of its passes.
#pragma once

#include <stdint.h>
#include <string.h>

#include "function.cuh"

#ifdef __CUDACC__
#define WOOTZ_TABLE [[maybe_unused]] static __device__ const
#define WOOTZ_UNROLL _Pragma("unroll")
#else
#define WOOTZ_TABLE [[maybe_unused]] static const
#define WOOTZ_UNROLL
#endif

namespace fragment {

WOOTZ_FN float as_float(uint32_t bits) {
#ifdef __CUDACC__
    return __uint_as_float(bits);
#else
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
#endif
}

WOOTZ_FN uint32_t as_bits(float value) {
#ifdef __CUDACC__
    return __float_as_uint(value);
#else
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
#endif
}

// (a & b) | c, as one instruction.
WOOTZ_FN uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDACC__
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return (a & b) | c;
#endif
}

// (a & b) ^ c, as one instruction.
WOOTZ_FN uint32_t and_xor(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDACC__
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
#else
    return (a & b) ^ c;
#endif
}

// Byte i of the result is byte (s >> 4 i) & 7 of b:a; with bit 3 of that nibble set, its sign bit eight
// times.
WOOTZ_FN uint32_t prmt(uint32_t a, uint32_t b, uint32_t s) {
#ifdef __CUDACC__
    uint32_t result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(s));
    return result;
#else
    const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
        const uint32_t nibble = s >> 4 * i & 15;
        const uint32_t byte = static_cast<uint32_t>(bytes >> 8 * (nibble & 7)) & 0xff;
        result |= (nibble & 8 ? (byte & 0x80 ? 0xffu : 0u) : byte) << 8 * i;
    }
    return result;
#endif
}

#ifndef __CUDACC__
// `value` rounded once, to nearest even, to a type of `digits` significant bits whose least normal exponent
// is `least`; past its range the result is larger than its largest number.
static inline double rounded(double value, int digits, int least) {
    if (!(value - value == 0) || value == 0) {
        return value;
    }
    int exponent;
    __builtin_frexp(value, &exponent);
    const int ulp = (exponent - 1 > least ? exponent - 1 : least) - digits + 1;
    return __builtin_ldexp(__builtin_nearbyint(__builtin_ldexp(value, -ulp)), ulp);
}

// a * b + c, the error of the sum kept as an odd last bit, so that a second rounding is as good as one.
static inline double odd_fma(float a, float b, float c) {
    const double product = static_cast<double>(a) * b, addend = c, sum = product + addend;
    const double shift = sum - product, error = (product - (sum - shift)) + (addend - shift);
    uint64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    if (!(sum - sum == 0) || error == 0 || bits & 1) {
        return sum;
    }
    bits += (error > 0) == (sum > 0) ? 1 : -1;
    double result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
#endif

WOOTZ_FN float half_f32(uint32_t bits) {
#ifdef __CUDACC__
    float value;
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, low;}" : "=f"(value) : "r"(bits));
    return value;
#else
    const uint32_t magnitude = bits & 0x7fff, sign = (bits & 0x8000) << 16;
    if (magnitude >= 0x7c00) {
        return as_float(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
    }
    return as_float(sign | as_bits(as_float(magnitude << 13) * 0x1p112f));
#endif
}

// Packed pairs: the first number in the low half-word. Every operation rounds once, to nearest even, and
// keeps subnormal numbers.
struct Half {
    static WOOTZ_FN float low(uint32_t pair) { return half_f32(pair); }
#ifdef __CUDACC__
    static WOOTZ_FN float high(uint32_t pair) {
        float value;
        asm("{.reg .b16 low, high; mov.b32 {low, high}, %1; cvt.f32.f16 %0, high;}"
            : "=f"(value)
            : "r"(pair));
        return value;
    }
    static WOOTZ_FN uint32_t round(float low, float high) {
        uint32_t result;
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
        return result;
    }
    static WOOTZ_FN uint32_t add2(uint32_t a, uint32_t b) {
        uint32_t result;
        asm("add.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
        return result;
    }
    static WOOTZ_FN uint32_t sub2(uint32_t a, uint32_t b) {
        uint32_t result;
        asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
        return result;
    }
    static WOOTZ_FN uint32_t mul2(uint32_t a, uint32_t b) {
        uint32_t result;
        asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
        return result;
    }
    static WOOTZ_FN uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t result;
        asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        return result;
    }
#else
    static float high(uint32_t pair) { return half_f32(pair >> 16); }
    static uint32_t one(double value) {
        const double near = rounded(value, 11, -14);
        if (near != near) {
            return 0x7fff;
        }
        const uint32_t sign = __builtin_signbit(near) ? 0x8000 : 0;
        const double magnitude = __builtin_fabs(near);
        if (magnitude >= 65536) {
            return sign | 0x7c00;
        }
        const float single = static_cast<float>(magnitude) * 0x1p-112f;  // exact
        return sign | as_bits(single) >> 13;
    }
    static uint32_t round(float low, float high) { return one(low) | one(high) << 16; }
    static uint32_t add2(uint32_t a, uint32_t b) { return round(low(a) + low(b), high(a) + high(b)); }
    static uint32_t sub2(uint32_t a, uint32_t b) { return round(low(a) - low(b), high(a) - high(b)); }
    static uint32_t mul2(uint32_t a, uint32_t b) { return round(low(a) * low(b), high(a) * high(b)); }
    static uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
        return one(odd_fma(low(a), low(b), low(c))) | one(odd_fma(high(a), high(b), high(c))) << 16;
    }
#endif
};

struct Bfloat {
    static WOOTZ_FN float low(uint32_t pair) { return as_float(pair << 16); }
    static WOOTZ_FN float high(uint32_t pair) { return as_float(pair & 0xffff0000); }
#ifdef __CUDACC__
    static WOOTZ_FN uint32_t round(float low, float high) {
        uint32_t result;
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(high), "f"(low));
        return result;
    }
    static WOOTZ_FN uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
        uint32_t result;
        asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
        return result;
    }
    // The oldest chips have the fused operation only; on the others these are the same instruction.
    static WOOTZ_FN uint32_t add2(uint32_t a, uint32_t b) { return fma2(a, 0x3f803f80, b); }
    static WOOTZ_FN uint32_t sub2(uint32_t a, uint32_t b) { return fma2(b, 0xbf80bf80, a); }
    static WOOTZ_FN uint32_t mul2(uint32_t a, uint32_t b) { return fma2(a, b, 0x80008000); }
#else
    static uint32_t one(float value) {
        const uint32_t bits = as_bits(value);
        return value != value ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    }
    static uint32_t one_of(double value) {
        return one(static_cast<float>(rounded(value, 8, -126)));  // past the range: infinity
    }
    static uint32_t round(float low, float high) { return one(low) | one(high) << 16; }
    static uint32_t add2(uint32_t a, uint32_t b) { return round(low(a) + low(b), high(a) + high(b)); }
    static uint32_t sub2(uint32_t a, uint32_t b) { return round(low(a) - low(b), high(a) - high(b)); }
    static uint32_t mul2(uint32_t a, uint32_t b) {
        return one_of(static_cast<double>(low(a)) * low(b)) | one_of(static_cast<double>(high(a)) * high(b))
                                                                  << 16;
    }
    static uint32_t fma2(uint32_t a, uint32_t b, uint32_t c) {
        return one_of(odd_fma(low(a), low(b), low(c))) | one_of(odd_fma(high(a), high(b), high(c))) << 16;
    }
#endif
};

// A pair of f16 as one of Type, each rounded once.
template <class Type>
WOOTZ_FN uint32_t from_half(uint32_t pair) {
    return Type::round(Half::low(pair), Half::high(pair));
}

// ---- stored scales and zero points, one code at a time, as f32

// Integers: value = (code ^ Flip) - Offset.
template <int Flip, int Offset>
WOOTZ_FN float int_f32(uint32_t code) {
    return as_float((code ^ Flip) | 0x4b000000) - static_cast<float>(0x800000 + Offset);
}

// Small floats of a sign, where Signed, Exponent and Mantissa bits. Top: the least magnitude that is no
// number (past the last where all are), Infinite: whether that is infinity.
template <int Exponent, int Mantissa, int Bias, uint32_t Top, bool Infinite, bool Signed>
WOOTZ_FN float float_f32(uint32_t code) {
    const uint32_t magnitude = code & ((1u << (Exponent + Mantissa)) - 1);
    const uint32_t sign = Signed ? code >> (Exponent + Mantissa) << 31 : 0;
    // In an f32's places it lacks a power of two, which takes subnormal numbers along. It is split where it
    // is past f32 itself.
    constexpr int power = 127 - Bias, half = power > 127 ? 64 : 0;
    float value =
        as_float(magnitude << (23 - Mantissa)) * as_float(static_cast<uint32_t>(power - half + 127) << 23);
    if (half != 0) {
        value *= as_float(static_cast<uint32_t>(half + 127) << 23);
    }
    uint32_t bits = as_bits(value);
    if (magnitude >= Top) {
        bits = Infinite && magnitude == Top ? 0x7f800000 : 0x7fc00000;
    }
    return as_float(bits | sign);
}

// 2^(code - 127); 0 is 2^-127, 255 is NaN.
WOOTZ_FN float power_f32(uint32_t code) {
    const uint32_t bits = code << 23;
    const float value = as_float(bits > 0x00400000 ? bits : 0x00400000);
    return value * 0.0f + value;  // infinity becomes NaN
}

// ---- small floats, two at once

// Magnitudes placed in f16 or bf16, with signs: where adding One carries into the bit Carry, the code is no
// number, and that bit and those above it, Ones in all, complete the exponent.
template <uint32_t One, uint32_t Carry, uint32_t Ones>
WOOTZ_FN uint32_t fill(uint32_t magnitudes, uint32_t signs) {
    const uint32_t carried = (magnitudes + One) & Carry;
    return (magnitudes | signs) + carried * Ones;
}

// ---- tables of f16 or bf16 numbers in registers: low and high bytes apart

// The numbers of the two codes of a pair (low bits of each half-word), from a table of 8.
WOOTZ_FN uint32_t pick8(uint32_t codes, uint32_t l0, uint32_t l1, uint32_t h0, uint32_t h1) {
    const uint32_t select = codes | codes >> 12;
    return prmt(prmt(l0, l1, select), prmt(h0, h1, select), 0x5140);
}

// The same from a table of 16.
WOOTZ_FN uint32_t pick16(uint32_t codes, uint32_t l0, uint32_t l1, uint32_t l2, uint32_t l3, uint32_t h0,
                         uint32_t h1, uint32_t h2, uint32_t h3) {
    const uint32_t low = codes & 0x00070007, upper = (codes >> 3 & 0x00010001) * 0xffff;
    return (pick8(low, l0, l1, h0, h1) & ~upper) | (pick8(low, l2, l3, h2, h3) & upper);
}

// Four pairs at once, from a word of eight codes of 4 bits, each pair's at bits 4 r of both half-words.
WOOTZ_FN void pick16_word(uint32_t (&a)[4], uint32_t word, uint32_t l0, uint32_t l1, uint32_t l2, uint32_t l3,
                          uint32_t h0, uint32_t h1, uint32_t h2, uint32_t h3) {
    const uint32_t woven = prmt(word, 0, 0x3120);  // nibbles: pairs 0, 1 low, 0, 1 high, 2, 3 low, 2, 3 high
    const uint32_t select = woven & 0x77777777, tops = woven << 4;
    WOOTZ_UNROLL
    for (int i = 0; i < 2; ++i) {
        const uint32_t s = select >> 16 * i;
        const uint32_t upper = prmt(tops, woven, i ? 0xfbea : 0xd9c8);
        const uint32_t low = (prmt(l0, l1, s) & ~upper) | (prmt(l2, l3, s) & upper);
        const uint32_t high = (prmt(h0, h1, s) & ~upper) | (prmt(h2, h3, s) & upper);
        a[2 * i] = prmt(low, high, 0x6240);
        a[2 * i + 1] = prmt(low, high, 0x7351);
    }
}

// The numbers of the two codes of a pair, from a table in memory.
WOOTZ_FN uint32_t pick(uint32_t codes, const uint16_t* table) {
    return table[codes & 0xffff] | static_cast<uint32_t>(table[codes >> 16]) << 16;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
// E4M3 codes in bytes 0 and 2 of `low`'s pairs: two pairs of f16, by the conversion instruction.
WOOTZ_FN void convert_e4m3(uint32_t& first, uint32_t& second, uint32_t word) {
    const uint32_t woven = prmt(word, 0, 0x3120);
#ifdef __CUDACC__
    asm("{.reg .b16 low, high; mov.b32 {low, high}, %2;"
        " cvt.rn.f16x2.e4m3x2 %0, low; cvt.rn.f16x2.e4m3x2 %1, high;}"
        : "=r"(first), "=r"(second)
        : "r"(woven));
#else
    float values[4];
    for (int i = 0; i < 4; ++i) {
        values[i] = float_f32<4, 3, 7, 0x7f, false, true>(woven >> 8 * i & 0xff);
    }
    first = Half::round(values[0], values[1]);
    second = Half::round(values[2], values[3]);
#endif
}
#endif

}  // namespace fragment
