"""`wootz bench` on the CPU: problems that grow, results that are checked, floors, reports, pictures."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import sys
import types
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import bench
from wootz.bench import (
    ceilings,
    cells,
    checking,
    command,
    devices,
    peers,
    plot,
    problems,
    report,
    rows,
    timing,
)
from wootz.bench.families import FAMILIES
from wootz.bench.work import bytes_of, floor_us, flops_of
from wootz.checks import check as check_of
from wootz.errors import ArgumentError, DeviceError, MissingPackageError, NoKernelError
from wootz.formats import Descriptor
from wootz.reference import Expected

from gen.build.index import format_record
from gen.plan import cells as plan
from tests.null import loader_tools as tools
from tests.null import sticky


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tools.cpu_folder(tmp_path_factory.mktemp("bench") / "a", tools.image())


@pytest.fixture(scope="module")
def lib(folder: Path) -> Any:
    return wootz.load(folder)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ceilings of small arrays, and few operands."""
    monkeypatch.setattr(ceilings, "CPU_READ", 1 << 16)
    monkeypatch.setattr(ceilings, "CPU_SIDE", 32)
    monkeypatch.setattr(devices, "CPU_ROTATE", 1 << 16)


def cell_of(lib: Any, stem: str) -> Any:
    return lib.index.find("cells", f"{stem}/cpu")


def run(*argv: str, capsys: Any) -> tuple[int, str, str]:
    status = command.main([*argv])
    out = capsys.readouterr()
    return status, out.out, out.err


# ---- problems


def test_a_few_rows_are_a_problem_of_any_size(lib: Any) -> None:
    """Drawn: 512 rows of w. What is timed has 1300, and its result is known at each of them."""
    device, cell = bench.open_device("cpu"), cell_of(lib, "qgemv/toy/f32")
    problem = bench.operands_for(lib, cell, {"m": 2, "n": 1300, "k": 36})
    assert problem.drawn == {"m": 2, "n": 512, "k": 36}
    assert problem.shapes == {"x": (2, 36), "w": (1300, 36)}
    placed = bench.place(problem, device, copies=3)
    w = [each["w"] for each in placed.operands]
    assert w[0].fields["codes"].shape[0] == 1300
    assert np.array_equal(w[0].fields["codes"][512:1024], problem.values["w"].fields["codes"])
    assert not np.array_equal(w[0].fields["codes"], w[1].fields["codes"])
    kernel = lib.kernel("qgemv", "toy", "f32", "cpu")
    runs = bench.prepare(kernel, placed, device)
    assert (runs.symbol, runs.early, runs.out_bytes) == ("gemv_many", False, 2 * 1300 * 4)
    found = bench.check(problem, runs, device, kernel)
    assert found.passed
    runs.launches[0]()
    assert np.allclose(runs.outputs[0], placed.operands[0]["x"] @ w[0].dequantize().T, atol=1e-4)


def test_ordinary_operands_where_a_check_has_them(lib: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A check's own are drawn to find mistakes: quantize's have ties and infinities in most rows."""
    cell, size = cell_of(lib, "qgemv/toy/f32"), {"m": 1, "n": 40, "k": 36}
    usual, check = bench.operands_for(lib, cell, size).values, check_of("qgemv")

    def plain(*given: Any) -> Any:
        return {**check.operands(*given), "x": np.full((1, 36), 7.0, np.float32)}

    monkeypatch.setattr(check, "plain", plain, raising=False)
    values = bench.operands_for(lib, cell, size).values
    assert (values["x"] == 7).all()
    assert np.array_equal(values["w"].fields["codes"], usual["w"].fields["codes"])


def test_weights_to_be_quantised_are_ordinary() -> None:
    found: Any = check_of("quantize")
    format = Descriptor.parse(
        format_record(plan.load(Path(__file__).parents[2] / "kernels.yaml").formats["int4"])
    )
    x = found.plain(format, {"n": 64, "k": 256}, "f32", {}, np.random.default_rng(1))["x"]
    assert np.isfinite(x).all()
    rows = np.abs(x).max(axis=1)
    assert rows.min() > 2.0**-9
    assert len(set(rows)) == 64


def test_wrong_results_are_not_timed(lib: Any, tmp_path: Path, capsys: Any) -> None:
    """Planted: the kernel adds 0.5; and a row in the middle, which no sample sees, is not written."""
    wrong = tools.Folder(tmp_path / "wrong")
    made = wrong.file("cpu/wrong.so", tools.shared_object(tmp_path, many=0.5), "baseline")
    wrong.add_all("cpu", [made])
    argv = ("--kernels", "qgemv", "--size", "n=600", "k=40", "m=2", "--artifacts", str(wrong.write()))
    status, out, _ = run(*argv, "--replays", "5", capsys=capsys)
    assert status == 1
    assert "qgemv/toy/f32/cpu is wrong at m = 2, n = 600, k = 40, and is not timed: error" in out
    assert "x floor" not in out
    device, problem = (
        bench.open_device("cpu"),
        bench.operands_for(lib, cell_of(lib, "qgemv/toy/f32"), {"m": 1, "n": 1300, "k": 36}),
    )
    runs = bench.prepare(lib.kernel("qgemv", "toy", "f32", "cpu"), bench.place(problem, device, 1), device)
    bench.check(problem, runs, device)
    y = runs.outputs[0]
    y[0, 700] = np.frombuffer(b"\xff" * 4, np.float32)[0]
    with pytest.raises(bench.MismatchError, match="1 elements were not written"):
        checking.compare_output(problem, y, device)


def test_places_and_values_that_are_compared() -> None:
    (ends, whole) = checking.sampled((2000, 30), (512, 30))
    assert ends.tolist() == [*range(512), *range(2000 - checking.EDGE, 2000)]
    assert whole.tolist() == list(range(30))
    few = Expected(np.arange(4.0).reshape(4, 1), np.ones((4, 1)))
    grown = checking.grown(few, [np.array([0, 3, 4, 9]), np.array([0])])
    assert grown.value[:, 0].tolist() == [0.0, 3.0, 0.0, 1.0]


def test_arrays_grow_along_any_axis() -> None:
    device, raw = bench.open_device("cpu"), np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    made = device.grown(raw, "f32", (2, 7, 2), 0)
    assert np.array_equal(made, raw[:, [0, 1, 2, 0, 1, 2, 0]])
    assert np.array_equal(device.grown(raw, "f32", raw.shape, 1), raw[::-1])
    assert made.ctypes.data % 16 == 0


def test_extents_that_do_not_fit(lib: Any) -> None:
    cell = cell_of(lib, "qgemv/toy/f32")
    for size, text in (
        ({"m": 1, "n": 4}, "qgemv needs k: its extents are m, n, k"),
        ({"m": 1, "n": 4, "k": 4, "kk": 1}, "qgemv has no extent 'kk'; did you mean 'k'"),
        ({"m": 9, "n": 4, "k": 4}, "m is 9; qgemv takes m from 0 to 8"),
    ):
        with pytest.raises(ArgumentError, match=text.replace("?", ".")):
            bench.operands_for(lib, cell, size)


def test_families_name_kernels_and_symbols_that_there_are() -> None:
    """Their texts are of the symbols that the checks have."""
    made = plan.load(Path(__file__).parents[2] / "kernels.yaml").formats["mxfp4"]
    format = Descriptor.parse(format_record(made))
    for kernel, family in FAMILIES.items():
        check = check_of(kernel)
        known = {name for size in check.shapes(format) for name in size} - {"sms"}
        named = {*family.shape.split(), *family.beside, *family.grows}
        named |= {each for each in family.flops.split() if not each.isdecimal()}
        assert named <= known, (kernel, named - known)
        for text in family.sizes:
            assert len(text.split("x")) == len(family.shape.split()), kernel
            assert {*family.shape.split(), *family.beside} == known, kernel


# ---- work


def test_bytes_and_operations(lib: Any) -> None:
    problem = bench.operands_for(lib, cell_of(lib, "qgemv/toy/f32"), {"m": 2, "n": 1300, "k": 64})
    weights = 1300 * (64 + 16 * 4)
    assert problems.operand_bytes(problem) == 2 * 64 * 4 + weights
    assert bytes_of(problem, 2 * 1300 * 4) == 2 * 64 * 4 + weights + 2 * 1300 * 4
    assert flops_of(problem) == 2 * 2 * 1300 * 64
    assert floor_us(4000, 0, 2.0, 0.0) == pytest.approx(2.0)
    assert floor_us(4000, 30_000_000, 2.0, 10.0) == pytest.approx(3.0)


def work_of(
    kernel: str, values: dict[str, Any], updated: str = "", size: Any = None, output: str = "y"
) -> int:
    operands = [types.SimpleNamespace(name=n, updated=n == updated, kind="array") for n in values]
    signature = types.SimpleNamespace(operands=operands, output=types.SimpleNamespace(name=output))
    problem: Any = types.SimpleNamespace(
        signature=signature, family=FAMILIES[kernel], values=values, arrays=values, shapes={}, size=size or {}
    )
    return bytes_of(problem, 100)


def test_what_is_touched_in_part_counts_in_part() -> None:
    bank, rows = np.zeros((4, 10), np.uint8), np.zeros((8, 10), np.uint8)
    counts, index = np.array([3, 0, 5, 0], np.int32), np.array([1, 1, -1, 9, 3], np.int32)
    assert work_of("grouped_qmm", {"w": bank, "counts": counts}) == 100 + 20 + 16
    assert work_of("gather", {"x": rows, "indices": index}) == 100 + 20 + 20
    assert work_of("add_rms_norm", {"x": rows, "residual": rows}, "residual") == 100 + 80 + 160
    assert work_of("scatter", {"y": rows, "indices": index}, "y") == 25 + 20
    cache = work_of("kv_append", {"k_cache": rows}, "k_cache", {"s": 2, "t": 8}, "lengths")
    assert cache == 100 + 20


# ---- timing


class Ticking:
    """A replay whose times are told beforehand."""

    def __init__(self, *times: float) -> None:
        self.times = iter(times)

    def replay(self) -> float:
        return next(self.times)


def test_peers_take_turns_and_the_first_rounds_do_not_count() -> None:
    times = timing.in_turn([Ticking(9, 9, 9, 1, 2, 3, 4), Ticking(1, 1, 1, 2, 4, 6, 8)], replays=7)
    assert (times.us, times.ratios) == ((2.5, 5.0), (1.0, 2.0))
    assert times.spread == pytest.approx(1.0)


def test_a_replay_on_the_cpu_goes_on_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000_000_000, 5_000_000))  # 5 ms a look at it
    monkeypatch.setattr(timing.time, "perf_counter_ns", lambda: next(clock))
    ran: list[int] = []
    loop = timing.Loop([lambda i=i: ran.append(i) for i in range(6)])  # type: ignore[misc]
    assert loop.replay() == pytest.approx(5000.0)
    loop.replay()
    assert ran == [0, 0, 1, 2, 3, 4, 5, 0, 1]


def test_replays_on_a_gpu_last_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    took = {}
    monkeypatch.setattr(timing, "Graph", lambda launches: Ticking(took["us"]))
    sets = [lambda i=i: i for i in range(4)]  # type: ignore[misc]
    for us, count in ((10.0, 150), (500.0, 4), (2500.0, 2), (9000.0, 2)):
        took["us"] = us
        assert [run() for run in timing.lasting(sets, "cuda:0")] == [i % 4 for i in range(count)]
    assert timing.lasting(sets, "cpu") is sets
    took["us"] = 100.0
    assert len(timing.lasting(sets[:1], "cuda:0")) == 15


# ---- which cells and sizes


def test_cells_and_sizes(lib: Any) -> None:
    wanted = cells.Wanted(("qgemv", "bin*"), ("toy",), ("f32",), extents={"k": 64}, m=(1, 8))
    chosen = cells.chosen(lib, "cpu", wanted)
    assert [cell["key"] for cell in chosen] == ["binary.add/-/f32/cpu", "qgemv/toy/f32/cpu"]
    assert cells.sizes(lib, chosen[1], wanted) == [{"m": m, "n": 14336, "k": 64} for m in (1, 8)]
    plain = cells.Wanted(shapes=("12x8", "4x4"))
    assert cells.sizes(lib, chosen[1], plain) == [{"m": 1, "n": 12, "k": 8}, {"m": 1, "n": 4, "k": 4}]
    assert len(cells.sizes(lib, chosen[1], cells.Wanted())) == 3
    assert cells.sizes(lib, chosen[0], cells.Wanted()) == [{"n": 67108864}]


def test_launches_one_after_the_other(lib: Any) -> None:
    """`apart` takes from every entry of an index that it may begin early, and nothing else."""
    early = [{"symbol": "a", "pdl": True}, {"symbol": "b"}]
    record = {"key": "x", "entries": early}
    index = types.SimpleNamespace(find=lambda *_: record, records=lambda *_: iter([record]), header={"a": 1})
    made = cells.apart(types.SimpleNamespace(index=index))
    without = {"key": "x", "entries": [{"symbol": "a", "pdl": False}, {"symbol": "b", "pdl": False}]}
    assert made.index.find("cells", "x") == without
    assert [*made.index.records("cells")] == [without]
    assert (made.index.header, early[0]["pdl"]) == ({"a": 1}, True)
    kernel = cells.apart(lib).kernel("qgemv", "toy", "f32", "cpu")
    x, q = np.ones((1, 4), np.float32), wootz.quantize(np.ones((3, 4), np.float32), lib.format("toy"))
    assert np.allclose(kernel(x, q), 4.0)


# ---- peers


def test_peers_are_compared_before_they_are_timed(lib: Any) -> None:
    device, cell = bench.open_device("cpu"), cell_of(lib, "qgemv/toy/f32")
    problem = bench.operands_for(lib, cell, {"m": 1, "n": 600, "k": 32})
    given = peers.Given(problem, bench.place(problem, device, 2), device, (1, 600))
    (numpy,) = peers.of("qgemv", "toy", "f32", "cpu", ["numpy"])
    assert len(peers.ready(numpy, given).launches) == 2

    def made(off: float) -> peers.Peer:
        return peers.Peer("p", "numpy", "cpu", ("*",), "", lambda g: peers.Made((), lambda: off))

    assert "off by 5.0e-01" in peers.ready(made(0.5), given).why
    assert "off by nan" in peers.ready(made(float("nan")), given).why
    broken = peers.Peer("p", "numpy", "cpu", ("*",), "", lambda g: 1 / 0)  # type: ignore[arg-type, return-value]
    assert peers.ready(broken, given).why == "ZeroDivisionError: division by zero"
    absent = peers.Peer("p", "no_such_package", "cpu", ("*",), "", lambda g: peers.Made((), lambda: 0.0))
    assert peers.ready(absent, given).why.startswith("no_such_package cannot be imported")


@pytest.mark.parametrize("when", ["made", "compared", "replayed"])
def test_a_fault_has_the_name_of_the_peer(lib: Any, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever a peer breaks the device, the kernel and the other peer are not blamed."""
    device = sticky.Sticky()
    ran: list[int] = []

    def breaks() -> float:
        device.broken = True
        return 0.0

    def launch() -> None:
        ran.append(1)
        if when == "replayed" and len(ran) > 3:
            device.broken = True

    def make(given: peers.Given) -> peers.Made:
        if when == "made":
            breaks()
        return peers.Made([launch], breaks if when == "compared" else lambda: 0.0)

    others = [
        peers.Peer("good", "numpy", "cpu", ("*",), "", lambda g: peers.Made([lambda: None], lambda: 0.0)),
        peers.Peer("bad", "numpy", "cpu", ("*",), "", make),
    ]
    monkeypatch.setattr(peers, "PEERS", others)
    roof = ceilings.Ceilings("cpu", {"read": 2.0}, {"f32": 1.0})
    how = rows.Measuring(lib, device, roof, (), 5)
    found = rows.attempt(how, cell_of(lib, "qgemv/toy/f32"), {"m": 1, "n": 12, "k": 16})
    assert found.fault
    assert found.why == f"FaultError: peer bad: RuntimeError: {sticky.FAULT.splitlines()[0]}"


@pytest.mark.parametrize(("errors", "lost"), [(0, False), (1, False), (9, True)])
def test_a_gpu_is_lost_where_every_call_fails(errors: int, lost: bool) -> None:
    """An error that is told once, as of a capture, is not a fault."""
    left = iter([RuntimeError("CUDA error")] * errors)

    def synchronize() -> None:
        for error in left:
            raise error

    device = object.__new__(devices.Cuda)
    device._torch = types.SimpleNamespace(cuda=types.SimpleNamespace(synchronize=synchronize))
    raised: list[type[Exception]] = []
    try:
        with devices.watched(device, "the kernel"):
            pass
    except RuntimeError as error:
        raised.append(type(error))
    assert raised == ([devices.FaultError] if lost else [RuntimeError] * errors)


def test_a_graph_holds_what_its_launches_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Capturing the next peer frees unused memory, which the arrays of this one must not be by then."""
    cuda = types.SimpleNamespace(
        CUDAGraph=lambda: None, graph=lambda made: contextlib.nullcontext(), synchronize=lambda: None
    )
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))

    class Array:
        pass

    weights = Array()
    seen = weakref.ref(weights)
    graph: Any = timing.Graph([functools.partial(id, weights)])
    del weights
    gc.collect()
    assert seen() is not None
    del graph
    gc.collect()
    assert seen() is None


def test_peers_that_are_not_there() -> None:
    with pytest.raises(ArgumentError, match="no peer 'numpi'; did you mean 'numpy'"):
        peers.refuse_missing(["numpi"])
    with pytest.raises(MissingPackageError, match="peer humming: humming cannot be imported"):
        peers.refuse_missing(["humming"])
    peers.refuse_missing(["numpy"])
    for peer in peers.PEERS:
        assert peer.computes, peer.name


# ---- the command


@pytest.fixture(scope="module")
def reported(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """One run with peers, JSON and a picture."""
    out = tmp_path_factory.mktemp("out")
    patch = pytest.MonkeyPatch()
    patch.setattr(ceilings, "CPU_READ", 1 << 16)
    patch.setattr(ceilings, "CPU_SIDE", 32)
    patch.setattr(devices, "CPU_ROTATE", 1 << 16)
    argv = ["--kernels", "qgemv,dequant", "--size", "n=700", "k=64", "--peers", "numpy", "--replays", "5"]
    files = ["--json", str(out / "r.json"), "--plot", str(out / "r.svg"), "--artifacts", str(folder)]
    assert command.main([*argv, *files]) == 0
    patch.undo()
    return json.loads((out / "r.json").read_text()), out / "r.svg"


def test_the_report(reported: tuple[dict[str, Any], Path]) -> None:
    found, _ = reported
    assert {"device", "date", "versions", "ceilings", "rows"} <= set(found)
    assert found["versions"]["numpy"] == np.__version__
    assert found["ceilings"]["read_gb_s"] > 0
    assert list(found["ceilings"]["matrix_tflops"]) == ["f32"]
    dequant, qgemv = found["rows"]
    assert (dequant["kernel"], dequant["format"], dequant["flops"]) == ("dequant", "toy", 0)
    assert dequant["bytes"] == 700 * (64 + 16 * 4 + 64 * 4)
    assert (qgemv["cell"], qgemv["shape"]) == ("qgemv/toy/f32/cpu", {"m": 1, "n": 700, "k": 64})
    assert qgemv["share"] == pytest.approx(qgemv["floor_us"] / qgemv["us"])
    assert set(qgemv["peers"]) == set(qgemv["ratios"]) == {"numpy"}
    assert qgemv["symbol"] == "gemv_one"


def test_the_picture(reported: tuple[dict[str, Any], Path]) -> None:
    text = reported[1].read_text()
    assert text.startswith("<svg")
    assert text.endswith("</svg>\n")
    assert text.count("<circle") == 2
    assert "qgemv toy f32 m=1 n=700 k=64" in text
    assert not any(word in text for word in ("nan", "inf"))


def test_the_table() -> None:
    row = rows.Row("qmm/a/f16/t", "qmm", "a", "f16", {"m": 1}, 2.0, 4000, 8000, 1.0, ratios={"torch": 1.5})
    other = rows.Row("copy/-/f16/t", "copy", "-", "f16", {"n": 1}, 4.0, 4000, 0, 1.0, cold=False, pdl=True)
    head, lines = report.table([row, other])
    assert head[-1] == "torch / ours"
    assert lines[0][3:] == ["m=1", "2.00", "2", "0.004", "2.00", "1.50"]
    assert lines[1][3:] == ["n=1 warm pdl", "4.00", "1", "-", "4.00", "-"]
    text = report.plain(head, lines).splitlines()
    assert text[0].startswith("kernel  format")


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ((), "name --kernels, or a --suite"),
        (
            ("--kernels", "qgemw"),
            "no kernel 'qgemw' on cpu; did you mean 'qgemv'?; there: binary, binary.add",
        ),
        (("--kernels", "qgemv", "--formats", "toi"), "no format 'toi' on cpu; did you mean 'toy'"),
        (("--kernels", "qgemv", "--dtypes", "f64"), "no dtype 'f64' on cpu"),
        (("--kernels", "qgemv", "--shapes", "64"), "qgemv: shape '64'; want nxk, as 14336x4096"),
        (("--kernels", "qgemv", "--shapes", "64x-1"), "qgemv: shape '64x-1'"),
        (("--kernels", "qgemv", "--size", "z=3"), "qgemv has no extent 'z'; it has m, n, k"),
        (("--kernels", "qgemv", "--size", "n=0"), "--size n=0: want SYMBOL=EXTENT"),
        (("--kernels", "qgemv", "--m", "9", "--size", "n=4", "k=4"), "qgemv takes m from 0 to 8"),
        (("--kernels", "qgemv", "--m", "2", "--size", "n=4", "k=5000"), "has no variant for"),
        (("--kernels", "qgemv", "--device", "cuda:0"), ""),
        (("--kernels", "qgemv", "--device", "metal"), 'bench measures on "cpu" and "cuda:N"'),
        (("--kernels", "qgemv", "--device", "tpu"), "device is 'tpu'"),
        (("--kernels", "qgemv", "--peers", "humming"), "peer humming: humming cannot be imported"),
        (("--kernels", "qgemv", "--plot", "a.gif"), "want a name that ends in .svg or .png"),
        (("--kernels", "qgemv", "--json", "/no/such/folder/r.json"), "cannot write /no/such/folder/r.json"),
        (("--kernels", "qgemv", "--json", "/"), "cannot write /"),
        (("--kernels", "qgemv", "--replays", "4"), "--replays 4: want more than 4"),
        (("--kernels", "qgemv", "--suite", "s.yaml"), "--suite has its own kernels"),
        (("--suite", "s.yaml", "--peers"), "--suite has its own kernels, sizes and peers"),
        (("--suite", "/no/such/suite.yaml"), "cannot read /no/such/suite.yaml"),
    ],
)
def test_bad_use_is_one_line(folder: Path, argv: tuple[str, ...], text: str, capsys: Any) -> None:
    status, out, error = run(*argv, "--artifacts", str(folder), capsys=capsys)
    assert (status, out) == (2, "")
    assert error.count("\n") == 1
    assert error.startswith("wootz bench: ")
    assert text in error


def test_png_needs_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingPackageError, match=r"PNG needs matplotlib: pip install 'wootz\[bench\]'"):
        plot.check_format(Path("a.png"))


def test_a_gpu_needs_torch_and_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices._core, "cuda_device_count", lambda: 1)
    monkeypatch.setitem(__import__("sys").modules, "torch", None)
    with pytest.raises(MissingPackageError, match="needs torch with CUDA"):
        devices.open_device("cuda:0")
    with pytest.raises(DeviceError, match="no device cuda:1; the driver has 1"):
        devices.open_device("cuda:1")


def test_names_that_are_not_there(lib: Any) -> None:
    with pytest.raises(NoKernelError, match="no kernel 'x'"):
        cells.chosen(lib, "cpu", cells.Wanted(("x",)))
    with pytest.raises(AttributeError, match="no attribute"):
        bench.nothing  # noqa: B018


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["--m", "0"], "argument --m: 0: want whole numbers from 1 on; try: wootz bench --help"),
        (["--shapes", "-5x3"], "argument --shapes: expected one argument; try: wootz bench --help"),
        (["--shapes", "999999999x999999999"], "wants 2000000005999999992 bytes for operands and output"),
        (["--kernels", "dequant", "--shapes", "2000000x2000000"], "wants 24000000000000 bytes"),
    ],
)
def test_what_cannot_be_is_one_line(argv: list[str], says: str, folder: Path, capsys: Any) -> None:
    given = ["--artifacts", str(folder), "--kernels", "qgemv", "--dtypes", "f32", *argv]
    status, out, err = run(*given, capsys=capsys)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("wootz bench: ")
    assert says in err


def test_memory_that_there_is_not_is_one_line(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: Any) -> Any:
        raise MemoryError("Unable to allocate 4 EiB")

    monkeypatch.setattr(rows, "operands_for", none)
    status, _, err = run("--artifacts", str(folder), "--kernels", "qgemv", capsys=capsys)
    assert (status, err) == (2, "wootz bench: Unable to allocate 4 EiB: choose smaller shapes\n")
