"""`python -m gen`: the command line, from a checkout."""

from __future__ import annotations

import sys

from .cli import main

if __name__ == "__main__":  # processes that emit import this module too
    sys.exit(main())
