// What cuLaunchKernel costs from C++: the driver's own share of every launch. Prints the median of
// microseconds a call of a kernel that does nothing, with eight arguments, over bursts as long as
// launch.py's.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

extern "C" __global__ void nothing(const float*, const float*, const float*, float*, unsigned, unsigned,
                                   unsigned, unsigned) {}

int main() {
    constexpr int kBurst = 50, kRounds = 300;
    using Clock = std::chrono::steady_clock;
    cudaFunction_t function = nullptr;
    CUdeviceptr memory = 0;
    if (cudaFree(nullptr) != cudaSuccess ||
        cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(nothing)) != cudaSuccess ||
        cuMemAlloc(&memory, 1024) != CUDA_SUCCESS)
        return 1;
    unsigned number = 1;
    void* arguments[] = {&memory, &memory, &memory, &memory, &number, &number, &number, &number};
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
        const auto start = Clock::now();
        for (int i = 0; i < kBurst; ++i) {
            if (cuLaunchKernel(reinterpret_cast<CUfunction>(function), 64, 1, 1, 128, 1, 1, 0, nullptr,
                               arguments, nullptr) != CUDA_SUCCESS)
                return 1;
        }
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kBurst);
        if (cuCtxSynchronize() != CUDA_SUCCESS) return 1;
    }
    std::sort(times.begin(), times.end());
    std::printf("%.3f\n", times[times.size() / 2]);
    return 0;
}
