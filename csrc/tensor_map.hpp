// Tensor maps: the 128-byte descriptions of arrays that the copy engine of a GPU reads.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace wootz {

constexpr std::size_t kMapBytes = 128, kMapAlignment = 64, kMaxMapRank = 5;

// What does not change from call to call. element, swizzle, promotion: the driver's numbers.
struct MapSpec {
    int element = 0, swizzle = 0, promotion = 0;
    std::uint32_t rank = 0;
    std::array<std::uint32_t, kMaxMapRank> box{};
};

// What the shapes of a call say: extents innermost first, and the strides in bytes of all but the innermost.
struct MapRequest {
    std::array<std::uint64_t, kMaxMapRank> dims, strides;
};

// dtype: of the array. box: elements along each axis, innermost first. swizzle: 0, 32, 64 or 128 bytes.
// promotion: 0, 64, 128 or 256 bytes. Throws Error(artifact) for anything else.
MapSpec make_map_spec(const std::string& dtype, const std::vector<std::uint32_t>& box, int swizzle,
                      int promotion);

// Writes the map of the array at `address` to `out`, aligned to kMapAlignment; a map of no operand (address
// 0) is all zero. `name`: the argument's. Throws DriverFailure, with the extents and strides in its text.
void encode_map(const MapSpec& spec, std::uint64_t address, const MapRequest& request, void* out,
                const std::string& name);

// "address 0x10, extents 8 x 4, strides 16" for messages.
std::string describe_map(std::uint32_t rank, std::uint64_t address, const std::uint64_t* dims,
                         const std::uint64_t* strides, const std::uint32_t* box);

}  // namespace wootz
