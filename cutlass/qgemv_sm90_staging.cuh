// Where x comes from and where y goes, in the product with few rows of x: a warp's columns of x into shared
// memory, and the sums of all warps out of it.
#pragma once

#include <stdint.h>

#include "qgemv_sm90_plan.cuh"

namespace gemv {

// The sum of eight numbers.
template <class Type>
WOOTZ_FN float sum_of(const uint4& v) {
    const float x = Type::low(v.x) + Type::high(v.x), y = Type::low(v.y) + Type::high(v.y);
    const float z = Type::low(v.z) + Type::high(v.z), w = Type::low(v.w) + Type::high(v.w);
    return (x + y) + (z + w);
}

// Puts 8 numbers, the `at`th of a row, where `Lane` looks for them if columns of the product are parts of the
// row: of 32 numbers, lane t of a row's four has 2 t, 2 t + 1, and those 8, 16 and 24 after them. All lanes
// come here, at successive places; each begins with another word, so that no two meet in a bank.
WOOTZ_FN void put_apart(uint8_t* row, uint32_t at, const uint4& v, int lane) {
    const int turn = (lane + lane / 8) % 4;
    const bool odd = turn % 2, far = turn / 2;
    const uint32_t once[4] = {odd ? v.y : v.x, odd ? v.z : v.y, odd ? v.w : v.z, odd ? v.x : v.w};
    uint32_t* to = reinterpret_cast<uint32_t*>(row + at / 4 * 64) + at % 4;
#pragma unroll
    for (int i = 0; i < 4; i++) to[(i + turn) % 4 * 4] = far ? once[(i + 2) % 4] : once[i];
}

// The larger of magnitudes and of those of numbers: each half-word by itself.
WOOTZ_FN uint32_t largest(uint32_t most, const uint4& v) {
    most = max_pair(most, max_pair(v.x & 0x7fff7fff, v.y & 0x7fff7fff));
    return max_pair(most, max_pair(v.z & 0x7fff7fff, v.w & 0x7fff7fff));
}

// The power of two that numbers as large as the warp's `most` may be multiplied by. Small numbers become no
// larger than what decoders lack, half of it where scales are doubled.
WOOTZ_FN int lift_of(uint32_t most) {
    const int room = 253 - static_cast<int>(warp_max(max(most >> 16, most & 0xffff)) >> 7);
    return room < 0 ? 0 : room < 125 ? room : 125;
}

template <class Type>
WOOTZ_FN uint4 lifted(const uint4& v, int power) {
    const uint32_t factor = (static_cast<uint32_t>(127 + power) << 7) * 0x10001u;
    return make_uint4(Type::mul2(v.x, factor), Type::mul2(v.y, factor), Type::mul2(v.z, factor),
                      Type::mul2(v.w, factor));
}

// Puts this warp's columns of x into shared memory, zero past k; rows are `pitch` elements apart. totals: of
// x over each run, if they are wanted. -> the power of two that x was multiplied by.
template <class Tile>
WOOTZ_FN int stage(const Arguments& with, const Share<Tile>& share, uint16_t* staged, uint32_t pitch,
                   float* totals, int lane) {
    using Type = typename Tile::Type;
    constexpr uint32_t each = Tile::Weight::unit_k / 8;  // 16 bytes of a unit
    // What a lane has in registers, for one latency, and one pass where that is all.
    constexpr int rows = Tile::tokens, columns = Tile::tokens == 1 ? 8 : 2;
    const uint32_t all = share.count * each;
    const bool whole = all <= 32 * columns;
    const auto column = [&](uint32_t i) { return (share.begin * each + i) * 8; };
    const auto put = [&](int row, uint32_t at, const uint4& v) {
        if constexpr (Tile::spread) {
            put_apart(reinterpret_cast<uint8_t*>(staged), at / 8, v, lane);
        } else {
            *reinterpret_cast<uint4*>(staged + row * pitch + at) = v;
        }
    };
    uint32_t most = 0;
    int power = 0;
#pragma unroll 1
    for (uint32_t first = 0; first < all; first += 32 * columns) {
        uint4 v[columns][rows];
#pragma unroll
        for (int c = 0; c < columns; c++) {
            if (first + 32 * c >= all) continue;
            const uint32_t i = first + 32 * c + lane, at = column(i);
#pragma unroll
            for (int r = 0; r < rows; r++) {
                const bool there = i < all && at < with.k && static_cast<uint32_t>(r) < with.m;
                v[c][r] =
                    there ? load_16(with.x + static_cast<uint64_t>(r) * with.k + at) : make_uint4(0, 0, 0, 0);
            }
        }
        if constexpr (Tile::lift) {
#pragma unroll
            for (int c = 0; c < columns; c++)
                for (int r = 0; r < rows; r++)
                    if (first + 32 * c < all) most = largest(most, v[c][r]);
            if (whole) power = lift_of(most);
        }
#pragma unroll
        for (int c = 0; c < columns; c++) {
            if (first + 32 * c >= all) continue;
            const uint32_t i = first + 32 * c + lane, at = column(i);
#pragma unroll
            for (int r = 0; r < rows; r++) {
                if (Tile::lift) v[c][r] = lifted<Type>(v[c][r], power);
                if (i < all && static_cast<uint32_t>(r) < with.m) put(r, at, v[c][r]);
            }
            if constexpr (Tile::shift) {  // the lanes of a run are neighbours
                constexpr int lanes = Tile::Weight::run / 8;
                float total = sum_of<Type>(v[c][0]);
#pragma unroll
                for (int apart = 1; apart < lanes; apart *= 2)
                    total += __shfl_xor_sync(0xffffffff, total, apart);
                if (i < all && lane % lanes == 0) totals[at / Tile::Weight::run] = total;
            }
        }
    }
    if (!Tile::lift || whole) return power;
    power = lift_of(most);
    __syncwarp();
#pragma unroll 1
    for (uint32_t i = lane; i < all; i += 32) {
#pragma unroll 4
        for (uint32_t row = 0; row < with.m; row++) {
            uint4* place = reinterpret_cast<uint4*>(staged + row * pitch + column(i));
            *place = lifted<Type>(*place, power);
        }
    }
    return power;
}

// What the sums of a tile are multiplied by: two numbers, each in range, where their product may not be.
struct Factors {
    float first, second;
};

// 2^(exponent - lifted), and the level that is one per tensor, if that waits for the sums.
template <class Tile>
WOOTZ_FN Factors factors(int lifted, const float* tensor) {
    if constexpr (Tile::fold) return {1, 1};
    int power = Tile::Weight::exponent - lifted - Tile::doubled;
    uint32_t number = 127u << 23;
    if constexpr (Tile::rest) {
        float level = *tensor;
        if (fabsf(level) < power_of_2(-126)) {
            level *= power_of_2(64);
            power -= 64;
        }
        number = fragment::as_bits(level);
        const int exponent = number >> 23 & 255;
        if (exponent != 0 && exponent != 255) {
            power += exponent - 127;
            number = (number & 0x807fffff) | 127u << 23;
        }
        power = power < -252 ? -252 : power;  // sums are less than 2^60
    }
    const auto normal = [](int of) { return fragment::as_float(static_cast<uint32_t>(127 + of) << 23); };
    const int half = Tile::rest ? power / 2 : 0;
    return {fragment::as_float(number) * normal(power - half), normal(half)};
}

// Leaves a warp's sums of one tile in shared memory.
template <class Tile>
WOOTZ_FN void leave(float* to, float (&sums)[4], const Factors& factors, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int i = 0; i < 4; i++) {
        sums[i] *= factors.first;
        if constexpr (Tile::rest) sums[i] *= factors.second;
    }
    float low = sums[0], high = sums[2];
    if constexpr (Tile::tokens == 1) {
        if constexpr (Tile::spread) {
            low += __shfl_xor_sync(0xffffffff, low, 1);
            high += __shfl_xor_sync(0xffffffff, high, 1);
            low += __shfl_xor_sync(0xffffffff, low, 2);
            high += __shfl_xor_sync(0xffffffff, high, 2);
        }
        if (t == 0) {
            to[g] = low;
            to[g + 8] = high;
        }
    } else {
        to[g * 8 + 2 * t] = low;
        to[g * 8 + 2 * t + 1] = sums[1];
        to[(g + 8) * 8 + 2 * t] = high;
        to[(g + 8) * 8 + 2 * t + 1] = sums[3];
    }
}

// Adds the sums of all warps for `count` of the block's tiles, from tile `first` on.
template <class Tile, class With>
WOOTZ_FN void store(const With& with, const float* sums, uint32_t first, uint32_t count) {
    for (uint32_t i = threadIdx.x; i < count * Tile::sums; i += Tile::threads) {
        const uint32_t tile = i / Tile::sums, place = i % Tile::sums;
        const uint32_t row = (first + tile * gridDim.x) * 16 + place / Tile::tokens;
        const uint32_t token = place % Tile::tokens;
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < Tile::warps; warp++)
            sum += sums[(tile * Tile::warps + warp) * Tile::sums + place];
        if (row < with.n && token < with.m)
            with.y[static_cast<uint64_t>(token) * with.n + row] =
                static_cast<uint16_t>(Tile::Type::round(sum, 0.0f));
    }
}

}  // namespace gemv
