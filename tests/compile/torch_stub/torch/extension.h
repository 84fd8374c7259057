// As much of torch's C++ interface as the solutions use: they are compiled where torch is not installed.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <vector>

namespace at {
struct IntArrayRef : std::vector<int64_t> {
    using std::vector<int64_t>::vector;
};
}  // namespace at

namespace torch {
enum ScalarType {
    kHalf,
    kBFloat16,
    kFloat,
    kChar,
    kByte,
    kUInt16,
    kInt,
    kUInt32,
    kBool,
    kFloat8_e4m3fn,
    kFloat8_e5m2
};
struct Options {
    Options dtype(ScalarType) const { return {}; }
};
struct Tensor {
    void* data = nullptr;
    ScalarType type = kFloat;
    at::IntArrayRef shape;
    int device() const { return 0; }
    bool is_cuda() const { return true; }
    bool is_contiguous() const { return true; }
    ScalarType scalar_type() const { return type; }
    at::IntArrayRef sizes() const { return shape; }
    int64_t size(int64_t axis) const {
        return shape.at(size_t(axis < 0 ? axis + int64_t(shape.size()) : axis));
    }
    int64_t numel() const {
        int64_t count = 1;
        for (int64_t extent : shape) {
            count *= extent;
        }
        return count;
    }
    void* data_ptr() const { return data; }
    Options options() const { return {}; }
};
inline Tensor empty(at::IntArrayRef shape, Options) {
    Tensor made{nullptr, kByte, shape};
    cudaMalloc(&made.data, size_t(made.numel()));
    return made;
}
}  // namespace torch

template <class... Words>
void torch_check(bool holds, const char* what, const Words&...) {
    if (!holds) {
        std::printf("refused: %s\n", what);
        std::exit(3);
    }
}
#define TORCH_CHECK(...) torch_check(__VA_ARGS__)

struct Module {
    template <class Function>
    void def(const char*, Function) {}
};
#define PYBIND11_MODULE(name, m) void name##_module(Module& m)
