"""The page: what the template draws of a report, and the words and classes for it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import jinja2
from markupsafe import Markup

from ..build.index import EXECUTED
from ..plan import name
from ..scale import sizes
from ..wheel.shipped import Shipped
from . import roofline
from .bench import Bench
from .coverage import LETTERS, WORDS, Coverage, Rung, Unit, rungs, top
from .weight import AXES, Artifact, by, total

_HERE = Path(__file__).resolve().parent
_LONGEST = 10
_CLASSES = {Rung.EMITTED: "e", Rung.COMPILED: "c", Rung.TEXT: "t", Rung.DEVICE: "d"}


def render(
    cover: Coverage, shipped: Shipped, found: Sequence[Artifact], benches: Sequence[Bench], planned: bool
) -> str:
    """The whole page. planned: whether a manifest says what is refused, skipped or still to be built."""
    style, script = ((_HERE / f"page.{kind}").read_text(encoding="utf-8") for kind in ("css", "js"))
    view = {
        "label": Path(shipped.where).resolve().name,
        "generator": shipped.header["generator"] or "",
        "compilers": sorted(shipped.header["compilers"].items()),
        "style": Markup(style),
        "script": Markup(script),
        "style_hash": _hash(style),
        "script_hash": _hash(script),
        "planned": planned,
        "cover": cover,
        "kernels": sum(map(len, cover.families.values())),
        "formats": sum(map(len, cover.formats.values())),
        "count": cover.count(),
        "counts": [(target, cover.count(target)) for target in (*cover.targets, None)],
        "words": WORDS,
        "letters": LETTERS,
        "matrix": _matrix(cover),
        "plain": _plain(cover),
        "weight": total(found),
        "weights": {axis: by(axis, found) for axis in reversed(AXES)},
        **_times(cover, found),
        "benches": [(bench, roofline.plot(bench)) for bench in benches],
        "width": roofline.WIDTH,
        "height": roofline.HEIGHT,
        "left": roofline.LEFT,
        "right": roofline.RIGHT,
        "top": roofline.TOP,
        "bottom": roofline.BOTTOM,
    }
    return _environment().get_template("page.html").render(view)


def _environment() -> jinja2.Environment:
    loader = jinja2.FileSystemLoader(_HERE)
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, keep_trailing_newline=True
    )
    environment.filters.update(
        bar=_bar,
        brief=_brief,
        columns=_columns,
        duration=_duration,
        figure=roofline.figure,
        grouped=lambda count: f"{count:,}",
        names=lambda tables: list(dict.fromkeys(key for figures in tables for key in figures)),
        place=_place,
        rung=lambda rung: _classes(Rung(2 * rung - 1)),
        said=lambda units: "; ".join(_words(unit) for unit in units if unit),
        size=sizes.show,
        symbol=roofline.symbol,
    )
    return environment


def _hash(text: str) -> str:
    """What a content security policy calls an inline text by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


Row = tuple["Unit | None", ...]


def _matrix(cover: Coverage) -> dict[str, dict[str, dict[str, Row]]]:
    """Family -> kernel -> format -> a unit, or none, for each target; kernels that take formats only."""
    formats = [fmt for members in cover.formats.values() for fmt in members]
    having = {kernel for kernel, fmt, _ in cover.units if fmt != name.NO_FORMAT}
    rows = {
        family: {
            kernel: {fmt: _row(cover, kernel, fmt) for fmt in formats}
            for kernel in kernels
            if kernel in having
        }
        for family, kernels in cover.families.items()
    }
    return {family: found for family, found in rows.items() if found}


def _plain(cover: Coverage) -> dict[str, dict[str, Row]]:
    """Family -> kernel -> a unit, or none, for each target; kernels that take no format."""
    having = {kernel for kernel, fmt, _ in cover.units if fmt == name.NO_FORMAT}
    rows = {
        family: {kernel: _row(cover, kernel, name.NO_FORMAT) for kernel in kernels if kernel in having}
        for family, kernels in cover.families.items()
    }
    return {family: found for family, found in rows.items() if found}


def _row(cover: Coverage, kernel: str, fmt: str) -> Row:
    return tuple(cover.units.get((kernel, fmt, target)) for target in cover.targets)


def _times(cover: Coverage, found: Sequence[Artifact]) -> dict[str, Any]:
    """Seconds by kernel and target, of what was timed."""
    timed = [artifact for artifact in found if artifact.seconds is not None]
    rows: dict[str, dict[str, float]] = {}
    for artifact in timed:
        row = rows.setdefault(artifact.kernel, {})
        row[artifact.target] = row.get(artifact.target, 0.0) + (artifact.seconds or 0.0)
    seen = {artifact.target for artifact in timed}
    return {
        "timed": len(timed),
        "times": dict(sorted(rows.items(), key=lambda item: (-sum(item[1].values()), item[0]))),
        "time_targets": [target for target in cover.targets if target in seen],
        "longest": sorted(timed, key=lambda a: (-(a.seconds or 0.0), a.path))[:_LONGEST],
    }


# Words and classes


def _classes(reached: Rung) -> str:
    return " ".join(mark for rung, mark in _CLASSES.items() if rung & reached)


def _bar(unit: Unit | None) -> str:
    """The class of a unit's bar: nothing, refused, planned, or a letter for each rung."""
    if unit is None:
        return "n"
    if unit.refused:
        return "x"
    return _classes(unit.rungs) or "p"


_BRIEF = {
    Rung.EMITTED: "emitted",
    Rung.COMPILED: "compiled",
    Rung.TEXT: "text executed",
    Rung.DEVICE: "executed",
}


def _brief(unit: Unit) -> str:
    """A word or two beside a bar."""
    if unit.refused:
        return unit.cells[0].state
    highest = top(unit.rungs)
    return _BRIEF.get(highest, "not built")


def _words(unit: Unit) -> str:
    """A unit's state: what all its jobs have reached, and how many of them more."""
    if unit.refused:
        return f"{unit.target} {unit.cells[0].state}: {unit.cells[0].reason}"
    if not unit.built:
        return f"{unit.target} planned, not in this index"
    said = f"{unit.target} {_reached(unit, unit.rungs)}"
    reached = [top(rungs(cell, unit.backend)) for cell in unit.jobs]
    highest = max(reached)
    if highest > top(unit.rungs):
        said += f" ({reached.count(highest)} of {len(reached)} cells {_reached(unit, highest)})"
    others = len(unit.cells) - len(unit.jobs)
    return said + (f" ({others} more refused or skipped)" if others else "")


def _reached(unit: Unit, reached: Rung) -> str:
    highest = top(reached)
    if highest == Rung.DEVICE:
        labels = {label for cell in unit.jobs for label in cell.evidence if label.startswith(EXECUTED)}
        devices = {label.removeprefix(EXECUTED) for label in labels} - ({"cpu"} - {unit.backend})
        return f"executed on {' and '.join(sorted(devices))}"
    return WORDS.get(highest, "not built as a whole")


def _place(parts: tuple[str, ...]) -> str:
    """A unit's address in the page."""
    return f"#{'/'.join(quote(part, safe='') for part in parts)}"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds) // 60} min {int(seconds) % 60} s"


def _columns(bench: Bench) -> Mapping[str, Any]:
    """Which columns a file's rows fill."""
    copied = any("a copy" in row.peers for row in bench.rows)
    return {
        "tflops": any(row.tflops for row in bench.rows),
        "gb_s": any(row.gb_s for row in bench.rows),
        "share": any(row.share is not None for row in bench.rows),
        "share_of": "of a copy" if copied else "of the floor",
        "peers": list(dict.fromkeys(peer for row in bench.rows for peer in row.peers)),
    }
