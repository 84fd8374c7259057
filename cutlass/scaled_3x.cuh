// Block-scaled GEMM: both operands are codes with a scale a block, and the matrix instruction applies the
// scales.
//   y[m, n] = alpha * scale1(x) * scale1(w) * sum over k of x[m, k] * w[n, k]
// Rows of codes hold whole runs of 128 elements, scales lie in tiles of 128 rows x 4 columns, padding is
// zero: a problem's K is rounded up to the run and nothing else is needed at its end.
#pragma once
#include "collective.cuh"

namespace wootz {
constexpr int kRun = 128;

constexpr int padded_k(int k) { return (k + kRun - 1) / kRun * kRun; }

// The epilogue: the accumulator times some float32 numbers, each a value or an address on the device.
template <class Output, int Count>
struct Scaled {
    using Numbers =
        cutlass::epilogue::fusion::Sm90ScalarBroadcast<float, cute::Stride<cute::_0, cute::_0, int64_t>,
                                                       Count>;
    using Product = cutlass::epilogue::fusion::Sm90Compute<cutlass::multiplies, Output, float,
                                                           cutlass::FloatRoundStyle::round_to_nearest>;
    using Fusion =
        cutlass::epilogue::fusion::Sm90EVT<Product, Numbers, cutlass::epilogue::fusion::Sm90AccFetch>;
};

#ifndef __CUDACC__
// Arrays: codes and tiles of x and of w, each followed by its scale of the tensor where there is one; y.
// Sizes: m, n, k. Scalars: alpha.
template <class Gemm, bool GlobalX, bool GlobalW>
struct ScaledHost : Gemm {
    static constexpr int sizes = 3;
    static typename Gemm::Kernel::Arguments arguments(const Problem& problem) {
        using Kernel = typename Gemm::Kernel;
        using Main = typename Kernel::CollectiveMainloop;
        using Tiles = typename Main::Sm1xxBlkScaledConfig;
        constexpr int w = GlobalX ? 3 : 2, y = w + (GlobalW ? 3 : 2);
        int m = problem.size(0), n = problem.size(1), k = padded_k(problem.size(2));
        typename Kernel::Arguments all{};
        all.mode = cutlass::gemm::GemmUniversalMode::kGemm;
        all.problem_shape = {m, n, k, 1};
        all.mainloop.ptr_A = problem.array<typename Main::ArrayElementA>(0);
        all.mainloop.dA = packed<typename Kernel::StrideA>(m, k);
        all.mainloop.ptr_SFA = problem.array<typename Main::ElementSF>(1);
        all.mainloop.layout_SFA = Tiles::tile_atom_to_shape_SFA(cute::make_shape(m, n, k, 1));
        all.mainloop.ptr_B = problem.array<typename Main::ArrayElementB>(w);
        all.mainloop.dB = packed<typename Kernel::StrideB>(n, k);
        all.mainloop.ptr_SFB = problem.array<typename Main::ElementSF>(w + 1);
        all.mainloop.layout_SFB = Tiles::tile_atom_to_shape_SFB(cute::make_shape(m, n, k, 1));
        auto& numbers = all.epilogue.thread.op_0;
        for (float& number : numbers.scalars) number = 1.f;
        numbers.scalars[0] = problem.scalar(0);
        numbers.scalar_ptrs[1] = GlobalX ? problem.array<float>(2) : nullptr;
        numbers.scalar_ptrs[2] = GlobalW ? problem.array<float>(w + 2) : nullptr;
        all.epilogue.ptr_D = problem.array<typename Kernel::ElementD>(y);
        all.epilogue.dD = packed<typename Kernel::StrideD>(m, n);
        all.hw_info.sm_count = problem.given.sm_count;
        all.hw_info.max_active_clusters = problem.given.max_active_clusters;
        return all;
    }
};
#endif
}  // namespace wootz
