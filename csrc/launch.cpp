#include "launch.hpp"

#include <algorithm>
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

void Pattern::check(std::size_t index, bool fits) const {
    if (fits) return;
    throw Error(ErrorKind::artifact, "the index gives argument " + signature_[index].name +
                                         " another type than its role has; rebuild the artifacts");
}

void Pattern::settle(std::size_t index, std::uint64_t value) {
    const Parameter& parameter = signature_[index];
    check(index, parameter.type != ArgType::map);
    if (parameter.type == ArgType::f32) return settle(index, static_cast<double>(value));
    if (parameter.type == ArgType::u32 && value > std::numeric_limits<std::uint32_t>::max()) {
        throw Error(ErrorKind::argument, parameter.name + " is " + std::to_string(value) +
                                             ", more than the kernel's 32-bit argument holds (4294967295)");
    }
    slots_[index] = value;  // little-endian: the low four bytes are the u32
}

void Pattern::settle(std::size_t index, double value) {
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

void Pattern::take(std::size_t index, std::uint32_t array) {
    check(index, signature_[index].size() == sizeof(std::uintptr_t));
    sources_.push_back({index, array});
}

void Pattern::take_workspace(std::size_t index) { take(index, kWorkspace); }

void Pattern::take_map(std::size_t index, std::uint32_t array, const MapRequest& request) {
    check(index, signature_[index].type == ArgType::map);
    maps_.push_back({{index, array}, request});
}

Arguments::Arguments(const Pattern& pattern, const Call& call) {
    const std::size_t count = pattern.signature_.size();
    std::copy_n(pattern.slots_.begin(), count, slots_.begin());
    for (std::size_t i = 0; i < count; ++i) addresses_[i] = &slots_[i];
    for (const Pattern::Source& source : pattern.sources_)
        slots_[source.index] =
            source.array == Pattern::kWorkspace ? call.workspace : call.addresses[source.array];
    auto* map = maps_.data();
    for (const auto& [source, request] : pattern.maps_) {
        const Parameter& parameter = pattern.signature_[source.index];
        encode_map(parameter.map, call.addresses[source.array], request, map->data(), parameter.name);
        addresses_[source.index] = (map++)->data();
    }
}

void check_extents(const Dim3& extents, const Dim3& limits, const char* what, const std::string& symbol) {
    static constexpr std::array<char, 3> axes{'x', 'y', 'z'};
    for (std::size_t i = 0; i < 3; ++i) {
        if (extents[i] >= 1 && extents[i] <= limits[i]) continue;
        throw Error(ErrorKind::argument, symbol + ": the launch's " + what + "." + axes[i] + " would be " +
                                             std::to_string(extents[i]) + "; the device takes 1 to " +
                                             std::to_string(limits[i]) + ": use a smaller problem");
    }
}

}  // namespace wootz
