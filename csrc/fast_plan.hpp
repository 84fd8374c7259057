// What a plan wants of a call's arguments, and the reading of those that are just so.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "arrays_fast.hpp"
#include "launcher.hpp"

namespace wootz {

constexpr std::size_t kMaxSlots = 16, kMaxArrays = 32;

// An array as a call gives it. bytes_pass: bytes stand for a float of 8 bits. rank -1: of any, with that many
// elements.
struct Wanted {
    const Dtype* dtype;
    bool bytes_pass;
    int rank;
    std::array<std::int64_t, kMaxFastRank> shape;
    std::int64_t size;

    bool takes(const FastArray& array) const;
};

// One array of an operand: the operand itself, or a tensor's field. array: its number among the addresses.
// same: the number of the array that it has to be; -1: any of its own. alias: the output may be its memory.
struct Part {
    pybind11::object field;  // null: the operand itself
    std::uint32_t array;
    std::int32_t same;
    Wanted wanted;
    bool alias;
};

// An operand, or the output. type: of a tensor, which then has this very format and these extents; null: an
// array.
struct Slot {
    pybind11::object name, type, format, shape;
    std::vector<Part> parts;
};

// Borrowed from the caller of the call.
struct Given {
    std::array<PyObject*, kMaxSlots> operands{};
    PyObject* out = nullptr;
    PyObject* stream = nullptr;
};

// One call while it is read. seen: the arrays' objects, by number; borrowed.
struct Reading {
    std::array<FastArray, kMaxArrays> arrays;  // as many as `count`
    std::array<bool, kMaxArrays> alias;        // of each: the output may be its memory
    std::size_t count = 0;
    std::array<std::uintptr_t, kMaxArrays> addresses{};
    std::array<PyObject*, kMaxArrays> seen{};
};

class FastPlan {
  public:
    std::shared_ptr<Launcher> launcher;  // null: there is nothing to compute
    bool usable = false;                 // false: it has more operands than are read here, or writes to some
    bool on_gpu = false;
    std::int32_t device = 0;
    std::size_t arrays = 0;
    std::uint32_t like = 0;      // the number of the array that a new output is made like
    std::vector<Slot> slots;     // in the order of the kernel's operands
    std::vector<int> positions;  // the slot of each place of a call without names; -1: of none
    Slot out;

    // Each is false, with no Python error set, where a call is not just so.
    bool place(PyObject* const* args, std::size_t count, PyObject* names, Given& given) const;
    bool read_operands(const Given& given, Reading& reading) const;
    bool read_output(PyObject* out, Reading& reading) const;
    // The stream of the arrays' library.
    bool find_stream(const Reading& reading, std::uintptr_t& stream) const;

  private:
    bool read_slot(const Slot& slot, PyObject* value, bool writes, Reading& reading) const;
    bool read_part(const Part& part, PyObject* array, bool writes, Reading& reading) const;
};

}  // namespace wootz
