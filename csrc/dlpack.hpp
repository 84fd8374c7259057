// The binary interface of DLPack (dmlc/dlpack, version 1.x and the unversioned structure before it; the table
// of functions that types have is of 1.3), as far as it is read here.
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

// What a type's __dlpack_c_exchange_api__ holds: a capsule named "dlpack_exchange_api" of a table that lives
// as long as the process. Functions return 0, or -1 with a Python error set. Only the header may be read
// before its major number is checked; `previous` leads to tables of earlier versions.
struct ExchangeHeader {
    Version version;
    ExchangeHeader* previous;
};

struct ExchangeApi {
    ExchangeHeader header;
    int (*allocate)(Tensor*, ManagedTensorVersioned**, void*, void (*)(void*, const char*, const char*));
    int (*managed_from_object)(void* object, ManagedTensorVersioned** out);
    int (*managed_to_object)(ManagedTensorVersioned* tensor, void** object);
    int (*tensor_from_object)(void* object, Tensor* out);  // may be null; what it writes stays the object's
    int (*current_stream)(std::int32_t device_type, std::int32_t device_id, void** stream);
};
static_assert(sizeof(ExchangeApi) == 56);

}  // namespace wootz::dlpack
