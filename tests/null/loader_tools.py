"""Artifact folders for the loader's tests, written by the rules of the index, with kernels compiled by the
host compiler.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import struct
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wootz

Record = dict[str, Any]

DESCRIPTOR: Record = {
    "name": "toy",
    "element": {
        "kind": "int", "bits": 8, "signed": True, "offset": 0, "symmetric": True, "max": 127.0,
        "values": [float(code if code < 128 else code - 256) for code in range(256)],
    },
    "block": [1, 4],
    "scales": [
        {
            "element": {"kind": "wide", "type": "f32", "bits": 32},
            "block": [1, 4], "rule": "absmax", "op": "multiply",
        }
    ],
    "zero": None,
    "layout": {
        "unit": 1, "unit_bytes": 1, "positions": [list(range(8))], "inline": [], "chunk": 16, "load": 16,
        "fields": [
            {"name": "codes", "dtype": "u8", "bits": 8, "block": None},
            {"name": "scale", "dtype": "f32", "bits": 32, "block": [1, 4]},
        ],
    },
}  # fmt: skip

SOURCE = r"""
#include <cstdint>
using Args = void* const*;
template <typename T> static T get(Args args, int i) { return *static_cast<T*>(args[i]); }

extern "C" void add_f32(Args args, const uint32_t* grid, uint32_t begin, uint32_t end) {
    const float *a = get<const float*>(args, 0), *b = get<const float*>(args, 1);
    float* y = get<float*>(args, 2);
    const uint64_t n = get<uint64_t>(args, 3);
    for (uint64_t block = begin; block < end; ++block)
        for (uint64_t i = block * 256; i < (block + 1) * 256 && i < n; ++i) y[i] = a[i] + b[i];
}

extern "C" void copy_u16(Args args, const uint32_t* grid, uint32_t begin, uint32_t end) {
    const uint16_t* x = get<const uint16_t*>(args, 0);
    uint16_t* y = get<uint16_t*>(args, 1);
    const uint32_t n = get<uint32_t>(args, 2);
    for (uint64_t i = uint64_t{begin} * 256; i < uint64_t{end} * 256 && i < n; ++i) y[i] = x[i];
}

// One block a row of w. `extra` is added to every sum, so that variants can be told apart.
static void gemv(Args args, uint32_t begin, uint32_t end, float extra) {
    const float* x = get<const float*>(args, 0);
    const int8_t* codes = get<const int8_t*>(args, 1);
    const float* scale = get<const float*>(args, 2);
    float* y = get<float*>(args, 3);
    const uint32_t m = get<uint32_t>(args, 4), n = get<uint32_t>(args, 5), k = get<uint32_t>(args, 6);
    const uint32_t pitch = get<uint32_t>(args, 7), scales = get<uint32_t>(args, 8);
    for (uint32_t row = begin; row < end; ++row)
        for (uint32_t i = 0; i < m; ++i) {
            float sum = extra;
            for (uint32_t j = 0; j < k; ++j)
                sum += x[i * k + j] * codes[row * pitch + j] * scale[row * scales + j / 4];
            y[i * n + row] = sum;
        }
}
extern "C" void gemv_one(Args args, const uint32_t*, uint32_t begin, uint32_t end) {
    gemv(args, begin, end, 0);
}
extern "C" void gemv_many(Args args, const uint32_t*, uint32_t begin, uint32_t end) {
    gemv(args, begin, end, MANY);
}

extern "C" void dequant_f32(Args args, const uint32_t*, uint32_t begin, uint32_t end) {
    const int8_t* codes = get<const int8_t*>(args, 0);
    const float* scale = get<const float*>(args, 1);
    float* y = get<float*>(args, 2);
    const uint32_t k = get<uint32_t>(args, 4);
    const uint32_t pitch = get<uint32_t>(args, 5), scales = get<uint32_t>(args, 6);
    for (uint32_t row = begin; row < end; ++row)
        for (uint32_t j = 0; j < k; ++j)
            y[uint64_t{row} * k + j] = codes[row * pitch + j] * scale[row * scales + j / 4];
}
"""

_W_ARGS = [["w.codes", "ptr", "in"], ["w.scale", "ptr", "in"]]
_W_PITCHES = [["w.codes", "u32", "pitch"], ["w.scale", "u32", "pitch"]]
_MNK = [["m", "u32", "shape"], ["n", "u32", "shape"], ["k", "u32", "shape"]]
_GEMV_ARGS = [["x", "ptr", "in"], *_W_ARGS, ["y", "ptr", "out"], *_MNK, *_W_PITCHES]


def _array(name: str, *shape: str) -> Record:
    return {"name": name, "kind": "array", "shape": list(shape)}


def _kernel(key: str, operands: list[Record], output: Sequence[str], **more: Any) -> Record:
    out = {"name": "y", "shape": list(output)}
    return {
        "key": key,
        "operands": operands,
        "output": out,
        "limits": {},
        "options": [],
        "alias": False,
        **more,
    }


_W = {"name": "w", "kind": "quantised", "shape": ["n", "k"]}
KERNELS: list[Record] = [
    _kernel("binary", [_array("a", "n"), _array("b", "n")], ["n"], options=["op"], alias=True, flat=True),
    _kernel("copy", [_array("x", "n")], ["n"]),
    _kernel("dequant", [_W], ["n", "k"]),
    _kernel("qgemv", [_array("x", "m", "k"), _W], ["m", "n"], limits={"m": [0, 8]}),
]

TARGETS: list[Record] = [
    {
        "key": "cpu",
        "backend": "cpu",
        "capability": None,
        "suffix": "",
        "isa": ["x86-64-v3", "baseline"],
        "extension": "so",
    },
    {"key": "gpu80", "backend": "cuda", "capability": [8, 0], "suffix": "", "isa": [], "extension": "cubin"},
    {
        "key": "gpu90a",
        "backend": "cuda",
        "capability": [9, 0],
        "suffix": "a",
        "isa": [],
        "extension": "cubin",
    },
]


NVRTC: Record = {"dsl": {"std": "c++17", "fma": False}, "cutlass": "it includes headers of others"}


def _entry(symbol: str, args: list[list[str]], grid: list[Any], **more: Any) -> Record:
    return {"symbol": symbol, "args": args, "block": [1, 1, 1], "grid": grid, "shared": 0, "when": [], **more}


ENTRIES: dict[str, list[Record]] = {
    "binary.add": [
        _entry(
            "add_f32",
            [["a", "ptr", "in"], ["b", "ptr", "in"], ["y", "ptr", "out"], ["n", "u64", "shape"]],
            [["ceildiv", "n", 256], 1, 1],
        )
    ],
    "copy": [
        _entry(
            "copy_u16",
            [["x", "ptr", "in"], ["y", "ptr", "out"], ["n", "u32", "shape"]],
            [["ceildiv", "n", 256], 1, 1],
        )
    ],
    "dequant": [_entry("dequant_f32", [*_W_ARGS, ["y", "ptr", "out"], *_MNK[1:], *_W_PITCHES], ["n", 1, 1])],
    "qgemv": [
        _entry("gemv_one", _GEMV_ARGS, ["n", 1, 1], when=[["le", "m", 1]]),
        _entry("gemv_many", _GEMV_ARGS, ["n", 1, 1], when=[["and", ["gt", "m", 1], ["le", "k", 4096]]]),
    ],
}


def shared_object(folder: Path, many: float = 0) -> bytes:
    """The kernels above as a shared object; `many` is what gemv_many adds to every result."""
    source, target = folder / f"kernels{many}.cpp", folder / f"kernels{many}.so"
    source.write_text(SOURCE.replace("MANY", str(float(many))))
    compiler = os.environ.get("CXX", "c++")
    subprocess.run(
        [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", str(source), "-o", str(target)], check=True
    )
    return target.read_bytes()


def fake_cubin(entries: Sequence[Record], note: str = "") -> bytes:
    """What the stand-in of libcuda takes for a binary: a line an entry, with the sizes of its parameters."""
    lines = [f"FAKE {note}"]
    for entry in entries:
        sizes = ["4" if kind in ("u32", "f32") else "8" for _, kind, _ in entry["args"]]
        lines.append(" ".join([entry["symbol"], *sizes]))
    return ("\n".join(lines) + "\n").encode()


def fake_fatbin(cubin: bytes) -> bytes:
    """A fat binary as the stand-in of libcuda takes it: the head, and the cubin as it is."""
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(cubin)) + cubin


class Folder:
    """An artifact folder in the making: add cells, then write the index."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.targets: list[Record] = [dict(row) for row in TARGETS]
        self.kernels: list[Record] = [dict(row) for row in KERNELS]
        self.cells: list[Record] = []
        path.mkdir(parents=True, exist_ok=True)

    def file(self, name: str, data: bytes, isa: str = "") -> Record:
        """Writes an artifact and returns its record."""
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        return {"file": name, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), "isa": isa}

    def cell(
        self, kernel: str, format: str, dtype: str, target: str, files: list[Record], **more: Any
    ) -> None:
        name, _, op = kernel.partition(".")
        record = {
            "key": f"{kernel}/{format}/{dtype}/{target}",
            "kernel": name,
            "format": format,
            "dtype": dtype,
            "target": target,
            "options": {"op": op} if op else {},
            "files": files,
            "evidence": ["emitted"],
            "entries": ENTRIES.get(kernel, []),
        }
        self.cells.append({**record, **more})

    def source(self, name: str, text: str, kind: str = "dsl") -> Record:
        """Writes a source and returns what a cell says of it."""
        file = self.file(name, text.encode())
        return {
            "source": name,
            "source_size": file["size"],
            "source_sha256": file["sha256"],
            "source_kind": kind,
        }

    def add_all(self, target: str, files: list[Record], **more: Any) -> None:
        """A cell of every kernel for a target, all in the same files."""
        for kernel, format, dtype in CELLS:
            self.cell(kernel, format, dtype, target, files, **more)

    def write(self) -> Path:
        sections = {
            "targets": self.targets,
            "kernels": self.kernels,
            "formats": [{"key": DESCRIPTOR["name"], **DESCRIPTOR}],
            "cells": self.cells,
        }
        (self.path / "index.json").write_bytes(index_bytes(sections))
        return self.path


CELLS = (
    ("binary.add", "-", "f32"),
    ("copy", "-", "bf16"),
    ("copy", "-", "f16"),
    ("dequant", "toy", "f32"),
    ("qgemv", "toy", "f32"),
)


def index_bytes(sections: Mapping[str, Sequence[Record]]) -> bytes:
    """The text of an index: a line a record, sections sorted by key."""
    names = ("targets", "kernels", "formats", "cells")
    header = {
        "wootz_index": 2,
        "generator": "test",
        "compilers": {},
        "nvrtc": NVRTC,
        "count": {name: len(sections[name]) for name in names},
    }
    lines, spans = [_dump(header)[:-1] + ","], {}
    for number, name in enumerate(names):
        lines.append(f'{"]," if number else ""}"{name}":[')
        records = sorted(sections[name], key=lambda record: str(record["key"]))
        start = sum(len(line) + 1 for line in lines)
        lines += [_dump(record) + ("," if i + 1 < len(records) else "") for i, record in enumerate(records)]
        spans[name] = [start, sum(len(line) + 1 for line in lines)]
    return ("\n".join(lines) + f'\n],"spans":{_dump(spans)}}}\n').encode()


def edit_index(path: Path, old: bytes, new: bytes) -> None:
    """Replaces bytes of an index, whose last line then says where its sections are now."""
    data = path.read_bytes()
    assert old in data
    *lines, _, _ = data.replace(old, new).split(b"\n")
    spans, at, inside = dict[str, list[int]](), 0, ""
    for line in lines:
        opened = re.match(rb'(?:\],)?"(\w+)":\[$', line)
        if opened:
            inside = opened[1].decode()
            spans[inside] = [at + len(line) + 1] * 2
        at += len(line) + 1
        if inside and not opened:
            spans[inside][1] = at
    path.write_bytes(b"\n".join(lines) + f'\n],"spans":{_dump(spans)}}}\n'.encode())


def _dump(record: Mapping[str, Any]) -> str:
    return json.dumps(record, separators=(",", ":"))


def cuda_folder(path: Path) -> Path:
    """A folder whose binaries only the stand-in of libcuda takes, for both of its CUDA targets."""
    folder = Folder(path)
    entries = [entry for each in ENTRIES.values() for entry in each]
    for target in ("gpu80", "gpu90a"):
        folder.add_all(target, [folder.file(f"cubin/{target}.cubin", fake_cubin(entries, target))])
    return folder.write()


@functools.cache
def image() -> bytes:
    """The kernels, compiled once a session."""
    with tempfile.TemporaryDirectory() as scratch:
        return shared_object(Path(scratch))


def cpu_folder(path: Path, image: bytes) -> Path:
    """A folder with one shared object for the CPU."""
    folder = Folder(path)
    folder.add_all("cpu", [folder.file("cpu/kernels.so", image, "baseline")])
    return folder.write()


def random(*shape: int, dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    """Normal numbers, the same for the same shape."""
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def quantized(lib: wootz.Library, n: int, k: int) -> wootz.QuantizedTensor:
    """An [n, k] tensor of the library's format."""
    return wootz.quantize(random(n, k), lib.format("toy"))
