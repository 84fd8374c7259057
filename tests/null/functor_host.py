"""Compiles decode functors as host C++ and runs them over whole packed matrices. No test in here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from wootz.formats import Descriptor
from wootz.formats.packed import PackedTensor

from gen.formats import fragment
from gen.formats.axes import Format
from gen.lower import templates
from gen.lower.functor import functor
from gen.manifest.target import Target

TARGET = Target("plain", "cuda", features=frozenset({"f16", "bf16"}))
CONVERTS = Target("converts", "cuda", features=TARGET.features | {"fp8_convert"})
CONSTANTS = (
    "bits", "unit_k", "steps", "vectors", "words", "code_bytes", "unit_bytes", "run", "runs", "tensors",
    "exponent", "scaled", "zeroed", "value_zero", "fold_only", "exact",
)  # fmt: skip
LANE = """
#include <utility>

// All steps of one lane of a unit: registers [step][lane][r].
template <class W, int... Step>
WOOTZ_FN void unit_steps(std::integer_sequence<int, Step...>, const uint32_t* words, const uint8_t* sides,
                         const float* tensor, int lane, uint32_t* decoded, uint32_t* folded) {
    uint32_t a[4];
    const auto keep = [&](uint32_t* out, int at) {
        for (int r = 0; r < 4; ++r) { out[(at * 32 + lane) * 4 + r] = a[r]; }
    };
    ((W::template decode<Step>(words, sides, lane, a), keep(decoded, Step),
      W::template decode_folded<Step>(words, sides, tensor, lane, a), keep(folded, Step)), ...);
}

template <class W, int... Level>
WOOTZ_FN void tensor_levels(std::integer_sequence<int, Level...>, const void* const* fields, float* tensor) {
    ((tensor[Level] = W::template tensor_level<Level>(fields[Level])), ...);
}

template <class W>
WOOTZ_FN void one_lane(const uint8_t* unit, const float* tensor, int lane, uint32_t* decoded,
                       uint32_t* folded) {
    uint32_t words[W::words];
    for (int i = 0; i < W::words; ++i) {
        words[i] = reinterpret_cast<const uint32_t*>(unit)[(32 * (i / 4) + lane) * 4 + i % 4];
    }
    unit_steps<W>(std::make_integer_sequence<int, W::steps>(), words, unit + W::code_bytes, tensor, lane,
                  decoded, folded);
}

// The scales of row g of a unit, both halves of all runs.
template <class W>
WOOTZ_FN void row_scales(const uint8_t* unit, const float* tensor, int g, float* scales) {
    for (int j = 0; j < W::runs; ++j) {
        for (int half = 0; half < 2; ++half) {
            scales[(g * W::runs + j) * 2 + half] = W::scale(unit + W::code_bytes, tensor, g, j, half);
        }
    }
}
"""
"""What runs functors, on a host and on a device alike."""

HOST = """
template <class W>
static void units(const uint8_t* bytes, int count, const void* const* fields, uint32_t* decoded,
                  uint32_t* folded, float* scales) {
    float tensor[4] = {};
    tensor_levels<W>(std::make_integer_sequence<int, W::tensors>(), fields, tensor);
    for (int i = 0; i < count; ++i, bytes += W::unit_bytes) {
        for (int lane = 0; lane < 32; ++lane) { one_lane<W>(bytes, tensor, lane, decoded, folded); }
        for (int g = 0; g < 8; ++g) { row_scales<W>(bytes, tensor, g, scales); }
        decoded += W::steps * 128, folded += W::steps * 128, scales += W::runs * 16;
    }
}
"""


@dataclass(frozen=True)
class Result:
    """Decoded and folded registers as raw 16-bit numbers [N, K], padding included; scales [N, runs]."""

    decoded: NDArray[np.uint16]
    folded: NDArray[np.uint16]
    scales: NDArray[np.float32]


def descriptor(fmt: Format) -> Descriptor:
    """The format as an index of this version has it."""
    return Descriptor.parse({**fmt.descriptor(), "packed": fragment.fragment(fmt).record()})


def source(cases: Mapping[str, tuple[Format, str, Target]]) -> str:
    """One translation unit with the functor of every case, and functions that run them."""
    texts, calls = [], []
    for name, (fmt, activations, target) in cases.items():
        texts.append(functor(fmt, activations, target, name))
        numbers = ", ".join(f"{name}::{c}" for c in CONSTANTS)
        calls.append(
            f'extern "C" void run_{name}(const uint8_t* bytes, int count, const void* const* fields,'
            " uint32_t* decoded, uint32_t* folded, float* scales)"
            f" {{ units<{name}>(bytes, count, fields, decoded, folded, scales); }}\n"
            f'extern "C" int constant_{name}(int i) {{ const int all[] = {{{numbers}}}; return all[i]; }}\n'
        )
    return templates.inline(["fragment.cuh"], texts) + LANE + HOST + "".join(calls)


FLAGS = (
    "-std=c++17", "-O0", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-Wno-unused-function",
    "-Wno-unused-parameter",
)  # fmt: skip


class Functors:
    """The functors of some cases in one shared object. edit: a change of the text before it is compiled."""

    def __init__(
        self,
        folder: Path,
        cases: Mapping[str, tuple[Format, str, Target]],
        edit: Callable[[str], str] = lambda text: text,
    ) -> None:
        path = folder / "functors.cpp"
        path.write_text(edit(source(cases)))
        compiler = shutil.which("g++") or shutil.which("c++") or "c++"
        command = [compiler, *FLAGS, str(path), "-o", str(path.with_suffix(".so"))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[:6000]
        self._library = ctypes.CDLL(str(path.with_suffix(".so")))

    def constants(self, name: str) -> dict[str, int]:
        return {c: int(self._library[f"constant_{name}"](i)) for i, c in enumerate(CONSTANTS)}

    def raw(self, name: str, packed: PackedTensor) -> tuple[NDArray[Any], ...]:
        """Registers of every unit, decoded and folded, [unit, step, lane, r, half-word]; scales
        [unit, g, run, row half]."""
        known = self.constants(name)
        units = np.ascontiguousarray(packed.fields["units"])
        count = units.shape[0] * units.shape[1]
        both = [np.zeros((count, known["steps"], 32, 4, 2), np.uint16) for _ in range(2)]
        scales = np.zeros((count, 8, known["runs"], 2), np.float32)
        fields = [np.ascontiguousarray(packed.fields[t]) for t in packed.packing.tensors]
        pointers = (ctypes.c_void_p * max(len(fields), 1))(*(f.ctypes.data for f in fields))
        arrays: list[Any] = [ctypes.c_void_p(a.ctypes.data) for a in (*both, scales)]
        function = self._library[f"run_{name}"]
        function(ctypes.c_void_p(units.ctypes.data), count, pointers, *arrays)
        return (*both, scales)

    def run(self, name: str, packed: PackedTensor) -> Result:
        """Decode every unit of a matrix."""
        tiles, across, _ = packed.fields["units"].shape
        decoded, folded, scales = self.raw(name, packed)
        by_row = scales.reshape(tiles, across, 8, -1, 2).transpose(0, 4, 2, 1, 3).reshape(tiles * 16, -1)
        return Result(_matrix(decoded, tiles, across), _matrix(folded, tiles, across), by_row)


def _matrix(raw: NDArray[np.uint16], tiles: int, across: int) -> NDArray[np.uint16]:
    """Registers [unit, step, lane, r, half-word] -> [row, k]: register r of an m16n8k16 A operand."""
    steps = raw.shape[1]
    out = np.zeros((tiles * 16, across * steps * 16), np.uint16)
    for lane in range(32):
        for r in range(4):
            for h in range(2):
                row, k = lane // 4 + 8 * (r & 1), 2 * (lane % 4) + 8 * (r >> 1) + h
                out[row::16, k::16] = raw[:, :, lane, r, h].reshape(tiles, across * steps)
    return out
