#include <cstdint>

// d = a * b + c for each of the warp-level products: registers come from and go to memory, lane by lane.
#define PRODUCT(name, Sum)                                                                                 \
    extern "C" __global__ void __launch_bounds__(32)                                                        \
        product_##name(const uint32_t* a, const uint32_t* b, const Sum* c, Sum* d)                          \
    {                                                                                                       \
        const uint32_t lane = threadIdx.x;                                                                  \
        const uint32_t left[4] = {a[4 * lane], a[4 * lane + 1], a[4 * lane + 2], a[4 * lane + 3]};          \
        const uint32_t right[2] = {b[2 * lane], b[2 * lane + 1]};                                           \
        const Sum before[4] = {c[4 * lane], c[4 * lane + 1], c[4 * lane + 2], c[4 * lane + 3]};             \
        Sum after[4];                                                                                       \
        name(after, left, right, before);                                                                   \
        for (int i = 0; i < 4; ++i) {                                                                       \
            d[4 * lane + i] = after[i];                                                                     \
        }                                                                                                   \
    }
PRODUCT(mma_m16n8k16_f16_f32, float)
PRODUCT(mma_m16n8k16_bf16_f32, float)
PRODUCT(mma_m16n8k32_e4m3_f32, float)
PRODUCT(mma_m16n8k32_e5m2_f32, float)
PRODUCT(mma_m16n8k32_s8_s32, int)

// y[i] = the sum of rows of x, 32 x 4 words each, that pass through two stages of shared memory.
extern "C" __global__ void __launch_bounds__(32) pipeline(const uint32_t* x, uint32_t* y, uint32_t rows)
{
    __shared__ __align__(16) uint32_t stages[2][128];
    const uint32_t lane = threadIdx.x, other = lane ^ 1;
    uint32_t sums[4] = {0, 0, 0, 0};
    cp_async_16(&stages[0][4 * lane], x + 4 * lane, 16);
    cp_async_commit();
    for (uint32_t row = 0; row < rows; ++row) {
        cp_async_wait<0>();
        __syncthreads();
        if (row + 1 < rows) {
            cp_async_16(&stages[(row + 1) % 2][4 * lane], x + 128 * (row + 1) + 4 * lane, 16);
        } else {
            cp_async_16(&stages[(row + 1) % 2][4 * lane], x, 0);
        }
        cp_async_commit();
        for (int i = 0; i < 4; ++i) {
            sums[i] += stages[row % 2][4 * other + i];
        }
    }
    cp_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 4; ++i) {
        y[4 * lane + i] = sums[i] + stages[rows % 2][4 * lane + i];
    }
}
