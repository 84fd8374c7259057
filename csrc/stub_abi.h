/* The C interface between the loader and a stub: a small shared object that knows how the parameter block of
 * a template's kernel is filled. C99 and C++; it includes nothing but the fixed-width integers, so that it
 * may stand in the text of a stub. A stub calls no driver but the one function that it is given.
 *
 * For each entry point, its symbol being the prefix:
 *     int SYMBOL_query(const wootz_problem*, wootz_launch*);
 *     int SYMBOL_fill(const wootz_problem*, void* params, wootz_memset, void* context);
 * and once in each stub:
 *     void wootz_stub_encode(void* cuTensorMapEncodeTiled);   called before anything else
 *     const char* wootz_stub_build(void);                      sha256 of the unit's source text, in hex
 *
 * Each returns one of the codes below. query neither reads nor writes device memory; while it runs, the
 * encoder that the stub was given succeeds without encoding. fill gets the problem that query accepted, with
 * its workspace.
 */
#ifndef WOOTZ_STUB_ABI_H
#define WOOTZ_STUB_ABI_H

#include <stddef.h>
#include <stdint.h>

enum {
    WOOTZ_STUB_OK = 0,
    WOOTZ_STUB_CANNOT = 1,    /* query: this entry point cannot run this problem; another one may */
    WOOTZ_STUB_WORKSPACE = 2, /* fill: the workspace could not be prepared */
    WOOTZ_STUB_ALIGNMENT = 3, /* fill: params is not aligned to params_align */
    WOOTZ_STUB_DEVICE = 4     /* sm_count is missing, or a tensor map could not be encoded */
};

/* One call. arrays: addresses on the device in the order of the entry's arguments of role in and out, NULL
 * for an operand that is not given. shape: those of role shape and pitch. scalars: those of role scalar.
 * max_active_clusters: as cuOccupancyMaxActiveClusters says; 0: not known, or clusters of one block. */
typedef struct {
    const void* const* arrays;
    const int64_t* shape;
    const double* scalars;
    void* workspace;
    uint64_t workspace_bytes;
    int32_t sm_count;
    int32_t max_active_clusters;
} wootz_problem;

/* What it takes to launch it. params_size, params_align: of the kernel's one parameter. shared: dynamic. */
typedef struct {
    uint64_t params_size, params_align, workspace_bytes;
    uint32_t shared, block[3], cluster[3], grid[3];
} wootz_launch;

/* Sets bytes on the device, in order with the launch; 0: done. `context` is what fill was given. */
typedef int (*wootz_memset)(void* context, void* address, int value, size_t bytes);

#endif
