"""Writes the tables of docs anew from the reports that they name.

python benchmarks/figures.py

A table stands between `<!-- figures: REPORT -->` and `<!-- end of figures -->`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = tuple(sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"(<!-- figures: (\S+) -->\n).*?(<!-- end of figures -->)", re.S)

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


def _us(row: Row) -> str:
    return f"{row['us']:.1f}"


def _cases(report: Row) -> list[Row]:
    """What a suite's lines say, a row a case: how many limits are met, and the ends of what was found."""
    cases: dict[str, list[Row]] = {}
    for line in report["lines"]:
        if line["verdict"] != "stated":
            cases.setdefault(line["case"], []).append(line)
    return [
        {
            "case": case,
            "met": sum(line["verdict"] == "met" for line in lines),
            "all": len(lines),
            "ends": sorted({min(lines, key=_found)["found"], max(lines, key=_found)["found"]}, key=str),
        }
        for case, lines in cases.items()
    ]


def _found(line: Row) -> float:
    """The first number of what was found."""
    found = re.search(r"[\d.]+(e[+-]\d+)?", line["found"])
    return float(found[0]) if found else 0.0


def _rows(report: Row) -> list[Row]:
    rows: list[Row] = report["rows"]
    return rows


READ: dict[str, Callable[[Row], list[Row]]] = {"suite": _cases}
"""By the report's name: its rows, where those are not `rows`."""

TABLES: dict[str, tuple[Sequence[Column], Callable[[Row], bool]]] = {
    "suite": (
        (
            ("case", lambda r: str(r["case"])),
            ("met", lambda r: f"{r['met']} of {r['all']}"),
            ("found", lambda r: " … ".join(text.replace("x_floor", "× floor") for text in r["ends"])),
        ),
        lambda r: True,
    ),
    "qgemv": (
        (
            ("format", lambda r: f"`{r['format']}`"),
            ("N × K", lambda r: f"{r['n']} × {r['k']}"),
            ("µs", _us),
            ("torch, bf16 weights, µs", lambda r: f"{r['torch_bf16_us']:.1f}"),
        ),
        lambda r: True,
    ),
    "qmm": (
        (
            ("format", lambda r: f"`{r['format']}`"),
            ("M", lambda r: str(r["m"])),
            ("µs", _us),
            ("torch, bf16 weights, µs", lambda r: f"{r['torch_bf16_us']:.1f}"),
            ("torch / ours", lambda r: f"{r['of_torch']:.2f}"),
        ),
        lambda r: True,
    ),
    "gemm": (
        (
            ("case", lambda r: str(r["case"])),
            ("M × N × K", lambda r: f"{r['m']} × {r['n']} × {r['k']}"),
            ("µs", lambda r: f"{r['us']:.0f}"),
            ("torch, µs", lambda r: f"{r['torch_us']:.0f}"),
            ("torch / ours", lambda r: f"{r['ratio']:.2f}"),
        ),
        lambda r: r["m"] >= 1024,
    ),
    "rows": (
        (
            ("kernel", lambda r: f"`{r['kernel']}`"),
            ("µs", _us),
            ("torch, µs", lambda r: f"{r['torch_us']:.1f}"),
            ("of a copy", lambda r: f"{r['of_copy']:.2f}"),
        ),
        lambda r: r["dtype"] == "bf16",
    ),
    "build": (
        (
            ("machines", lambda r: str(r["machines"])),
            ("minutes", lambda r: f"{r['seconds'] / 60:.1f}"),
            ("jobs busy", lambda r: f"{r['busy']:.0%}"),
            ("units recorded", lambda r: f"{r['recorded']:.0%}"),
        ),
        lambda r: True,
    ),
}
"""By the report's name: columns, and which rows are shown."""


def table(report: Path) -> str:
    """The lines of a report's table."""
    name = report.name.partition("-")[0]
    columns, shown = TABLES[name]
    read = READ.get(name, _rows)
    rows = [row for row in read(json.loads(report.read_text(encoding="utf-8"))) if shown(row)]
    spelt = [[name for name, _ in columns], *([spell(row) for _, spell in columns] for row in rows)]
    head, *body = ("| " + " | ".join(cells) + " |\n" for cells in spelt)
    return "".join([head, "|---" * len(columns) + "|\n", *body])


def written(text: str) -> str:
    """A text with every table as its report has it."""
    return BLOCK.sub(lambda found: found[1] + table(ROOT / found[2]) + found[3], text)


if __name__ == "__main__":
    for document in DOCUMENTS:
        document.write_text(written(document.read_text(encoding="utf-8")), encoding="utf-8")
