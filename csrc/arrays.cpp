#include "arrays.hpp"

#include <pybind11/numpy.h>

#include <array>
#include <vector>

#include "dlpack.hpp"
#include "driver.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& name, const std::string& what) {
    throw Error(kind, name + " " + what);
}

// An element type by its kind, as NumPy writes it (bfloat: 'E', 8-bit floats: '4' and '5' by their exponent
// bits), and its size in bits.
struct Dtype {
    char kind;
    unsigned bits;
    const char* name;
};
constexpr std::array<Dtype, 15> kDtypes{{{'f', 16, "f16"},
                                         {'E', 16, "bf16"},
                                         {'f', 32, "f32"},
                                         {'f', 64, "f64"},
                                         {'i', 8, "i8"},
                                         {'i', 16, "i16"},
                                         {'i', 32, "i32"},
                                         {'i', 64, "i64"},
                                         {'u', 8, "u8"},
                                         {'u', 16, "u16"},
                                         {'u', 32, "u32"},
                                         {'u', 64, "u64"},
                                         {'b', 8, "bool"},
                                         {'4', 8, "e4m3"},
                                         {'5', 8, "e5m2"}}};

const Dtype* find_dtype(char kind, unsigned bits) {
    for (const Dtype& dtype : kDtypes) {
        if (dtype.kind == kind && dtype.bits == bits) return &dtype;
    }
    return nullptr;
}

// The types that have the same name in ml_dtypes and in torch, and in NumPy no code.
const Dtype* find_spelling(const std::string& spelling) {
    if (spelling == "bfloat16") return find_dtype('E', 16);
    if (spelling == "float8_e4m3fn") return find_dtype('4', 8);
    if (spelling == "float8_e5m2") return find_dtype('5', 8);
    return nullptr;
}

[[noreturn]] void refuse_dtype(const std::string& name, const std::string& dtype) {
    refuse(ErrorKind::dtype, name, "has elements of type " + dtype + ", which no kernel takes");
}

// Fills everything that follows from the shape and the strides.
void set_extents(View& view, const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides,
                 const Dtype& dtype, const std::string& name) {
    const std::size_t rank = shape.size();
    view.dtype = dtype.name;
    view.shape = py::tuple(rank);
    view.strides = py::tuple(rank);
    view.size = 1;
    bool overflow = false;
    for (std::size_t i = rank; i-- > 0;) {
        if (shape[i] < 0) refuse(ErrorKind::argument, name, "has a negative extent");
        if (shape[i] != 1 && strides[i] != view.size) view.contiguous = false;
        overflow = __builtin_mul_overflow(view.size, shape[i], &view.size) || overflow;
        view.shape[i] = shape[i];
        view.strides[i] = strides[i];
    }
    overflow =
        __builtin_mul_overflow(view.size, static_cast<std::int64_t>(dtype.bits / 8), &view.bytes) || overflow;
    if (overflow) refuse(ErrorKind::argument, name, "has more elements than a 64-bit number counts");
    if (view.size == 0) view.contiguous = true;
}

std::vector<std::int64_t> compact_strides(const std::vector<std::int64_t>& shape) {
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t i = shape.size(); i-- > 1;) {  // may wrap: set_extents refuses such shapes
        const std::uint64_t product =
            static_cast<std::uint64_t>(strides[i]) * static_cast<std::uint64_t>(shape[i]);
        strides[i - 1] = static_cast<std::int64_t>(product);
    }
    return strides;
}

void divide_strides(std::vector<std::int64_t>& strides, std::int64_t itemsize, const std::string& name) {
    for (std::int64_t& stride : strides) {
        if (stride % itemsize != 0)
            refuse(ErrorKind::argument, name, "has a stride that is no multiple of its element size");
        stride /= itemsize;
    }
}

void refuse_byte_order(const std::string& name, char order) {
    if (order == '>') {
        refuse(ErrorKind::dtype, name,
               "has big-endian elements, kernels take little-endian ones: use .astype(" + name +
                   ".dtype.newbyteorder('='))");
    }
}

// ---- NumPy

const Dtype& numpy_dtype(const py::dtype& dtype, const std::string& name) {
    refuse_byte_order(name, dtype.byteorder());
    const auto bits = static_cast<unsigned>(dtype.itemsize() * 8);
    if (const Dtype* known = find_dtype(dtype.kind(), bits)) return *known;
    const auto spelling = py::cast<std::string>(py::str(dtype.attr("name")));
    if (const Dtype* narrow = find_spelling(spelling))
        return *narrow;  // ml_dtypes; they have no code in the buffer protocol
    refuse_dtype(name, spelling);
}

View view_numpy(const py::array& array, const std::string& name) {
    View view;
    const Dtype& dtype = numpy_dtype(array.dtype(), name);
    std::vector<std::int64_t> shape(array.shape(), array.shape() + array.ndim());
    std::vector<std::int64_t> strides(array.strides(), array.strides() + array.ndim());
    divide_strides(strides, dtype.bits / 8, name);
    view.address = reinterpret_cast<std::uintptr_t>(array.data());
    view.device_id = 0;
    view.readonly = !array.writeable();
    view.owner = array;
    set_extents(view, shape, strides, dtype, name);
    return view;
}

// ---- DLPack

struct DlpackCode {
    const char* name;
    char kind;  // as in kDtypes; 0: not taken
};
// By DLDataTypeCode; the codes from 7 on are the 8-bit and narrower floats, of which two are taken.
constexpr std::uint8_t kDlpackE4m3 = 10, kDlpackE5m2 = 12;
constexpr std::array<DlpackCode, 7> kDlpackCodes{{{"int", 'i'},
                                                  {"uint", 'u'},
                                                  {"float", 'f'},
                                                  {"opaque", 0},
                                                  {"bfloat", 'E'},
                                                  {"complex", 0},
                                                  {"bool", 'b'}}};

const Dtype& dlpack_dtype(const dlpack::DataType& type, const std::string& name) {
    const bool listed = type.code < kDlpackCodes.size();
    const char narrow = type.code == kDlpackE4m3 ? '4' : type.code == kDlpackE5m2 ? '5' : '\0';
    const DlpackCode code = listed ? kDlpackCodes[type.code] : DlpackCode{"narrow float", narrow};
    const Dtype* known = type.lanes == 1 ? find_dtype(code.kind, type.bits) : nullptr;
    if (known != nullptr) return *known;
    std::string spelling = code.name + std::to_string(type.bits);
    if (!listed) spelling += " (DLPack code " + std::to_string(type.code) + ")";
    if (type.lanes != 1) spelling += " in vectors of " + std::to_string(type.lanes);
    refuse_dtype(name, spelling);
}

void set_dlpack_device(View& view, const dlpack::Device& device, const std::string& name) {
    switch (device.type) {
        case dlpack::kCpu:
        case dlpack::kCudaHost:
            view.device_type = "cpu";
            view.device_id = 0;
            return;
        case dlpack::kCuda:
        case dlpack::kCudaManaged:
            view.device_type = "cuda";
            view.device_id = device.id;
            return;
        case dlpack::kMetal:
            view.device_type = "metal";
            view.device_id = device.id;
            return;
        default:
            refuse(ErrorKind::device, name,
                   "is on a device that no kernel runs on (DLPack device type " +
                       std::to_string(device.type) + ")");
    }
}

View view_tensor(const dlpack::Tensor& tensor, bool readonly, const std::string& name) {
    View view;
    const Dtype& dtype = dlpack_dtype(tensor.dtype, name);
    set_dlpack_device(view, tensor.device, name);
    if (tensor.ndim < 0) refuse(ErrorKind::argument, name, "has a negative rank");
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    std::vector<std::int64_t> shape(tensor.shape, tensor.shape + rank);
    const std::vector<std::int64_t> strides =
        tensor.strides == nullptr ? compact_strides(shape)
                                  : std::vector<std::int64_t>(tensor.strides, tensor.strides + rank);
    view.address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
    view.readonly = readonly;
    set_extents(view, shape, strides, dtype, name);
    return view;
}

// Calls `function` and turns what it raises into an argument error; interrupts pass.
template <typename Call>
py::object ask(const std::string& name, const char* what, Call call) {
    try {
        return call();
    } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_Exception)) throw;
        refuse(ErrorKind::argument, name,
               std::string("does not give its memory away (") + what +
                   " failed): " + py::cast<std::string>(py::str(error.value())));
    }
}

py::object export_capsule(const py::object& array, const std::string& name, bool on_gpu,
                          std::int64_t stream) {
    py::dict arguments;
    if (on_gpu) arguments["stream"] = stream;
    const py::object method = array.attr("__dlpack__");
    try {
        py::dict versioned(**arguments);
        versioned["max_version"] = py::make_tuple(dlpack::kMajor, 0);
        return method(**versioned);
    } catch (py::error_already_set& error) {
        if (!error.matches(PyExc_TypeError)) throw;  // a TypeError is how older producers refuse max_version
    }
    return ask(name, "__dlpack__", [&] { return method(**arguments); });
}

// The 8-bit float that the elements are, by the array's own dtype; null for any other.
const Dtype* byte_float(const py::object& array) {
    const auto spelling = py::cast<std::string>(py::str(py::getattr(array, "dtype", py::none())));
    const Dtype* found = find_spelling(spelling.substr(spelling.rfind('.') + 1));
    return found != nullptr && found->bits == 8 ? found : nullptr;
}

// The same memory as bytes: torch exports no 8-bit floats in many of its versions.
py::object as_bytes(const py::object& array, const std::string& name) {
    return ask(name, "view(uint8)", [&] {
        const auto library = py::cast<std::string>(py::type::of(array).attr("__module__"));
        return py::object(array.attr("view")(py::module_::import(library.c_str()).attr("uint8")));
    });
}

View view_dlpack(const py::object& array, const std::string& name, std::int64_t stream) {
    const py::object device =
        ask(name, "__dlpack_device__", [&] { return array.attr("__dlpack_device__")(); });
    const auto type = py::cast<std::int32_t>(device[py::int_(0)]);
    const bool on_gpu = type == dlpack::kCuda || type == dlpack::kCudaManaged;
    // The capsule is not consumed: it stays the owner, and frees the export when the view goes.
    const auto give = [&](const py::object& from) {
        return ask(name, "__dlpack__", [&] { return export_capsule(from, name, on_gpu, stream); });
    };
    py::object owner;
    const Dtype* hidden = nullptr;
    try {
        owner = give(array);
    } catch (const Error&) {
        hidden = byte_float(array);
        if (hidden == nullptr) throw;
        owner = give(as_bytes(array, name));
    }
    View view;
    if (PyCapsule_IsValid(owner.ptr(), "dltensor_versioned") != 0) {
        const auto* managed = static_cast<dlpack::ManagedTensorVersioned*>(
            PyCapsule_GetPointer(owner.ptr(), "dltensor_versioned"));
        if (managed->version.major > dlpack::kMajor) {
            refuse(ErrorKind::argument, name,
                   "comes in version " + std::to_string(managed->version.major) +
                       " of DLPack; this wootz reads version 1 and before");
        }
        view = view_tensor(managed->tensor, (managed->flags & dlpack::kReadOnly) != 0, name);
    } else if (PyCapsule_IsValid(owner.ptr(), "dltensor") != 0) {
        const auto* managed =
            static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(owner.ptr(), "dltensor"));
        view = view_tensor(managed->tensor, false, name);
    } else {
        refuse(ErrorKind::argument, name, "has a __dlpack__ that returns no DLPack capsule");
    }
    if (hidden != nullptr) view.dtype = hidden->name;
    view.owner = owner;
    return view;
}

// What a DLPack export would hide, or refuse without saying what to do.
void refuse_lazy_tensor(const py::object& array, const std::string& name) {
    const py::object grad = py::getattr(array, "requires_grad", py::none());
    if (grad.is_none()) return;
    if (PyObject_IsTrue(grad.ptr()) == 1) {
        refuse(ErrorKind::argument, name,
               "requires gradients, and kernels have none: pass " + name + ".detach()");
    }
    for (const char* bit : {"conj", "neg"}) {
        const std::string query = std::string("is_") + bit;
        if (!py::hasattr(array, query.c_str()) || !py::cast<bool>(array.attr(query.c_str())())) continue;
        refuse(ErrorKind::argument, name,
               std::string("has its ") + bit + " bit set: pass " + name + ".resolve_" + bit + "()");
    }
}

// ---- __cuda_array_interface__

const Dtype& typestr_dtype(const std::string& typestr, const std::string& name) {
    if (typestr.size() < 3 || typestr.size() > 4) refuse_dtype(name, typestr);
    refuse_byte_order(name, typestr[0]);
    const int bytes = std::atoi(typestr.c_str() + 2);
    const Dtype* known = bytes > 0 ? find_dtype(typestr[1], static_cast<unsigned>(bytes) * 8) : nullptr;
    if (known == nullptr) refuse_dtype(name, typestr + " (bfloat16 needs DLPack)");
    return *known;
}

const Dtype& named_dtype(const std::string& spelling, const std::string& name) {
    for (const Dtype& dtype : kDtypes) {
        if (spelling == dtype.name) return dtype;
    }
    refuse_dtype(name, spelling);
}

View view_interface(const py::object& array, const std::string& name) {
    const py::object found = ask(name, "__cuda_array_interface__",
                                 [&] { return py::object(array.attr("__cuda_array_interface__")); });
    const auto interface = py::cast<py::dict>(found);
    const auto field = [&](const char* key) {
        return interface.contains(key) ? py::object(interface[key]) : py::object(py::none());
    };
    if (!field("mask").is_none()) refuse(ErrorKind::argument, name, "has a mask, which no kernel takes");
    // Our own arrays say what the interface cannot: bfloat16, and the device.
    const py::object own = field("wootz");
    const Dtype& dtype = own.is_none()
                             ? typestr_dtype(py::cast<std::string>(field("typestr")), name)
                             : named_dtype(py::cast<std::string>(py::object(own[py::int_(0)])), name);
    std::vector<std::int64_t> shape, strides;
    for (const py::handle extent : field("shape")) shape.push_back(py::cast<std::int64_t>(extent));
    if (field("strides").is_none()) {
        strides = compact_strides(shape);
    } else {
        for (const py::handle stride : field("strides")) strides.push_back(py::cast<std::int64_t>(stride));
        divide_strides(strides, dtype.bits / 8, name);
    }
    if (strides.size() != shape.size())
        refuse(ErrorKind::argument, name,
               "has " + std::to_string(strides.size()) + " strides for " + std::to_string(shape.size()) +
                   " dimensions");
    View view;
    const py::object data = field("data");
    view.address = py::cast<std::uintptr_t>(data[py::int_(0)]);
    view.readonly = py::cast<bool>(data[py::int_(1)]);
    view.device_type = "cuda";
    view.owner = array;
    if (!field("stream").is_none()) view.stream = py::cast<std::uintptr_t>(field("stream"));
    set_extents(view, shape, strides, dtype, name);
    if (!own.is_none()) {
        view.device_id = py::cast<int>(own[py::int_(1)]);
    } else if (view.address != 0) {  // the driver knows it
        const Unlocked unlocked;
        view.device_id = driver::device_of_pointer(view.address);
    }
    return view;
}

}  // namespace

std::string View::device() const {
    const std::string type = device_type;
    return type == "cuda" && device_id ? type + ":" + std::to_string(*device_id) : type;
}

View view_array(const py::object& array, const std::string& name, std::int64_t stream) {
    if (py::isinstance<py::array>(array)) return view_numpy(py::reinterpret_borrow<py::array>(array), name);
    try {
        refuse_lazy_tensor(array, name);
        if (py::hasattr(array, "__dlpack__")) return view_dlpack(array, name, stream);
        if (py::hasattr(array, "__cuda_array_interface__")) return view_interface(array, name);
    } catch (const py::error_already_set& error) {
        if (!error.matches(PyExc_Exception)) throw;
        refuse(ErrorKind::argument, name,
               std::string("describes its memory in no valid way: ") + error.what());
    } catch (const py::cast_error& error) {
        refuse(ErrorKind::argument, name,
               std::string("describes its memory in no valid way: ") + error.what());
    }
    refuse(ErrorKind::argument, name,
           "is a " + py::cast<std::string>(py::str(py::type::of(array).attr("__name__"))) +
               "; want an array: NumPy's, or one with __dlpack__ or __cuda_array_interface__");
}

}  // namespace wootz
