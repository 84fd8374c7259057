"""Block-scaled kernels as the real compilers and CUTLASS see them.

No machine here can run these kernels, so what can be known without one is checked: where CUTLASS looks for a
scale, what the stubs say and which tensor maps they make, what is written about groups, what cubins hold.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from wootz.formats import Descriptor, tiles

from gen.build import ninja
from gen.build.ninja import Edge
from gen.build.probe import Launch, Problem
from gen.lower import templates
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.toolchain import find as toolchain
from gen.variants.family import Instance, family

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
MANIFEST = plan.load(ROOT / "kernels.yaml")
TARGETS = [t for t in MANIFEST.targets.values() if t.has("block_scale")]
SCALED = {
    (s.element, s.scale, s.globally): name
    for name, fmt in MANIFEST.formats.items()
    if tiles.refusal(Descriptor.parse(fmt)) is None and (s := tiles.scaling(fmt))
}
NV, MX4, MX8 = ("e2m1", "e4m3", True), ("e2m1", "e8m0", False), ("e4m3", "e8m0", False)


def say(text: str) -> None:
    print(text)


@cache
def tools() -> toolchain.Toolchain:
    names = toolchain.Names.from_environment()
    found = toolchain.find(TARGETS, names, say)
    return toolchain.complete(found, toolchain.Needs(True, True, True), TARGETS[0], names, say)


def host(text: str, folder: Path, name: str) -> ctypes.CDLL:
    """A text, compiled as stubs are, and loaded."""
    source, output = folder / f"{name}.cpp", folder / f"{name}.so"
    source.write_text('#define WOOTZ_BUILD "test"\n' + templates.inline((), [text]))
    command = ninja.bare(ninja.commands(tools())["stub"])
    command = ninja.expand(command, Edge("stub", str(output), str(source), {}))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return ctypes.CDLL(str(output))


# ------------------------------------------------------------ scale tiles
@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    text = (HERE / "scale_layout.cpp").read_text()
    return host(text, tmp_path_factory.mktemp("layout"), "layout")


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("rows", [1, 5, 127, 128, 129, 300])
def test_scale_tiles_are_where_the_library_looks(layout: ctypes.CDLL, rows: int, block: int) -> None:
    for k in (128, 256, 384, 1152):
        columns = k // block
        left, right = (np.full(rows * columns + 1, -1, np.int32) for _ in range(2))
        pointers = (a.ctypes.data_as(ctypes.c_void_p) for a in (left, right))
        assert layout.scale_offsets(block, rows, k, *pointers) == 0
        scales = np.random.default_rng(rows).integers(1, 256, (rows, columns), dtype=np.uint8)
        packed = tiles.scale_tiles(scales)
        for offsets in (left, right):
            assert len(set(offsets[:-1].tolist())) == rows * columns
            assert np.array_equal(packed[offsets[:-1]].reshape(rows, columns), scales)
            assert offsets[-1] == packed.size == tiles.tile_bytes(rows, columns)


# ------------------------------------------------------------ stubs
@dataclass
class Stub:
    """A stub with an encoder that writes down what it is asked for."""

    library: ctypes.CDLL
    symbol: str
    maps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        number, pointer = ctypes.c_uint32, ctypes.POINTER
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, ctypes.c_void_p, ctypes.c_int, number, ctypes.c_void_p, pointer(ctypes.c_uint64),
            pointer(ctypes.c_uint64), pointer(number), pointer(number), *[ctypes.c_int] * 4,
        )  # fmt: skip

        def encode(
            _: Any, dtype: int, rank: int, at: Any, dims: Any, strides: Any, box: Any, *rest: Any
        ) -> int:
            self.maps.append(
                {
                    "dtype": dtype,
                    "at": (at or 0) >> 32,
                    "dims": list(dims[:rank]),
                    "strides": list(strides[: rank - 1]),
                    "box": list(box[:rank]),
                }
            )
            return 0

        self._encode = kind(encode)
        self.library.wootz_stub_encode(self._encode)

    def ask(self, arrays: int, sizes: Sequence[int], alpha: float = 1.5) -> tuple[int, Launch]:
        """query, then fill; arrays lie at multiples of 2^32, the workspace at 2^50."""
        addresses = (ctypes.c_void_p * arrays)(*[(i + 1) << 32 for i in range(arrays)])
        numbers, scalars = (ctypes.c_int64 * len(sizes))(*sizes), (ctypes.c_double * 1)(alpha)
        problem, launch = Problem(addresses, numbers, scalars, None, 0, 148, 74), Launch()
        code = getattr(self.library, f"{self.symbol}_query")(ctypes.byref(problem), ctypes.byref(launch))
        if code:
            return code, launch
        problem.workspace, problem.workspace_bytes = 1 << 50, launch.workspace_bytes
        buffer = ctypes.create_string_buffer(launch.params_size + launch.params_align)
        start = -(-ctypes.addressof(buffer) // launch.params_align) * launch.params_align
        self.maps.clear()
        fill = getattr(self.library, f"{self.symbol}_fill")
        return fill(ctypes.byref(problem), ctypes.c_void_p(start), None, None), launch


def instance(kernel: str, target: Target, formats: tuple[str, str, bool], **options: str) -> Instance:
    """The last variant of a cell: the one that takes every shape."""
    declared = family(kernel)
    chosen = {name: options.get(name, values[0]) for name, values in declared.options.items()}
    *_, last = declared.variants(MANIFEST.formats[SCALED[formats]], "bf16", target, chosen)
    assert isinstance(last, Instance)
    return last


CODES4, CODES8, WIDENED, SCALES, OUTPUT = 13, 0, 14, 1, 9
"""Types of tensor maps: 16 4-bit codes in 8 bytes, bytes, 16 codes in 16 bytes, 16-bit numbers, bfloat16."""


def unique(maps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [m for i, m in enumerate(maps) if m not in maps[:i]]


def test_the_stub_of_a_mixed_pair(tmp_path: Path) -> None:
    target = next(t for t in TARGETS if not t.has("tcgen05"))
    v = instance("scaled_gemm_mixed", target, MX4, activations="e4m3")
    stub = Stub(host(v.stub.replace("$SYMBOL", "mixed"), tmp_path, "mixed"), "mixed")
    m, n, k = 333, 520, 1000
    code, launch = stub.ask(5, (m, n, k))
    assert code == 0
    assert launch.shared <= target.shared_max
    assert (list(launch.cluster), launch.params_align) == ([1, 1, 1], 128)
    found = {(e["at"], e["dtype"]): e for e in unique(stub.maps)}
    assert sorted(found) == [(1, CODES8), (2, SCALES), (3, WIDENED), (4, SCALES), (5, OUTPUT)]
    whole, columns = 1024, 1024 // 32 // 4  # K is rounded up to a run, whose codes are there and 0
    assert found[1, CODES8]["dims"][:2] == [whole, m]
    assert found[1, CODES8]["strides"][0] == whole
    assert found[3, WIDENED]["dims"][:2] == [whole, n]
    assert found[3, WIDENED]["strides"][0] == whole // 2
    assert found[5, OUTPUT]["dims"][:2] == [n, m]
    assert found[5, OUTPUT]["strides"][0] == 2 * n
    for at, rows in ((2, m), (4, n)):
        tile_map = found[at, SCALES]
        sizes = dict(zip(tile_map["strides"], tile_map["dims"][1:], strict=True))
        assert tile_map["dims"][0] == 256, "512 bytes of a tile"
        assert sizes[512] == columns
        assert sizes[512 * columns] == -(-rows // 128)
    assert stub.ask(5, (m, 516, k))[0] == 1, "rows of y that begin between multiples of 16 bytes"
    assert stub.ask(5, (2**31, n, k))[0] == 1
    for sizes_ in ((1, 8, 1), (128, 128, 128), (1, 8, 100_000)):
        assert stub.ask(5, sizes_)[0] == 0


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Stub:
    target = next(t for t in TARGETS if t.has("tcgen05"))
    v = instance("scaled_grouped_gemm", target, NV)
    text = v.stub.replace("$SYMBOL", "grouped") + (HERE / "scaled_groups.cpp").read_text()
    return Stub(host(text, tmp_path_factory.mktemp("grouped"), "grouped"), "grouped")


def test_the_workspace_depends_on_the_number_of_groups_alone(grouped: Stub) -> None:
    small = grouped.ask(9, (128, 8, 64, 128))
    large = grouped.ask(9, (100_000, 8, 4096, 7168))
    more = grouped.ask(9, (128, 300, 64, 128))
    assert (small[0], large[0], more[0]) == (0, 0, 0)
    assert small[1].workspace_bytes == large[1].workspace_bytes < more[1].workspace_bytes
    assert list(small[1].grid) == list(large[1].grid) == [148, 1, 1]


def test_what_is_written_about_groups(grouped: Stub) -> None:
    m, n, k = 700, 264, 1000
    counts = np.array([0, 130, 128, 1, 7, 64, -3, 61], np.int32)
    offsets = np.array([0, 128, 384, 512, 100, 640, 0, 640], np.int32)
    groups = len(counts)
    sizes = np.array([m, groups, n, k], np.int64)
    bytes_ = grouped.ask(9, sizes.tolist())[1].workspace_bytes
    workspace, found = np.zeros(bytes_, np.uint8), np.zeros((groups, 14), np.int64)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (counts, offsets, sizes, workspace, found)]
    grouped.library.describe_groups.restype = ctypes.c_int64
    used = grouped.library.describe_groups(*pointers)
    assert 0 < used <= bytes_
    assert used % 128 == 0
    whole, columns = 1024, 1024 // 16 // 4
    for g in range(groups):
        fits = counts[g] > 0 and offsets[g] % 128 == 0 and offsets[g] + counts[g] <= m
        assert fits == (g in (1, 2, 3))
        rows, first = (int(counts[g]), int(offsets[g])) if fits else (0, 0)
        assert found[g].tolist() == [
            rows, n, whole,
            (1 << 40) + first * whole // 2,
            (2 << 40) + first // 128 * columns * 512,
            (3 << 40) + g * n * whole // 2,
            (4 << 40) + g * 3 * columns * 512,
            (5 << 40) + first * n * 2,
            whole, whole, n,
            -(-max(rows, 1) // 128) * columns * 512, 3 * columns * 512,
            3 * (5, 7, 11, 13, 17, 19, 23, 29)[g],
        ]  # fmt: skip


# ------------------------------------------------------------ cubins
def test_matrix_instructions(tmp_path: Path) -> None:
    """A whole build of one cell for each kind of instruction: gates, no stack frames, parameter blocks of the
    size that the stubs fill."""
    memory, warp = (next(t.name for t in TARGETS if t.has("tcgen05") == has) for has in (True, False))
    shipped = yaml.safe_load((ROOT / "kernels.yaml").read_text())
    kernels = {
        "scaled_grouped_gemm": {"dtypes": ["bf16"], "formats": [SCALED[NV]], "targets": [memory]},
        "scaled_gemm": {
            "dtypes": ["bf16"],
            "formats": [SCALED[MX8]],
            "targets": [warp],
        },
    }
    manifest = {
        "version": shipped["version"],
        "targets": {name: shipped["targets"][name] for name in (memory, warp)},
        "formats": {name: shipped["formats"][name] for name in (SCALED[NV], SCALED[MX8])},
        "kernels": kernels,
        "profiles": {"default": {}},
        "skips": [],
    }
    (tmp_path / "kernels.yaml").write_text(yaml.safe_dump(manifest))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "gen", "build", "--manifest", str(tmp_path / "kernels.yaml")]
    command += ["--out", str(out), "--targets", memory, warp, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = json.loads((out / "index.json").read_text())
    entries = [e for cell in index["cells"] for e in cell["entries"]]
    assert {e["gate"] for e in entries} == {"utcomma+utccp", "qmma_sf"}
    assert all("evidence" not in str(e) for e in entries)
