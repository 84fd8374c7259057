#include "packing.hpp"

#include <pybind11/stl.h>

#include <algorithm>
#include <string>
#include <vector>

#include "errors.hpp"

namespace py = pybind11;

namespace wootz {

namespace {

MapSpec read_map_spec(const py::tuple& parameter) {
    if (parameter.size() != 3)
        throw Error(ErrorKind::artifact, "the index has an argument of type map that it does not describe");
    const auto spec = py::cast<py::tuple>(parameter[2]);
    return make_map_spec(py::cast<std::string>(spec[0]), py::cast<std::vector<std::uint32_t>>(spec[1]),
                         py::cast<int>(spec[2]), py::cast<int>(spec[3]));
}

std::uint64_t read_number(PyObject* value, const std::string& name) {
    const std::uint64_t number = PyLong_Check(value) != 0 ? PyLong_AsUnsignedLongLong(value) : 0;
    if (PyLong_Check(value) != 0 && PyErr_Occurred() == nullptr) return number;
    PyErr_Clear();
    throw Error(ErrorKind::argument, name + " is " + py::cast<std::string>(py::repr(value)) +
                                         "; want a number from 0 to 2^64 - 1");
}

// Extents innermost first, then the strides of the others.
MapRequest read_map(const py::handle& value, const Parameter& parameter) {
    const std::uint32_t rank = parameter.map.rank;
    const auto numbers = py::cast<py::tuple>(value);
    if (numbers.size() != 2 * rank - 1)
        throw Error(ErrorKind::argument,
                    parameter.name + " takes " + std::to_string(rank) + " extents and one stride fewer");
    const auto at = [&](std::uint32_t i) {
        return read_number(PyTuple_GET_ITEM(numbers.ptr(), static_cast<py::ssize_t>(i)), parameter.name);
    };
    MapRequest request{};
    for (std::uint32_t i = 0; i < rank; ++i) request.dims[i] = at(i);
    for (std::uint32_t i = 0; i + 1 < rank; ++i) request.strides[i] = at(rank + i);
    return request;
}

// ("array", number), ("map", number, numbers) or ("workspace",)
void read_source(Sources& sources, std::size_t index, const py::tuple& source) {
    const auto kind = py::cast<std::string>(source[0]);
    if (kind == "workspace") return sources.pattern.take_workspace(index);
    const auto array = py::cast<std::uint32_t>(source[1]);
    sources.reach = std::max<std::size_t>(sources.reach, array + std::size_t{1});
    if (kind == "array") return sources.pattern.take(index, array);
    sources.pattern.take_map(index, array, read_map(source[2], sources.pattern.signature()[index]));
}

}  // namespace

Signature read_signature(const py::sequence& parameters, bool maps) {
    Signature signature;
    std::size_t found = 0;
    for (const py::handle item : parameters) {
        const auto parameter = py::cast<py::tuple>(item);
        const ArgType type = parse_type(py::cast<std::string>(parameter[1]));
        signature.push_back({py::cast<std::string>(parameter[0]), type, {}});
        if (type != ArgType::map) continue;
        signature.back().map = read_map_spec(parameter);
        if (!maps || ++found > kMaxMaps)
            throw Error(ErrorKind::artifact,
                        "the index has an entry of " + std::string(maps ? "more than 8" : "") +
                            " tensor maps, which this device's loader does not take; rebuild the artifacts");
    }
    if (signature.size() > kMaxArguments) {
        throw Error(ErrorKind::artifact, "the index has an entry of " + std::to_string(signature.size()) +
                                             " arguments; the loader takes " + std::to_string(kMaxArguments));
    }
    return signature;
}

Sources read_sources(const Signature& signature, const py::tuple& values) {
    if (values.size() != signature.size()) {
        throw Error(ErrorKind::argument, "got " + std::to_string(values.size()) + " values for " +
                                             std::to_string(signature.size()) + " arguments");
    }
    Sources sources{Pattern(signature), 0};
    for (std::size_t i = 0; i < signature.size(); ++i) {
        PyObject* value = PyTuple_GET_ITEM(values.ptr(), static_cast<py::ssize_t>(i));
        if (PyTuple_Check(value) != 0) {
            read_source(sources, i, py::reinterpret_borrow<py::tuple>(value));
        } else if (PyFloat_Check(value) != 0) {
            sources.pattern.settle(i, PyFloat_AS_DOUBLE(value));
        } else {
            sources.pattern.settle(i, read_number(value, signature[i].name));
        }
    }
    return sources;
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
