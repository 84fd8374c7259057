"""The kernel IR, the DSL that builds it, its rules and rewrites, and what kernels share."""
