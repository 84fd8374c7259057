// Word vectors whose loads and stores are checked for alignment. Included by device.h after NVIDIA's headers.
//
// NVIDIA's are plain structs, and the undefined-behaviour sanitizer does not look at the address that a
// struct is copied from. Those here are clang's vectors, which it does check. For the emitted text they take
// the names over.
#pragma once

namespace lanes {

typedef int Int2 __attribute__((ext_vector_type(2)));
typedef int Int4 __attribute__((ext_vector_type(4)));
typedef unsigned Uint2 __attribute__((ext_vector_type(2)));
typedef unsigned Uint4 __attribute__((ext_vector_type(4)));
typedef float Float4 __attribute__((ext_vector_type(4)));

inline Int2 make_Int2(int x, int y) { return Int2{x, y}; }
inline Int4 make_Int4(int x, int y, int z, int w) { return Int4{x, y, z, w}; }
inline Uint2 make_Uint2(unsigned x, unsigned y) { return Uint2{x, y}; }
inline Uint4 make_Uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return Uint4{x, y, z, w}; }
inline Float4 make_Float4(float x, float y, float z, float w) { return Float4{x, y, z, w}; }

}  // namespace lanes

#define int2 lanes::Int2
#define int4 lanes::Int4
#define uint2 lanes::Uint2
#define uint4 lanes::Uint4
#define float4 lanes::Float4
#define make_int2 lanes::make_Int2
#define make_int4 lanes::make_Int4
#define make_uint2 lanes::make_Uint2
#define make_uint4 lanes::make_Uint4
#define make_float4 lanes::make_Float4
