// Metal's keywords, scalar types and vector types.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

#define __METAL__ 1
#define __METAL_VERSION__ 310

#define device __global
#define threadgroup __local
#define constant __constant
#define thread __private
#define kernel __kernel

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __bf16 bfloat;

#define LANES_VECTORS(T)                                                             \
    typedef T T##2 __attribute__((ext_vector_type(2)));                              \
    typedef T T##3 __attribute__((ext_vector_type(3)));                              \
    typedef T T##4 __attribute__((ext_vector_type(4)));                              \
    typedef T packed_##T##2 __attribute__((ext_vector_type(2), aligned(sizeof(T)))); \
    typedef T packed_##T##4 __attribute__((ext_vector_type(4), aligned(sizeof(T))));
LANES_VECTORS(char)
LANES_VECTORS(uchar)
LANES_VECTORS(short)
LANES_VECTORS(ushort)
LANES_VECTORS(int)
LANES_VECTORS(uint)
LANES_VECTORS(long)
LANES_VECTORS(ulong)
LANES_VECTORS(half)
LANES_VECTORS(bfloat)
LANES_VECTORS(float)
#undef LANES_VECTORS

#define INFINITY __builtin_huge_valf()
#define NAN __builtin_nanf("")
#define METAL_FUNC inline __attribute__((always_inline))
