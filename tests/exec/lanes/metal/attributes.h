// Binding attributes stay in the syntax tree as annotations, where the launcher reads them; a misspelt one is
// an unknown attribute, which is an error.
#pragma once

#define buffer(n) clang::annotate("buffer", n)
#define max_total_threads_per_threadgroup(n) clang::annotate("max_total_threads_per_threadgroup", n)
#define thread_position_in_grid clang::annotate("thread_position_in_grid")
#define thread_position_in_threadgroup clang::annotate("thread_position_in_threadgroup")
#define thread_index_in_threadgroup clang::annotate("thread_index_in_threadgroup")
#define thread_index_in_simdgroup clang::annotate("thread_index_in_simdgroup")
#define threadgroup_position_in_grid clang::annotate("threadgroup_position_in_grid")
#define threads_per_threadgroup clang::annotate("threads_per_threadgroup")
#define threads_per_simdgroup clang::annotate("threads_per_simdgroup")
#define threads_per_grid clang::annotate("threads_per_grid")
#define threadgroups_per_grid clang::annotate("threadgroups_per_grid")
#define simdgroup_index_in_threadgroup clang::annotate("simdgroup_index_in_threadgroup")
#define simdgroups_per_threadgroup clang::annotate("simdgroups_per_threadgroup")
