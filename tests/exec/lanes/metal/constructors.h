// Vector constructors in the form of a call. As function-like macros they leave the types alone.
#pragma once

#include "vectors.h"

#define char4(...) metal::make_vector<char, 4>::from(__VA_ARGS__)
#define uchar2(...) metal::make_vector<uchar, 2>::from(__VA_ARGS__)
#define uchar4(...) metal::make_vector<uchar, 4>::from(__VA_ARGS__)
#define short2(...) metal::make_vector<short, 2>::from(__VA_ARGS__)
#define short4(...) metal::make_vector<short, 4>::from(__VA_ARGS__)
#define ushort2(...) metal::make_vector<ushort, 2>::from(__VA_ARGS__)
#define ushort4(...) metal::make_vector<ushort, 4>::from(__VA_ARGS__)
#define int2(...) metal::make_vector<int, 2>::from(__VA_ARGS__)
#define int4(...) metal::make_vector<int, 4>::from(__VA_ARGS__)
#define uint2(...) metal::make_vector<uint, 2>::from(__VA_ARGS__)
#define uint3(...) metal::make_vector<uint, 3>::from(__VA_ARGS__)
#define uint4(...) metal::make_vector<uint, 4>::from(__VA_ARGS__)
#define ulong2(...) metal::make_vector<ulong, 2>::from(__VA_ARGS__)
#define half2(...) metal::make_vector<half, 2>::from(__VA_ARGS__)
#define half4(...) metal::make_vector<half, 4>::from(__VA_ARGS__)
#define bfloat2(...) metal::make_vector<bfloat, 2>::from(__VA_ARGS__)
#define bfloat4(...) metal::make_vector<bfloat, 4>::from(__VA_ARGS__)
#define float2(...) metal::make_vector<float, 2>::from(__VA_ARGS__)
#define float3(...) metal::make_vector<float, 3>::from(__VA_ARGS__)
#define float4(...) metal::make_vector<float, 4>::from(__VA_ARGS__)
