#pragma once

namespace c10::cuda {
struct CUDAGuard {
    explicit CUDAGuard(int) {}
};
}  // namespace c10::cuda
