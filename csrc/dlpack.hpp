// The binary interface of DLPack (dmlc/dlpack, version 1.x and the unversioned structure before it), as far
// as it is read here.
#pragma once

#include <cstdint>

namespace wootz::dlpack {

struct Device {
    std::int32_t type;
    std::int32_t id;
};

enum DeviceType : std::int32_t {
    kCpu = 1,
    kCuda = 2,
    kCudaHost = 3,
    kMetal = 8,
    kCudaManaged = 13,
};

struct DataType {
    std::uint8_t code;
    std::uint8_t bits;
    std::uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    std::int32_t ndim;
    DataType dtype;
    std::int64_t* shape;
    std::int64_t* strides;  // in elements; null = compact and row-major
    std::uint64_t byte_offset;
};

// The content of a capsule named "dltensor".
struct ManagedTensor {
    Tensor tensor;
    void* manager_ctx;
    void (*deleter)(ManagedTensor*);
};

struct Version {
    std::uint32_t major;
    std::uint32_t minor;
};

constexpr std::uint32_t kMajor = 1;
constexpr std::uint64_t kReadOnly = 1, kCopied = 2;  // flags

// The content of a capsule named "dltensor_versioned". Only `version` may be read before its major number is
// checked.
struct ManagedTensorVersioned {
    Version version;
    void* manager_ctx;
    void (*deleter)(ManagedTensorVersioned*);
    std::uint64_t flags;
    Tensor tensor;
};

}  // namespace wootz::dlpack
