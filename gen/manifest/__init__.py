"""kernels.yaml -> typed data, or everything that is wrong with it, by line."""
