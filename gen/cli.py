"""The command line: `wootz`, or `python -m gen` in a checkout.

Exit status: 0 done; 1 work that failed (a job without its artifact, a compiler that is missing); 2 bad input
(a manifest, a name, an option, what is no artifact); 130 interrupted. `diff` gives 1 where the two differ. An
error is one line on standard error, a manifest's one for each.
"""

from __future__ import annotations

import argparse
import importlib
import io
import os
import signal
import sys
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import NoReturn

from . import __version__, commands
from .commands._shared import BAD_INPUT, DONE, FAILED, INTERRUPTED, UsageError
from .manifest.problems import ManifestError

EXTRA = (
    "yaml",
    "jsonschema",
    "rich",
    "ninja",
    "packaging",
    "cyclonedx",
    "packageurl",
    "jinja2",
    "markupsafe",
)
"""Packages of the extra `gen`: a wheel that only runs kernels does without them."""


def _hand_on(command: str, argv: Sequence[str]) -> int:
    try:
        module = importlib.import_module(f"wootz.{command}")
    except ModuleNotFoundError as error:
        if error.name not in ("wootz", f"wootz.{command}", "wootz._core", "numpy"):
            raise
        raise UsageError(
            f"{command} needs the wootz package (no module {error.name} here): run: pip install wootz"
        ) from error
    return int(module.main(list(argv)) or 0)


class _Parser(argparse.ArgumentParser):
    """Reports a bad command line in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="wootz", description="Ahead-of-time build system for quantised GPU kernels.")
    parser.add_argument("--version", action="version", version=f"wootz {__version__}")
    added = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)
    for name in commands.NAMES:
        module = importlib.import_module(f".commands.{name}", __package__)
        command = added.add_parser(name, help=module.TEXT, description=module.TEXT)
        command.set_defaults(run=module.run)
        module.options(command)
    for name, text in commands.RUN_TIME.items():
        added.add_parser(name, help=text, add_help=False)
    return parser


def _on_terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _causes() -> Iterator[tuple[type[Exception], int]]:
    """User errors and their exit status. Looked up late: most commands need only some of these modules."""
    from .build.index import ArtifactsError
    from .emit.provenance import BuildError
    from .export.cell import ExportError
    from .plan.cells import PlanError
    from .project.own import ProjectError

    yield from (
        (ManifestError, BAD_INPUT),
        (PlanError, BAD_INPUT),
        (ProjectError, BAD_INPUT),
        (ExportError, BAD_INPUT),
        (UsageError, BAD_INPUT),
        (ArtifactsError, BAD_INPUT),
        (BuildError, FAILED),
    )


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] in commands.RUN_TIME:
        return _hand_on(argv[0], argv[1:])
    args = _parser().parse_args(argv)
    return int(args.run(args))


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status."""
    if sys.stderr is None:  # closed: what is said there goes nowhere
        sys.stderr = io.StringIO()
    if sys.stdout is None:
        print("wootz: standard output is closed: redirect it to a file, or to /dev/null", file=sys.stderr)
        return FAILED
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        status = _run(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print("wootz: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone, as `| head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except OSError as error:  # of standard output, or of a file that should be there: BuildError is of ours
        if error.errno is None or os.environ.get("WOOTZ_DEBUG"):
            raise
        if error.filename is not None:
            advice = "check the name, and that you may use it"
            print(f"wootz: {error.filename}: {os.strerror(error.errno)}; {advice}", file=sys.stderr)
            return FAILED
        print(f"wootz: standard output: {os.strerror(error.errno)}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] not in EXTRA:
            raise
        print(
            f"wootz: this command needs the package {error.name}: run: pip install 'wootz[gen]'",
            file=sys.stderr,
        )
        return FAILED
    except Exception as error:
        status = next((code for kind, code in _causes() if isinstance(error, kind)), 0)
        if not status or os.environ.get("WOOTZ_DEBUG"):
            raise
        lines = str(error).splitlines() or [type(error).__name__]
        named = [*lines] if isinstance(error, ManifestError) else [f"wootz: {' '.join(lines)}"]
        print("\n".join(named), file=sys.stderr)
        return status
