// Arrays of other libraries, seen without copying: NumPy, DLPack and __cuda_array_interface__. Called with
// Python's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

namespace wootz {

struct View {
    std::uintptr_t address = 0;
    pybind11::tuple shape;
    pybind11::tuple strides;          // in elements
    const char* dtype = "";           // f16 bf16 f32 f64 e4m3 e5m2 i8..i64 u8..u64 bool
    const char* device_type = "cpu";  // cpu cuda metal
    std::optional<int> device_id;     // none: unknown, for an empty array that has no address
    bool readonly = false;
    bool contiguous = true;  // row-major and dense
    std::int64_t size = 0, bytes = 0;
    std::optional<std::uintptr_t> stream;  // what the producer says that its pending work is on
    pybind11::object owner;                // keeps the memory alive

    std::string device() const;
};

// `name` is the argument's, for messages. `stream` goes to __dlpack__ of arrays on a GPU: -1 asks for no
// synchronisation, 1 is the default stream, anything else a handle. Throws Error(argument), Error(dtype),
// Error(device).
View view_array(const pybind11::object& array, const std::string& name, std::int64_t stream);

// A module that was imported before; null: it was not. Imports nothing: it works while the interpreter ends.
pybind11::object loaded_module(const char* name);

}  // namespace wootz
