"""`python -m wootz ...`: the command `wootz`, found by the entry point that the package installs.

`python -m wootz --cmakedir` says where the CMake package is, for -Dwootz_DIR=... where the build system does
not find it by itself.
"""

from __future__ import annotations

import sys
from importlib.metadata import entry_points
from pathlib import Path


def main() -> int:
    """Runs the installed command. Exit status 2 when the package was not installed with its entry points."""
    if sys.argv[1:] == ["--cmakedir"]:
        print(Path(__file__).with_name("cmake"))
        return 0
    for point in entry_points(group="console_scripts", name="wootz"):
        status = point.load()()
        return int(status or 0)
    print("wootz: the command is not installed; install the package, not only its source", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
