"""The command line: `wootz`, or `python -m gen` in a checkout.

Exit status: 0 done; 1 work that failed (a job without its artifact, a compiler that is missing); 2 bad input
(a manifest, a name, an option); 130 interrupted. An error is one line on standard error, a manifest's one for
each.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from . import __version__
from .problems import ManifestError

_BESIDE = Path(__file__).resolve().parent.parent
MANIFEST = _BESIDE / "kernels.yaml"
EVIDENCE = _BESIDE / "evidence"
ARTIFACTS = _BESIDE / "artifacts"
DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130


EXTRA = ("yaml", "jsonschema", "rich", "ninja")
"""Packages of the extra `gen`: a wheel that only runs kernels does without them."""


class UsageError(ValueError):
    """A command line that asks for something that is not there."""


def _names(values: Sequence[str] | None) -> tuple[str, ...]:
    """Names given as separate words, or with commas between them."""
    return tuple(part for value in values or () for part in value.split(",") if part)


def _request(args: argparse.Namespace) -> Any:
    from .plan import Request

    return Request(
        args.profile, _names(args.targets), _names(args.formats), _names(args.kernels), _names(args.knobs)
    )


def _jobs(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text}: wanted 1 or more")
    return count


# Commands


def _check(args: argparse.Namespace) -> int:
    from .plan import load

    manifest = load(args.manifest)
    parts = ((manifest.formats, "formats"), (manifest.kernels, "kernels"), (manifest.targets, "targets"))
    print(f"{args.manifest}: valid: {', '.join(f'{len(items)} {what}' for items, what in parts)}")
    return DONE


def _list(args: argparse.Namespace) -> int:
    from . import listing, plan

    manifest = plan.load(args.manifest)
    selection = plan.select(manifest, _request(args))
    for note in selection.notes:
        print(f"wootz: {note}", file=sys.stderr)
    rows = listing.rows(manifest, selection, listing.indexed_evidence(args.artifacts, manifest))
    if args.state:
        rows = (row for row in rows if row["state"] == args.state)
    sys.stdout.writelines(listing.as_json(rows) if args.json else listing.as_table(rows, selection))
    return DONE


def _build_options(args: argparse.Namespace) -> Any:
    from .options import Options
    from .toolchain import Names

    return Options(
        manifest=args.manifest,
        request=_request(args),
        out=args.out,
        evidence=args.evidence,
        jobs=args.jobs,
        names=Names.from_environment(getattr(args, "nvcc", "")),
        launcher=tuple(shlex.split(os.environ.get("WOOTZ_LAUNCHER", ""))),
    )


def _work(args: argparse.Namespace, run: Callable[[Any, Any], Any], verb: str) -> int:
    from . import report

    with report.output() as output:
        summary = run(_build_options(args), output)
    if args.json:
        print(json.dumps(summary.to_json()))
    else:
        report.table(summary)
    for artifact, variants in summary.left_out.items():
        for symbol, reason in variants.items():
            print(f"wootz: {artifact}: {symbol} is left out: {reason}", file=sys.stderr)
    for unit, problem in sorted(summary.failures.items()):
        print(f"wootz: {unit}: {problem}", file=sys.stderr)
    if summary.failures:
        print(f"wootz: {len(summary.failures)} of the plan's parts could not be {verb}", file=sys.stderr)
    return FAILED if summary.failures else DONE


def _generate(args: argparse.Namespace) -> int:
    from .build import generate

    return _work(args, generate, "generated")


def _build(args: argparse.Namespace) -> int:
    from .build import build, check_prebuilt

    return _work(args, check_prebuilt, "confirmed") if args.prebuilt else _work(args, build, "built")


def _explain(args: argparse.Namespace) -> int:
    from . import explain, plan

    manifest = plan.load(args.manifest)
    folder = args.artifacts or (ARTIFACTS if ARTIFACTS.is_dir() else None)
    fact = explain.explain(manifest, args.kernel, args.format, args.target, folder)
    print(json.dumps(fact, indent=2) if args.json else explain.as_text(fact))
    return DONE


RUN_TIME = {
    "verify": "Run every cell against the reference.",
    "info": "What this machine has, what runs there, and what a kernel would get.",
}
"""Commands of the package that runs kernels: each is the module of its name there, which reads its own
arguments."""


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


# Parser


class _Parser(argparse.ArgumentParser):
    """Reports a bad command line in one line."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {message}; try: {self.prog} --help", file=sys.stderr)
        raise SystemExit(BAD_INPUT)


def _add_plan(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--manifest", type=Path, default=MANIFEST, metavar="FILE", help="default: the one shipped"
    )
    parser.add_argument("--profile", default="default", help="a profile of the manifest (default: default)")
    for what in ("targets", "formats", "kernels"):
        extra = (
            "; '-' is: no format"
            if what == "formats"
            else "; native is this machine"
            if what == "targets"
            else ""
        )
        text = f"only these, names or globs, separated by spaces or commas{extra}"
        parser.add_argument(f"--{what}", nargs="+", metavar="NAME", help=text)
    text = "values of knobs to build beside the defaults, as math=fast; in place of the profile's"
    parser.add_argument("--knobs", nargs="+", metavar="KNOB=VALUE", help=text)
    parser.add_argument("--json", action="store_true", help="JSON on standard output")


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="DIR",
        help="artifact folder; afterwards it holds this plan's files and no others of an earlier build",
    )
    parser.add_argument(
        "-j", "--jobs", type=_jobs, default=os.cpu_count() or 1, metavar="N", help="parallel work"
    )
    parser.add_argument(
        "--evidence", type=Path, default=EVIDENCE, metavar="DIR", help="reports of wootz verify"
    )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="wootz", description="Ahead-of-time build system for quantised GPU kernels.")
    parser.add_argument("--version", action="version", version=f"wootz {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_Parser)

    def command(name: str, run: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    check = command("check", _check, "Validate a manifest.")
    check.add_argument("manifest", type=Path, metavar="MANIFEST")

    listing = command("list", _list, "Every cell of a plan: kernel, format, dtype, target, state, reason.")
    _add_plan(listing)
    listing.add_argument("--state", choices=("job", "skip", "refused"), help="only cells in this state")
    listing.add_argument(
        "--artifacts", type=Path, default=ARTIFACTS, metavar="DIR", help="where evidence is read"
    )

    generate = command("generate", _generate, "Emit the sources of a plan; compile nothing.")
    _add_plan(generate)
    _add_folder(generate)

    build = command("build", _build, "Emit, compile, audit and index the artifacts of a plan.")
    _add_plan(build)
    _add_folder(build)
    build.add_argument("--nvcc", default="", metavar="PATH", help="the CUDA compiler (or WOOTZ_NVCC)")
    build.add_argument(
        "--prebuilt", action="store_true", help="compile nothing: check that DIR is what would be built"
    )

    explain = command("explain", _explain, "The chain of one cell, from axes to launch formula.")
    for what in ("kernel", "format", "target"):
        explain.add_argument(
            what, metavar=what.upper(), help="'-' for no format" if what == "format" else None
        )
    explain.add_argument("--manifest", type=Path, default=MANIFEST, metavar="FILE")
    explain.add_argument("--artifacts", "--out", type=Path, metavar="DIR", help="the folder it was built in")
    explain.add_argument("--json", action="store_true")

    for name, text in RUN_TIME.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _on_terminate(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _causes() -> Iterator[tuple[type[Exception], int]]:
    """User errors and their exit status. Looked up late: most commands need only some of these modules."""
    from .plan import PlanError
    from .provenance import BuildError

    yield from (
        (ManifestError, BAD_INPUT),
        (PlanError, BAD_INPUT),
        (UsageError, BAD_INPUT),
        (BuildError, FAILED),
    )


def _run(argv: Sequence[str]) -> int:
    if argv and argv[0] in RUN_TIME:
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
    except OSError as error:  # of standard output: files of ours come as BuildError
        if error.filename is not None or error.errno is None:
            raise
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
