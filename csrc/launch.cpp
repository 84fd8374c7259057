#include "launch.hpp"

#include <cmath>
#include <cstring>
#include <limits>

#include "errors.hpp"

namespace wootz {

ArgType parse_type(const std::string& name) {
    static constexpr std::array<std::pair<const char*, ArgType>, 5> known{{{"ptr", ArgType::ptr},
                                                                           {"u32", ArgType::u32},
                                                                           {"u64", ArgType::u64},
                                                                           {"f32", ArgType::f32},
                                                                           {"map", ArgType::map}}};
    for (const auto& [spelling, type] : known) {
        if (name == spelling) return type;
    }
    throw Error(ErrorKind::artifact,
                "the index has an argument of type " + name + "; want ptr, u32, u64, f32 or map");
}

void Arguments::set(std::size_t index, std::uint64_t value) {
    const Parameter& parameter = signature_[index];
    if (parameter.type == ArgType::f32) return set(index, static_cast<double>(value));
    if (parameter.type == ArgType::u32 && value > std::numeric_limits<std::uint32_t>::max()) {
        throw Error(ErrorKind::argument, parameter.name + " is " + std::to_string(value) +
                                             ", more than the kernel's 32-bit argument holds (4294967295)");
    }
    slots_[index] = value;  // little-endian: the low four bytes are the u32
}

void Arguments::set(std::size_t index, double value) {
    const Parameter& parameter = signature_[index];
    const float narrow = static_cast<float>(value);
    if (parameter.type != ArgType::f32)
        throw Error(ErrorKind::argument, parameter.name + " has to be a whole number");
    if (std::isfinite(value) && !std::isfinite(narrow)) {
        throw Error(ErrorKind::argument,
                    parameter.name + " is " + std::to_string(value) + ", outside float32's range");
    }
    std::memcpy(&slots_[index], &narrow, sizeof narrow);
}

void Arguments::set(std::size_t index, const MapRequest& request) {
    map_indices_[map_count_] = index;
    requests_[map_count_] = request;
    addresses_[index] = maps_[map_count_++].data();
}

void Arguments::encode_maps() {
    for (std::size_t i = 0; i < map_count_; ++i) {
        const Parameter& parameter = signature_[map_indices_[i]];
        encode_map(parameter.map, requests_[i], maps_[i].data(), parameter.name);
    }
}

void check_extents(const Dim3& extents, const Dim3& limits, const char* what) {
    static constexpr std::array<char, 3> axes{'x', 'y', 'z'};
    for (std::size_t i = 0; i < 3; ++i) {
        if (extents[i] >= 1 && extents[i] <= limits[i]) continue;
        throw Error(ErrorKind::argument, std::string("the launch's ") + what + "." + axes[i] + " would be " +
                                             std::to_string(extents[i]) + "; the device takes 1 to " +
                                             std::to_string(limits[i]) + ": use a smaller problem");
    }
}

}  // namespace wootz
