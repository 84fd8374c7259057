// Element types: those that kernels take, and the names of all that DLPack and __cuda_array_interface__ have.
#pragma once

#include <pybind11/numpy.h>

#include <string>

#include "dlpack.hpp"

namespace wootz {

// There is one object of each.
struct Dtype {
    char kind;  // as NumPy writes it; bfloat: 'E', 8-bit floats: '4' and '5' by their exponent bits
    unsigned bits;
    const char* name;
};

// Null for a type that no kernel takes.
const Dtype* find_dtype(char kind, unsigned bits);
const Dtype* find_dtype(const dlpack::DataType& type);
const Dtype* find_dtype(const pybind11::dtype& dtype);  // of whatever byte order; with Python's lock
const Dtype* find_name(const std::string& name);        // ours: "bf16"

// By the name that it has in ml_dtypes and in torch; only of types that NumPy lacks. Null for any other.
const Dtype* find_spelling(const std::string& spelling);

// The element types of arrays; `name` is the argument's. Throw Error(dtype), with the type's name, for those
// that no kernel takes. `spelling` is ours: "f16".
const Dtype& dlpack_dtype(const dlpack::DataType& type, const std::string& name);
const Dtype& typestr_dtype(const std::string& typestr, const std::string& name);
const Dtype& named_dtype(const std::string& spelling, const std::string& name);

// Whether it is the name of integers of fewer than 8 bits, which some libraries export as bytes.
bool narrow_integer(const std::string& spelling);

// Whether the name begins with that of a type that is narrower than any of NumPy's floats, as
// "float4_e2m1fn".
bool narrow_float(const std::string& spelling);

[[noreturn]] void refuse_dtype(const std::string& name, const std::string& dtype);
void refuse_byte_order(const std::string& name, char order);

}  // namespace wootz
