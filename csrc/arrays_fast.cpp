#include "arrays_fast.hpp"

#include <pybind11/numpy.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "arrays.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

constexpr std::size_t kKnown = 64;  // types, and NumPy's descriptors, that are remembered

enum class Way : std::uint8_t { none, numpy, exchange };

// lazy: arrays of the type may be something else than their memory says (see settled).
struct ArrayType {
    Way way = Way::none;
    bool lazy = false;
    const dlpack::ExchangeApi* api = nullptr;
};

// What was found out of an object once; the object is kept, so that its address stays its own. Readers take
// no lock: entries are written before they are counted, and stay.
template <typename Value>
class Memory {
  public:
    template <typename Find>
    Value get(PyObject* key, Find find) {
        const std::size_t count = count_.load(std::memory_order_acquire);
        for (std::size_t i = 0; i < count; ++i) {
            if (entries_[i].first == key) return entries_[i].second;
        }
        const Value value = find(key);
        const std::lock_guard<std::mutex> lock(writing_);
        const std::size_t end = count_.load(std::memory_order_relaxed);
        if (end < entries_.size()) {
            Py_INCREF(key);
            entries_[end] = {key, value};
            count_.store(end + 1, std::memory_order_release);
        }
        return value;
    }

  private:
    std::array<std::pair<PyObject*, Value>, kKnown> entries_{};
    std::atomic<std::size_t> count_{0};
    std::mutex writing_;
};

// ---- types

const dlpack::ExchangeApi* find_api(py::handle type) {
    const py::object capsule = py::getattr(type, "__dlpack_c_exchange_api__", py::none());
    if (PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api") == 0) return nullptr;
    const auto* header = static_cast<const dlpack::ExchangeHeader*>(
        PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
    while (header != nullptr && header->version.major != dlpack::kMajor) header = header->previous;
    return reinterpret_cast<const dlpack::ExchangeApi*>(header);
}

// torch.Tensor and torch.nn.Parameter themselves: subclasses may do anything.
bool plain_torch(py::handle type, const py::object& torch) {
    if (type.is(py::getattr(torch, "Tensor", py::none()))) return true;
    const py::object nn = py::getattr(torch, "nn", py::none());
    return !nn.is_none() && type.is(py::getattr(nn, "Parameter", py::none()));
}

ArrayType find_type(PyObject* object) {
    const py::handle type(object);
    // Asking NumPy's interface imports NumPy: an array of its own has loaded it.
    if (loaded_module("numpy") &&
        type.ptr() == reinterpret_cast<PyObject*>(py::detail::npy_api::get().PyArray_Type_))
        return {Way::numpy, false, nullptr};
    const dlpack::ExchangeApi* api = find_api(type);
    if (api == nullptr) return {};
    if (!py::hasattr(type, "requires_grad")) return {Way::exchange, false, api};
    const py::object torch = loaded_module("torch");
    if (!torch || !plain_torch(type, torch)) return {};
    return {Way::exchange, true, api};
}

ArrayType type_of(PyObject* array) {
    static auto* types = new Memory<ArrayType>;
    return types->get(reinterpret_cast<PyObject*>(Py_TYPE(array)), [](PyObject* type) {
        try {
            return find_type(type);
        } catch (py::error_already_set&) {
            return ArrayType{};
        }
    });
}

// ---- memory

// Counts the elements; false where they do not lie densely in rows, or there are too many axes.
bool set_shape(FastArray& out, int rank, const std::int64_t* shape, const std::int64_t* strides,
               std::int64_t unit) {
    if (rank < 0 || rank > kMaxFastRank) return false;
    out.rank = rank;
    out.size = 1;
    bool dense = true;
    for (int i = rank; i-- > 0;) {
        if (strides != nullptr && shape[i] != 1 && strides[i] != out.size * unit) dense = false;
        out.shape[static_cast<std::size_t>(i)] = shape[i];
        if (shape[i] < 0 || __builtin_mul_overflow(out.size, shape[i], &out.size)) return false;
    }
    return dense || out.size == 0;
}

const Dtype* dtype_of(PyObject* descriptor) {
    static auto* known = new Memory<const Dtype*>;
    return known->get(descriptor, [](PyObject* object) -> const Dtype* {
        try {
            const auto dtype = py::reinterpret_borrow<py::dtype>(object);
            return dtype.byteorder() == '>' ? nullptr : find_dtype(dtype);
        } catch (py::error_already_set&) {
            return nullptr;
        }
    });
}

bool read_numpy(PyObject* array, FastArray& out) {
    static_assert(sizeof(py::ssize_t) == sizeof(std::int64_t));
    const auto* proxy = py::detail::array_proxy(array);
    out.dtype = dtype_of(proxy->descr);
    if (out.dtype == nullptr) return false;
    out.address = reinterpret_cast<std::uintptr_t>(proxy->data);
    out.on_gpu = false;
    out.device = 0;
    out.readonly = (proxy->flags & py::detail::npy_api::NPY_ARRAY_WRITEABLE_) == 0;
    out.api = nullptr;
    return set_shape(out, proxy->nd, reinterpret_cast<const std::int64_t*>(proxy->dimensions),
                     reinterpret_cast<const std::int64_t*>(proxy->strides), out.dtype->bits / 8);
}

bool set_tensor(FastArray& out, const dlpack::Tensor& tensor) {
    out.dtype = find_dtype(tensor.dtype);
    if (out.dtype == nullptr) return false;
    const std::int32_t type = tensor.device.type;
    out.on_gpu = type == dlpack::kCuda || type == dlpack::kCudaManaged;
    if (!out.on_gpu && type != dlpack::kCpu && type != dlpack::kCudaHost) return false;
    out.device = out.on_gpu ? tensor.device.id : 0;
    out.address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
    return set_shape(out, tensor.ndim, tensor.shape, tensor.strides, 1);
}

bool said_no() {
    PyErr_Clear();
    return false;
}

// Whether the object is False; anything else, an error too, is no.
bool is_false(PyObject* answer) {
    if (answer == nullptr) return said_no();
    Py_DECREF(answer);
    return answer == Py_False;
}

// An array that needs no gradient and whose numbers are those in its memory. Complex ones, which may be
// conjugated, are no kernel's.
bool settled(PyObject* array) {
    static PyObject* const requires_grad = interned("requires_grad");
    static PyObject* const is_neg = interned("is_neg");
    return is_false(PyObject_GetAttr(array, requires_grad)) &&
           is_false(PyObject_VectorcallMethod(is_neg, &array, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET, nullptr));
}

// Integers need no gradient, and are no view of half a complex number.
bool whole(const Dtype& dtype) { return dtype.kind == 'i' || dtype.kind == 'u' || dtype.kind == 'b'; }

// torch's integers of fewer bits look like bytes. Its element types are objects of their own, never freed.
bool narrow(PyObject* array) {
    static PyObject* const dtype = interned("dtype");
    static auto* known = new Memory<bool>;
    PyObject* found = PyObject_GetAttr(array, dtype);
    if (found == nullptr) return !said_no();
    const bool answer = known->get(found, [](PyObject* object) {
        const auto text = py::cast<std::string>(py::str(py::handle(object)));
        return narrow_integer(text.substr(text.rfind('.') + 1));
    });
    Py_DECREF(found);
    return answer;
}

bool read_managed(PyObject* array, FastArray& out) {
    dlpack::ManagedTensorVersioned* managed = nullptr;
    if (out.api->managed_from_object == nullptr || out.api->managed_from_object(array, &managed) != 0)
        return said_no();
    const bool known = managed->version.major == dlpack::kMajor;
    if (known) out.readonly = (managed->flags & dlpack::kReadOnly) != 0;
    const bool read = known && set_tensor(out, managed->tensor);
    if (managed->deleter != nullptr) managed->deleter(managed);
    return read;
}

bool read_exchange(PyObject* array, const ArrayType& type, bool writes, FastArray& out) {
    out.api = type.api;
    out.readonly = false;
    // torch has no arrays that are read-only; of others, only the slower table entry tells
    if (type.api->tensor_from_object == nullptr || (writes && !type.lazy)) {
        if (!read_managed(array, out)) return false;
    } else {
        dlpack::Tensor tensor;
        if (type.api->tensor_from_object(array, &tensor) != 0) return said_no();
        if (!set_tensor(out, tensor)) return false;
    }
    return !type.lazy || (whole(*out.dtype) ? out.dtype->bits != 8 || !narrow(array) : settled(array));
}

}  // namespace

bool read_torch(PyObject* array, FastArray& out) {
    const ArrayType type = type_of(array);
    return type.way == Way::exchange && type.lazy && read_exchange(array, type, false, out);
}

bool read_fast(PyObject* array, bool writes, FastArray& out) {
    const ArrayType type = type_of(array);
    switch (type.way) {
        case Way::numpy:
            return read_numpy(array, out);
        case Way::exchange:
            return read_exchange(array, type, writes, out);
        case Way::none:
            break;
    }
    return false;
}

const dlpack::ExchangeApi* exchange_api(PyObject* array) { return type_of(array).api; }

bool current_stream(const dlpack::ExchangeApi& api, std::int32_t device, std::uintptr_t& stream) {
    void* handle = nullptr;
    if (api.current_stream == nullptr || api.current_stream(dlpack::kCuda, device, &handle) != 0)
        return said_no();
    stream = reinterpret_cast<std::uintptr_t>(handle);
    return true;
}

}  // namespace wootz
