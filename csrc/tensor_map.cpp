#include "tensor_map.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "driver.hpp"
#include "errors.hpp"

namespace wootz {
namespace {

[[noreturn]] void refuse(const std::string& what) {
    throw Error(ErrorKind::artifact, "the index has a tensor map of " + what + "; rebuild the artifacts");
}

// CUtensorMapDataType; types without a number of their own are copied as bytes.
constexpr std::array<std::pair<const char*, int>, 9> kElements{{{"u8", 0},
                                                                {"i8", 0},
                                                                {"e4m3", 0},
                                                                {"e5m2", 0},
                                                                {"u32", 2},
                                                                {"i32", 3},
                                                                {"f16", 6},
                                                                {"f32", 7},
                                                                {"bf16", 9}}};
// CUtensorMapSwizzle and CUtensorMapL2promotion are places in these lists.
constexpr std::array<int, 4> kSwizzles{0, 32, 64, 128}, kPromotions{0, 64, 128, 256};

int place(const std::array<int, 4>& known, int wanted, const char* what) {
    const auto* found = std::find(known.begin(), known.end(), wanted);
    if (found == known.end()) refuse(std::string(what) + " " + std::to_string(wanted));
    return static_cast<int>(found - known.begin());
}

template <typename Number>
std::string product(const Number* numbers, std::uint32_t count) {
    std::ostringstream text;
    for (std::uint32_t i = 0; i < count; ++i) text << (i == 0 ? "" : " x ") << numbers[i];
    return text.str();
}

}  // namespace

MapSpec make_map_spec(const std::string& dtype, const std::vector<std::uint32_t>& box, int swizzle,
                      int promotion) {
    MapSpec spec;
    const auto* element = std::find_if(kElements.begin(), kElements.end(),
                                       [&](const auto& known) { return dtype == known.first; });
    if (element == kElements.end()) refuse("element type " + dtype);
    if (box.empty() || box.size() > kMaxMapRank) refuse("rank " + std::to_string(box.size()));
    for (const std::uint32_t extent : box) {
        if (extent < 1 || extent > 256)
            refuse("box " + product(box.data(), static_cast<unsigned>(box.size())));
    }
    spec.element = element->second;
    spec.swizzle = place(kSwizzles, swizzle, "swizzle");
    spec.promotion = place(kPromotions, promotion, "promotion");
    spec.rank = static_cast<std::uint32_t>(box.size());
    std::copy(box.begin(), box.end(), spec.box.begin());
    return spec;
}

std::string describe_map(std::uint32_t rank, std::uint64_t address, const std::uint64_t* dims,
                         const std::uint64_t* strides, const std::uint32_t* box) {
    std::ostringstream text;
    text << "address 0x" << std::hex << address << std::dec << ", extents " << product(dims, rank)
         << ", strides in bytes " << (rank > 1 ? product(strides, rank - 1) : "none") << ", box "
         << product(box, rank);
    return text.str();
}

void encode_map(const MapSpec& spec, std::uint64_t address, const MapRequest& request, void* out,
                const std::string& name) {
    static constexpr std::array<std::uint32_t, kMaxMapRank> kDense{1, 1, 1, 1, 1};
    if (address == 0) {
        std::memset(out, 0, kMapBytes);
        return;
    }
    const driver::Api& api = driver::api();
    driver::need(api.encode_tiled != nullptr, "cuTensorMapEncodeTiled", "12.0");
    const driver::Result result = api.encode_tiled(
        out, spec.element, spec.rank, reinterpret_cast<void*>(address), request.dims.data(),
        request.strides.data(), spec.box.data(), kDense.data(), 0, spec.swizzle, spec.promotion, 0);
    try {
        driver::check(result, "cuTensorMapEncodeTiled");
    } catch (const DriverFailure& failure) {
        throw DriverFailure(failure.code(), failure.name(), failure.call(),
                            name + ": " +
                                describe_map(spec.rank, address, request.dims.data(), request.strides.data(),
                                             spec.box.data()));
    }
}

}  // namespace wootz
