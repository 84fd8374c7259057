// y[m, n] = activation(alpha * a[m, k] b[n, k]^T + beta * c[m, n] + bias[n]), c and bias optional.
#pragma once
#include "activation.cuh"
#include "collective.cuh"

namespace wootz {
struct ActivationArguments {
    uint32_t kind = kActivationNone;
};

// The epilogue's last step, in the form that CUTLASS asks for: on one element and on an array.
template <class T>
struct Activation {
    using Arguments = ActivationArguments;
    CUTLASS_HOST_DEVICE T operator()(T value, Arguments const& chosen) const {
        T all[1] = {value};
        activate<1>(all, chosen.kind);
        return all[0];
    }
};
template <class T, int N>
struct Activation<cutlass::Array<T, N>> {
    using Arguments = ActivationArguments;
    CUTLASS_HOST_DEVICE cutlass::Array<T, N> operator()(cutlass::Array<T, N> value,
                                                        Arguments const& chosen) const {
        activate<N>(value, chosen.kind);
        return value;
    }
};

template <class Input, class Output>
using DenseFusion =
    cutlass::epilogue::fusion::LinCombPerColBiasEltAct<Activation, Output, float, Input, Output, float>;

#ifndef __CUDACC__
// Arrays: a, b, c, bias, y. Sizes: m, n, k. Scalars: alpha, beta, activation.
template <class Gemm>
struct Dense : Gemm {
    static constexpr int sizes = 3;
    static typename Gemm::Kernel::Arguments arguments(const Problem& problem) {
        using Kernel = typename Gemm::Kernel;
        int m = problem.size(0), n = problem.size(1), k = problem.size(2);
        auto* y = problem.array<typename Kernel::ElementD>(4);
        auto* c = problem.array<typename Kernel::ElementC>(2);
        typename Kernel::Arguments all{};
        all.mode = cutlass::gemm::GemmUniversalMode::kGemm;
        all.problem_shape = {m, n, k, 1};
        all.mainloop.ptr_A = problem.array<typename Kernel::ElementA>(0);
        all.mainloop.dA = packed<typename Kernel::StrideA>(m, k);
        all.mainloop.ptr_B = problem.array<typename Kernel::ElementB>(1);
        all.mainloop.dB = packed<typename Kernel::StrideB>(n, k);
        all.epilogue.thread.alpha = problem.scalar(0);
        all.epilogue.thread.beta = c ? problem.scalar(1) : 0.f;
        all.epilogue.thread.bias_ptr = problem.array<typename Kernel::ElementA>(3);
        all.epilogue.thread.activation.kind = static_cast<uint32_t>(problem.given.scalars[2]);
        all.epilogue.ptr_C = c ? c : y;  // never read then, but a tensor map needs an address
        all.epilogue.dC = packed<typename Kernel::StrideC>(m, n);
        all.epilogue.ptr_D = y;
        all.epilogue.dD = packed<typename Kernel::StrideD>(m, n);
        all.hw_info.sm_count = problem.given.sm_count;
        all.hw_info.max_active_clusters = problem.given.max_active_clusters;
        rasterise<Gemm>(all.scheduler, m, n);
        return all;
    }
};
#endif
}  // namespace wootz
