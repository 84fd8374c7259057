#include "dtypes.hpp"

#include <array>

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

// By DLDataTypeCode. kind: as above, 0: not taken. whole: the name says the width.
struct Code {
    const char* name;
    char kind;
    bool whole;
};
constexpr std::array<Code, 18> kCodes{{{"int", 'i', false},
                                       {"uint", 'u', false},
                                       {"float", 'f', false},
                                       {"opaque", 0, false},
                                       {"bfloat", 'E', false},
                                       {"complex", 0, false},
                                       {"bool", 'b', false},
                                       {"float8_e3m4", 0, true},
                                       {"float8_e4m3", 0, true},
                                       {"float8_e4m3b11fnuz", 0, true},
                                       {"float8_e4m3fn", '4', true},
                                       {"float8_e4m3fnuz", 0, true},
                                       {"float8_e5m2", '5', true},
                                       {"float8_e5m2fnuz", 0, true},
                                       {"float8_e8m0fnu", 0, true},
                                       {"float6_e2m3fn", 0, true},
                                       {"float6_e3m2fn", 0, true},
                                       {"float4_e2m1fn", 0, true}}};

}  // namespace

const Dtype* find_dtype(char kind, unsigned bits) {
    for (const Dtype& dtype : kDtypes) {
        if (dtype.kind == kind && dtype.bits == bits) return &dtype;
    }
    return nullptr;
}

const Dtype* find_dtype(const dlpack::DataType& type) {
    if (type.lanes != 1 || type.code >= kCodes.size()) return nullptr;
    return find_dtype(kCodes[type.code].kind, type.bits);
}

const Dtype* find_dtype(const py::dtype& dtype) {
    if (const Dtype* known = find_dtype(dtype.kind(), static_cast<unsigned>(dtype.itemsize() * 8)))
        return known;
    // ml_dtypes; they have no code in the buffer protocol
    return find_spelling(py::cast<std::string>(py::str(dtype.attr("name"))));
}

const Dtype* find_name(const std::string& name) {
    for (const Dtype& dtype : kDtypes) {
        if (name == dtype.name) return &dtype;
    }
    return nullptr;
}

const Dtype* find_spelling(const std::string& spelling) {
    if (spelling == "bfloat16") return find_dtype('E', 16);
    if (spelling == "float8_e4m3fn") return find_dtype('4', 8);
    if (spelling == "float8_e5m2") return find_dtype('5', 8);
    return nullptr;
}

std::string spell_dtype(const dlpack::DataType& type) {
    std::string text = "DLPack's code " + std::to_string(type.code);
    if (type.code < kCodes.size()) text = kCodes[type.code].name;
    if (type.code >= kCodes.size() || !kCodes[type.code].whole) text += std::to_string(type.bits);
    if (type.lanes != 1) text += " in vectors of " + std::to_string(type.lanes);
    return text;
}

bool untaken_spelling(const std::string& spelling) {
    if (spelling.compare(0, 7, "complex") == 0) return true;
    for (const Code& code : kCodes) {
        if (code.whole && code.kind == 0 &&
            spelling.compare(0, std::string(code.name).size(), code.name) == 0)
            return true;
    }
    return false;
}

}  // namespace wootz
