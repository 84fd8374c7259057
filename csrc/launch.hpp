// Argument packing, shared by all backends.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace wootz {

// One argument of an entry point: its name (for messages) and its type: ptr, u32, u64 or f32.
enum class ArgType : std::uint8_t { ptr, u32, u64, f32 };

struct Parameter {
    std::string name;
    ArgType type;
    std::size_t size() const { return type == ArgType::u32 || type == ArgType::f32 ? 4 : 8; }
};

using Signature = std::vector<Parameter>;
using Dim3 = std::array<std::uint64_t, 3>;

constexpr std::size_t kMaxArguments = 64;

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
    void** addresses() { return addresses_.data(); }

  private:
    const Signature& signature_;
    std::array<std::uint64_t, kMaxArguments> slots_{};
    std::array<void*, kMaxArguments> addresses_;
};

// Throws Error(argument) unless every extent is at least 1 and at most its limit.
void check_extents(const Dim3& extents, const Dim3& limits, const char* what);

}  // namespace wootz
