// A GEMM of CUTLASS 3.x from its parts: the same text makes the kernel and its host stub.
#pragma once
#include <cutlass/cutlass.h>
#include <cutlass/gemm/kernel/tile_scheduler_params.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#define WOOTZ_GENERATION(number) cutlass::arch::Sm##number

namespace wootz {
using Row = cutlass::layout::RowMajor;
using Column = cutlass::layout::ColumnMajor;

// One operand: element, layout (a tuple with the scales' layout where it is block-scaled), elements that an
// address is a multiple of.
template <class Element_, class Layout_, int Alignment_>
struct Operand {
    using Element = Element_;
    using Layout = Layout_;
    static constexpr int Alignment = Alignment_;
};

template <class Arch, class Op, class A, class B, class C, class D, class Accumulator, class Tile,
          class Cluster, class MainSchedule, class EpilogueSchedule, class Fusion, class Scheduler>
struct Collective {
    using TileShape = Tile;
    using ClusterShape = Cluster;
    using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
        Arch, Op, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto, Accumulator, float,
        typename C::Element, typename C::Layout, C::Alignment, typename D::Element, typename D::Layout,
        D::Alignment, EpilogueSchedule, Fusion>::CollectiveOp;
    using Main = typename cutlass::gemm::collective::CollectiveBuilder<
        Arch, Op, typename A::Element, typename A::Layout, A::Alignment, typename B::Element,
        typename B::Layout, B::Alignment, Accumulator, Tile, Cluster,
        cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
            sizeof(typename Epilogue::SharedStorage))>,
        MainSchedule>::CollectiveOp;
    using Kernel =
        cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Main, Epilogue, Scheduler>;
};

// a[m, k], b[n, k], c[m, n], d[m, n], rows packed.
template <class Stride>
Stride packed(int rows, int columns) {
    return cutlass::make_cute_packed_stride(Stride{}, cute::make_shape(rows, columns, 1));
}

// The order of tiles: along m, and where there are many in groups of four columns, so that what one wave
// reads of a and b stays in the second-level cache.
template <class Gemm, class Scheduler>
void rasterise(Scheduler& scheduler, int m, int n) {
    int rows = m / cute::size<0>(typename Gemm::TileShape{}),
        columns = n / cute::size<1>(typename Gemm::TileShape{});
    scheduler.max_swizzle_size = rows >= 32 && columns >= 32 ? 4 : 1;
    scheduler.raster_order = decltype(scheduler.raster_order)::AlongM;
}
}  // namespace wootz

// The kernel's entry. Its one parameter is filled by the stub.
#define WOOTZ_ENTRY(SYMBOL, KERNEL)                                                  \
    extern "C" __global__ void __launch_bounds__(KERNEL::MaxThreadsPerBlock,         \
                                                 KERNEL::MinBlocksPerMultiprocessor) \
        SYMBOL(__grid_constant__ const typename KERNEL::Params params) {             \
        extern __shared__ char collective_shared[];                                  \
        KERNEL kernel;                                                               \
        kernel(params, collective_shared);                                           \
    }
