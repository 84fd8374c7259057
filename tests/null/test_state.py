"""Kernels with a state that changes token by token, as the loader calls them on the CPU, against forms in
which no state goes from token to token: one triangular system, sums over all earlier tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import wootz
from scipy import special
from scipy.linalg import solve_triangular
from wootz import checks
from wootz.errors import ArgumentError, DtypeError

from gen.cli import main

MANIFEST = """\
version: 1
targets: {cpu: {backend: cpu, isa: [baseline], features: [f16, bf16]}}
formats: {}
kernels:
  gated_delta_step: {dtypes: [f32, f16], options: {state: [f32, same]}}
  gated_delta: {dtypes: [f32], options: {form: [scan, chunk]}}
  selective_scan: {dtypes: [f32]}
profiles: {default: {}}
"""
FORMS = ("scan", "chunk")
Call = Callable[..., Any]
Array = Any


@pytest.fixture(scope="module")
def lib(tmp_path_factory: pytest.TempPathFactory) -> wootz.Library:
    folder = tmp_path_factory.mktemp("state")
    (folder / "mine.yaml").write_text(MANIFEST)
    assert main(["build", "--manifest", str(folder / "mine.yaml"), "--out", str(folder / "out")]) == 0
    return wootz.load(folder / "out")


def delta(
    s: int = 1, t: int = 1, h: int = 1, hk: int = 1, dk: int = 8, dv: int = 8, **given: Array
) -> dict[str, Array]:
    """Operands of gated_delta: keys of length 1, gates as models have them."""
    rng = np.random.default_rng([s, t, h, dk, dv])
    q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in rng.standard_normal((2, s, t, hk, dk)))
    found = {"q": q, "k": k, "v": rng.standard_normal((s, t, h, dv))}
    found |= dict(zip("ab", rng.standard_normal((2, s, t, h))))
    found |= {"A_log": np.log(rng.uniform(0.1, 4.0, h)), "dt_bias": rng.uniform(-3.0, 0.0, h)}
    found |= {"state": rng.standard_normal((s, h, dv, dk)), **given}
    return {name: np.asarray(x, np.float32) for name, x in found.items()}


def as_one_system(o: dict[str, Array]) -> tuple[Array, Array]:
    """y and the state, by one triangular system a head over the whole sequence."""
    o = {name: x.astype(np.float64) for name, x in o.items()}
    log_g, beta = -np.exp(o["A_log"]) * np.logaddexp(0.0, o["a"] + o["dt_bias"]), special.expit(o["b"])
    q, k, v, y, state = (o[name].copy() for name in ("q", "k", "v", "v", "state"))
    share = v.shape[2] // q.shape[2]
    for i, j in np.ndindex(v.shape[0], v.shape[2]):
        keys, queries, start = k[i, :, j // share], q[i, :, j // share], state[i, j].copy()
        total = np.cumsum(log_g[i, :, j])
        between = np.exp(np.minimum(total[:, None] - total[None, :], 0.0))
        rate = beta[i, :, j][:, None]
        system = np.eye(len(keys)) + np.tril(rate * between * (keys @ keys.T), -1)
        right = rate * (v[i, :, j] - np.exp(total)[:, None] * (keys @ start.T))
        d = solve_triangular(system, right, lower=True, unit_diagonal=True)
        y[i, :, j] = np.exp(total)[:, None] * (queries @ start.T) + np.tril(between * (queries @ keys.T)) @ d
        state[i, j] = np.exp(total[-1]) * start + (between[-1][:, None] * d).T @ keys
    return y, state


def run(lib: wootz.Library, o: dict[str, Array], form: str) -> tuple[Array, Array]:
    given = {name: x.copy() for name, x in o.items()}
    return lib.kernel("gated_delta", dtype="f32", form=form)(*given.values()), given["state"]


def part(o: dict[str, Array], start: int, stop: int, state: Array) -> dict[str, Array]:
    """Tokens of a sequence."""
    cut = {name: o[name][:, start:stop].copy() for name in ("q", "k", "v", "a", "b")}
    return {**o, **cut, "state": state}


# ------------------------------------------------------------ the delta rule
SHAPES = (
    (1, 1, 1, 1, 1, 1),
    (2, 37, 4, 2, 16, 5),
    (1, 50, 2, 1, 50, 7),
    (1, 64, 1, 1, 128, 9),
    (1, 7, 3, 3, 256, 4),
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_one_triangular_system(lib: wootz.Library, shape: tuple[int, ...], form: str) -> None:
    o = delta(*shape)
    for found, wanted in zip(run(lib, o, form), as_one_system(o)):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5)


def test_the_reference_against_one_triangular_system() -> None:
    """The check's own loop, in float64 to the last bits."""
    o = delta(2, 30, 4, 2, 12, 5)
    y, state = as_one_system(o)
    for form in FORMS:
        options = {"form": form}
        np.testing.assert_allclose(checks.expect("gated_delta", options, o, "f32").value, y, atol=1e-12)
        updated = checks.updates("gated_delta", options, o, "f32")["state"]
        np.testing.assert_allclose(updated.value, state, atol=1e-12)
        assert updated.bound.max() < 30 * 1e-4, "no more than a token's for each token"


def test_steps_are_the_scan_to_the_bit(lib: wootz.Library) -> None:
    o = delta(2, 9, 4, 2, 24, 11)
    y, state = run(lib, o, "scan")
    step, now = lib.kernel("gated_delta_step", dtype="f32", state="f32"), o["state"].copy()
    for i in range(9):
        operands = [o[name][:, i].copy() for name in ("q", "k", "v", "a", "b")]
        found = step(*operands, o["A_log"], o["dt_bias"], now)
        assert found.tobytes() == np.ascontiguousarray(y[:, i]).tobytes()
    assert now.tobytes() == state.tobytes()


@pytest.mark.parametrize("form", FORMS)
def test_a_sequence_in_parts(lib: wootz.Library, form: str) -> None:
    """The state takes a sequence on; where parts are whole chunks, to the bit."""
    o = delta(1, 70, 2, 2, 20, 6)
    y, state = run(lib, o, form)
    first, between = run(lib, part(o, 0, 32, o["state"]), form)
    second, end = run(lib, part(o, 32, 70, between), form)
    assert np.array_equal(np.concatenate([first, second], axis=1), y)
    assert np.array_equal(end, state)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("a", [-300.0, 300.0])
@pytest.mark.parametrize("b", [-300.0, 300.0])
def test_gates_of_0_and_1(lib: wootz.Library, form: str, a: float, b: float) -> None:
    """g is 1 or 0, beta 0 or 1; zero keys leave no trace."""
    o = delta(1, 20, 1, 1, 8, 3, a=np.full((1, 20, 1), a), b=np.full((1, 20, 1), b))
    o["k"][0, 3] = 0.0
    y, state = run(lib, o, form)
    now = o["state"][0, 0].astype(np.float64)
    for i in range(20):
        q, k, v = (o[name][0, i, 0].astype(np.float64) for name in ("q", "k", "v"))
        now = now * (a < 0)
        now = now + (b > 0) * np.outer(v - now @ k, k)
        np.testing.assert_allclose(y[0, i, 0], now @ q, atol=2e-6)
    np.testing.assert_allclose(state[0, 0], now, atol=2e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["q", "k", "v", "a", "b"])
def test_nan_changes_nothing_before_it(lib: wootz.Library, form: str, name: str) -> None:
    o = delta(1, 40, 2, 2, 8, 4)
    y, _ = run(lib, o, form)
    o[name][0, 21, 1] = np.nan
    found, state = run(lib, o, form)
    assert found[:, :21].tobytes() == y[:, :21].tobytes()
    assert found[:, :, 0].tobytes() == y[:, :, 0].tobytes(), "the other head"
    assert np.isnan(found[:, 21, 1]).all()
    assert np.isnan(state[0, 1]).all() == (name != "q")


def test_no_tokens(lib: wootz.Library) -> None:
    for form in FORMS:
        o = delta(2, 0, 2, 1, 8, 4)
        y, state = run(lib, o, form)
        assert y.shape == (2, 0, 2, 4)
        assert np.array_equal(state, o["state"])


@pytest.mark.parametrize("decay", [0.9, 0.99])
def test_a_state_of_16_bits(lib: wootz.Library, decay: float) -> None:
    """What it costs: 300 tokens with a state in f16 are off by more than with one in f32, and by no more than
    a rounding a token, of which g keeps its share: 2^-11 / (1 - g) of the largest state."""
    t = 300
    o = delta(1, t, 2, 2, 16, 32, A_log=np.zeros(2), dt_bias=np.zeros(2))
    o["a"][:] = np.log(np.expm1(-np.log(decay)))
    half = {name: x.astype(np.float16) for name, x in o.items()}
    wanted = as_one_system(half)[1]
    largest, off = 0.0, {}
    for kind, now in (("f32", half["state"].astype(np.float32)), ("same", half["state"].copy())):
        step = lib.kernel("gated_delta_step", dtype="f16", state=kind)
        for i in range(t):
            operands = [half[n][:, i].copy() for n in ("q", "k", "v", "a", "b")]
            step(*operands, o["A_log"], o["dt_bias"], now)
            largest = max(largest, float(np.linalg.norm(now.astype(np.float64), axis=-1).max()))
        off[kind] = float(np.linalg.norm(now.astype(np.float64) - wanted, axis=-1).max())
    assert off["f32"] < 1e-5
    assert 10 * off["f32"] < off["same"] < 2.0**-11 / (1.0 - decay) * largest


# ------------------------------------------------------------ the selective scan
def mamba(s: int, t: int, c: int, n: int) -> dict[str, Array]:
    rng = np.random.default_rng([s, t, c, n])
    found = {"x": rng.standard_normal((s, t, c)), "delta": rng.normal(-1.0, 1.0, (s, t, c))}
    found |= {"A": -rng.uniform(0.1, 8.0, (c, n)), **dict(zip("BC", rng.standard_normal((2, s, t, n))))}
    found |= {"state": rng.standard_normal((s, c, n)), "D": rng.standard_normal(c)}
    found |= {"z": rng.standard_normal((s, t, c)) * 3.0, "dt_bias": rng.standard_normal(c)}
    return {name: x.astype(np.float32) for name, x in found.items()}


def as_sums(o: dict[str, Array]) -> tuple[Array, Array]:
    """Every token as a sum over those before it; softplus, D, z and dt_bias where they are."""
    wide = {name: np.asarray(x, np.float64) for name, x in o.items()}
    step = wide["delta"] + wide.get("dt_bias", 0.0)
    step = np.logaddexp(0.0, step) if "softplus" in o else step
    total = np.cumsum(step, axis=1)
    t = step.shape[1]
    lasting = np.exp(np.maximum(total[:, :, None] - total[:, None], 0.0)[..., None] * wide["A"])
    lasting *= np.tril(np.ones((t, t)))[None, :, :, None, None]
    add = (step * wide["x"])[..., None] * wide["B"][:, :, None]
    h = np.einsum("sijcn,sjcn->sicn", lasting, add)
    h += np.exp(total[..., None] * wide["A"]) * wide["state"][:, None]
    y = np.einsum("sicn,sin->sic", h, wide["C"]) + wide.get("D", 0.0) * wide["x"]
    return y * (wide["z"] * special.expit(wide["z"]) if "z" in wide else 1.0), h[:, -1]


@pytest.mark.parametrize("shape", [(1, 1, 1, 1), (2, 13, 5, 16), (1, 9, 3, 64), (2, 20, 4, 10)])
@pytest.mark.parametrize("left_out", [(), ("D", "z", "dt_bias", "softplus"), ("z",)], ids=str)
def test_scan_against_sums(lib: wootz.Library, shape: tuple[int, ...], left_out: tuple[str, ...]) -> None:
    o: dict[str, Any] = {**mamba(*shape), "softplus": 1}
    if "softplus" in left_out:
        o["delta"] = np.abs(o["delta"])
        o["dt_bias"] = np.abs(o["dt_bias"])
    o = {name: x for name, x in o.items() if name not in left_out}
    wanted = as_sums(o)
    y = lib.kernel("selective_scan", dtype="f32")(**o)
    for found, value in zip((y, o["state"]), wanted):
        np.testing.assert_allclose(found, value, rtol=2e-5, atol=2e-5)
    fresh = {name: x for name, x in ({**mamba(*shape), **o}).items() if name in o}
    fresh["state"] = mamba(*shape)["state"]
    assert np.abs(checks.expect("selective_scan", {}, fresh, "f32").value - wanted[0]).max() < 1e-12


def test_scan_in_parts(lib: wootz.Library) -> None:
    o = mamba(2, 11, 6, 16)
    kernel, whole = lib.kernel("selective_scan", dtype="f32"), {n: x.copy() for n, x in o.items()}
    y = kernel(**whole, softplus=1)
    for start, stop in ((0, 4), (4, 4), (4, 11)):
        cut = {n: o[n][:, start:stop].copy() for n in ("x", "delta", "B", "C", "z")}
        assert np.array_equal(kernel(**{**o, **cut}, softplus=1), y[:, start:stop])
    assert np.array_equal(o["state"], whole["state"])


# ------------------------------------------------------------ what is refused
@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"dk": 257}, ArgumentError, "q has dk=257; gated_delta takes dk from 1 to 256"),
        ({"h": 3, "hk": 2}, ArgumentError, "it takes (h % hk) == 0"),
        ({"k": np.zeros((1, 1, 1, 4))}, ArgumentError, "k has dk=4, q has dk=8"),
        ({"state": np.zeros((1, 1, 8, 9))}, ArgumentError, "state has dk=9, q has dk=8"),
        ({"A_log": np.zeros(2)}, ArgumentError, "A_log has h=2, v has h=1"),
    ],
    ids=str,
)
def test_bad_operands(
    lib: wootz.Library, changes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as caught:
        run(lib, delta(**changes), "scan")
    assert message in str(caught.value)


def test_a_state_that_may_not_be_written(lib: wootz.Library) -> None:
    kernel, o = lib.kernel("gated_delta", dtype="f32", form="scan"), delta(1, 2, 1, 1, 8, 8)
    wrong = {**o, "state": o["state"].astype(np.float16)}
    with pytest.raises(DtypeError, match="state has elements of type f16"):
        kernel(**wrong)
    o["state"].setflags(write=False)
    with pytest.raises(ArgumentError, match="state is read-only; the kernel writes to it"):
        kernel(**o)
    o = delta(1, 8, 1, 1, 8, 8)
    with pytest.raises(ArgumentError, match="out shares memory with state"):
        kernel(**o, out=o["state"].reshape(1, 8, 1, 8))
    with pytest.raises(ArgumentError, match="out shares memory with v"):
        kernel(**o, out=o["v"])
    with pytest.raises(ArgumentError, match=r"selective_scan takes n from 1 to 256"):
        lib.kernel("selective_scan", dtype="f32")(**mamba(1, 2, 3, 257))
