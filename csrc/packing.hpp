// Python's values as the arguments of launches. Called with Python's lock.
#pragma once

#include <pybind11/pybind11.h>

#include "launch.hpp"

namespace wootz {

// (name, type) of each, or (name, "map", (dtype, box, swizzle, promotion)), as make_map_spec takes them.
// maps: whether there may be any. Throws Error(artifact) for an unknown type or too many of them.
Signature read_signature(const pybind11::sequence& parameters, bool maps = false);

// reach: one more than the highest number of an array in the pattern.
struct Sources {
    Pattern pattern;
    std::size_t reach;
};

// For each argument a number, or where it will come from: ("array", number), ("workspace",), or ("map",
// number of an array, (extents, strides)). Throws Error(argument) when the count, or a value, does not fit
// the signature.
Sources read_sources(const Signature& signature, const pybind11::tuple& values);

// Three numbers, not negative; `what` is for messages.
Dim3 read_extents(const pybind11::tuple& extents, const char* what);

}  // namespace wootz
