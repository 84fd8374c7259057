"""A quantisation format: its axes, where its bits lie, the packed layout that its kernels read."""
