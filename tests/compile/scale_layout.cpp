// Where CUTLASS looks for the scales of a matrix [rows, k]: as the left and as the right operand of a
// problem.
#include <cutlass/detail/sm100_blockscaled_layout.hpp>

#include "stub.hpp"

// Byte offsets, row by row, of the scale of each block; the last one is the size of all. Returns the number
// of elements that do not find their block's scale.
template <int Block>
int offsets(int rows, int k, int* left, int* right) {
    using Tiles = cutlass::detail::Sm1xxBlockScaledConfig<Block>;
    auto a = Tiles::tile_atom_to_shape_SFA(cute::make_shape(rows, 7, k, 1));
    auto b = Tiles::tile_atom_to_shape_SFB(cute::make_shape(7, rows, k, 1));
    int wrong = 0;
    for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < k; ++column) {
            int at = row * (k / Block) + column / Block;
            if (column % Block == 0) {
                left[at] = a(row, column, 0);
                right[at] = b(row, column, 0);
            }
            wrong += left[at] != a(row, column, 0) || right[at] != b(row, column, 0);
        }
    }
    left[rows * (k / Block)] = cute::cosize(a);
    right[rows * (k / Block)] = cute::cosize(b);
    return wrong;
}

WOOTZ_EXPORT int scale_offsets(int block, int rows, int k, int* left, int* right) {
    return block == 16 ? offsets<16>(rows, k, left, right) : offsets<32>(rows, k, left, right);
}
