// Argument packing, shared by all backends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tensor_map.hpp"

namespace wootz {

// One argument of an entry point: its name (for messages) and its type: ptr, u32, u64, f32, or map, a tensor
// map by value.
enum class ArgType : std::uint8_t { ptr, u32, u64, f32, map };

struct Parameter {
    std::string name;
    ArgType type;
    MapSpec map{};  // of a map
    std::size_t size() const {
        return type == ArgType::map ? kMapBytes : type == ArgType::u32 || type == ArgType::f32 ? 4 : 8;
    }
};

using Signature = std::vector<Parameter>;
using Dim3 = std::array<std::uint64_t, 3>;

constexpr std::size_t kMaxArguments = 64, kMaxMaps = 8;

ArgType parse_type(const std::string& name);  // throws Error(artifact) for any other name

// The values of one call, each in a slot of its own, and the array of their addresses that kernels take.
class Arguments {
  public:
    explicit Arguments(const Signature& signature) : signature_(signature) {
        for (std::size_t i = 0; i < kMaxArguments; ++i) addresses_[i] = &slots_[i];
    }
    Arguments(const Arguments&) = delete;
    Arguments& operator=(const Arguments&) = delete;

    // Each throws Error(argument) when the value does not fit the type: nothing ever wraps.
    void set(std::size_t index, std::uint64_t value);
    void set(std::size_t index, double value);
    void set(std::size_t index, const MapRequest& request);  // at most kMaxMaps of them: see read_signature
    bool has_maps() const { return map_count_ != 0; }
    void encode_maps();  // after all are set, and before the launch; see encode_map
    void** addresses() { return addresses_.data(); }

  private:
    const Signature& signature_;
    std::array<std::uint64_t, kMaxArguments> slots_{};
    std::array<void*, kMaxArguments> addresses_;
    std::size_t map_count_ = 0;  // what follows is set as far as this says
    std::array<std::size_t, kMaxMaps> map_indices_;
    std::array<MapRequest, kMaxMaps> requests_;
    alignas(kMapAlignment) std::array<std::array<unsigned char, kMapBytes>, kMaxMaps> maps_;
};

// Throws Error(argument) unless every extent is at least 1 and at most its limit.
void check_extents(const Dim3& extents, const Dim3& limits, const char* what);

}  // namespace wootz
