// GEMM of 8-bit floats with float32 scales: of a tensor or of each row (applied to the sums), or of blocks of
// 1 x 128 and 128 x 128 along k (applied by the main loop, each block's sums being added up in float32).
#pragma once
#include "collective.cuh"

namespace wootz {
namespace fusion = cutlass::epilogue::fusion;

// y = scale_a * scale_b * sum, each scale one number or one a row. Tile: that of one block.
template <class Tile, class Output>
struct OuterScaled {
    template <class Result>
    using Times =
        fusion::Sm90Compute<cutlass::multiplies, Result, float, cutlass::FloatRoundStyle::round_to_nearest>;
    using StrideA = cute::Stride<bool, cute::_0, int64_t>;
    using StrideB = cute::Stride<cute::_0, bool, int64_t>;
    using ScaleA = fusion::Sm90ColBroadcast<0, Tile, float, float, StrideA>;
    using ScaleB = fusion::Sm90RowBroadcast<0, Tile, float, float, StrideB>;
    using Fusion =
        fusion::Sm90EVT<Times<Output>, ScaleA, fusion::Sm90EVT<Times<float>, ScaleB, fusion::Sm90AccFetch>>;
};

// y = sum.
template <class Output>
struct Unscaled {
    using Round = fusion::Sm90Compute<cutlass::epilogue::thread::Identity, Output, Output,
                                      cutlass::FloatRoundStyle::round_to_nearest>;
    using Fusion = fusion::Sm90EVT<Round, fusion::Sm90AccFetch>;
};

#ifndef __CUDACC__
// What all of these have in common: a, b and y.
template <class Gemm>
typename Gemm::Kernel::Arguments plain_arguments(const Problem& problem, int m, int n, int k, int y) {
    using Kernel = typename Gemm::Kernel;
    typename Kernel::Arguments all{};
    all.mode = cutlass::gemm::GemmUniversalMode::kGemm;
    all.problem_shape = {m, n, k, 1};
    all.mainloop.ptr_A = problem.array<typename Kernel::ElementA>(0);
    all.mainloop.dA = packed<typename Kernel::StrideA>(m, k);
    all.mainloop.ptr_B = problem.array<typename Kernel::ElementB>(1);
    all.mainloop.dB = packed<typename Kernel::StrideB>(n, k);
    all.epilogue.ptr_D = problem.array<typename Kernel::ElementD>(y);
    all.epilogue.dD = packed<typename Kernel::StrideD>(m, n);
    all.hw_info.sm_count = problem.given.sm_count;
    all.hw_info.max_active_clusters = problem.given.max_active_clusters;
    rasterise<Gemm>(all.scheduler, m, n);
    return all;
}

// Arrays: a, b, y. Sizes: m, n, k.
template <class Gemm>
struct ExactHost : Gemm {
    static constexpr int sizes = 3;
    static typename Gemm::Kernel::Arguments arguments(const Problem& problem) {
        return plain_arguments<Gemm>(problem, problem.size(0), problem.size(1), problem.size(2), 2);
    }
};

// Main loops that add up in float32 from time to time do so every 256 elements of k: every 128, as they
// would, costs a tenth of the speed.
template <class Main>
auto promote(Main& main, int) -> decltype(main.mma_promotion_interval, void()) {
    main.mma_promotion_interval = 8;
}
template <class Main>
void promote(Main&, long) {}

// Arrays: a, b, scale_a, scale_b, y. Sizes: m, n, k, those of the scales (1 or m, 1 or n).
template <class Gemm>
struct OuterHost : Gemm {
    static constexpr int sizes = 5;
    static typename Gemm::Kernel::Arguments arguments(const Problem& problem) {
        auto all = plain_arguments<Gemm>(problem, problem.size(0), problem.size(1), problem.size(2), 4);
        promote(all.mainloop, 0);
        all.epilogue.thread = {
            {problem.array<float>(2), 0.f, {problem.size(3) != 1, cute::_0{}, 0}},
            {{problem.array<float>(3), 0.f, {cute::_0{}, problem.size(4) != 1, 0}}, {}, {}},
            {}};
        return all;
    }
};

// Arrays: a, b, scale_a, scale_b, y. Sizes: m, n, k. scale_a has rows of a multiple of 4, as tensor maps need
// it.
template <class Gemm, class Blocks>
struct BlockHost : Gemm {
    static constexpr int sizes = 3;
    static typename Gemm::Kernel::Arguments arguments(const Problem& problem) {
        int m = problem.size(0), n = problem.size(1), k = problem.size(2);
        auto all = plain_arguments<Gemm>(problem, m, n, k, 4);
        all.mainloop.ptr_SFA = problem.array<float>(2);
        all.mainloop.layout_SFA = Blocks::tile_atom_to_shape_SFA(cute::make_shape((m + 3) / 4 * 4, n, k, 1));
        all.mainloop.ptr_SFB = problem.array<float>(3);
        all.mainloop.layout_SFB = Blocks::tile_atom_to_shape_SFB(cute::make_shape(m, n, k, 1));
        return all;
    }
};
#endif
}  // namespace wootz
