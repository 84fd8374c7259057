"""What `wootz bench` does with torch's memory, as on a GPU, and torch's peers: here on the CPU."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import staging
from wootz.bench import ceilings, checking, devices, peers, problems, rows, timing

from tests.null import loader_tools as tools

torch = pytest.importorskip("torch")


class Standin(devices.Cuda):
    """A GPU's memory as torch has it, in the CPU's."""

    def __init__(self) -> None:
        self._torch, self._types = torch, staging.torch_types(torch)
        self.name, self.title, self.rotate = "cpu", "a stand-in", 1 << 16
        self._where = "cpu"
        self.memory = staging._torch(torch, "cpu")

    def stream(self) -> int:
        return 0


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return wootz.load(tools.cpu_folder(tmp_path_factory.mktemp("bench") / "a", tools.image()))


def test_memory_of_torch_is_that_of_numpy() -> None:
    own, other = devices.Cpu(), Standin()
    rng = np.random.default_rng(0)
    for dtype, raw in (
        ("f32", rng.standard_normal((3, 4)).astype(np.float32)),
        ("bf16", rng.integers(0, 1 << 14, (3, 4)).astype(np.uint16)),
        ("e4m3", rng.integers(0, 99, (3, 4)).astype(np.uint8)),
    ):
        for shape, shift in (((3, 4), 0), ((8, 4), 2), ((3, 9), 1), ((5, 7), 1)):
            wanted = devices._tiled(raw, shape, shift)
            made = other.grown(raw, dtype, shape, shift)
            assert np.array_equal(other.memory.get(made, dtype), wanted)
            places = [np.array([0, 2]), np.array([1, 3])]
            assert np.array_equal(other.sample(made, dtype, places), wanted[np.ix_(*places)])
        blank = other.blank((5, 2), dtype)
        assert other.poisoned(blank, dtype) == 10
    assert own.poisoned(own.blank((5, 2), "f32"), "f32") == 10
    assert other.space(128).data_ptr() % 16 == 0


def test_a_problem_in_torchs_memory_and_its_peer(lib: Any) -> None:
    device, cell = Standin(), lib.index.find("cells", "qgemv/toy/f32/cpu")
    problem = problems.operands_for(lib, cell, {"m": 1, "n": 700, "k": 36})
    placed = problems.place(problem, device, 3)
    runs = problems.prepare(lib.kernel("qgemv", "toy", "f32", "cpu"), placed, device)
    assert checking.check(problem, runs, device).passed
    (peer,) = peers.of("qgemv", "toy", "f32", "cuda:0", ["torch"])
    made = peers.ready(peer, peers.Given(problem, placed, device, (1, 700)))
    assert (made.why, len(made.launches)) == ("", 3)
    assert len(timing.measure([runs.launches, made.launches], "cpu", 5).us) == 2


class Graph:
    """Launches that are captured run at once, and replays take a microsecond for each."""

    def __init__(self) -> None:
        self.count = 0

    def replay(self) -> None:
        Event.now += self.count * 1e-3


class Event:
    now = 0.0

    def __init__(self, enable_timing: bool) -> None:
        self.at = 0.0

    def record(self) -> None:
        self.at = Event.now

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, other: Event) -> float:
        return other.at - self.at


@pytest.fixture
def _cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def graph(made: Graph) -> Iterator[None]:
        made.count = 10
        yield

    fake = types.SimpleNamespace(
        CUDAGraph=Graph, graph=graph, Event=Event, synchronize=lambda: None, empty_cache=lambda: None
    )
    monkeypatch.setattr(torch, "cuda", fake)


@pytest.mark.usefixtures("_cuda")
@pytest.mark.parametrize(("stem", "size"), [
    ("qgemv/toy/f32", {"m": 1, "n": 700, "k": 36}),
    ("binary.add/-/f32", {"n": 1000}),
    ("copy/-/bf16", {"n": 1000}),
])  # fmt: skip
def test_a_row_as_on_a_gpu(lib: Any, stem: str, size: dict[str, int]) -> None:
    """From the draw to the ratios with torch's arrays, graphs and events; the kernel is the CPU's."""
    shim = types.SimpleNamespace(
        index=lib.index, format=lib.format,
        _kernel=lambda name, format, dtype, device, options: lib._kernel(name, format, dtype, "cpu", options),
    )  # fmt: skip
    device = Standin()
    device.name = "cuda:0"
    roof = ceilings.Ceilings("cuda:0", {"read": 1000.0}, {"f32": 10.0})
    row = rows.row_of(rows.Measuring(shim, device, roof, ()), lib.index.find("cells", f"{stem}/cpu"), size)
    assert row.us > 0
    assert row.error < 1e-4
    assert ("torch" in row.ratios) == (stem[:4] in ("qgem", "bina")), row.absent
    assert "torch" not in row.absent


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
def test_ceilings_of_torch(dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "GPU_READ", 1 << 12)
    monkeypatch.setitem(ceilings._PRODUCTS, dtype, (*ceilings._PRODUCTS[dtype][:2], 32))
    assert ceilings._gpu_rate("cpu", dtype) > 0
    assert ceilings._gpu_read("cpu") > 0
    assert ceilings._gpu_copy("cpu") > 0


def test_a_gpu_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = types.SimpleNamespace(
        is_available=lambda: True, device_count=lambda: 2, set_device=lambda n: None,
        get_device_name=lambda n: f"GPU {n}",
    )  # fmt: skip
    monkeypatch.setattr(torch, "cuda", cuda)
    monkeypatch.setattr(devices._core, "cuda_device_count", lambda: 2)
    device = devices.open_device("cuda:1")
    assert (device.name, device.title, device.rotate) == ("cuda:1", "GPU 1", devices.GPU_ROTATE)
