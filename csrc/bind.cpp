// wootz._core: the Python face of the loader.
#include "bind.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "arrays.hpp"
#include "cpu.hpp"
#include "driver.hpp"
#include "errors.hpp"
#include "launch.hpp"
#include "module.hpp"
#include "packing.hpp"
#include "stub.hpp"
#include "unlocked.hpp"
#if defined(__APPLE__)
#include "metal.hpp"
#endif

namespace py = pybind11;

namespace wootz {
namespace {

const char* class_name(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::argument:
            return "ArgumentError";
        case ErrorKind::dtype:
            return "DtypeError";
        case ErrorKind::artifact:
            return "ArtifactError";
        case ErrorKind::device:
            return "DeviceError";
    }
    return "WootzError";
}

}  // namespace

void translate(std::exception_ptr pending) {
    try {
        if (pending) std::rethrow_exception(pending);
    } catch (const Error& error) {
        const py::object kind = py::module_::import("wootz.errors").attr(class_name(error.kind()));
        PyErr_SetString(kind.ptr(), error.what());
    } catch (const DriverFailure& error) {
        const py::object made =
            py::module_::import("wootz.errors")
                .attr("driver_error")(error.code(), error.name(), error.call(), error.text());
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
    }
}

namespace {

void bind_view(py::module_& module) {
    py::class_<View>(module, "View", "Where and how an array lies in memory.")
        .def_readonly("address", &View::address)
        .def_readonly("shape", &View::shape)
        .def_readonly("strides", &View::strides)
        .def_property_readonly("dtype", [](const View& view) { return view.dtype; })
        .def_property_readonly("device_type", [](const View& view) { return view.device_type; })
        .def_readonly("device_id", &View::device_id)
        .def_property_readonly("device", &View::device)
        .def_readonly("readonly", &View::readonly)
        .def_readonly("contiguous", &View::contiguous)
        .def_readonly("size", &View::size)
        .def_readonly("bytes", &View::bytes)
        .def_readonly("stream", &View::stream);
    module.def("view", &view_array, py::arg("array"), py::arg("name"), py::arg("stream") = -1);
}

void bind_cpu(py::module_& module) {
    module.def("cpu_supports", &cpu_supports, py::arg("isa"));
    module.def("cpu_threads", &thread_limit);
    py::class_<CpuFunction>(module, "CpuFunction")
        .def(
            "step",
            [](const CpuFunction& self, const py::tuple& values, const py::tuple& grid) {
                auto [pattern, reach] = read_sources(self.signature(), values);
                return self.step(std::move(pattern), reach, read_extents(grid, "grid"));
            },
            py::arg("values"), py::arg("grid"));
    py::class_<CpuModule, std::shared_ptr<CpuModule>>(module, "CpuModule")
        .def(py::init([](const py::bytes& image, const std::string& name) {
                 const std::string_view view = image;
                 const Unlocked unlocked;
                 return std::make_shared<CpuModule>(view.data(), view.size(), name);
             }),
             py::arg("image"), py::arg("name"))
        .def(
            "function",
            [](const std::shared_ptr<CpuModule>& self, const std::string& symbol,
               const py::sequence& parameters) {
                return CpuFunction(self, symbol, read_signature(parameters));
            },
            py::arg("symbol"), py::arg("parameters"));
}

void bind_cuda(py::module_& module) {
    module.def("cuda_device_count", &driver::device_count, py::call_guard<Unlocked>());
    module.def(
        "cuda_device_info",
        [](int device) {
            driver::DeviceInfo info;
            {
                const Unlocked unlocked;
                info = driver::device_info(device);
            }
            py::dict result;
            result["name"] = info.name;
            result["capability"] = py::make_tuple(info.major, info.minor);
            result["sms"] = info.multiprocessors;
            result["shared_bytes"] = info.shared_bytes;
            result["driver_version"] = info.driver_version;
            return result;
        },
        py::arg("device"));
    module.def(
        "cuda_device_memory",
        [](int device, bool ask_free) {
            driver::DeviceMemory memory;
            {
                const Unlocked unlocked;
                memory = driver::device_memory(device, ask_free);
            }
            return py::make_tuple(memory.total, memory.free, memory.integrated);
        },
        py::arg("device"), py::arg("ask_free") = false);
    module.def(
        "cuda_order_streams",
        [](int device, std::uintptr_t before, std::uintptr_t after) {
            driver::order_streams(device, stream_of(before), stream_of(after));
        },
        py::arg("device"), py::arg("before"), py::arg("after"), py::call_guard<Unlocked>());
    module.def(
        "cuda_synchronize",
        [](int device, std::uintptr_t stream) { driver::synchronize(device, stream_of(stream)); },
        py::arg("device"), py::arg("stream") = 0, py::call_guard<Unlocked>());
    module.def("cuda_allocate", &driver::allocate, py::arg("device"), py::arg("bytes"),
               py::call_guard<Unlocked>());
    module.def("cuda_release", &driver::release, py::arg("device"), py::arg("address"),
               py::call_guard<Unlocked>());
    module.def(
        "cuda_set_memory",
        [](int device, driver::Address address, int value, std::size_t bytes, std::uintptr_t stream) {
            driver::set_memory(device, address, value, bytes, stream_of(stream));
        },
        py::arg("device"), py::arg("address"), py::arg("value"), py::arg("bytes"), py::arg("stream"),
        py::call_guard<Unlocked>());
    module.def(
        "cuda_copy_from_host",
        [](int device, driver::Address to, std::uintptr_t from, std::size_t bytes) {
            driver::copy_from_host(device, to, reinterpret_cast<const void*>(from), bytes);
        },
        py::arg("device"), py::arg("to"), py::arg("source"), py::arg("bytes"), py::call_guard<Unlocked>());
    module.def(
        "cuda_copy_to_host",
        [](int device, std::uintptr_t to, driver::Address from, std::size_t bytes) {
            driver::copy_to_host(device, reinterpret_cast<void*>(to), from, bytes);
        },
        py::arg("device"), py::arg("to"), py::arg("source"), py::arg("bytes"), py::call_guard<Unlocked>());
}

// Python's numbers as a stub takes them. Throws Error(argument) for one that does not fit.
Problem read_problem(const py::tuple& arrays, const py::tuple& shape, const py::tuple& scalars) {
    Problem problem;
    problem.arrays.reserve(arrays.size());
    problem.shape.reserve(shape.size());
    for (const py::handle each : arrays)
        problem.arrays.push_back(reinterpret_cast<const void*>(py::cast<std::uintptr_t>(each)));
    for (const py::handle each : shape) problem.shape.push_back(py::cast<std::int64_t>(each));
    for (const py::handle each : scalars) problem.scalars.push_back(py::cast<double>(each));
    return problem;
}

void bind_stubs(py::module_& module) {
    py::class_<Stub, std::shared_ptr<Stub>>(module, "Stub")
        .def(py::init([](const py::bytes& image, const std::string& name, const std::string& build) {
                 const std::string_view view = image;
                 const Unlocked unlocked;
                 return std::make_shared<Stub>(view.data(), view.size(), name, build);
             }),
             py::arg("image"), py::arg("name"), py::arg("build"));
    py::class_<StubCall>(module, "StubCall")
        .def_property_readonly("workspace_bytes", &StubCall::workspace_bytes)
        .def(
            "step",
            [](const StubCall& self, std::vector<std::uint32_t> arrays, bool packs) {
                const Unlocked unlocked;
                return self.step(std::move(arrays), packs);
            },
            py::arg("arrays"), py::arg("packs"));
    py::class_<StubFunction, std::shared_ptr<StubFunction>>(module, "StubFunction")
        .def(
            "query",
            [](const StubFunction& self, const py::tuple& arrays, const py::tuple& shape,
               const py::tuple& scalars) {
                Problem problem = read_problem(arrays, shape, scalars);
                const Unlocked unlocked;
                return self.query(std::move(problem));
            },
            py::arg("arrays"), py::arg("shape"), py::arg("scalars"));
}

void bind_cuda_modules(py::module_& module) {
    py::class_<CudaFunction>(module, "CudaFunction")
        .def(
            "step",
            [](const CudaFunction& self, const py::tuple& values, const py::tuple& grid,
               const py::tuple& block, std::optional<unsigned> shared, bool packs) {
                auto [pattern, reach] = read_sources(self.signature(), values);
                const Dim3 blocks = read_extents(grid, "grid"), threads = read_extents(block, "block");
                const Unlocked unlocked;
                return self.step(std::move(pattern), reach, blocks, threads, shared.value_or(self.shared()),
                                 packs);
            },
            py::arg("values"), py::arg("grid"), py::arg("block"), py::arg("shared") = py::none(),
            py::arg("packs") = false);
    py::class_<CudaModule, std::shared_ptr<CudaModule>>(module, "CudaModule")
        .def(py::init([](int device, const py::bytes& image) {
                 const char* data =
                     PyBytes_AS_STRING(image.ptr());  // Python puts a zero byte behind it, as PTX needs
                 const Unlocked unlocked;
                 return std::shared_ptr<CudaModule>(new CudaModule(device, data), UnlockedDelete{});
             }),
             py::arg("device"), py::arg("image"))
        .def(
            "function",
            [](const std::shared_ptr<CudaModule>& self, const std::string& symbol,
               const py::sequence& parameters, unsigned shared, const py::tuple& cluster, bool early) {
                Signature signature = read_signature(parameters, true);
                const Dim3 extents = read_extents(cluster, "cluster");
                const Unlocked unlocked;
                return CudaFunction(self, symbol, std::move(signature), shared, extents, early);
            },
            py::arg("symbol"), py::arg("parameters"), py::arg("shared"),
            py::arg("cluster") = py::make_tuple(1, 1, 1), py::arg("early") = false)
        .def(
            "stub_function",
            [](const std::shared_ptr<CudaModule>& self, const std::string& symbol,
               const std::shared_ptr<Stub>& stub, const std::string& prefix, bool early, int sms,
               unsigned shared_limit) {
                const Unlocked unlocked;
                return std::make_shared<StubFunction>(self, symbol, stub, prefix, early,
                                                      Limits{sms, shared_limit});
            },
            py::arg("symbol"), py::arg("stub"), py::arg("prefix"), py::arg("early"), py::arg("sms"),
            py::arg("shared_limit"));
}

}  // namespace
}  // namespace wootz

// Nothing here needs Python's lock: see python/wootz/once.py for what is shared on Python's side.
PYBIND11_MODULE(_core, module, py::mod_gil_not_used()) {
    module.doc() =
        "The loader of wootz: arrays, binaries and launches. Private; importing it touches no driver.";
    py::register_local_exception_translator(&wootz::translate);
    wootz::bind_view(module);
    wootz::bind_steps(module);
    wootz::bind_cpu(module);
    wootz::bind_cuda(module);
    wootz::bind_stubs(module);
    wootz::bind_cuda_modules(module);
    wootz::bind_plan(module);
#if defined(__APPLE__)
    wootz::bind_metal(module);
#endif
    const py::cpp_function at_exit([] {
        const wootz::Unlocked unlocked;
        wootz::driver::shutdown();
    });
    py::module_::import("atexit").attr("register")(at_exit);
}
