// The values of Metal's built-in kernel arguments, for the launchers that signature.py writes.
#pragma once

#include "simd.h"

namespace metal {

METAL_FUNC LanesDim lanes_grid_threads() {
    LanesDim grid = lanes_grid_size(), group = lanes_group_size();
    LanesDim result = {grid.x * group.x, grid.y * group.y, grid.z * group.z};
    return result;
}
METAL_FUNC LanesDim lanes_grid_place() {
    LanesDim group = lanes_group_position(), size = lanes_group_size(), thread_ = lanes_thread_position();
    LanesDim result = {group.x * size.x + thread_.x, group.y * size.y + thread_.y,
                       group.z * size.z + thread_.z};
    return result;
}
METAL_FUNC uint lanes_lane_index() { return lanes_lane(); }
METAL_FUNC uint lanes_simd_index() { return lanes_thread_index() / LANES_WIDTH; }
METAL_FUNC uint lanes_simd_width() { return LANES_WIDTH; }
METAL_FUNC uint lanes_simd_count() {
    LanesDim size = lanes_group_size();
    return (size.x * size.y * size.z + LANES_WIDTH - 1) / LANES_WIDTH;
}

// A built-in value as the parameter's type: all of a position, or its first component.
template <class T>
METAL_FUNC T lanes_builtin(uint value) {
    return (T)value;
}
template <class T>
METAL_FUNC T lanes_builtin(LanesDim dim) {
    const uint parts[] = {dim.x, dim.y, dim.z};
    T result;
    for (uint i = 0; i < vector_traits<T>::length; ++i) {
        ((LANES_PRIVATE typename vector_traits<T>::element*)&result)[i] =
            (typename vector_traits<T>::element)parts[i];
    }
    return result;
}

}  // namespace metal
