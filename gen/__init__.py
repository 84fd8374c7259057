"""The generator of wootz: kernels x formats x targets in, kernel sources and a build graph out."""

__version__ = "0.1.0"
