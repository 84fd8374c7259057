// The parts of wootz._core that have files of their own. Called with Python's lock.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <exception>

#include "driver.hpp"
#include "unlocked.hpp"

namespace wootz {

// For what is given back to the driver with it: that may wait for the device, and must not keep Python
// waiting.
struct UnlockedDelete {
    template <typename Held>
    void operator()(Held* held) const {
        if (!driver::usable() || PyGILState_Check() == 0) {
            delete held;
            return;
        }
        const Unlocked unlocked;
        delete held;
    }
};

// Turns an exception of the loader into Python's, of wootz.errors; for pybind11, and for functions that it
// does not call. Rethrows any other one.
void translate(std::exception_ptr pending);

inline driver::Stream stream_of(std::uintptr_t handle) { return reinterpret_cast<driver::Stream>(handle); }

void bind_steps(pybind11::module_& module);
void bind_plan(pybind11::module_& module);

}  // namespace wootz
