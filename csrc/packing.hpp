// Python's values as the arguments of a launch. Called with Python's lock.
#pragma once

#include <pybind11/pybind11.h>

#include "launch.hpp"

namespace wootz {

// (name, type) of each, or (name, "map", (dtype, box, swizzle, promotion)), as make_map_spec takes them.
// maps: whether there may be any. Throws Error(artifact) for an unknown type or too many of them.
Signature read_signature(const pybind11::sequence& parameters, bool maps = false);

// One number for each argument; for a map a tuple of the address, extents and strides. Throws Error(argument)
// when the count, or a value, does not fit the signature.
void pack(Arguments& arguments, const Signature& signature, const pybind11::tuple& values);

// Three numbers, not negative; `what` is for messages.
Dim3 read_extents(const pybind11::tuple& extents, const char* what);

}  // namespace wootz
