#include "fast_plan.hpp"

#include <algorithm>

namespace py = pybind11;

namespace wootz {
namespace {

constexpr std::uintptr_t kArrayAlignment = 16;

bool same_name(PyObject* a, PyObject* b) { return a == b || PyUnicode_Compare(a, b) == 0; }

bool same_shape(const FastArray& a, const FastArray& b) {
    return a.rank == b.rank && std::equal(a.shape.begin(), a.shape.begin() + a.rank, b.shape.begin());
}

// Whether an output may lie where an operand does.
bool apart(const FastArray& out, const FastArray& array, bool alias) {
    const auto end = [](const FastArray& each) {
        return each.address + static_cast<std::uintptr_t>(each.bytes());
    };
    if (out.address >= end(array) || array.address >= end(out)) return true;
    return alias && out.address == array.address && out.bytes() == array.bytes();
}

// Whether an attribute of a tensor is this object, or (`equal`) equals it.
bool attribute_is(PyObject* tensor, PyObject* name, const py::object& wanted, bool equal) {
    PyObject* found = PyObject_GetAttr(tensor, name);
    const bool same = found == wanted.ptr() || (equal && found != nullptr &&
                                                PyObject_RichCompareBool(found, wanted.ptr(), Py_EQ) == 1);
    Py_XDECREF(found);
    PyErr_Clear();
    return same;
}

}  // namespace

bool Wanted::takes(const FastArray& array) const {
    const bool bytes = bytes_pass && array.dtype->kind == 'u' && array.dtype->bits == 8;
    if ((array.dtype != dtype && !bytes) || array.size != size) return false;
    if (array.address % kArrayAlignment != 0 && size != 0) return false;
    return rank < 0 ||
           (array.rank == rank && std::equal(shape.begin(), shape.begin() + rank, array.shape.begin()));
}

bool FastPlan::place(PyObject* const* args, std::size_t count, PyObject* names, Given& given) const {
    static PyObject* const out_name = interned("out");
    static PyObject* const stream_name = interned("stream");
    if (count > positions.size()) return false;
    for (std::size_t i = 0; i < count; ++i) {
        if (args[i] == Py_None) continue;
        if (positions[i] < 0) return false;
        given.operands[static_cast<std::size_t>(positions[i])] = args[i];
    }
    const Py_ssize_t named = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
    for (Py_ssize_t i = 0; i < named; ++i) {
        PyObject* name = PyTuple_GET_ITEM(names, i);
        PyObject* value = args[count + static_cast<std::size_t>(i)];
        PyObject** target = nullptr;
        if (same_name(name, out_name)) target = &given.out;
        if (same_name(name, stream_name)) target = &given.stream;
        for (std::size_t slot = 0; slot < slots.size() && target == nullptr; ++slot) {
            if (same_name(name, slots[slot].name.ptr())) target = &given.operands[slot];
        }
        if (target == nullptr || *target != nullptr) return false;
        if (value != Py_None) *target = value;
    }
    return true;
}

bool FastPlan::read_operands(const Given& given, Reading& reading) const {
    for (std::size_t i = 0; i < slots.size(); ++i) {
        if (given.operands[i] == nullptr || !read_slot(slots[i], given.operands[i], false, reading))
            return false;
    }
    return true;
}

bool FastPlan::read_output(PyObject* value, Reading& reading) const {
    return read_slot(out, value, true, reading);
}

bool FastPlan::read_slot(const Slot& slot, PyObject* value, bool writes, Reading& reading) const {
    static PyObject* const fields_name = interned("fields");
    static PyObject* const format_name = interned("format");
    static PyObject* const shape_name = interned("shape");
    if (!slot.type) return read_part(slot.parts.front(), value, writes, reading);
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) != slot.type.ptr() ||
        !attribute_is(value, format_name, slot.format, false) ||
        !attribute_is(value, shape_name, slot.shape, true))
        return false;
    PyObject* fields = PyObject_GetAttr(value, fields_name);
    bool good = fields != nullptr;
    for (auto part = slot.parts.begin(); good && part != slot.parts.end(); ++part) {
        PyObject* array = PyObject_GetItem(fields, part->field.ptr());
        // somebody else has to hold it until the launch: fields that are made when asked for are not read
        // here
        good = array != nullptr && Py_REFCNT(array) > 1 && read_part(*part, array, writes, reading);
        Py_XDECREF(array);
    }
    Py_XDECREF(fields);
    PyErr_Clear();
    return good;
}

bool FastPlan::read_part(const Part& part, PyObject* array, bool writes, Reading& reading) const {
    if (part.same >= 0) return array == reading.seen[static_cast<std::size_t>(part.same)];
    const FastArray& first = reading.arrays.front();
    FastArray& read = reading.arrays[reading.count];
    if (!read_fast(array, writes, read) || !part.wanted.takes(read)) return false;
    if (read.on_gpu != on_gpu || read.device != device) return false;
    if (on_gpu && read.api != first.api) return false;  // two libraries, two streams
    if (part.wanted.rank < 0 && !same_shape(read, first)) return false;
    if (writes && read.readonly) return false;
    for (std::size_t i = 0; writes && i < reading.count; ++i) {
        if (!apart(read, reading.arrays[i], reading.alias[i])) return false;
    }
    reading.alias[reading.count++] = part.alias;
    reading.addresses[part.array] = read.address;
    reading.seen[part.array] = array;
    return true;
}

bool FastPlan::find_stream(const Reading& reading, std::uintptr_t& stream) const {
    const dlpack::ExchangeApi* api = reading.count != 0 ? reading.arrays.front().api : nullptr;
    return api != nullptr && current_stream(*api, device, stream);
}

}  // namespace wootz
