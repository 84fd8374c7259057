// WOOTZ_FN: what functions of the templates are, on a device and on a host that executes them.
#pragma once

#ifdef __CUDACC__
#define WOOTZ_FN __device__ __forceinline__
#else
#define WOOTZ_FN inline
#endif
