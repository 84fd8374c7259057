"""Kernels taken elsewhere: one cell as a program of its own, or as a solution of a benchmark."""
