"""qmm_packed on warpgroup MMA: rings that fit every format, entries for every shape, and blocks that share
the work without gaps (the template's own code, compiled for the host)."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import sys
from functools import cache
from itertools import product
from math import frexp, isfinite
from pathlib import Path

import pytest
from wootz.formulas import compile_formula

from gen.formats.axes import Format
from gen.formats.fragment import fragment
from gen.kernels import _qmm_sm90 as qmm
from gen.lower import templates
from gen.lower.functor import KINDS
from gen.lower.wgmma import COLUMNS, wgmma, wgmmas
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.variants.family import Instance

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "unseen")]
import test_unseen_formats as unseen  # noqa: E402

MANIFEST = plan.load(HERE.parents[1] / "kernels.yaml")
TARGET = next(t for t in MANIFEST.targets.values() if {"wgmma", "tma"} <= t.features)
NAMES = ("m", "n", "k", "sms")


@cache
def formats() -> dict[str, Format]:
    """Those of the manifest, and those that it does not have."""
    return {**MANIFEST.formats, **{name: unseen.made(body, name) for name, body in unseen.bodies().items()}}


@cache
def entries(name: str, dtype: str) -> tuple[Instance, ...]:
    return tuple(qmm.instances(formats()[name], dtype, TARGET))


def holds(instance: Instance, **values: int) -> bool:
    return all(compile_formula(each, NAMES)(values) for each in instance.when)


# ---- the instruction


@pytest.mark.parametrize("columns", COLUMNS)
def test_an_instruction_names_each_of_its_operands_once(columns: int) -> None:
    text = wgmma(columns, "bf16")
    assert f"m64n{columns}k16.f32.bf16.bf16" in text
    operands = [int(number) for number in re.findall(r"%(\d+)", text)]
    assert sorted(operands) == list(range(columns // 2 + 5))
    assert text.count('"+f"') == columns // 2
    assert text.count('"r"') == 4
    assert text.count('"l"') == 1


def test_instructions_come_once_each_in_order() -> None:
    assert wgmmas((64, 16, 64), "f16") == wgmma(16, "f16") + wgmma(64, "f16")


@pytest.mark.parametrize(("columns", "dtype"), [(0, "bf16"), (12, "bf16"), (264, "f16"), (16, "f32")])
def test_an_instruction_that_is_not_there_is_refused(columns: int, dtype: str) -> None:
    with pytest.raises(ValueError, match=f"wgmma of {columns} columns of {dtype}"):
        wgmma(columns, dtype)


# ---- rings


@pytest.mark.parametrize("name", formats())
def test_rings_fit_and_keep_groups_apart(name: str) -> None:
    layout = fragment(formats()[name])
    found = [qmm.rings(columns, layout, TARGET.shared_max) for columns in qmm.COLUMNS]
    assert all(found) or qmm.crowded(layout) or layout.unit_bytes > 4608
    for tile in filter(None, found):
        assert tile.shared(layout) <= TARGET.shared_max
        boxes = layout.columns // qmm.CHUNK // tile.box
        assert boxes * tile.box * qmm.CHUNK == layout.columns
        assert tile.x_slots % (tile.groups * boxes) == 0 or tile.groups == 1
        assert tile.x_slots > tile.groups * boxes or tile.groups == 1
        assert tile.x_slots >= 2
        assert tile.w_slots >= 2
        assert tile.w_slots % tile.groups == 0
        assert layout.columns // 16 % (2 * tile.batch) == 0


def test_formats_of_the_manifest_have_all_tiles() -> None:
    for name in MANIFEST.formats:
        assert [i.suffix for i in entries(name, "f16")] == [f"n{columns}" for columns in qmm.COLUMNS]


def test_a_format_with_room_for_narrow_tiles_only_has_none() -> None:
    few = [n for n in formats() if not entries(n, "bf16")]
    assert 0 < len(few) < 10
    for name in few:
        assert not qmm.rings(128, fragment(formats()[name]), TARGET.shared_max)


def test_a_tile_that_fits_nowhere_is_left_out() -> None:
    layout = fragment(formats()["int4"])
    assert qmm.rings(256, layout, 100 << 10) is None
    smaller = qmm.rings(64, layout, 180 << 10)
    assert smaller is None or smaller.shared(layout) <= 180 << 10


# ---- entries


@pytest.mark.parametrize(("name", "dtype"), [*product(formats(), ("f16", "bf16"))])
def test_every_aligned_shape_has_an_entry_and_no_other(name: str, dtype: str) -> None:
    found = entries(name, dtype)
    if not found:
        return
    for m, k in product((1, 16, 17, 33, 64, 65, 128, 129, 256, 257, 5000), (8, 264, 4096)):
        first = next(i for i in found if holds(i, m=m, n=5, k=k, sms=132))
        columns = int(first.suffix[1:])
        assert m <= columns or first is found[-1] or (columns == 128 and m <= 256)
        assert not any(holds(i, m=m, n=5, k=k + 4, sms=132) for i in found)


@pytest.mark.parametrize("name", formats())
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_scales_that_are_not_far_are_normal_numbers(name: str, dtype: str) -> None:
    """With the exponent that decoded values lack, where weights are."""
    fmt, kind = formats()[name], KINDS[dtype]
    exponent = qmm.taken(qmm.decoder(fmt, dtype, TARGET))
    side, bound = qmm.far(fmt, kind, exponent)
    digits = frexp(max(abs(v) for v in fmt.element.values() if isfinite(v)))[1]
    sizes = range(-28, 16) if dtype == "f16" else range(-126, 128)
    for size in sizes:  # of scales: 2^size, up to nearly twice as much
        if size >= bound if side > 0 else side < 0 and size < bound:
            continue
        taken, largest = size + exponent, size + digits  # weights are below 2^largest
        assert taken <= kind.bias or largest > kind.bias + 1
        assert taken >= 1 - kind.bias or largest <= 1 - kind.bias


def test_the_widest_tile_is_taken_where_there_are_enough() -> None:
    def suffix(m: int, n: int) -> str:
        return next(i for i in entries("int4", "bf16") if holds(i, m=m, n=n, k=4096, sms=132)).suffix

    assert [suffix(256, n) for n in (4096, 66 * 128, 66 * 128 + 1, 14336)] == ["n128", "n128", "n256", "n256"]
    assert [suffix(m, 128) for m in (128, 129, 256, 257)] == ["n128", "n128", "n128", "n256"]


def test_an_entry_copies_x_by_boxes_and_by_chunks() -> None:
    last = entries("int4", "bf16")[-1]
    boxes, chunks = last.maps
    assert [a.name for a in last.args[:2]] == [boxes.name, chunks.name]
    assert boxes.of == chunks.of == "x"
    values = {"m": 300, "n": 5, "k": 264, "sms": 132}
    dims = [compile_formula(d, NAMES)(values) for d in (*boxes.dims, *chunks.dims)]
    assert dims == [64, 300, 4, 264, 300]
    assert [compile_formula(s, NAMES)(values) for s in boxes.strides] == [528, 128]
    assert compile_formula(boxes.dims[2], NAMES)({**values, "k": 8}) == 1


# ---- the template's division of work

HOST = """
#include <stdint.h>
#define WOOTZ_FN inline
#define __shared__
#define __syncthreads()
#define __syncwarp()
struct Dim { unsigned x, y, z; };
static Dim gridDim, blockIdx, threadIdx;
struct uint4 { unsigned x, y, z, w; };
struct float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
template <class T> static T min(T a, T b) { return a < b ? a : b; }
template <class T> static T max(T a, T b) { return a < b ? b : a; }
static uint32_t shared_address(const void*) { return 0; }
static unsigned __byte_perm(unsigned a, unsigned, unsigned) { return a; }
static unsigned __shfl_sync(unsigned, unsigned a, int, int = 32) { return a; }
static bool __any_sync(unsigned, bool a) { return a; }
static float fabsf(float a) { return a < 0 ? -a : a; }
static float fmaxf(float a, float b) { return a < b ? b : a; }
static void __stcg(float4*, float4) {}
static float4 __ldcg(const float4* p) { return *p; }
static unsigned atomicAdd(uint32_t*, uint32_t) { return 0; }
"""


def declared(header: str, namespace: str) -> str:
    """The instructions of a header, as declarations."""
    text = templates.header(header).partition("#ifdef __CUDACC__")[2].partition("#endif")[0]
    found = re.findall(r"^(?:template <.*>\n)?WOOTZ_FN [^{;]*(?= \{)", text, re.M)
    return "\n".join((f"namespace {namespace} {{", *(f"{each};" for each in found), "}\n"))


HOST += "namespace sm90 { struct TensorMap; }\n"
HOST += declared("sm90.cuh", "sm90") + declared("wgmma.cuh", "warpgroup")
DRIVER = """
struct W { static constexpr int unit_k = 256, unit_bytes = 2048; };
using S = warpgroup::Tile<%d, 1, 1, 4, 2, 4>;
using Share = warpgroup::Work<W, S>;
// How often each unit of each tile was given out, and as which parts. -> parts of the tiles left over.
extern "C" int divide(unsigned m, unsigned n, unsigned k, unsigned blocks, int* times, int* cut) {
    warpgroup::Problem p = {};
    p.m = m, p.n = n, p.k = k;
    gridDim.x = blocks;
    const unsigned units = Share::units(p);
    for (blockIdx.x = 0; blockIdx.x < blocks; blockIdx.x++) {
        unsigned total = 0;
        Share work(p);
        const unsigned expected = work.total();
        for (; work.more(); work.next()) {
            if (work.place().row >= n || work.place().token >= m) return -1;
            if (!work.whole()) {
                const unsigned count = Share::parts(p);
                if (count < 2 || blockIdx.x - blockIdx.x %% count + count > blocks) return -2;
                cut[work.tile] |= 1 << blockIdx.x %% count;
            }
            for (unsigned u = work.first(); u < work.last(); u++) times[work.tile * units + u]++;
            total += work.last() - work.first();
        }
        if (total != expected) return -3;
    }
    return Share::parts(p);
}
"""


@pytest.fixture(scope="module")
def divide(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("divide")
    source = folder / "divide.cpp"
    source.write_text(HOST + templates.inline(["qmm_sm90.cuh"], [DRIVER % 256]))
    compiler = shutil.which("g++") or shutil.which("c++") or "c++"
    command = [
        compiler,
        "-std=c++17",
        "-O1",
        "-w",
        "-shared",
        "-fPIC",
        str(source),
        "-o",
        str(folder / "divide.so"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[:4000]
    return ctypes.CDLL(str(folder / "divide.so"))


SHAPES = [
    (m, n, k, blocks)
    for m, n, k in [
        (1, 1, 8),
        (300, 128, 256),
        (16, 4096, 14336),
        (1024, 14336, 4096),
        (4096, 14336, 1024),
        (257, 129, 1032),
        (1000, 5000, 520),
        (700, 40 * 128, 768),
        (16, 14336, 4096),
        (300, 131 * 128, 2048),
    ]
    for blocks in (1, 7, 132)
]


@pytest.mark.parametrize(("m", "n", "k", "blocks"), SHAPES)
def test_blocks_share_every_unit_once(divide: ctypes.CDLL, m: int, n: int, k: int, blocks: int) -> None:
    tiles, units = -(-m // 256) * -(-n // 128), -(-k // 256)
    times, cut = (ctypes.c_int * (tiles * units))(), (ctypes.c_int * tiles)()
    parts = divide.divide(m, n, k, blocks, times, cut)
    assert parts >= 1
    assert set(times) == {1}
    rest = tiles % blocks
    assert [c for c in cut if c] == ([2**parts - 1] * rest if parts > 1 else [])
    workspace = compile_formula(entries("int4", "bf16")[-1].workspace, NAMES)
    size = workspace({"m": m, "n": n, "k": k, "sms": blocks})
    assert bool(size) == (parts > 1)
    assert not size or size >= blocks * (8 + 128 * 256 * 4)


def test_a_block_that_takes_a_unit_twice_is_seen(divide: ctypes.CDLL) -> None:
    times, cut = (ctypes.c_int * 1)(), (ctypes.c_int * 1)()
    times[0] = 1
    assert divide.divide(1, 1, 8, 1, times, cut) == 1
    assert set(times) == {2}


def test_it_declares_what_it_needs() -> None:
    for instance in entries("int4", "f16"):
        assert instance.zeroed
        assert instance.gate == "hgmma+utmaldg"
        assert instance.templates == ("qmm_sm90.cuh",)
        assert not isinstance(instance.shared, int) or instance.shared <= TARGET.shared_max


def test_other_targets_are_told_apart() -> None:
    assert not {"wgmma", "tma"} <= Target("old", "cuda", "arch", frozenset({"mma"})).features
