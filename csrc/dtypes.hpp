// Element types, as arrays of other libraries name them. Called with Python's lock.
#pragma once

#include <pybind11/numpy.h>

#include <string>

#include "dlpack.hpp"

namespace wootz {

// By its kind, as NumPy writes it (bfloat: 'E', 8-bit floats: '4' and '5' by their exponent bits), and its
// size in bits. There is one object of each.
struct Dtype {
    char kind;
    unsigned bits;
    const char* name;
};

// Each returns null for a type that no kernel takes.
const Dtype* find_dtype(char kind, unsigned bits);
const Dtype* find_dtype(const dlpack::DataType& type);
const Dtype* find_dtype(const pybind11::dtype& dtype);    // of whatever byte order
const Dtype* find_name(const std::string& name);          // "bf16"
const Dtype* find_spelling(const std::string& spelling);  // "bfloat16", of those that NumPy lacks

std::string spell_dtype(const dlpack::DataType& type);  // for messages
// Whether it is the name, in any library, of a type that no kernel takes.
bool untaken_spelling(const std::string& spelling);

}  // namespace wootz
