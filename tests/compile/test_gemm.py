"""GEMMs as the real compilers and CUTLASS see them: what host stubs say and fill, what is in the cubins."""

from __future__ import annotations

import ctypes
import json
import struct
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gen.build import ninja
from gen.build.ninja import Edge
from gen.build.probe import Launch, Problem
from gen.lower import templates
from gen.plan import cells as plan
from gen.toolchain import find as toolchain
from gen.variants.family import Instance, family

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = plan.load(ROOT / "kernels.yaml")
TARGET = next(t for t in MANIFEST.targets.values() if t.has("wgmma"))
OK, CANNOT, ALIGNMENT, DEVICE = 0, 1, 3, 4
DENSE, EXACT, OUTER, BLOCK = "dense", "exact", "outer", "block"
ENTRIES = {
    DENSE: ("gemm", "bf16", "same"),
    EXACT: ("gemm", "i8", "same"),
    OUTER: ("gemm_fp8", "e4m3", "bf16"),
    BLOCK: ("gemm_fp8_block", "e4m3", "bf16"),
}
BYTES_, WORDS, INTS, FLOATS, BFLOATS = 0, 1, 3, 7, 9
"""Types of tensor maps."""


def say(text: str) -> None:
    print(text)


def first(kernel: str, dtype: str, out: str) -> Instance:
    """The first variant that has a stub: a collective."""
    return next(i for i in family(kernel).variants(None, dtype, TARGET, {"out": out}) if i.stub)


@dataclass
class Stub:
    """One stub with all entries; `maps` is what its encoder was asked for since the last call."""

    library: ctypes.CDLL
    answer: int = 0
    maps: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        number, pointer = ctypes.c_uint32, ctypes.POINTER
        wide = pointer(ctypes.c_uint64)
        kind = ctypes.CFUNCTYPE(
            ctypes.c_int, pointer(ctypes.c_uint8), ctypes.c_int, number, ctypes.c_void_p, wide, wide,
            pointer(number), pointer(number), *[ctypes.c_int] * 4,
        )  # fmt: skip

        def encode(
            to: Any, dtype: int, rank: int, at: Any, dims: Any, strides: Any, box: Any, *rest: Any
        ) -> int:
            found = {
                "dtype": dtype,
                "at": (at or 0) >> 32,
                "dims": dims[:rank],
                "strides": strides[: rank - 1],
            }
            self.maps.append(found)
            ctypes.memset(to, len(self.maps), 128)
            return self.answer

        self._encode = kind(encode)
        self.library.wootz_stub_encode(self._encode)

    def problem(self, arrays: Sequence[int], sizes: Sequence[int], scalars: Sequence[float]) -> Problem:
        """arrays: their numbers, 0 for one that is not given; they lie at multiples of 2^32."""
        addresses = (ctypes.c_void_p * len(arrays))(*[a << 32 or None for a in arrays])
        numbers = (ctypes.c_int64 * len(sizes))(*sizes)
        return Problem(addresses, numbers, (ctypes.c_double * 8)(*scalars), None, 0, 132, 0)

    def query(self, entry: str, problem: Problem) -> tuple[int, Launch]:
        self.maps.clear()
        launch = Launch()
        return getattr(self.library, f"{entry}_query")(ctypes.byref(problem), ctypes.byref(launch)), launch

    def fill(self, entry: str, problem: Problem, size: int, off: int = 0) -> tuple[int, bytes]:
        """The status and the bytes, which lie `off` bytes past alignment."""
        self.maps.clear()
        buffer = (ctypes.c_uint8 * (size + 256))()
        start = -(-ctypes.addressof(buffer) // 128) * 128 + off
        status = getattr(self.library, f"{entry}_fill")(
            ctypes.byref(problem), ctypes.c_void_p(start), None, None
        )
        return status, ctypes.string_at(start, size)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    names = toolchain.Names.from_environment()
    tools = toolchain.complete(
        toolchain.find([TARGET], names, say), toolchain.Needs(True, True, True), TARGET, names, say
    )
    folder = tmp_path_factory.mktemp("stub")
    source, output = folder / "stub.cpp", folder / "stub.so"
    texts = [first(*what).stub.replace("$SYMBOL", name) for name, what in ENTRIES.items()]
    source.write_text(templates.inline((), texts))
    command = ninja.bare(ninja.commands(tools)["stub"])
    command = ninja.expand(command, Edge("stub", str(output), str(source), {}))
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return ctypes.CDLL(str(output))


@pytest.fixture
def stub(library: ctypes.CDLL) -> Iterator[Stub]:
    yield Stub(library)
    library.wootz_stub_encode(None)


ARRAYS = {DENSE: (1, 2, 3, 4, 5), EXACT: (1, 2, 3), OUTER: (1, 2, 3, 4, 5), BLOCK: (1, 2, 3, 4, 5)}
SIZES = {
    DENSE: (333, 520, 264),
    EXACT: (333, 520, 272),
    OUTER: (333, 520, 272, 333, 1),
    BLOCK: (333, 520, 272),
}
SCALARS = {DENSE: (0.5, -1.5, 2)}


def usual(stub: Stub, entry: str, sizes: Sequence[int] = ()) -> Problem:
    return stub.problem(ARRAYS[entry], sizes or SIZES[entry], SCALARS.get(entry, ()))


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_query_makes_no_tensor_map(stub: Stub, entry: str) -> None:
    status, launch = stub.query(entry, usual(stub, entry))
    assert (status, stub.maps) == (OK, [])
    assert launch.params_align == 128
    assert launch.params_size % 128 == 0
    assert (48 << 10) < launch.shared <= TARGET.shared_max
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
    assert 0 < blocks <= 132
    assert blocks % (launch.cluster[0] * launch.cluster[1]) == 0


@pytest.mark.parametrize("entry", ENTRIES)
def test_what_it_cannot_run_is_said_and_not_run(stub: Stub, entry: str) -> None:
    m, n, k, *more = SIZES[entry]
    step = {DENSE: 8, EXACT: 16, OUTER: 16, BLOCK: 16}[entry]
    assert stub.query(entry, usual(stub, entry, (m, n, k + step // 2, *more)))[0] == CANNOT
    assert stub.query(entry, usual(stub, entry, (m, n + 2, k, *more)))[0] == CANNOT
    assert stub.query(entry, usual(stub, entry, (m, 2**31, k, *more)))[0] == CANNOT
    for small in ((1, 8, step), (1, 8, 100 * step), (100, 8, step)):
        assert stub.query(entry, usual(stub, entry, (*small, *more)))[0] == OK


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_tensor_map_that_is_refused_is_an_error(stub: Stub, entry: str) -> None:
    problem = usual(stub, entry)
    size = stub.query(entry, problem)[1].params_size
    stub.answer = 1
    assert stub.fill(entry, problem, size)[0] == DEVICE
    stub.answer = 0
    assert stub.fill(entry, problem, size)[0] == OK


def test_errors_of_fill(stub: Stub) -> None:
    problem = usual(stub, DENSE)
    size = stub.query(DENSE, problem)[1].params_size
    assert stub.fill(DENSE, problem, size, off=64)[0] == ALIGNMENT
    stub.library.wootz_stub_encode(None)
    assert stub.fill(DENSE, problem, size)[0] == DEVICE


def by_array(stub: Stub) -> dict[int, dict[str, Any]]:
    """The map over each array; several over one have to be alike."""
    found: dict[int, dict[str, Any]] = {}
    for made in stub.maps:
        assert found.setdefault(made["at"], made) == made
    return found


@pytest.mark.parametrize(
    ("entry", "operand", "output"), [(DENSE, (WORDS, 2), (5, BFLOATS, 2)), (EXACT, (BYTES_, 1), (3, INTS, 4))]
)
def test_maps_are_of_the_arrays(
    stub: Stub, entry: str, operand: tuple[int, int], output: tuple[int, int, int]
) -> None:
    m, n, k = SIZES[entry]
    problem = usual(stub, entry)
    stub.fill(entry, problem, stub.query(entry, problem)[1].params_size)
    found = by_array(stub)
    for array, rows in ((1, m), (2, n)):
        assert (found[array]["dtype"], found[array]["dims"][:2]) == (operand[0], [k, rows])
        assert found[array]["strides"][0] == k * operand[1]
    array, dtype, width = output
    assert (found[array]["dtype"], found[array]["dims"][:2]) == (dtype, [n, m])
    assert found[array]["strides"][0] == n * width


def test_c_that_is_not_given_is_not_touched(stub: Stub) -> None:
    """A map needs an address: that of y, which the kernel then does not read."""
    problem = usual(stub, DENSE)
    size = stub.query(DENSE, problem)[1].params_size
    stub.fill(DENSE, problem, size)
    assert set(by_array(stub)) == {1, 2, 3, 5}
    assert holds(stub.fill(DENSE, problem, size)[1], -1.5)
    without = stub.problem((1, 2, 0, 4, 5), SIZES[DENSE], (0.5, -7.25, 2))
    status, content = stub.fill(DENSE, without, size)
    assert status == OK
    assert set(by_array(stub)) == {1, 2, 5}
    assert holds(content, 0.5)
    assert not holds(content, -7.25)


def holds(params: bytes, number: float) -> bool:
    return struct.pack("<f", number) in params


def test_block_scales_are_read_along_the_rows_of_a(stub: Stub) -> None:
    m, _, k = SIZES[BLOCK]
    problem = usual(stub, BLOCK)
    stub.fill(BLOCK, problem, stub.query(BLOCK, problem)[1].params_size)
    scales = by_array(stub)[3]
    assert scales["dtype"] == FLOATS
    assert scales["dims"][0] == -(-m // 4) * 4
    assert -(-k // 128) in scales["dims"][1:]
    assert -(-m // 4) * 16 in scales["strides"]


# ------------------------------------------------------------ cubins
@pytest.mark.slow
def test_matrix_instructions(tmp_path: Path) -> None:
    """A whole build: gates, no stack frames, parameter blocks of the size that the stubs fill."""
    wide = TARGET.name
    plain, scaled = (
        next(t.name for t in MANIFEST.targets.values() if t.has(has) and not t.has("cluster"))
        for has in ("mma_s8", "mma_fp8")
    )
    kernels = {
        "gemm": {"dtypes": ["bf16", "i8"], "options": {"out": ["same"]}, "targets": [plain, wide]},
        "gemm_fp8": {"dtypes": ["e4m3"], "options": {"out": ["f32"]}, "targets": [scaled]},
        "gemm_fp8_block": {"dtypes": ["e4m3"], "options": {"out": ["bf16"]}, "targets": [scaled, wide]},
    }
    targets = yaml.safe_load((ROOT / "kernels.yaml").read_text())["targets"]
    chosen = {
        name: {k: v for k, v in targets[name].items() if k != "kernels"} for name in (plain, scaled, wide)
    }
    manifest = {"version": 1, "targets": chosen, "formats": {}, "kernels": kernels, "skips": []}
    manifest["profiles"] = {"default": {}}
    (tmp_path / "kernels.yaml").write_text(json.dumps(manifest))
    out = tmp_path / "out"
    command = [sys.executable, "-m", "gen", "build", "--manifest", str(tmp_path / "kernels.yaml"), "--json"]
    command += ["--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    index = json.loads((out / "index.json").read_text())
    gates = {e["gate"] for cell in index["cells"] for e in cell["entries"]}
    assert gates == {
        "hmma+ldsm", "imma+ldsm", "qmma_or_hmma+ldsm", "hgmma+utmaldg", "igmma+utmaldg", "qgmma+utmaldg",
    }  # fmt: skip
