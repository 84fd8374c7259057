#include "matrix.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "rt.h"

namespace lanes {
namespace {

struct Operands {
    uint32_t a[4];
    uint32_t b[2];
};

// The value of a float of few bits. specials: whether the highest exponent means infinities and NaNs;
// without, only all ones of exponent and mantissa is a NaN.
float value_of(unsigned bits, int exponent_bits, int mantissa_bits, bool specials) {
    const unsigned mantissa = bits & ((1u << mantissa_bits) - 1), top = (1u << exponent_bits) - 1;
    const unsigned exponent = bits >> mantissa_bits & top;
    const float sign = bits >> (mantissa_bits + exponent_bits) & 1 ? -1.0f : 1.0f;
    const int bias = static_cast<int>(top >> 1);
    if (exponent == top && (specials ? mantissa != 0 : mantissa == (1u << mantissa_bits) - 1)) {
        return std::numeric_limits<float>::quiet_NaN();
    }
    if (exponent == top && specials) {
        return sign * std::numeric_limits<float>::infinity();
    }
    const unsigned whole = exponent ? mantissa | 1u << mantissa_bits : mantissa;
    const int power = static_cast<int>(exponent ? exponent : 1) - bias - mantissa_bits;
    return sign * std::ldexp(static_cast<float>(whole), power);
}

std::vector<float> table(int exponent_bits, int mantissa_bits, bool specials) {
    std::vector<float> values(size_t{2} << (exponent_bits + mantissa_bits));
    for (unsigned i = 0; i < values.size(); ++i) {
        values[i] = value_of(i, exponent_bits, mantissa_bits, specials);
    }
    return values;
}

const std::vector<float> kHalf = table(5, 10, true), kE4m3 = table(4, 3, false), kE5m2 = table(5, 2, true);

float element(int kind, uint32_t word, unsigned i) {
    switch (kind) {
        case LANES_F16:
            return kHalf[word >> (16 * i) & 0xffff];
        case LANES_BF16: {
            const uint32_t wide = (word >> (16 * i) & 0xffff) << 16;
            float value;
            memcpy(&value, &wide, sizeof value);
            return value;
        }
        case LANES_E4M3:
            return kE4m3[word >> (8 * i) & 0xff];
        case LANES_E5M2:
            return kE5m2[word >> (8 * i) & 0xff];
        default:
            return static_cast<int8_t>(word >> (8 * i));
    }
}

// Row `row` of A, or column `row` of B, as `count` numbers; E elements lie in a register.
template <class Value, unsigned E>
void gather(int kind, const Operands* const (&lanes)[LANES_WIDTH], bool left, unsigned row, Value* values) {
    for (unsigned k = 0; k < 8 * E; ++k) {
        const Operands& of = *lanes[row % 8 * 4 + k % (4 * E) / E];
        const uint32_t word = left ? of.a[row / 8 + 2 * (k / (4 * E))] : of.b[k / (4 * E)];
        values[k] = static_cast<Value>(element(kind, word, k % E));
    }
}

template <class Value, unsigned E>
void multiply(int kind, const void* slots, unsigned lane, const void* c, void* d) {
    const Operands* lanes[LANES_WIDTH];
    for (unsigned i = 0; i < LANES_WIDTH; ++i) {
        lanes[i] = reinterpret_cast<const Operands*>(static_cast<const char*>(slots) + LANES_SLOT_BYTES * i);
    }
    const unsigned g = lane / 4, t = lane % 4;
    Value rows[2][8 * E], columns[2][8 * E], sums[4];
    for (unsigned i = 0; i < 2; ++i) {
        gather<Value, E>(kind, lanes, true, g + 8 * i, rows[i]);
        gather<Value, E>(kind, lanes, false, 2 * t + i, columns[i]);
    }
    memcpy(sums, c, sizeof sums);
    for (unsigned i = 0; i < 4; ++i) {
        for (unsigned k = 0; k < 8 * E; ++k) {
            sums[i] += rows[i / 2][k] * columns[i % 2][k];
        }
    }
    memcpy(d, sums, sizeof sums);
}

}  // namespace
}  // namespace lanes

extern "C" void lanes_matrix_multiply(int kind, const void* slots, unsigned lane, const void* c, void* d) {
    if (kind == LANES_S8) {
        lanes::multiply<int, 4>(kind, slots, lane, c, d);
    } else if (kind == LANES_F16 || kind == LANES_BF16) {
        lanes::multiply<float, 2>(kind, slots, lane, c, d);
    } else {
        lanes::multiply<float, 4>(kind, slots, lane, c, d);
    }
}
