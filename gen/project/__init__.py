"""A project of one's own: a manifest that extends another, kernels from the project's files, and its
scaffold."""
