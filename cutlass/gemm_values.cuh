// What warp-level GEMMs do with their sums: y = activation(alpha * sum + beta * c + bias), or y = sum.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

#include "activation.cuh"

// A type of numbers in memory. words: eight of them as 32-bit words.
struct HalfValue {
    using Stored = uint16_t;
    static constexpr int words = 4;
    static WOOTZ_FN float load(const uint16_t* from) { return __half2float(__ushort_as_half(*from)); }
    static WOOTZ_FN uint16_t round(float value) { return __half_as_ushort(__float2half_rn(value)); }
};
struct BfloatValue {
    using Stored = uint16_t;
    static constexpr int words = 4;
    static WOOTZ_FN float load(const uint16_t* from) { return __bfloat162float(__ushort_as_bfloat16(*from)); }
    static WOOTZ_FN uint16_t round(float value) { return __bfloat16_as_ushort(__float2bfloat16_rn(value)); }
};
struct FloatValue {
    using Stored = float;
    static constexpr int words = 8;
    static WOOTZ_FN float load(const float* from) { return *from; }
    static WOOTZ_FN float round(float value) { return value; }
};
struct IntValue {
    using Stored = int;
    static constexpr int words = 8;
    static WOOTZ_FN int round(int value) { return value; }
};

// Writes those of y[row, column .. column + 8) that exist. column is a multiple of 8.
template <class Value, class Number>
WOOTZ_FN void store_eight(typename Value::Stored* y, uint32_t n, uint32_t row, uint32_t column,
                          const Number (&values)[8]) {
    typename Value::Stored* place = y + (static_cast<uint64_t>(row) * n + column);
    if (n % 8 == 0) {
        alignas(16) typename Value::Stored rounded[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) rounded[i] = Value::round(values[i]);
#pragma unroll
        for (int i = 0; i < Value::words / 4; ++i) {
            reinterpret_cast<uint4*>(place)[i] = reinterpret_cast<const uint4*>(rounded)[i];
        }
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (column + i < n) place[i] = Value::round(values[i]);
        }
    }
}

// c and bias may be null.
template <class Input, class Output>
struct DenseEpilogue {
    const typename Output::Stored* c;
    const typename Input::Stored* bias;
    typename Output::Stored* y;
    uint32_t n;
    float alpha, beta;
    uint32_t activation;

    WOOTZ_FN void operator()(uint32_t row, uint32_t column, float (&values)[8]) const {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            values[i] *= alpha;
            if (column + i >= n) continue;
            if (bias) values[i] += Input::load(bias + column + i);
            if (c) values[i] += beta * Output::load(c + (static_cast<uint64_t>(row) * n + column + i));
        }
        activate<8>(values, activation);
        store_eight<Output>(y, n, row, column, values);
    }
};

struct ExactEpilogue {
    int* y;
    uint32_t n;
    WOOTZ_FN void operator()(uint32_t row, uint32_t column, const int (&values)[8]) const {
        store_eight<IntValue>(y, n, row, column, values);
    }
};

// y = scale_a * scale_b * sum, each scale one number, or one a row of a or b.
template <class Output>
struct OuterEpilogue {
    const float* scale_a;
    const float* scale_b;
    typename Output::Stored* y;
    uint32_t n;
    uint32_t rows_a, rows_b;

    WOOTZ_FN void operator()(uint32_t row, uint32_t column, float (&values)[8]) const {
        float left = scale_a[rows_a == 1 ? 0 : row];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (column + i < n) values[i] *= scale_b[rows_b == 1 ? 0 : column + i] * left;
        }
        store_eight<Output>(y, n, row, column, values);
    }
};

// y = sum, rounded.
template <class Output>
struct RoundEpilogue {
    typename Output::Stored* y;
    uint32_t n;
    WOOTZ_FN void operator()(uint32_t row, uint32_t column, const float (&values)[8]) const {
        store_eight<Output>(y, n, row, column, values);
    }
};

// scale_a[blocks, m rounded up to a multiple of 4] of 1 x 128 elements, scale_b[ceil(n / 128), blocks] of 128
// x 128. Elements are bytes.
struct BlockScales {
    static constexpr int period = 128;
    const float* scale_a;
    const float* scale_b;
    uint32_t m, n, blocks;

    WOOTZ_FN float left(uint32_t row, uint32_t block) const {
        return scale_a[static_cast<uint64_t>(block) * ((m + 3) / 4 * 4) + (row < m ? row : m - 1)];
    }
    WOOTZ_FN float right(uint32_t column, uint32_t block) const {
        return scale_b[static_cast<uint64_t>((column < n ? column : n - 1) / 128) * blocks + block];
    }
};
