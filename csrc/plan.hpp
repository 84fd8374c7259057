// The callables of plans. They are types of Python's own C interface, because a call through it costs a tenth
// of a microsecond and one through pybind11 a whole one.
//
// PlanCall is the base of wootz.Plan. A call whose arguments are exactly what the plan wants is read, checked
// and launched here; any other goes to the method _careful, which words what is wrong, or takes arrays that
// are not known here and launches them. BoundCall is the base of wootz.plan.Bound: it launches the same
// arrays each time.
#pragma once

#include <pybind11/pybind11.h>

namespace wootz {

void bind_plan_types(pybind11::module_& module);

}  // namespace wootz
