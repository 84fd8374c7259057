// Argument packing, shared by all backends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "driver.hpp"
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

// What is new at each launch. addresses: of the arrays that sources are numbered by, 0 for one not given.
struct Call {
    const std::uintptr_t* addresses;
    std::uint64_t workspace = 0, workspace_bytes = 0;
    driver::Stream stream = nullptr;
};

// The arguments of an entry point as far as they are settled before a launch: numbers, and where the rest
// will come from.
class Pattern {
  public:
    explicit Pattern(Signature signature) : signature_(std::move(signature)) {}

    const Signature& signature() const { return signature_; }
    // A number, settled. Throws Error(argument) when it does not fit the type: nothing ever wraps.
    void settle(std::size_t index, std::uint64_t value);
    void settle(std::size_t index, double value);
    // The address of an array, the call's workspace, a map over an array (at most kMaxMaps: see
    // read_signature). They throw Error(artifact) where the argument is of another type.
    void take(std::size_t index, std::uint32_t array);
    void take_workspace(std::size_t index);
    void take_map(std::size_t index, std::uint32_t array, const MapRequest& request);

  private:
    friend class Arguments;
    static constexpr std::uint32_t kWorkspace = ~std::uint32_t{0};
    struct Source {
        std::size_t index;
        std::uint32_t array;
    };
    struct Map {
        Source source;
        MapRequest request;
    };
    void check(std::size_t index, bool fits) const;

    Signature signature_;
    std::array<std::uint64_t, kMaxArguments> slots_{};
    std::vector<Source> sources_;
    std::vector<Map> maps_;
};

// The values of one launch, each in a slot of its own, and the array of their addresses that kernels take.
class Arguments {
  public:
    // Encodes the tensor maps; see encode_map.
    Arguments(const Pattern& pattern, const Call& call);
    Arguments(const Arguments&) = delete;
    Arguments& operator=(const Arguments&) = delete;

    void** addresses() const { return addresses_.data(); }

  private:  // set as far as the pattern says
    std::array<std::uint64_t, kMaxArguments> slots_;
    mutable std::array<void*, kMaxArguments>
        addresses_;  // the driver writes nothing there, and asks for void**
    alignas(kMapAlignment) std::array<std::array<unsigned char, kMapBytes>, kMaxMaps> maps_;
};

// Throws Error(argument) unless every extent of `symbol`'s launch is at least 1 and at most its limit.
void check_extents(const Dim3& extents, const Dim3& limits, const char* what, const std::string& symbol);

}  // namespace wootz
