// wootz._core: launches that are settled, and plans.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bind.hpp"
#include "driver.hpp"
#include "errors.hpp"
#include "launcher.hpp"
#include "plan.hpp"
#include "steps.hpp"
#include "unlocked.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

struct Nodes {
    std::vector<driver::GraphNode> nodes;
};

// The addresses of a call, as many as the steps want.
std::vector<std::uintptr_t> read_addresses(const Steps& steps, const py::tuple& addresses) {
    if (addresses.size() != steps.arrays()) {
        throw Error(ErrorKind::argument, "got " + std::to_string(addresses.size()) + " addresses for " +
                                             std::to_string(steps.arrays()) + " arrays");
    }
    return py::cast<std::vector<std::uintptr_t>>(addresses);
}

}  // namespace

void bind_steps(py::module_& module) {
    py::class_<Step, std::shared_ptr<Step>>(module, "Step", "One launch, settled.");
    py::class_<Steps, std::shared_ptr<Steps>>(module, "Steps", "The launches of one problem, in order.")
        .def(py::init([](int device, std::size_t arrays, const std::vector<std::shared_ptr<Step>>& steps) {
                 return std::make_shared<Steps>(
                     device, arrays, std::vector<std::shared_ptr<const Step>>(steps.begin(), steps.end()));
             }),
             py::arg("device"), py::arg("arrays"), py::arg("steps"))
        .def(
            "launch",
            [](const Steps& self, const py::tuple& addresses, std::uint64_t workspace, std::uint64_t bytes,
               std::uintptr_t stream) {
                const auto numbers = read_addresses(self, addresses);
                const Unlocked unlocked;
                self.launch({numbers.data(), workspace, bytes, stream_of(stream)});
            },
            py::arg("addresses"), py::arg("workspace") = 0, py::arg("bytes") = 0, py::arg("stream") = 0);
}

void bind_plan(py::module_& module) {
    py::class_<Nodes>(module, "Nodes", "What launches became in a graph.")
        .def("__len__", [](const Nodes& self) { return self.nodes.size(); });
    py::class_<Launcher, std::shared_ptr<Launcher>>(module, "Launcher", "The launches of a plan.")
        .def(py::init([](std::shared_ptr<Steps> steps, std::uint64_t workspace, std::uint64_t bytes) {
                 return std::shared_ptr<Launcher>(new Launcher(std::move(steps), workspace, bytes),
                                                  UnlockedDelete());
             }),
             py::arg("steps"), py::arg("workspace"), py::arg("bytes"))
        .def(
            "launch",
            [](Launcher& self, const py::tuple& addresses, std::uintptr_t stream) {
                const auto numbers = read_addresses(self.steps(), addresses);
                const Unlocked unlocked;
                self.launch(numbers.data(), stream_of(stream));
            },
            py::arg("addresses"), py::arg("stream"))
        .def(
            "capture",
            [](const Launcher& self, const py::tuple& addresses, std::uintptr_t stream) {
                const auto numbers = read_addresses(self.steps(), addresses);
                const Unlocked unlocked;
                return Nodes{self.steps().capture(self.call(numbers.data(), stream_of(stream)))};
            },
            py::arg("addresses"), py::arg("stream"))
        .def(
            "update",
            [](const Launcher& self, const py::tuple& addresses, std::uintptr_t graph, const Nodes& nodes) {
                const auto numbers = read_addresses(self.steps(), addresses);
                const Unlocked unlocked;
                self.steps().update(self.call(numbers.data(), nullptr),
                                    reinterpret_cast<driver::GraphExec>(graph), nodes.nodes);
            },
            py::arg("addresses"), py::arg("graph"), py::arg("nodes"));
    bind_plan_types(module);
}

}  // namespace wootz
