// What the driver's own calls cost from C++, its share of every launch: of a kernel that does nothing, with
// eight arguments, and of a graph of that kernel. Prints a line for each stream and call: the median of
// microseconds, over bursts as long as launch.py's.
#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

extern "C" __global__ void nothing(const float*, const float*, const float*, float*, unsigned, unsigned,
                                   unsigned, unsigned) {}

namespace {

void check(int result) {
    if (result != 0) std::exit(1);
}

template <typename Call>
double median(Call call) {
    constexpr int kBurst = 50, kRounds = 300;
    using Clock = std::chrono::steady_clock;
    std::vector<double> times;
    for (int round = 0; round < kRounds; ++round) {
        const auto start = Clock::now();
        for (int i = 0; i < kBurst; ++i) check(call());
        times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - start).count() / kBurst);
        check(cuCtxSynchronize());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

}  // namespace

int main() {
    cudaFunction_t function = nullptr;
    CUdeviceptr memory = 0;
    CUstream own = nullptr;
    check(cudaFree(nullptr));
    check(cudaGetFuncBySymbol(&function, reinterpret_cast<const void*>(nothing)));
    check(cuMemAlloc(&memory, 1024));
    check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    unsigned number = 1;
    void* arguments[] = {&memory, &memory, &memory, &memory, &number, &number, &number, &number};
    const auto launch = [&](CUstream stream) {
        return cuLaunchKernel(reinterpret_cast<CUfunction>(function), 64, 1, 1, 128, 1, 1, 0, stream,
                              arguments, nullptr);
    };
    CUgraph graph = nullptr;
    CUgraphExec replay = nullptr;
    check(cuStreamBeginCapture(own, CU_STREAM_CAPTURE_MODE_RELAXED));
    check(launch(own));
    check(cuStreamEndCapture(own, &graph));
    check(cuGraphInstantiate(&replay, graph, 0));
    for (const auto& [name, stream] : {std::pair{"default", CUstream{}}, std::pair{"own", own}}) {
        std::printf("%s launch %.3f\n", name, median([&, s = stream] { return launch(s); }));
        std::printf("%s graph %.3f\n", name, median([&, s = stream] { return cuGraphLaunch(replay, s); }));
    }
    return 0;
}
