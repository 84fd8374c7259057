#include "dtypes.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "errors.hpp"

namespace py = pybind11;

namespace wootz {
namespace {

constexpr std::array<Dtype, 15> kDtypes{{{'f', 16, "f16"},
                                         {'E', 16, "bf16"},
                                         {'f', 32, "f32"},
                                         {'f', 64, "f64"},
                                         {'i', 8, "i8"},
                                         {'i', 16, "i16"},
                                         {'i', 32, "i32"},
                                         {'i', 64, "i64"},
                                         {'u', 8, "u8"},
                                         {'u', 16, "u16"},
                                         {'u', 32, "u32"},
                                         {'u', 64, "u64"},
                                         {'b', 8, "bool"},
                                         {'4', 8, "e4m3"},
                                         {'5', 8, "e5m2"}}};

struct DlpackCode {
    const char* name;
    char kind;  // as in Dtype; 0: no kernel takes it
};
// By DLDataTypeCode. The names of the first ones lack their bits, those from kNarrow on have them.
constexpr std::array<DlpackCode, 18> kDlpackCodes{{{"int", 'i'},
                                                   {"uint", 'u'},
                                                   {"float", 'f'},
                                                   {"opaque", 0},
                                                   {"bfloat", 'E'},
                                                   {"complex", 0},
                                                   {"bool", 'b'},
                                                   {"float8_e3m4", 0},
                                                   {"float8_e4m3", 0},
                                                   {"float8_e4m3b11fnuz", 0},
                                                   {"float8_e4m3fn", '4'},
                                                   {"float8_e4m3fnuz", 0},
                                                   {"float8_e5m2", '5'},
                                                   {"float8_e5m2fnuz", 0},
                                                   {"float8_e8m0fnu", 0},
                                                   {"float6_e2m3fn", 0},
                                                   {"float6_e3m2fn", 0},
                                                   {"float4_e2m1fn", 0}}};
constexpr std::size_t kNarrow = 7;

std::string dlpack_spelling(const dlpack::DataType& type) {
    const std::string bits = std::to_string(type.bits), code = std::to_string(type.code);
    std::string spelling = "DLPack code " + code + " of " + bits + " bits";
    if (type.code < kDlpackCodes.size()) {
        spelling = kDlpackCodes[type.code].name;
        if (type.code < kNarrow) spelling += bits;
    }
    if (type.lanes != 1) spelling += " in vectors of " + std::to_string(type.lanes);
    return spelling;
}

}  // namespace

const Dtype* find_dtype(char kind, unsigned bits) {
    const auto* found = std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& dtype) {
        return dtype.kind == kind && dtype.bits == bits;
    });
    return found == kDtypes.end() ? nullptr : found;
}

const Dtype* find_dtype(const dlpack::DataType& type) {
    if (type.lanes != 1 || type.code >= kDlpackCodes.size()) return nullptr;
    return find_dtype(kDlpackCodes[type.code].kind, type.bits);
}

const Dtype* find_dtype(const py::dtype& dtype) {
    const auto bits = static_cast<unsigned>(dtype.itemsize() * 8);
    if (const Dtype* known = find_dtype(dtype.kind(), bits)) return known;
    // ml_dtypes; they have no code in the buffer protocol
    return find_spelling(py::cast<std::string>(py::str(dtype.attr("name"))));
}

const Dtype* find_name(const std::string& name) {
    const auto* found =
        std::find_if(kDtypes.begin(), kDtypes.end(), [&](const Dtype& dtype) { return name == dtype.name; });
    return found == kDtypes.end() ? nullptr : found;
}

const Dtype* find_spelling(const std::string& spelling) {
    if (spelling == "bfloat16") return find_dtype('E', 16);
    for (std::size_t code = kNarrow; code < kDlpackCodes.size(); ++code) {
        if (spelling == kDlpackCodes[code].name) return find_dtype(kDlpackCodes[code].kind, 8);
    }
    return nullptr;
}

bool narrow_integer(const std::string& spelling) {
    const std::size_t digit = spelling.rfind("int", 1) == std::string::npos ? 0 : spelling.find("int") + 3;
    return digit != 0 && spelling.size() == digit + 1 && spelling[digit] >= '1' && spelling[digit] < '8';
}

bool narrow_float(const std::string& spelling) {
    return std::any_of(kDlpackCodes.begin() + kNarrow, kDlpackCodes.end(), [&](const DlpackCode& code) {
        return spelling.compare(0, std::strlen(code.name), code.name) == 0;
    });
}

void refuse_dtype(const std::string& name, const std::string& dtype) {
    throw Error(ErrorKind::dtype, name + " has elements of type " + dtype + ", which no kernel takes");
}

void refuse_byte_order(const std::string& name, char order) {
    if (order != '>') return;
    throw Error(ErrorKind::dtype,
                name + " has big-endian elements, kernels take little-endian ones: use .astype(" + name +
                    ".dtype.newbyteorder('='))");
}

const Dtype& dlpack_dtype(const dlpack::DataType& type, const std::string& name) {
    const Dtype* known = find_dtype(type);
    if (known == nullptr) refuse_dtype(name, dlpack_spelling(type));
    return *known;
}

const Dtype& typestr_dtype(const std::string& typestr, const std::string& name) {
    if (typestr.size() < 3 || typestr.size() > 4) refuse_dtype(name, typestr);
    refuse_byte_order(name, typestr[0]);
    const bool numbers =
        std::strchr("<|=", typestr[0]) != nullptr && std::strchr("fiub", typestr[1]) != nullptr;
    const int bytes = std::atoi(typestr.c_str() + 2);
    const Dtype* known =
        numbers && bytes > 0 ? find_dtype(typestr[1], static_cast<unsigned>(bytes) * 8) : nullptr;
    if (known == nullptr) refuse_dtype(name, typestr + " (what NumPy has no code for needs DLPack)");
    return *known;
}

const Dtype& named_dtype(const std::string& spelling, const std::string& name) {
    const Dtype* known = find_name(spelling);
    if (known == nullptr) refuse_dtype(name, spelling);
    return *known;
}

}  // namespace wootz
