"""wootz info: The machine, the library, and what the one has for the other; or what a kernel would get."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from . import command_line
from .errors import ArgumentError
from .introspection import Facts, environment, machine, picked
from .library import load

__all__ = ["main"]

_GIB, _KIB = 1 << 30, 1 << 10


# ---- text


def environment_text(facts: Facts) -> Iterator[str]:
    """Lines for people."""
    yield f"wootz {facts['wootz']}, Python {facts['python']}, NumPy {facts['numpy']}, {facts['system']}"
    yield _line("driver", facts["driver"], lambda f: f"CUDA {f['cuda']}, compiles PTX up to {f['ptx']}")
    for device in facts["devices"]:
        yield _line(device["device"], device, _device)
    yield _line("library", facts["library"], _library)
    for name, owners in facts["packages"].items():
        yield f"{'package':8} {name}: {', '.join(owners)}"
    for each in facts["coverage"]:
        yield ""
        yield f"{each['device']} runs {each['served']} of {each['wanted']} kernels (by format and dtype)"
        yield from _indented(each["targets"], each["unserved"])


def _line(name: str, facts: Facts, text: Callable[[Facts], str]) -> str:
    problem = facts.get("problem")
    return f"{name:8} {text(facts) if problem is None else f'unusable: {problem}'}"


def _device(facts: Facts) -> str:
    if "capability" in facts:
        return _cuda_device(facts)
    if "system" in facts:
        return f"system {facts['system']}"
    sets = "".join(f", {'runs' if runs else 'cannot run'} {isa}" for isa, runs in facts["isa"].items())
    return f"{facts['threads']} threads{sets}"


def _cuda_device(facts: Facts) -> str:
    free = facts["free_bytes"]
    memory = f"{facts['memory_bytes'] / _GIB:.1f} GiB" + (
        f" ({free / _GIB:.1f} free)" if free is not None else ""
    )
    shared = f"{facts['shared_bytes'] / _KIB:.0f} KiB of shared memory a block"
    kind = ", integrated" if facts["integrated"] else ""
    sms = f"compute capability {facts['capability']}, {facts['sms']} SMs"
    return f"{facts['name']}{kind}: {sms}, {memory}, {shared}"


def _library(facts: Facts) -> str:
    counts = ", ".join(f"{facts[what]} {what}" for what in ("cells", "kernels", "formats"))
    return f"{facts['path']}: {counts}; for {', '.join(facts['targets']) or 'no target'}"


def _indented(targets: Iterable[Facts], unserved: dict[str, int]) -> Iterator[str]:
    for each in targets:
        where = ", ".join(f"{count} {place}" for place, count in each["executed"].items())
        yield f"  {each['target']:10} {each['serves']:6}  executed: {where or '-'}"
    for reason, count in unserved.items():
        yield f"  {'none':10} {count:6}  {reason}"


def picked_text(cells: Sequence[Facts]) -> Iterator[str]:
    """Lines for people: all there is to know of one cell, a line for each of several."""
    if len(cells) == 1 and "problem" not in cells[0]:
        yield from _picked(cells[0])
        return
    for cell in cells:
        yield cell.get("problem") or f"{cell['cell']}: {cell['file']}"


def _picked(cell: Facts) -> Iterator[str]:
    stub = f", launched by {cell['stub']}" if cell["stub"] else ""
    yield f"{cell['cell']} on {cell['device']}"
    yield f"  target    {cell['target']}: {cell['reason']}"
    yield f"  file      {cell['file']}, {cell['bytes']} bytes{stub}"
    yield f"  evidence  {', '.join(cell['evidence']) or 'none'}"
    for entry in cell["entries"]:
        after = "".join(f", after {symbol}" for symbol in entry["after"])
        yield f"  {entry['symbol']}{after}: {' and '.join(entry['when']) or 'always'}"


# ---- command line


def _parser() -> argparse.ArgumentParser:
    parser = command_line.Parser(prog="wootz info", description=__doc__.partition(": ")[2])
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="what would be picked for it")
    parser.add_argument("--format", metavar="NAME", help="of KERNEL; '-' is: no format")
    parser.add_argument("--dtype", metavar="NAME", help="of KERNEL")
    parser.add_argument("--device", help='"cpu", "cuda:N" or "metal" (default: the first there is)')
    parser.add_argument(
        "--memory", action="store_true", help="free memory too: makes a context on each device"
    )
    parser.add_argument(
        "--artifacts",
        metavar="DIR",
        help="artifact folder, or the name of an installed package (default: wootz's own)",
    )
    parser.add_argument("--json", action="store_true", help="JSON on standard output")
    return parser


def _first_device() -> str:
    """The first usable one."""
    return next((each["device"] for each in machine()["devices"] if "problem" not in each), "cpu")


def _run(options: argparse.Namespace) -> int:
    facts, text, status = _facts(options)
    print(json.dumps(facts, indent=2) if options.json else "\n".join(text))
    return status


def _facts(options: argparse.Namespace) -> tuple[object, Iterator[str], int]:
    """The facts, their text, and the exit status."""
    if options.kernel is not None:
        device = options.device or _first_device()
        cells = picked(load(options.artifacts), device, options.kernel, options.format, options.dtype)
        return cells, picked_text(cells), 0
    for name in ("format", "dtype", "device"):
        if getattr(options, name) is not None:
            raise ArgumentError(f"--{name} is of a kernel: name one")
    facts = environment(options.artifacts, options.memory)
    return facts, environment_text(facts), int("problem" in facts["library"])


def main(argv: Sequence[str]) -> int:
    """The command. Exit status 0; 1: the library is unusable; 2: bad use, or nothing of that description."""
    return command_line.run(_parser(), argv, _run)
