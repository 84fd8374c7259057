// Metal: built on macOS only.
#pragma once

#include <pybind11/pybind11.h>

namespace wootz {

void bind_metal(pybind11::module_& module);

}  // namespace wootz
