#include "plan.hpp"

#include <pybind11/stl.h>
#include <structmember.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bind.hpp"
#include "errors.hpp"
#include "fast_plan.hpp"
#include "unlocked.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

// What a callable of Python's C interface looks like here: its state, behind the function that calls it.
template <typename State>
struct Callable {
    PyObject_HEAD vectorcallfunc call;
    State* state;  // null until it is made ready
};

template <typename State>
State* state_of(PyObject* self) {
    State* state = reinterpret_cast<Callable<State>*>(self)->state;
    if (state == nullptr)
        PyErr_SetString(PyExc_TypeError, "get it from Library.plan: it was never made ready");
    return state;
}

template <typename State>
void replace_state(PyObject* self, std::unique_ptr<State> state) {
    auto* callable = reinterpret_cast<Callable<State>*>(self);
    std::unique_ptr<State> old(callable->state);
    callable->state = state.release();
}

// Runs what may throw; false with a Python error set.
template <typename Run>
bool guarded(Run run) {
    try {
        run();
        return true;
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (...) {
        try {
            translate(std::current_exception());
        } catch (const std::exception& error) {
            PyErr_SetString(PyExc_RuntimeError, error.what());
        }
    }
    return false;
}

// The same without Python's lock.
template <typename Run>
bool unlocked(Run run) {
    return guarded([&] {
        const Unlocked scope;
        run();
    });
}

// A handle, from a call's `stream` that is not None; the method _handle reads what is no plain number, and
// refuses. False with a Python error set.
bool read_stream(PyObject* self, PyObject* stream, bool on_gpu, std::uintptr_t& handle) {
    static PyObject* const method = interned("_handle");
    if (on_gpu && PyLong_CheckExact(stream) != 0) {
        handle = PyLong_AsUnsignedLongLong(stream);
        if (PyErr_Occurred() == nullptr) return true;
        PyErr_Clear();
    }
    PyObject* number = PyObject_CallMethodOneArg(self, method, stream);
    if (number == nullptr) return false;
    handle = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() == nullptr;
}

// ---- plans

PyObject* call_carefully(PyObject* self, PyObject* const* args, std::size_t count, PyObject* names) {
    static PyObject* const method = interned("_careful");
    const std::size_t named = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
    std::vector<PyObject*> all{self};
    all.insert(all.end(), args, args + count + named);
    return PyObject_VectorcallMethod(method, all.data(), count + 1, names);
}

// The output of a call that brings none: a new reference. Null where it could not be made.
PyObject* make_output(PyObject* self, const FastPlan& plan, const Reading& reading) {
    static PyObject* const method = interned("_empty");
    return PyObject_CallMethodOneArg(self, method, reading.seen[plan.like]);
}

PyObject* launch(PyObject* self, const FastPlan& plan, const Given& given, const Reading& reading,
                 PyObject* out, bool& careful) {
    std::uintptr_t stream = 0;
    if (given.stream != nullptr) {
        careful = !plan.on_gpu;
        if (careful || !read_stream(self, given.stream, true, stream)) return nullptr;
    } else if (plan.on_gpu) {
        careful = !plan.find_stream(reading, stream);
        if (careful) return nullptr;
    }
    const auto run = [&] {
        plan.launcher->launch(reading.addresses.data(), reinterpret_cast<driver::Stream>(stream));
    };
    if (plan.launcher != nullptr && !unlocked(run)) return nullptr;
    Py_INCREF(out);
    return out;
}

// careful: set where the call has to go the other way, with no Python error set.
PyObject* call_fast(PyObject* self, const FastPlan& plan, PyObject* const* args, std::size_t count,
                    PyObject* names, bool& careful) {
    Given given;
    Reading reading;
    careful = !plan.usable || !plan.place(args, count, names, given) || !plan.read_operands(given, reading);
    if (careful) return nullptr;
    py::object made;
    if (given.out == nullptr) {
        careful = static_cast<bool>(plan.out.type);  // a tensor, whose other fields are handed on
        if (careful) return nullptr;
        made = py::reinterpret_steal<py::object>(make_output(self, plan, reading));
        if (!made) return nullptr;
    }
    PyObject* out = made ? made.ptr() : given.out;
    careful = !plan.read_output(out, reading);
    return careful ? nullptr : launch(self, plan, given, reading, out, careful);
}

PyObject* call_plan(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* names) {
    const FastPlan* plan = state_of<FastPlan>(self);
    if (plan == nullptr) return nullptr;
    const auto count = static_cast<std::size_t>(PyVectorcall_NARGS(nargsf));
    bool careful = false;
    PyObject* result = call_fast(self, *plan, args, count, names, careful);
    return careful ? call_carefully(self, args, count, names) : result;
}

Wanted read_wanted(const py::tuple& record) {
    Wanted wanted{};
    const auto name = py::cast<std::string>(record[0]);
    wanted.dtype = find_name(name);
    if (wanted.dtype == nullptr) throw Error(ErrorKind::artifact, "no array has elements of type " + name);
    wanted.bytes_pass = wanted.dtype->kind == '4' || wanted.dtype->kind == '5';
    const auto shape = py::cast<py::tuple>(record[1]);
    if (shape.size() > kMaxFastRank) throw Error(ErrorKind::artifact, name + " array of too many axes");
    wanted.size = 1;
    for (std::size_t i = 0; i < shape.size(); ++i) {
        wanted.shape[i] = py::cast<std::int64_t>(shape[i]);
        wanted.size *= wanted.shape[i];
    }
    wanted.rank = py::cast<bool>(record[2]) ? -1 : static_cast<int>(shape.size());
    return wanted;
}

// (name, type, format, shape, parts), the middle three None for an array; a part is (field, array, same,
// (dtype, shape, flat), alias).
Slot read_slot(const py::tuple& record, std::size_t arrays) {
    const auto given = [](const py::handle& value) {
        return value.is_none() ? py::object() : py::reinterpret_borrow<py::object>(value);
    };
    Slot slot{record[0], given(record[1]), given(record[2]), given(record[3]), {}};
    for (const py::handle each : record[4]) {
        const auto part = py::cast<py::tuple>(each);
        slot.parts.push_back({given(part[0]), py::cast<std::uint32_t>(part[1]),
                              py::cast<std::int32_t>(part[2]), read_wanted(part[3]),
                              py::cast<bool>(part[4])});
        const Part& made = slot.parts.back();
        if (made.array >= arrays || made.same >= static_cast<std::int32_t>(arrays))
            throw Error(ErrorKind::artifact, "a plan has a part of an array that it does not have");
    }
    return slot;
}

// Whether a plan is small enough for this way; else all its calls go the other.
bool fits(const FastPlan& plan) {
    std::size_t inputs = 0;
    for (const Slot& slot : plan.slots) inputs += slot.parts.size();
    return plan.slots.size() <= kMaxSlots && plan.arrays <= kMaxArrays && inputs <= kMaxArrays;
}

PyObject* ready_plan(PyObject* self, PyObject* record) {
    const bool done = guarded([&] {
        const auto spec = py::reinterpret_borrow<py::dict>(record);
        auto plan = std::make_unique<FastPlan>();
        if (!spec["launcher"].is_none())
            plan->launcher = py::cast<std::shared_ptr<Launcher>>(spec["launcher"]);
        plan->on_gpu = py::cast<bool>(spec["on_gpu"]);
        plan->device = py::cast<std::int32_t>(spec["device"]);
        plan->arrays = py::cast<std::size_t>(spec["arrays"]);
        plan->like = py::cast<std::uint32_t>(spec["like"]);
        for (const py::handle each : spec["slots"])
            plan->slots.push_back(read_slot(py::cast<py::tuple>(each), plan->arrays));
        for (const py::handle each : spec["positions"]) plan->positions.push_back(py::cast<int>(each));
        plan->out = read_slot(py::cast<py::tuple>(spec["out"]), plan->arrays);
        plan->usable = py::cast<bool>(spec["simple"]) && fits(*plan);
        replace_state(self, std::move(plan));
    });
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

// ---- plans with their arrays

// api: of the library whose current stream is asked for; null: the method _current asks.
struct BoundPlan {
    std::shared_ptr<Launcher> launcher;  // null: there is nothing to compute
    std::unique_ptr<const Steps, UnlockedDelete> steps;
    std::vector<std::uintptr_t> addresses;
    const dlpack::ExchangeApi* api = nullptr;
    bool on_gpu = false;
    py::object out;
};

// A call's stream: its one argument, if any. False with a Python error set.
bool stream_argument(PyObject* const* args, std::size_t count, PyObject* names, PyObject*& stream) {
    const std::size_t named = names == nullptr ? 0 : static_cast<std::size_t>(PyTuple_GET_SIZE(names));
    const bool known = named == 0 || (named == 1 && PyUnicode_CompareWithASCIIString(
                                                        PyTuple_GET_ITEM(names, 0), "stream") == 0);
    if (count + named > 1 || !known) {
        PyErr_SetString(PyExc_TypeError, "a bound plan takes stream= and nothing else");
        return false;
    }
    stream = count + named == 1 && args[0] != Py_None ? args[0] : nullptr;
    return true;
}

bool bound_stream(PyObject* self, const BoundPlan& bound, PyObject* given, std::uintptr_t& stream) {
    static PyObject* const method = interned("_current");
    if (given != nullptr) return read_stream(self, given, bound.on_gpu, stream);
    if (!bound.on_gpu) return true;
    if (bound.api != nullptr &&
        current_stream(*bound.api, bound.launcher != nullptr ? bound.launcher->steps().device() : 0, stream))
        return true;
    PyObject* number = PyObject_CallMethodNoArgs(self, method);
    if (number == nullptr) return false;
    stream = PyLong_AsUnsignedLongLong(number);
    Py_DECREF(number);
    return PyErr_Occurred() == nullptr;
}

PyObject* call_bound(PyObject* self, PyObject* const* args, std::size_t nargsf, PyObject* names) {
    const BoundPlan* bound = state_of<BoundPlan>(self);
    PyObject* given = nullptr;
    std::uintptr_t stream = 0;
    if (bound == nullptr ||
        !stream_argument(args, static_cast<std::size_t>(PyVectorcall_NARGS(nargsf)), names, given) ||
        !bound_stream(self, *bound, given, stream))
        return nullptr;
    const auto run = [&] {
        Launcher& launcher = *bound->launcher;
        launcher.launch(*bound->steps,
                        launcher.call(bound->addresses.data(), reinterpret_cast<driver::Stream>(stream)));
    };
    if (bound->launcher != nullptr && !unlocked(run)) return nullptr;
    PyObject* out = bound->out.ptr();
    Py_INCREF(out);
    return out;
}

// (launcher, addresses, whether they are on a GPU, the array whose library's stream is current or None, out)
PyObject* ready_bound(PyObject* self, PyObject* record) {
    const bool done = guarded([&] {
        const auto spec = py::reinterpret_borrow<py::tuple>(record);
        auto bound = std::make_unique<BoundPlan>();
        bound->addresses = py::cast<std::vector<std::uintptr_t>>(spec[1]);
        bound->on_gpu = py::cast<bool>(spec[2]);
        if (!spec[3].is_none()) bound->api = exchange_api(py::object(spec[3]).ptr());
        bound->out = spec[4];
        if (!spec[0].is_none()) {
            bound->launcher = py::cast<std::shared_ptr<Launcher>>(spec[0]);
            if (bound->addresses.size() != bound->launcher->steps().arrays())
                throw Error(ErrorKind::argument, "a bound plan has another number of arrays");
            const Unlocked release;
            const Call call = bound->launcher->call(bound->addresses.data(), nullptr);
            bound->steps.reset(new Steps(bound->launcher->steps().bound(call)));
        }
        replace_state(self, std::move(bound));
    });
    if (!done) return nullptr;
    Py_RETURN_NONE;
}

// ---- types

template <typename State, PyObject* (*Call)(PyObject*, PyObject* const*, std::size_t, PyObject*)>
PyObject* make(PyTypeObject* type, PyObject*, PyObject*) {
    PyObject* self = type->tp_alloc(type, 0);
    if (self == nullptr) return nullptr;
    auto* callable = reinterpret_cast<Callable<State>*>(self);
    callable->call = Call;
    callable->state = nullptr;
    return self;
}

template <typename State>
void destroy(PyObject* self) {
    PyTypeObject* type = Py_TYPE(self);
    replace_state<State>(self, nullptr);
    type->tp_free(self);
    Py_DECREF(type);
}

template <typename State, PyObject* (*Call)(PyObject*, PyObject* const*, std::size_t, PyObject*)>
void add_type(py::module_& module, const char* name, const char* full, PyCFunction ready) {
    static std::array<PyMethodDef, 2> methods{};
    static std::array<PyMemberDef, 2> members{};
    methods[0] = {"_ready", ready, METH_O, nullptr};
    members[0] = {"__vectorcalloffset__", T_PYSSIZET, offsetof(Callable<State>, call), READONLY, nullptr};
    std::array<PyType_Slot, 6> slots{{{Py_tp_new, reinterpret_cast<void*>(&make<State, Call>)},
                                      {Py_tp_dealloc, reinterpret_cast<void*>(&destroy<State>)},
                                      {Py_tp_call, reinterpret_cast<void*>(&PyVectorcall_Call)},
                                      {Py_tp_methods, methods.data()},
                                      {Py_tp_members, members.data()},
                                      {0, nullptr}}};
    PyType_Spec spec{full, sizeof(Callable<State>), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, slots.data()};
    PyObject* type = PyType_FromSpec(&spec);
    if (type == nullptr) throw py::error_already_set();
    module.add_object(name, type);
}

}  // namespace

void bind_plan_types(py::module_& module) {
    add_type<FastPlan, &call_plan>(module, "PlanCall", "wootz._core.PlanCall", &ready_plan);
    add_type<BoundPlan, &call_bound>(module, "BoundCall", "wootz._core.BoundCall", &ready_bound);
}

}  // namespace wootz
