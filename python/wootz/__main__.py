"""`python -m wootz ...`: the command `wootz`, found by the entry point that the package installs."""

from __future__ import annotations

import sys
from importlib.metadata import entry_points


def main() -> int:
    """Runs the installed command. Exit status 2 when the package was not installed with its entry points."""
    for point in entry_points(group="console_scripts", name="wootz"):
        status = point.load()()
        return int(status or 0)
    print("wootz: the command is not installed; install the package, not only its source", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
