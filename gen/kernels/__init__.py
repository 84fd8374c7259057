"""Kernel families, one file each, written once in the DSL. A file's name is the kernel's name in the
manifest."""
