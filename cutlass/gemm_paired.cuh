// y[m, n] = activation(x w^T) * (x v^T) on the main loop of gemm_mma.cuh. To the loop, w and v are one
// matrix: eight rows of w, the same eight of v, and so on; the rows of either past the end repeat its last
// one. What leaves it is sixteen columns of which the eight of w meet the eight of v.
#pragma once

#include <stdint.h>

#include "activation.cuh"
#include "gemm_mma.cuh"
#include "gemm_values.cuh"

// w and v of n rows, as the loop's second operand.
struct GemmBoth {
    const uint8_t* w;
    const uint8_t* v;
    uint32_t n;

    WOOTZ_FN const uint8_t* operand() const { return reinterpret_cast<const uint8_t*>(this); }
    WOOTZ_FN uint32_t rows() const { return (n + 7) / 8 * 16; }
};

// A tile whose rows_n are those of w and of v together.
template <class Single>
struct GemmPaired : Single {
    static_assert(Single::rows_m != Single::rows_n, "the operands of GemmCopy are told apart by their rows");
};

template <class Single, int Rows>
struct GemmCopy<GemmPaired<Single>, Rows> : GemmCopy<Single, Rows> {
    using Plain = GemmCopy<Single, Rows>;
    static constexpr bool both = Rows == Single::rows_n;

    WOOTZ_FN GemmCopy(const uint8_t* matrix, uint32_t first, uint32_t rows, uint32_t pitch)
        : Plain(both ? to_both(matrix)->w : matrix, first, both ? 1 : rows, pitch) {
        if constexpr (both) {
            const GemmBoth* of = to_both(matrix);
            const uint64_t within = threadIdx.x % Single::pieces * 16;
#pragma unroll
            for (int i = 0; i < Plain::count; ++i) {
                const uint32_t at =
                    first + threadIdx.x / Single::pieces + i * (Single::threads / Single::pieces);
                const uint32_t row = at / 16 * 8 + at % 8;
                const uint64_t start = static_cast<uint64_t>(row < of->n ? row : of->n - 1) * pitch;
                this->from[i] = (at / 8 % 2 ? of->v : of->w) + start + within;
            }
        }
    }

    static WOOTZ_FN const GemmBoth* to_both(const uint8_t* operand) {
        return reinterpret_cast<const GemmBoth*>(operand);
    }
};

template <class Single, class Number>
struct GemmOutput<GemmPaired<Single>, Number> : GemmOutput<Single, Number> {
    using Plain = GemmOutput<Single, Number>;

    // n: of w and v together.
    template <class Epilogue>
    WOOTZ_FN void take(int i, uint32_t m, uint32_t n, const Epilogue& epilogue) const {
        constexpr int pairs = Plain::chunks / 2;
#pragma unroll 1
        for (uint32_t at = threadIdx.x; at < Plain::rows * pairs; at += Single::threads) {
            const uint32_t from = at / pairs, column = this->column0 / 2 + at % pairs * 8;
            const uint32_t row = this->row0 + from / 16 * (16 * Single::tiles_m) + i * 16 + from % 16;
            if (row >= m || column >= n / 2) continue;
            Number first[8], second[8];
            const Number* place = this->place + from * Plain::pitch + at % pairs * 16;
#pragma unroll
            for (int e = 0; e < 8; ++e) {
                first[e] = place[e];
                second[e] = place[8 + e];
            }
            epilogue(row, column, first, second);
        }
    }
};

// y = activation(first) * second.
template <class Output>
struct PairedEpilogue {
    typename Output::Stored* y;
    uint32_t n;
    uint32_t activation;

    WOOTZ_FN void operator()(uint32_t row, uint32_t column, float (&first)[8],
                             const float (&second)[8]) const {
        activate<8>(first, activation);
#pragma unroll
        for (int i = 0; i < 8; ++i) first[i] *= second[i];
        store_eight<Output>(y, n, row, column, first);
    }
};

// The same of sums that are scaled first, by one scale for each row of x, of w and of v.
template <class Output>
struct PairedOuterEpilogue {
    const float* scale_x;
    const float* scale_w;
    const float* scale_v;
    PairedEpilogue<Output> rest;

    WOOTZ_FN void operator()(uint32_t row, uint32_t column, float (&first)[8], float (&second)[8]) const {
        const float left = scale_x[row];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            if (column + i >= rest.n) continue;
            first[i] *= scale_w[column + i] * left;
            second[i] *= scale_v[column + i] * left;
        }
        rest(row, column, first, second);
    }
};
