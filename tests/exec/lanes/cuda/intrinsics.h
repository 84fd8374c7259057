// Integer, float and load intrinsics with CUDA's meaning. Included by device.h.
//
// The approximate ones (__expf, __fdividef, ...) are exact to the host's precision here: speed-for-accuracy
// trades are for a device run to judge.
#pragma once

template <class T>
inline T __ldg(const T* place) {
    return *place;
}
template <class T>
inline T __ldca(const T* place) {
    return *place;
}
template <class T>
inline T __ldcg(const T* place) {
    return *place;
}
template <class T>
inline T __ldcs(const T* place) {
    return *place;
}
template <class T>
inline void __stcg(T* place, T value) {
    *place = value;
}
template <class T>
inline void __stcs(T* place, T value) {
    *place = value;
}

#define LANES_BIT_CAST(name, To, From)               \
    inline To name(From from) {                      \
        To to;                                       \
        static_assert(sizeof to == sizeof from, ""); \
        memcpy(&to, &from, sizeof to);               \
        return to;                                   \
    }
LANES_BIT_CAST(__float_as_uint, unsigned, float)
LANES_BIT_CAST(__float_as_int, int, float)
LANES_BIT_CAST(__uint_as_float, float, unsigned)
LANES_BIT_CAST(__int_as_float, float, int)
LANES_BIT_CAST(__double_as_longlong, long long, double)
LANES_BIT_CAST(__longlong_as_double, double, long long)
#undef LANES_BIT_CAST

// CUDA's overloads: mixed signedness compares as unsigned, a NaN loses against a number.
#define LANES_MIN_MAX(T, A, B)                                                                \
    inline T max(A a, B b) {                                                                  \
        return static_cast<T>(a) > static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
    }                                                                                         \
    inline T min(A a, B b) {                                                                  \
        return static_cast<T>(a) < static_cast<T>(b) ? static_cast<T>(a) : static_cast<T>(b); \
    }
LANES_MIN_MAX(int, int, int)
LANES_MIN_MAX(unsigned, unsigned, unsigned)
LANES_MIN_MAX(unsigned, int, unsigned)
LANES_MIN_MAX(unsigned, unsigned, int)
LANES_MIN_MAX(long, long, long)
LANES_MIN_MAX(unsigned long, unsigned long, unsigned long)
LANES_MIN_MAX(long long, long long, long long)
LANES_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
#undef LANES_MIN_MAX
inline float max(float a, float b) { return fmaxf(a, b); }
inline float min(float a, float b) { return fminf(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline double min(double a, double b) { return fmin(a, b); }

inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __frsqrt_rn(float a) { return static_cast<float>(1.0 / sqrt(static_cast<double>(a))); }
inline float rsqrtf(float a) { return __frsqrt_rn(a); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __saturatef(float a) { return a > 0.0f ? (a < 1.0f ? a : 1.0f) : 0.0f; }

// glibc has functions of these names, hence the macros.
namespace lanes {
inline float fast_exp(float a) { return expf(a); }
inline float fast_exp10(float a) { return static_cast<float>(pow(10.0, static_cast<double>(a))); }
inline float fast_log(float a) { return logf(a); }
inline float fast_log2(float a) { return log2f(a); }
inline float fast_pow(float a, float b) { return powf(a, b); }
inline float fast_sin(float a) { return sinf(a); }
inline float fast_cos(float a) { return cosf(a); }
}  // namespace lanes
#define __expf lanes::fast_exp
#define __exp10f lanes::fast_exp10
#define __logf lanes::fast_log
#define __log2f lanes::fast_log2
#define __powf lanes::fast_pow
#define __sinf lanes::fast_sin
#define __cosf lanes::fast_cos

inline float __int2float_rn(int a) { return static_cast<float>(a); }
inline float __uint2float_rn(unsigned a) { return static_cast<float>(a); }
inline float __ull2float_rn(unsigned long long a) { return static_cast<float>(a); }

namespace lanes {
// Float to integer as PTX cvt does it: saturating, NaN to zero.
template <class T>
inline T saturate(double rounded, double low, double high) {
    return std::isnan(rounded) ? 0 : static_cast<T>(rounded < low ? low : rounded > high ? high : rounded);
}
inline int to_int(float rounded) { return saturate<int>(rounded, -2147483648.0, 2147483647.0); }
inline unsigned to_uint(float rounded) { return saturate<unsigned>(rounded, 0.0, 4294967295.0); }
}  // namespace lanes
inline int __float2int_rn(float a) { return lanes::to_int(rintf(a)); }
inline int __float2int_rz(float a) { return lanes::to_int(truncf(a)); }
inline int __float2int_rd(float a) { return lanes::to_int(floorf(a)); }
inline int __float2int_ru(float a) { return lanes::to_int(ceilf(a)); }
inline unsigned __float2uint_rn(float a) { return lanes::to_uint(rintf(a)); }
inline unsigned __float2uint_rz(float a) { return lanes::to_uint(truncf(a)); }
inline unsigned __float2uint_rd(float a) { return lanes::to_uint(floorf(a)); }
inline unsigned __float2uint_ru(float a) { return lanes::to_uint(ceilf(a)); }

inline int __popc(unsigned a) { return __builtin_popcount(a); }
inline int __popcll(unsigned long long a) { return __builtin_popcountll(a); }
inline int __clz(int a) { return a ? __builtin_clz(static_cast<unsigned>(a)) : 32; }
inline int __clzll(long long a) { return a ? __builtin_clzll(static_cast<unsigned long long>(a)) : 64; }
inline int __ffs(int a) { return __builtin_ffs(a); }
inline unsigned __brev(unsigned a) { return __builtin_bitreverse32(a); }
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t{a} * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t{a} * b >> 32); }

// Funnel shifts of the 64-bit high:low; the amount counts modulo 32.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>(((uint64_t{high} << 32 | low) << (shift & 31)) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return static_cast<unsigned>((uint64_t{high} << 32 | low) >> (shift & 31));
}

// PTX prmt in its default mode: selector nibble i picks byte (nibble & 7) of b:a, or its sign eight times
// over.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    const uint64_t bytes = uint64_t{b} << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; ++i) {
        const unsigned pick = selector >> (4 * i) & 15;
        unsigned byte = static_cast<unsigned>(bytes >> (8 * (pick & 7))) & 0xff;
        if (pick & 8) {
            byte = byte & 0x80 ? 0xff : 0x00;
        }
        result |= byte << (8 * i);
    }
    return result;
}

inline int __dp4a(int a, int b, int sum) {
    for (int i = 0; i < 4; ++i) {
        sum += static_cast<int8_t>(static_cast<unsigned>(a) >> (8 * i)) *
               static_cast<int8_t>(static_cast<unsigned>(b) >> (8 * i));
    }
    return sum;
}

inline void __trap(int line = __builtin_LINE()) { lanes_fail("__trap was called", line); }
