// Block-scaled GEMM of groups of rows, each with a matrix of weights of its own (a mixture of experts):
//   y[first + i, n] = alpha * scale1(x) * scale1(w[g]) * sum over k of x[first + i, k] * w[g, n, k]
// for i < counts[g], first = offsets[g]. Counts and offsets are read on the device only: a kernel before the
// main one writes each group's shape, addresses and layouts to the workspace. A group whose rows do not begin
// at a whole tile of scales, or do not lie in x, is taken as empty.
#pragma once
#include <cutlass/gemm/group_array_problem_shape.hpp>

#include "scaled_3x.cuh"

namespace wootz {
using GroupShape = cute::Shape<int, int, int>;

template <class Base>
struct Grouped : Base {
    using Kernel = cutlass::gemm::kernel::GemmUniversal<cutlass::gemm::GroupProblemShape<GroupShape>,
                                                        typename Base::Main, typename Base::Epilogue, void>;
};

// What the kernel reads about its groups: arrays in the workspace, one after another.
template <class Gemm>
struct Groups {
    using Kernel = typename Gemm::Kernel;
    using Main = typename Kernel::CollectiveMainloop;
    using Tiles = typename Main::Sm1xxBlkScaledConfig;
    using A = typename Main::ArrayElementA;
    using B = typename Main::ArrayElementB;
    using Scale = typename Main::ElementSF;
    using D = typename Kernel::ElementD;
    using StrideA = typename Kernel::InternalStrideA;
    using StrideB = typename Kernel::InternalStrideB;
    using StrideD = typename Kernel::InternalStrideD;
    using TilesA = typename Main::InternalLayoutSFA;
    using TilesB = typename Main::InternalLayoutSFB;
    static constexpr int fields = 12, slot = 64;
    static constexpr int rows = 128, block = Tiles::SFVecSize;  // of a tile of scales, of a block of elements

    char* memory;
    int groups;

    // Bytes of a field, a multiple of what tensor maps are aligned to.
    CUTLASS_HOST_DEVICE static size_t stride(int groups) { return (size_t(groups) * slot + 255) / 256 * 256; }
    CUTLASS_HOST_DEVICE static size_t bytes(int groups) { return fields * stride(groups); }
    template <class T>
    CUTLASS_HOST_DEVICE T* field(int number) const {
        static_assert(sizeof(T) <= slot);
        return reinterpret_cast<T*>(memory + number * stride(groups));
    }
    CUTLASS_HOST_DEVICE GroupShape* shapes() const { return field<GroupShape>(0); }
    CUTLASS_HOST_DEVICE A const** a() const { return field<A const*>(1); }
    CUTLASS_HOST_DEVICE B const** b() const { return field<B const*>(2); }
    CUTLASS_HOST_DEVICE Scale const** scales_a() const { return field<Scale const*>(3); }
    CUTLASS_HOST_DEVICE Scale const** scales_b() const { return field<Scale const*>(4); }
    CUTLASS_HOST_DEVICE D** d() const { return field<D*>(5); }
    CUTLASS_HOST_DEVICE StrideA* stride_a() const { return field<StrideA>(6); }
    CUTLASS_HOST_DEVICE StrideB* stride_b() const { return field<StrideB>(7); }
    CUTLASS_HOST_DEVICE StrideD* stride_d() const { return field<StrideD>(8); }
    CUTLASS_HOST_DEVICE TilesA* tiles_a() const { return field<TilesA>(9); }
    CUTLASS_HOST_DEVICE TilesB* tiles_b() const { return field<TilesB>(10); }
    CUTLASS_HOST_DEVICE float* numbers() const { return field<float>(11); }
};

// What the kernel before the main one is given. Scales: of x, and of each group's w; null where there is
// none.
struct GroupInputs {
    const char *x_codes, *x_tiles;
    const float* x_scale;
    const char *w_codes, *w_tiles;
    const float* w_scale;
    const int32_t *counts, *offsets;
    char* y;
    int m, groups, n, k;
    float alpha;
};

// The stride of rows that follow each other.
template <class Stride>
CUTLASS_HOST_DEVICE Stride dense(int rows, int columns) {
    return cutlass::make_cute_packed_stride(Stride{}, cute::make_shape(rows, columns, 1));
}

// Writes what the main kernel reads about group g.
template <class Gemm>
CUTLASS_HOST_DEVICE void describe_group(GroupInputs const& in, char* workspace, int g) {
    using All = Groups<Gemm>;
    All all{workspace, in.groups};
    int64_t count = in.counts[g], first = in.offsets[g];
    bool fits = count > 0 && first >= 0 && first % All::rows == 0 && first + count <= in.m;
    int rows = fits ? int(count) : 0, k = padded_k(in.k);
    int64_t start = fits ? first : 0;
    int64_t tile_row = int64_t(k) / All::block * All::rows;  // bytes of the tiles of 128 rows
    int64_t pitch_a = int64_t(k) * cutlass::sizeof_bits<typename All::A>::value / 8;
    int64_t pitch_b = int64_t(k) * cutlass::sizeof_bits<typename All::B>::value / 8;
    int64_t tile_rows_b = (in.n + All::rows - 1) / All::rows;
    all.shapes()[g] = GroupShape(rows, in.n, k);
    all.a()[g] = reinterpret_cast<typename All::A const*>(in.x_codes + start * pitch_a);
    all.b()[g] = reinterpret_cast<typename All::B const*>(in.w_codes + int64_t(g) * in.n * pitch_b);
    all.scales_a()[g] =
        reinterpret_cast<typename All::Scale const*>(in.x_tiles + start / All::rows * tile_row);
    all.scales_b()[g] = reinterpret_cast<typename All::Scale const*>(in.w_tiles + g * tile_rows_b * tile_row);
    all.numbers()[g] = in.alpha * (in.x_scale ? *in.x_scale : 1.f) * (in.w_scale ? in.w_scale[g] : 1.f);
    all.d()[g] = reinterpret_cast<typename All::D*>(in.y) + start * in.n;
    int some = rows > 0 ? rows : 1;
    all.stride_a()[g] = dense<typename All::StrideA>(some, k);
    all.stride_b()[g] = dense<typename All::StrideB>(in.n, k);
    all.stride_d()[g] = dense<typename All::StrideD>(some, in.n);
    all.tiles_a()[g] = All::Tiles::tile_atom_to_shape_SFA(cute::make_shape(some, in.n, k, 1));
    all.tiles_b()[g] = All::Tiles::tile_atom_to_shape_SFB(cute::make_shape(some, in.n, k, 1));
}

#ifndef __CUDACC__
// Arrays: the workspace's are found by the kernel before. Sizes: m (rows of x and y), groups, n, k.
template <class Gemm>
struct GroupedHost {
    using ClusterShape = typename Gemm::ClusterShape;
    using All = Groups<Gemm>;
    static constexpr int sizes = 4;

    // The workspace begins with the groups; the kernel's own follows.
    struct Kernel : Gemm::Kernel {
        using Base = typename Gemm::Kernel;
        using Arguments = typename Base::Arguments;
        static void* rest(Arguments const& all, void* workspace) {
            return static_cast<char*>(workspace) + All::bytes(all.problem_shape.num_groups);
        }
        static size_t get_workspace_size(Arguments const& all) {
            return All::bytes(all.problem_shape.num_groups) + Base::get_workspace_size(all);
        }
        static cutlass::Status initialize_workspace(Arguments const& all, void* workspace,
                                                    cudaStream_t stream) {
            return Base::initialize_workspace(all, rest(all, workspace), stream);
        }
        static typename Base::Params to_underlying_arguments(Arguments const& all, void* workspace) {
            return Base::to_underlying_arguments(all, rest(all, workspace));
        }
    };

    static typename Kernel::Arguments arguments(const Problem& problem) {
        int groups = problem.size(1);
        All of{static_cast<char*>(problem.given.workspace), groups};
        typename Kernel::Arguments all{};
        all.mode = cutlass::gemm::GemmUniversalMode::kGrouped;
        all.problem_shape.num_groups = groups;
        all.problem_shape.problem_shapes = of.shapes();
        all.mainloop.ptr_A = of.a();
        all.mainloop.dA = of.stride_a();
        all.mainloop.ptr_B = of.b();
        all.mainloop.dB = of.stride_b();
        all.mainloop.ptr_SFA = of.scales_a();
        all.mainloop.layout_SFA = of.tiles_a();
        all.mainloop.ptr_SFB = of.scales_b();
        all.mainloop.layout_SFB = of.tiles_b();
        all.epilogue.ptr_D = of.d();
        all.epilogue.dD = of.stride_d();
        auto& numbers = all.epilogue.thread.op_0;
        numbers.scalar_ptrs[0] = of.numbers();
        cute::get<2>(numbers.dScalar[0]) = 1;  // one a group
        all.hw_info.sm_count = problem.given.sm_count;
        all.hw_info.max_active_clusters = problem.given.max_active_clusters;
        return all;
    }
};
#endif
}  // namespace wootz
