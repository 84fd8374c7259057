"""wootz tune on the CPU: wrong variants are never chosen, the table is whole at every moment, and plans take
what it names."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import wootz
from wootz import errors, tune, verify
from wootz.bench import timing
from wootz.tune import spread
from wootz.tune.cases import Case, parse_shapes, suffix
from wootz.tune.table import Row, Table, best

sys.path.insert(0, str(Path(__file__).resolve().parent))
import loader_tools as tools

ONE, MANY = "wootz_qgemv_toy_f32_m1", "wootz_qgemv_toy_f32_m8"
SHAPES = ("m=1,n=64,k=32", "m=2,n=64,k=32")


def library(path: Path, many: float = 0, measured: Any = None) -> Path:
    """qgemv with two variants that take m = 1: m1, and m8, which adds `many`."""
    source = tools.SOURCE.replace("gemv_one", ONE).replace("gemv_many", MANY)
    one, other = ({**entry, "symbol": s} for entry, s in zip(tools.ENTRIES["qgemv"], (ONE, MANY)))
    other["when"] = [["le", "m", 8]]
    folder = tools.Folder(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tools, "SOURCE", source)
        image = tools.shared_object(path, many)
    file, more = folder.file("cpu/kernels.so", image, "baseline"), {"source_sha256": "ab" * 32}
    rows = {"measured": measured} if measured else {}
    folder.cell("qgemv", "toy", "f32", "cpu", [file], entries=[one, other], **more, **rows)
    copied = folder.file("cpu/copy.so", tools.image(), "baseline")
    folder.cell("copy", "-", "f16", "cpu", [copied], **more)
    return folder.write()


@pytest.fixture(scope="module")
def right(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("right"))


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("wrong"), many=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("wootz.bench.devices.CPU_ROTATE", 1 << 16)
    spread._library.cache_clear()
    spread._device.cache_clear()
    yield
    spread._device.cache_clear()


def run(folder: Path, out: Path, *more: str, shapes: Sequence[str] = SHAPES) -> int:
    return tune.main(
        ["--artifacts", str(folder), "--kernels", "qgemv", "--out", str(out), "--shapes", *shapes, *more]
    )


def rows(out: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(out.read_text())["rows"]
    return found


def clock(us: dict[str, float]) -> Callable[..., timing.Times]:
    """A clock that knows the result: variants, which come in the order of the index, take these times."""
    waiting = iter([])  # type: ignore[var-annotated]

    def measure(peers: Sequence[Any], device: str, replays: int) -> timing.Times:
        nonlocal waiting
        assert device == "cpu"
        found = []
        for _ in peers:
            value = next(waiting, None)
            if value is None:
                waiting = iter(us.values())
                value = next(waiting)
            found.append(value)
        return timing.Times(tuple(found), ())

    return measure


# ------------------------------------------------------------ a run
def test_the_fastest_variant_of_each_shape(right: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "new" / "cpu.json"
    assert run(right, out) == 0
    first, second = rows(out)
    assert (first["shape"], first["tried"]) == ({"m": 1, "n": 64, "k": 32}, 2)
    assert {first["variant"], first["next"]} == {"m1", "m8"}
    assert first["us"] > 0
    assert first["next_us"] > 0
    assert (second["variant"], second["next"], second["tried"]) == ("m8", None, 1)
    assert {row["source"] for row in rows(out)} == {"ab" * 32}
    assert out.read_text().count("\n") == 4  # a line a row
    assert "qgemv/toy/f32 m=1 n=64 k=32: m" in capsys.readouterr().out
    assert not list(out.parent.glob(".*"))


def test_a_wrong_variant_is_reported_and_never_chosen(wrong: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "cpu.json"
    assert run(wrong, out) == 1
    (row,) = rows(out)  # m = 2 has no right variant
    assert (row["variant"], row["next"], row["tried"]) == ("m1", None, 1)
    told = capsys.readouterr()
    assert "m=1 n=64 k=32: m8 is wrong, and was not timed: " in told.err
    assert "qgemv/toy/f32 m=2 n=64 k=32: FAILED: no variant is right" in told.out


def test_a_run_goes_on_where_the_last_one_ended(right: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "cpu.json"
    assert run(right, out, shapes=SHAPES[:1]) == 0
    before = out.read_bytes()
    assert run(right, out, shapes=SHAPES[:1]) == 0
    assert "1 of 1 cases are in" in capsys.readouterr().out
    assert out.read_bytes() == before
    table = json.loads(before)
    table["rows"][0]["us"] = 1.5
    out.write_text(json.dumps(table))
    assert run(right, out) == 0
    assert [row["us"] == 1.5 for row in rows(out)] == [True, False]
    assert run(right, out, "--again") == 0
    assert rows(out)[0]["us"] != 1.5
    table["rows"][0] |= {"us": 1.5, "source": "of another text"}
    out.write_text(json.dumps(table))
    assert run(right, out, shapes=SHAPES[:1]) == 0
    assert rows(out)[0]["us"] != 1.5


def test_variants_that_are_left_out(wrong: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "cpu.json"
    assert run(wrong, out, "--without", "m8*", "--verbose", shapes=SHAPES[:1]) == 0
    assert rows(out)[0]["tried"] == 1
    said = capsys.readouterr().err
    assert said.startswith("  m1\n  m1: ")
    assert "m8" not in said


def test_rows_of_other_devices_stay(right: Path, tmp_path: Path) -> None:
    out = tmp_path / "cpu.json"
    assert run(right, out, shapes=SHAPES[:1]) == 0
    table = json.loads(out.read_text())
    table["rows"][0]["device"] = "another"
    out.write_text(json.dumps(table))
    assert run(right, out, shapes=SHAPES[:1]) == 0
    assert len({row["device"] for row in rows(out)}) == 2


def test_what_is_interrupted_is_kept(right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, real = tmp_path / "cpu.json", spread.search

    def second(lib: Any, case: Case, *rest: Any) -> Any:
        if dict(case.shape)["m"] == 2:
            raise KeyboardInterrupt
        return real(lib, case, *rest)

    monkeypatch.setattr(spread, "search", second)
    with pytest.raises(KeyboardInterrupt):
        run(right, out)
    assert [row["shape"]["m"] for row in rows(out)] == [1]


def test_a_lost_device_ends_the_run(
    right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def prepare(*given: Any) -> Any:
        raise errors.driver_error(700, "ILLEGAL_ADDRESS", "cuLaunchKernel")

    monkeypatch.setattr("wootz.tune.search.prepare", prepare)
    assert run(right, tmp_path / "cpu.json") == 1
    assert "restart the process" in capsys.readouterr().err
    monkeypatch.setattr("wootz.tune.search.prepare", lambda *given: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # no case of bad input
        run(right, tmp_path / "cpu.json")


def test_a_kernel_with_one_variant(right: Path, tmp_path: Path, capsys: Any) -> None:
    argv = ["--artifacts", str(right), "--kernels", "copy", "--out", str(tmp_path / "cpu.json")]
    assert tune.main([*argv, "--shapes", "n=64"]) == 0
    assert "copy/-/f16 n=64: one variant: nothing to choose" in capsys.readouterr().out
    assert rows(tmp_path / "cpu.json") == []


def test_shapes_that_kernels_refuse(right: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "cpu.json"
    assert run(right, out, shapes=["m=9,n=64,k=32", SHAPES[0]]) == 0
    assert "m=9 n=64 k=32: refused: m is 9; qgemv takes m from 0 to 8" in capsys.readouterr().out
    for shape, message in (("m=9,n=64,k=32", "no kernel takes any"), ("m=1,n=64", "no kernel takes any")):
        assert run(right, out, shapes=[shape]) == 2
        assert message in capsys.readouterr().err


# ------------------------------------------------------------ who wins
@pytest.mark.parametrize(
    ("us", "expected"),
    [
        ({"a": 10.0, "b": 8.0, "c": 9.0}, ("b", "c")),
        ({"a": 8.1, "b": 8.0}, ("a", "b")),  # within 2 %: the earlier
        ({"a": 8.17, "b": 8.0}, ("b", "a")),
        ({"b": 8.0, "c": 8.1, "a": 8.15}, ("a", "b")),  # the order is the index'
        ({"c": 3.0}, ("c", None)),
    ],
)
def test_ties_fall_to_the_earlier_variant(us: dict[str, float], expected: tuple[str, str | None]) -> None:
    assert best(us, ["a", "b", "c"]) == expected


@pytest.mark.parametrize(("many", "winner"), [(9.0, "m8"), (9.9, "m1"), (11.0, "m1")])
def test_the_clock_decides(
    right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: float, winner: str
) -> None:
    monkeypatch.setattr("wootz.tune.search.measure", clock({"m1": 10.0, "m8": many}))
    assert run(right, tmp_path / "cpu.json", shapes=SHAPES[:1]) == 0
    assert rows(tmp_path / "cpu.json")[0]["variant"] == winner


def test_plans_take_what_was_measured(tmp_path: Path) -> None:
    measured = [{"shape": {"m": 1, "n": 64, "k": 32}, "symbol": MANY, "us": 1.0, "device": "x"}]
    lib = wootz.load(library(tmp_path, many=1, measured=measured))
    plan = lib.plan("qgemv", format="toy", device="cpu", m=1, n=64, k=32)
    assert plan.describe()["symbol"] == MANY
    assert plan.describe()["chosen"] == "tuned: m=1 n=64 k=32 on x"
    near = lib.plan("qgemv", format="toy", device="cpu", m=1, n=100, k=32).describe()
    assert (near["symbol"], near["chosen"]) == (MANY, "rule: nearest shape, of m=1 n=64 k=32 on x")
    far = lib.plan("qgemv", format="toy", device="cpu", m=1, n=1000, k=32).describe()
    assert (far["symbol"], far["chosen"]) == (ONE, "default order")
    kernel = lib.kernel("qgemv", "toy", device="cpu")
    x, q = tools.random(1, 32), tools.quantized(lib, 64, 32)
    plain = kernel.only(ONE)(x, q)
    np.testing.assert_allclose(kernel(x, q), plain + 1, rtol=1e-5)  # m8, which adds 1
    assert kernel.variants() == (ONE, MANY)


def test_one_variant_and_no_other(right: Path) -> None:
    kernel = wootz.load(right).kernel("qgemv", "toy", device="cpu")
    q = tools.quantized(wootz.load(right), 64, 32)
    with pytest.raises(errors.NoVariantError, match="m <= 1"):
        kernel.only(ONE)(tools.random(2, 32), q)
    with pytest.raises(errors.ArgumentError, match="has no variant 'wootz_qgemv_toy_f32_m9'; did you mean"):
        kernel.only("wootz_qgemv_toy_f32_m9")(tools.random(1, 32), q)


# ------------------------------------------------------------ every variant verified
def test_verify_runs_every_variant(
    wrong: Path, right: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    sizes = [{"m": m, "n": 5, "k": 9} for m in (1, 2, 8)]
    monkeypatch.setattr("wootz.checks.qgemv.shapes", lambda format: sizes)
    argv = ["--artifacts", str(wrong), "--filter", "qgemv/*", "--variants", "all"]
    assert verify.main(argv) == 1
    assert f"FAIL qgemv/toy/f32/cpu: {MANY}: outside the tolerance at m = 1" in capsys.readouterr().out
    argv[1] = str(right)
    assert verify.main(argv) == 0
    (row,) = verify.verify(wootz.load(right), "cpu", "qgemv/*", every=True)
    assert (row.variants, row.idle, row.passed, row.shapes) == (2, (), True, 1 + 3)
    assert row.to_json()["variants"] == 2


def test_a_variant_that_no_size_reaches_is_named(
    right: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr("wootz.checks.qgemv.shapes", lambda format: [{"m": 2, "n": 5, "k": 9}])
    assert verify.main(["--artifacts", str(right), "--filter", "qgemv/*", "--variants", "all"]) == 0
    assert f"not run qgemv/toy/f32/cpu: {ONE}: its conditions are met by no size" in capsys.readouterr().out


# ------------------------------------------------------------ several devices
@pytest.mark.skipif(
    importlib.util.find_spec("distributed") is None, reason="dask.distributed is not installed"
)
def test_two_workers(right: Path, tmp_path: Path) -> None:
    assert run(right, tmp_path / "cpu.json", "--device", "cpu", "cpu") == 0
    assert [row["shape"]["m"] for row in rows(tmp_path / "cpu.json")] == [1, 2]


def test_without_dask(right: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert run(right, tmp_path / "cpu.json", "--device", "cpu", "cpu") == 2
    assert "pip install 'wootz[tune]'" in capsys.readouterr().err


# ------------------------------------------------------------ bad input
GOOD = Row("qgemv", "toy", "f32", {"m": 1}, "m1", 2.0, None, None, 1, "x", "y")
LINE = json.dumps(vars(GOOD))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is no selection table"),
        ("[]", "table version None"),
        ('{"wootz_tuning": 2, "target": "cpu", "rows": []}', "table version 2"),
        ('{"wootz_tuning": 1, "target": "sm_90a", "rows": []}', "the table of 'sm_90a'"),
        ('{"wootz_tuning": 1, "target": "cpu"}', "has NoneType where rows are wanted"),
        ('{"wootz_tuning": 1, "target": "cpu", "rows": [\n3]}', ":2: a damaged row"),
        (
            f'{{"wootz_tuning": 1, "target": "cpu", "rows": [\n{LINE.replace("2.0", "null")}]}}',
            "its us is None",
        ),
        (
            f'{{"wootz_tuning": 1, "target": "cpu", "rows": [\n{LINE.replace("us", "usec", 1)}]}}',
            "its us is N",
        ),
    ],
)
def test_a_damaged_table(text: str, message: str, right: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "cpu.json"
    out.write_text(text)
    assert run(right, out) == 2
    told = capsys.readouterr().err
    assert message in told
    assert told.count("\n") == 1
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--out", "sm_90a.json"], "is the table of a target 'sm_90a'; cpu runs those of cpu"),
        (["--kernels", "qgem"], "no kernel 'qgem' on this device; did you mean 'qgemv'"),
        (["--formats", "int9"], "no format 'int9' on this device; there are -, toy"),
        (["--dtypes", "f64"], "no dtype 'f64' on this device"),
        (["--device", "cuda:99"], "cuda"),
        (["--device", "tpu"], "tpu"),
        (["--device", "cpu", "cuda:0"], "not alike"),
        (["--device", "cpu", "cpu", "--scheduler", "tcp://x:1"], "name the one that each worker"),
        (["--out", "/proc/none/cpu.json"], "cannot write"),
        (["--artifacts", "/nonexistent"], "does not exist"),
        (["--shapes", "4096x4096"], "'4096x4096' is no shape; want extents by name"),
        (["--shapes", "m=1,m=2"], "names an extent twice"),
        (["--shapes", "m=1:0,n=2"], "'m=1:0,n=2' has an extent of 0; want 1 or more"),
        (["--shapes"], "expected at least one argument"),
    ],
)
def test_bad_use(argv: list[str], message: str, right: Path, tmp_path: Path, capsys: Any) -> None:
    assert run(right, tmp_path / "cpu.json", *argv) == 2
    assert message in capsys.readouterr().err


def test_shapes_of_several_extents() -> None:
    found = parse_shapes(["m=1:2,n=3,k=4:5", "m=1,n=3,k=4"])
    assert [tuple(dict(shape).values()) for shape in found] == [(1, 3, 4), (1, 3, 5), (2, 3, 4), (2, 3, 5)]


def test_names_of_variants() -> None:
    case = Case("c", "gemm.same", "gemm", (("out", "same"),), "-", "f16", (), "")
    assert suffix(case, "wootz_gemm_same_f16_tma_large") == "tma_large"
    assert suffix(case, "wootz_gemm_same_f16") == "-"


def test_the_table_that_is_read_is_the_one_that_was_written(tmp_path: Path) -> None:
    table = Table(tmp_path / "cpu.json", "cpu")
    table.add([GOOD])
    assert list(Table(tmp_path / "cpu.json", "cpu").rows.values()) == [GOOD]
