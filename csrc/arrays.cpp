#include "arrays.hpp"

#include <pybind11/numpy.h>

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "arrays_fast.hpp"
#include "dlpack.hpp"
#include "driver.hpp"
#include "dtypes.hpp"
#include "errors.hpp"
#include "unlocked.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& name, const std::string& what) {
    throw Error(kind, name + " " + what);
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
    if (view.size == 0) {
        view.contiguous = true;
    } else if (view.address == 0) {
        refuse(ErrorKind::argument, name, "has a null address, and is not empty");
    }
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

// ---- NumPy

const Dtype& numpy_dtype(const py::dtype& dtype, const std::string& name) {
    refuse_byte_order(name, dtype.byteorder());
    if (const Dtype* known = find_dtype(dtype)) return *known;
    const bool structure = !dtype.attr("names").is_none();
    refuse_dtype(name, py::cast<std::string>(py::str(structure ? py::object(dtype) : dtype.attr("name"))));
}

// NumPy's masked arrays say with an array, or with a number, which elements are none.
void refuse_mask(const py::array& array, const std::string& name) {
    if (Py_TYPE(array.ptr()) == py::detail::npy_api::get().PyArray_Type_) return;
    if (py::isinstance<py::array>(py::getattr(array, "mask", py::none()))) {
        refuse(ErrorKind::argument, name,
               "has a mask, which no kernel takes: pass " + name + ".filled(), or " + name + ".data");
    }
}

View view_numpy(const py::array& array, const std::string& name) {
    View view;
    refuse_mask(array, name);
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

struct DeviceName {
    std::int32_t type;
    const char* name;
};
// By DLDeviceType: those that no kernel runs on.
constexpr std::array<DeviceName, 11> kOtherDevices{{{4, "OpenCL"},
                                                    {7, "Vulkan"},
                                                    {9, "VPI"},
                                                    {10, "ROCm"},
                                                    {11, "ROCm's host memory"},
                                                    {12, "an extension's device"},
                                                    {14, "oneAPI"},
                                                    {15, "WebGPU"},
                                                    {16, "Hexagon"},
                                                    {17, "MAIA"},
                                                    {18, "Trainium"}}};

std::string other_device(std::int32_t type) {
    const std::string number = "DLPack device type " + std::to_string(type);
    for (const DeviceName& device : kOtherDevices) {
        if (device.type == type) return std::string(device.name) + " (" + number + ")";
    }
    return number;
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
                   "is on a device that no kernel runs on: " + other_device(device.type));
    }
}

View view_tensor(const dlpack::Tensor& tensor, bool readonly, const std::string& name) {
    View view;
    const Dtype& dtype = dlpack_dtype(tensor.dtype, name);
    set_dlpack_device(view, tensor.device, name);
    if (tensor.ndim < 0) refuse(ErrorKind::argument, name, "has a negative rank");
    if (tensor.ndim > 0 && tensor.shape == nullptr) refuse(ErrorKind::argument, name, "has no shape");
    const auto rank = static_cast<std::size_t>(tensor.ndim);
    std::vector<std::int64_t> shape(tensor.shape, tensor.shape + rank);
    const std::vector<std::int64_t> strides =
        tensor.strides == nullptr ? compact_strides(shape)
                                  : std::vector<std::int64_t>(tensor.strides, tensor.strides + rank);
    if (tensor.data != nullptr)
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

// The name of the array's own dtype, without its library's.
std::string dtype_spelling(const py::object& array) {
    const auto spelling = py::cast<std::string>(py::str(py::getattr(array, "dtype", py::none())));
    return spelling.substr(spelling.rfind('.') + 1);
}

// The same memory as bytes: torch exports no 8-bit floats in many of its versions.
py::object as_bytes(const py::object& array, const std::string& name) {
    return ask(name, "view(uint8)", [&] {
        const auto library = py::cast<std::string>(py::type::of(array).attr("__module__"));
        return py::object(array.attr("view")(py::module_::import(library.c_str()).attr("uint8")));
    });
}

// torch exports tensors of its current device alone: theirs is made it, for as long as this lives.
class CurrentDevice {
  public:
    CurrentDevice(const py::object& array, int device) {
        const auto library = py::cast<std::string>(py::type::of(array).attr("__module__"));
        if (device < 0 || library.compare(0, 5, "torch") != 0) return;
        guard_ = py::module_::import("torch").attr("cuda").attr("device")(device);
        guard_.attr("__enter__")();
    }
    ~CurrentDevice() {
        if (!guard_) return;
        try {
            guard_.attr("__exit__")(py::none(), py::none(), py::none());
        } catch (py::error_already_set& error) {
            error.discard_as_unraisable("torch.cuda.device");
        }
    }
    CurrentDevice(const CurrentDevice&) = delete;
    CurrentDevice& operator=(const CurrentDevice&) = delete;

  private:
    py::object guard_;
};

View view_dlpack(const py::object& array, const std::string& name, std::int64_t stream) {
    const py::object device =
        ask(name, "__dlpack_device__", [&] { return array.attr("__dlpack_device__")(); });
    const auto type = py::cast<std::int32_t>(device[py::int_(0)]);
    const bool on_gpu = type == dlpack::kCuda || type == dlpack::kCudaManaged;
    const CurrentDevice current(array, on_gpu ? py::cast<int>(device[py::int_(1)]) : -1);
    // The capsule is not consumed: it stays the owner, and frees the export when the view goes.
    const auto give = [&](const py::object& from) {
        return ask(name, "__dlpack__", [&] { return export_capsule(from, name, on_gpu, stream); });
    };
    py::object owner;
    const Dtype* hidden = nullptr;
    try {
        owner = give(array);
    } catch (const Error&) {
        const std::string spelling = dtype_spelling(array);
        if (!narrow_float(spelling)) throw;
        hidden = find_spelling(spelling);
        if (hidden == nullptr) refuse_dtype(name, spelling);
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
        const std::uint64_t fixed = dlpack::kReadOnly | dlpack::kCopied;  // what is written to a copy is lost
        view = view_tensor(managed->tensor, (managed->flags & fixed) != 0, name);
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

// Subclasses of torch's tensor that answer operations themselves stand for memory that is somewhere else, or
// nowhere: sharded, quantised and fake ones.
void refuse_wrapper(const py::object& array, const std::string& name) {
    const char* hook = "__torch_dispatch__";
    const py::object kind = py::type::of(array), own = py::getattr(kind, hook, py::none());
    if (own.is_none()) return;
    const auto torch = loaded_module("torch");
    if (!torch) return;
    const py::object plain = py::getattr(torch, "Tensor", py::none());
    if (own.is(py::getattr(plain, hook, own))) return;
    refuse(ErrorKind::argument, name,
           "is a " + py::cast<std::string>(py::str(kind.attr("__name__"))) +
               ", a tensor with operations of its own, whose memory is not what it shows: pass the plain "
               "torch.Tensor that it stands for (of a distributed one, " +
               name + ".to_local())");
}

// What a DLPack export would hide, or refuse without saying what to do.
void refuse_lazy_tensor(const py::object& array, const std::string& name) {
    refuse_wrapper(array, name);
    const py::object grad = py::getattr(array, "requires_grad", py::none());
    if (grad.is_none()) return;
    if (PyObject_IsTrue(grad.ptr()) == 1) {
        refuse(ErrorKind::argument, name,
               "requires gradients, and kernels have none: pass " + name + ".detach()");
    }
    if (const std::string spelling = dtype_spelling(array); narrow_integer(spelling))
        refuse_dtype(name, spelling);
    for (const char* bit : {"conj", "neg"}) {
        const std::string query = std::string("is_") + bit;
        if (!py::hasattr(array, query.c_str()) || !py::cast<bool>(array.attr(query.c_str())())) continue;
        refuse(ErrorKind::argument, name,
               std::string("has its ") + bit + " bit set: pass " + name + ".resolve_" + bit + "()");
    }
}

// A torch tensor that its type's table of functions can read. It asks nothing of the current device, of which
// alone torch exports by __dlpack__.
std::optional<View> view_torch(const py::object& array, const std::string& name) {
    FastArray read;
    if (!read_torch(array.ptr(), read) || (read.address == 0 && read.size != 0)) return std::nullopt;
    View view;
    view.address = read.address;
    view.device_type = read.on_gpu ? "cuda" : "cpu";
    view.device_id = read.device;
    view.owner = array;
    const std::vector<std::int64_t> shape(read.shape.begin(), read.shape.begin() + read.rank);
    set_extents(view, shape, compact_strides(shape), *read.dtype, name);
    return view;
}

// ---- __cuda_array_interface__

// The device that owns the memory: the driver knows it.
int owning_device(std::uintptr_t address, const std::string& name) {
    const Unlocked unlocked;
    try {
        const int device = driver::device_of_pointer(address);
        if (device >= 0) return device;  // below: memory that the device reaches, and that no driver made
    } catch (const DriverFailure& failure) {
        if (failure.code() != driver::kInvalidValue) throw;
    }
    refuse(ErrorKind::device, name,
           "is at address " + std::to_string(address) +
               ", which is no device's memory: the host's, or freed before");
}

// Where the producer's pending work is. Version 2 of the interface and before have no such key.
std::optional<std::uintptr_t> pending_stream(const py::object& stream, const std::string& name) {
    if (stream.is_none()) return std::nullopt;
    const auto handle = py::cast<std::uintptr_t>(stream);
    if (handle == 0) {
        refuse(ErrorKind::argument, name,
               "gives stream 0, which __cuda_array_interface__ forbids: "
               "1 is the default stream, 2 that of the thread");
    }
    return handle;
}

constexpr int kInterfaceVersion = 3;

void check_interface(const py::object& version, const py::object& mask, const std::string& name) {
    if (py::cast<int>(version) > kInterfaceVersion) {
        refuse(ErrorKind::argument, name,
               "comes in version " + py::cast<std::string>(py::str(version)) +
                   " of __cuda_array_interface__; this wootz reads version " +
                   std::to_string(kInterfaceVersion) + " and before");
    }
    if (!mask.is_none()) refuse(ErrorKind::argument, name, "has a mask, which no kernel takes");
}

View view_interface(const py::object& array, const std::string& name) {
    const py::object found = ask(name, "__cuda_array_interface__",
                                 [&] { return py::object(array.attr("__cuda_array_interface__")); });
    const auto interface = py::cast<py::dict>(found);
    const auto field = [&](const char* key) {
        return interface.contains(key) ? py::object(interface[key]) : py::object(py::none());
    };
    check_interface(field("version"), field("mask"), name);
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
    view.stream = pending_stream(field("stream"), name);
    set_extents(view, shape, strides, dtype, name);
    if (!own.is_none()) {
        view.device_id = py::cast<int>(own[py::int_(1)]);
    } else if (view.address != 0) {
        view.device_id = owning_device(view.address, name);
    }
    return view;
}

// As Python's hasattr, which hides no error but an AttributeError.
bool has(const py::object& array, const char* attribute) {
    PyObject* found = PyObject_GetAttrString(array.ptr(), attribute);
    if (found == nullptr && PyErr_ExceptionMatches(PyExc_AttributeError) == 0) throw py::error_already_set();
    PyErr_Clear();
    Py_XDECREF(found);
    return found != nullptr;
}

}  // namespace

std::string View::device() const {
    const std::string type = device_type;
    return type == "cuda" && device_id ? type + ":" + std::to_string(*device_id) : type;
}

py::object loaded_module(const char* name) {
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* found = modules != nullptr ? PyDict_GetItemString(modules, name) : nullptr;
    return py::reinterpret_borrow<py::object>(found);
}

View view_array(const py::object& array, const std::string& name, std::int64_t stream) {
    // pybind11's question imports NumPy: an array of its own has loaded it.
    if (loaded_module("numpy") && py::isinstance<py::array>(array))
        return view_numpy(py::reinterpret_borrow<py::array>(array), name);
    try {
        if (std::optional<View> view = view_torch(array, name)) return *std::move(view);
        refuse_lazy_tensor(array, name);
        if (has(array, "__dlpack__")) return view_dlpack(array, name, stream);
        if (has(array, "__cuda_array_interface__")) return view_interface(array, name);
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
