// Arrays read in a fraction of a microsecond: NumPy's, and those whose type has DLPack's table of functions.
// Whatever is not quite usual is left to view_array, which has words for it. Called with Python's lock.
#pragma once

#include <Python.h>

#include <array>
#include <cstdint>

#include "dlpack.hpp"
#include "dtypes.hpp"

namespace wootz {

constexpr int kMaxFastRank = 8;

// The name of an attribute, for one that is looked up often. Kept for ever.
inline PyObject* interned(const char* text) { return PyUnicode_InternFromString(text); }

struct FastArray {
    std::uintptr_t address;
    const Dtype* dtype;
    bool on_gpu;
    std::int32_t device;  // its number
    bool readonly;
    int rank;
    std::array<std::int64_t, kMaxFastRank> shape;
    std::int64_t size;               // elements
    const dlpack::ExchangeApi* api;  // of its library; null: NumPy

    std::int64_t bytes() const { return size * (dtype->bits / 8); }
};

// False, with no Python error set: the array is not known here, is not dense, has more axes, or cannot be
// read as it is (it requires gradients, is conjugated or negated lazily, stands for other memory). writes:
// whether it is going to be written, which not every library's fast way tells.
bool read_fast(PyObject* array, bool writes, FastArray& out);

// The same of a torch tensor, and of nothing else.
bool read_torch(PyObject* array, FastArray& out);

// The table of functions of an array's type; null: it has none that can be used.
const dlpack::ExchangeApi* exchange_api(PyObject* array);

// The stream that a library issues its work to now. False, with no Python error set: it does not say.
bool current_stream(const dlpack::ExchangeApi& api, std::int32_t device, std::uintptr_t& stream);

}  // namespace wootz
