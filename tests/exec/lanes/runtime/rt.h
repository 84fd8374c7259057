// The lanes runtime: what a kernel, run on the CPU, may ask of the machine it believes it is on.
//
// A thread block (Metal: threadgroup) is one set of fibers on one OS thread, one fiber per GPU thread. Lanes
// of 32 consecutive threads form a SIMD group (CUDA: warp). This header is read by the host-C++ headers that
// stand in for CUDA and by the C++-for-OpenCL headers that stand in for Metal, so it keeps to their common
// subset.
#pragma once

#ifdef __OPENCL_CPP_VERSION__
#define LANES_PRIVATE __private
#else
#define LANES_PRIVATE
#endif

struct LanesDim {
    unsigned x, y, z;
};

// What a collective is for; lanes that meet must agree on it.
enum LanesOp {
    LANES_NONE,
    LANES_GROUP_BARRIER,
    LANES_SIMD_BARRIER,
    LANES_REDUCE,
    LANES_SHUFFLE,
    LANES_SHUFFLE_DOWN,
    LANES_SHUFFLE_UP,
    LANES_SHUFFLE_XOR,
    LANES_VOTE,
    LANES_MATRIX,
    LANES_MATRIX_LOAD
};

enum { LANES_WIDTH = 32, LANES_SLOT_BYTES = 32 };

extern "C" {
LanesDim lanes_thread_position();   // threadIdx | thread_position_in_threadgroup
LanesDim lanes_group_position();    // blockIdx  | threadgroup_position_in_grid
LanesDim lanes_group_size();        // blockDim  | threads_per_threadgroup
LanesDim lanes_grid_size();         // gridDim   | threadgroups_per_grid
unsigned lanes_thread_index();      // linear, in the block
unsigned long lanes_block_count();  // blocks that this process has begun: tells this block from others

// Waits for every thread of the block. fence: whether memory is made visible (0 for mem_flags::mem_none).
// line is the source line: threads that wait at different lines are an error, as are threads that returned.
void lanes_group_barrier(int fence, int line);

// Waits for the lanes of `mask` (0: all of the SIMD group), which must call with the same op, mask and line.
// Returns LANES_WIDTH slots of LANES_SLOT_BYTES bytes, slot i holding the `bytes` bytes of lane i's value.
// The slots are the caller's to read until its next collective.
LANES_PRIVATE void* lanes_collective(int op, unsigned mask, const LANES_PRIVATE void* value, unsigned bytes,
                                     int fence, int line);

// Ends the run with a message that names the block, the calling thread and the line.
void lanes_fail(const LANES_PRIVATE char* message, int line);
}
