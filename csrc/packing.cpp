#include "packing.hpp"

#include <string>

#include "errors.hpp"

namespace py = pybind11;

namespace wootz {

Signature read_signature(const py::sequence& parameters) {
    Signature signature;
    for (const py::handle item : parameters) {
        const auto pair = py::cast<py::tuple>(item);
        signature.push_back({py::cast<std::string>(pair[0]), parse_type(py::cast<std::string>(pair[1]))});
    }
    if (signature.size() > kMaxArguments) {
        throw Error(ErrorKind::artifact, "the index has an entry of " + std::to_string(signature.size()) +
                                             " arguments; the loader takes " + std::to_string(kMaxArguments));
    }
    return signature;
}

void pack(Arguments& arguments, const Signature& signature, const py::tuple& values) {
    if (values.size() != signature.size()) {
        throw Error(ErrorKind::argument, "got " + std::to_string(values.size()) + " values for " +
                                             std::to_string(signature.size()) + " arguments");
    }
    for (std::size_t i = 0; i < signature.size(); ++i) {
        PyObject* value = PyTuple_GET_ITEM(values.ptr(), static_cast<py::ssize_t>(i));
        if (PyFloat_Check(value) != 0) {
            arguments.set(i, PyFloat_AS_DOUBLE(value));
            continue;
        }
        const std::uint64_t number = PyLong_Check(value) != 0 ? PyLong_AsUnsignedLongLong(value) : 0;
        if (PyLong_Check(value) == 0 || PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            throw Error(ErrorKind::argument, signature[i].name + " is " +
                                                 py::cast<std::string>(py::repr(value)) +
                                                 "; want a number from 0 to 2^64 - 1");
        }
        arguments.set(i, number);
    }
}

Dim3 read_extents(const py::tuple& extents, const char* what) {
    Dim3 result{};
    if (extents.size() != 3)
        throw Error(ErrorKind::argument, std::string("a ") + what + " has three extents");
    for (std::size_t i = 0; i < 3; ++i) {
        const long long value =
            PyLong_AsLongLong(PyTuple_GET_ITEM(extents.ptr(), static_cast<py::ssize_t>(i)));
        if (PyErr_Occurred() != nullptr || value < 0) {
            PyErr_Clear();
            throw Error(ErrorKind::argument, std::string("a ") + what + " has extents from 0 to 2^63 - 1");
        }
        result[i] = static_cast<std::uint64_t>(value);
    }
    return result;
}

}  // namespace wootz
