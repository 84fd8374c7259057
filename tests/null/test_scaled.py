"""Block-scaled kernels without a device: what they accept, what is emitted, and their references."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from wootz import checks
from wootz.errors import FormatError
from wootz.formats import Descriptor, quantize, tiles
from wootz.formats.tiles import TiledTensor

from gen.emit import text as emit
from gen.formats.axes import RULES, Format
from gen.kernels import _scaled
from gen.manifest.target import Target
from gen.plan import cells as plan
from gen.variants.family import Instance, family

MANIFEST = plan.load(Path(__file__).parents[2] / "kernels.yaml")
TILED = [name for name, fmt in MANIFEST.formats.items() if isinstance(_scaled.scaling(fmt), _scaled.Scaling)]
TARGETS = [t for t in MANIFEST.targets.values() if t.has("block_scale")]
KERNELS = ("scaled_gemm", "scaled_grouped_gemm")


def variants(kernel: str, fmt: Format, target: Target, dtype: str, **options: str) -> list[Instance]:
    declared = family(kernel)
    chosen = {name: options.get(name, values[0]) for name, values in declared.options.items()}
    assert declared.accepts is not None
    assert declared.accepts(fmt, dtype, target, chosen) is None
    found = list(declared.variants(fmt, dtype, target, chosen))
    assert all(isinstance(v, Instance) for v in found)
    return found  # type: ignore[return-value]


# ------------------------------------------------------------ what is accepted
@pytest.mark.parametrize("name", MANIFEST.formats)
def test_generator_and_run_time_take_the_same_formats(name: str) -> None:
    fmt = MANIFEST.formats[name]
    here, there = _scaled.scaling(fmt), tiles.refusal(Descriptor.parse(fmt))
    assert isinstance(here, str) == isinstance(there, str)
    if isinstance(here, _scaled.Scaling):
        run_time = tiles.scaling(fmt)
        names = ("element", "bits", "scale", "block", "globally")
        assert [getattr(here, n) for n in names] == [getattr(run_time, n) for n in names]


def test_several_are_taken() -> None:
    found = {(s.element, s.scale, s.globally) for n in TILED if (s := tiles.scaling(MANIFEST.formats[n]))}
    assert found == {
        ("e2m1", "e8m0", False),
        ("e2m1", "e4m3", True),
        ("e4m3", "e8m0", False),
        ("e5m2", "e8m0", False),
    }


def changed(fmt: Format, **scale: Any) -> Format:
    return replace(fmt, scales=(replace(fmt.scales[0], **scale), *fmt.scales[1:]))


def test_refusals_say_what_is_taken() -> None:
    fmt = next(f for f in MANIFEST.formats.values() if len(f.scales) > 1 and f.name in TILED)
    above = replace(fmt.scales[1], op="divide")
    assert "multiplies" in str(_scaled.scaling(replace(fmt, scales=(fmt.scales[0], above))))
    assert "blocks of 16 with e4m3" in str(_scaled.scaling(changed(fmt, element=fmt.scales[1].element)))
    assert "no scale" in str(_scaled.scaling(replace(fmt, scales=())))
    assert _scaled.refused(None) == "it takes a format"
    assert "activations of e4m3 go with e2m1 weights" in str(_scaled.refused(fmt, "e4m3"))
    with pytest.raises(ValueError, match="so it needs a format"):
        _scaled.weights(None, "scaled_gemm")
    with pytest.raises(ValueError, match="no scale"):
        _scaled.weights(replace(fmt, scales=()), "scaled_gemm")


@pytest.mark.parametrize("rule", [r for r in RULES if r != "minmax"])
@pytest.mark.parametrize("name", TILED)
def test_activations_are_quantised_by_rules_that_are_exact(name: str, rule: str) -> None:
    declared, target = family("quantize_activations"), MANIFEST.targets["cpu"]
    fmt = changed(MANIFEST.formats[name], rule=rule)
    exponent = fmt.scales[0].element.kind == "exponent"
    assert declared.accepts is not None
    reason = declared.accepts(fmt, "f32", target, {})
    taken = ("floor", "nearest", "ceil", "even") if exponent else ("absmax",)
    assert (reason is None) == (rule in taken)
    assert reason is None or f"not by {rule}" in reason


# ------------------------------------------------------------ what is emitted
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("name", TILED)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_pair_has_entries(kernel: str, name: str, target: Target) -> None:
    fmt, of = MANIFEST.formats[name], tiles.scaling(MANIFEST.formats[name])
    for dtype, number in (("f16", 8), ("bf16", 8), ("f32", 4)):
        found = variants(kernel, fmt, target, dtype)
        assert len({v.suffix for v in found}) == len(found) >= 1
        assert found[-1].when[-1] == ["eq", ["mod", "n", number], 0]
        for v in found:
            names = [a.name for a in v.args if a.type == "ptr"]
            assert ("x.scale1" in names, "w.scale1" in names) == (of.globally, of.globally)
            assert v.text.count(", ".join(["$SYMBOL", "wootz::of_$SYMBOL::Gemm::Kernel"])) == 1
            narrow = of.bits == 4
            wanted = (("utcomma+utccp", "utcqmma+utccp"), ("omma_sf", "qmma_sf"))[not target.has("tcgen05")][
                not narrow
            ]
            assert v.gate == wanted
            assert f"ScaledHost<Gemm, {str(of.globally).lower()}" in v.stub or kernel != "scaled_gemm"


def test_mixed_pairs_widen_the_weights() -> None:
    name = next(n for n in TILED if (s := tiles.scaling(MANIFEST.formats[n])).bits == 4 and s.scale == "e8m0")
    for target in TARGETS:
        for element in ("e4m3", "e5m2"):
            for v in variants(
                "scaled_gemm_mixed", MANIFEST.formats[name], target, "bf16", activations=element
            ):
                assert f"Operand<cutlass::mx_float8_t<cutlass::float_{element}_t>, Row, 16>" in v.text
                assert "Operand<cutlass::mx_float4_t<cutlass::float_e2m1_t>, Column, 128>" in v.text
                assert v.gate in ("utcqmma+utccp", "qmma_sf")


def test_a_unit_of_all_kinds_is_one_text() -> None:
    name = next(n for n in TILED if tiles.scaling(MANIFEST.formats[n]).scale == "e8m0")
    options = {"activations": ("e4m3", "e5m2")}
    spec = replace(MANIFEST.kernels["copy"], name="scaled_gemm_mixed", options=options)
    emitted = emit.emit(spec, MANIFEST.formats[name], TARGETS[0], ("bf16", "f32"))
    symbols = [e.symbol for e in emitted.entries]
    assert len(set(symbols)) == len(symbols)
    assert all(f"{s}_query" in emitted.stub and f"{s}_fill" in emitted.stub for s in symbols)
    assert "$SYMBOL" not in emitted.text + emitted.stub
    assert emitted.text.count("struct ScaledHost") == 1


def test_groups_are_described_before() -> None:
    for target, name in ((t, n) for t in TARGETS for n in TILED):
        (v,) = variants("scaled_grouped_gemm", MANIFEST.formats[name], target, "bf16")
        (setup,) = v.prologue
        assert [a.name for a in setup.args][-7:] == ["y", "m", "experts", "n", "k", "alpha", "workspace"]
        assert [a.name for a in setup.args[:-1]] == [a.name for a in v.args]
        head = v.text[v.text.index("$SYMBOL_groups(") :].partition(")")[0]
        parameters = [text.split()[-1] for text in head.partition("(")[2].split(",")]
        assert parameters == [a.name.replace(".", "_") for a in setup.args]
        assert not any(a.name in ("counts", "offsets") and a.role != "in" for a in v.args)


# ------------------------------------------------------------ references
def offset(r: int, c: int, columns: int) -> int:
    return (r // 128 * -(-columns // 4) + c // 4) * 512 + r % 32 * 16 + r % 128 // 32 * 4 + c % 4


def as_the_hardware_reads(t: TiledTensor) -> NDArray[np.float64]:
    """The numbers of a tiled matrix, element by element from its bytes, padding included."""
    of = tiles.scaling(t.format)
    rows, k = t.shape
    whole = -(-k // 128) * 128
    elements, scales = np.array(tiles.ELEMENTS[of.element]), np.array(tiles.SCALES[of.scale])
    out = np.zeros((rows, whole))
    for r in range(rows):
        for c in range(whole):
            byte = int(t.fields["codes"][r, c * of.bits // 8])
            code = byte >> (of.bits * c & 7) & ((1 << of.bits) - 1)
            scale = t.fields["tiles"][offset(r, c // of.block, whole // of.block)]
            out[r, c] = elements[code] * scales[scale]
    return out * float(t.fields["scale1"][0, 0]) if of.globally else out


@pytest.mark.parametrize("chosen", ["", "e4m3", "e5m2"])
@pytest.mark.parametrize("name", TILED)
def test_the_reference_is_what_the_bytes_mean(name: str, chosen: str) -> None:
    fmt = MANIFEST.formats[name]
    if _scaled.refused(fmt, chosen):
        with pytest.raises(FormatError, match="no activations"):
            tiles.activations(fmt, chosen)
        return
    check = checks.check("scaled_gemm_mixed" if chosen else "scaled_gemm")
    options = {"activations": chosen} if chosen else {}
    size = check.brief(Descriptor.parse(fmt))[0]
    given = check.operands(Descriptor.parse(fmt), size, "f32", options, np.random.default_rng(2))
    expected = check.expect(given, "f32", options)
    x, w = as_the_hardware_reads(given["x"]), as_the_hardware_reads(given["w"])
    assert not x[:, size["k"] :].any()
    assert not w[:, size["k"] :].any()
    value = given["alpha"] * (x @ w.T)
    assert np.allclose(value, expected.value, rtol=1e-12, atol=1e-12)
    assert (np.abs(value - expected.value) <= expected.bound).all()
    assert np.median(expected.bound) < 1e-4 * np.median(np.abs(expected.value)), "would hide a wrong scale"
    if chosen:
        assert tiles.scaling(given["x"].format).element == chosen


@pytest.mark.parametrize("name", TILED)
def test_wrong_results_are_outside_the_bound(name: str) -> None:
    """Tiles of another layout, nibbles in another order, a scale of the tensor forgotten."""
    descriptor = Descriptor.parse(MANIFEST.formats[name])
    check = checks.check("scaled_gemm")
    given = check.operands(descriptor, {"m": 130, "n": 24, "k": 300}, "bf16", {}, np.random.default_rng(4))
    expected = check.expect(given, "bf16", {})
    x, w = given["x"], given["w"]
    for field, change in (
        ("tiles", lambda a: a.reshape(-1, 4, 4).transpose(0, 2, 1).reshape(-1)),
        ("codes", lambda a: a >> 4 | a << 4),
        ("scale1", np.ones_like),
    ):
        if field not in w.fields:
            continue
        broken = TiledTensor(w.format, w.shape, {**w.fields, field: change(w.fields[field])})
        wrong = check.expect({**given, "w": broken}, "bf16", {})
        assert (~(np.abs(wrong.value - expected.value) <= expected.bound)).mean() > 0.2, field
    assert x.shape == (130, 300)


def test_groups_of_the_reference() -> None:
    descriptor = Descriptor.parse(MANIFEST.formats[TILED[0]])
    check = checks.check("scaled_grouped_gemm")
    for size in (*check.shapes(descriptor), *check.small(descriptor), *check.brief(descriptor)):
        given = check.operands(descriptor, size, "f32", {}, np.random.default_rng(6))
        counts, offsets = given["counts"], given["offsets"]
        assert not (offsets % 128).any()
        assert (offsets + counts <= size["m"]).all()
        assert (counts == 0).any() or size["experts"] == 1
        assert counts.sum() > 0
        taken = np.zeros(size["m"], dtype=int)
        for count, first in zip(counts, offsets, strict=True):
            taken[first : first + count] += 1
        assert taken.max() == 1, "groups do not overlap"
        expected = check.expect(given, "f32", {})
        assert np.array_equal(np.isnan(expected.value).all(axis=1), taken == 0)
        g = int(np.argmax(counts))
        alone = checks.check("scaled_gemm").expect(
            {
                "x": tiles.tile(
                    quantize(given["x"].dequantize()[offsets[g] : offsets[g] + counts[g]], descriptor)
                ),
                "w": given["w"].matrix(g),
                "alpha": given["alpha"],
            },
            "f32",
            {},
        )
        rows = slice(int(offsets[g]), int(offsets[g] + counts[g]))
        close = np.allclose(alone.value, expected.value[rows], rtol=0.2, atol=0.2 * np.abs(alone.value).max())
        assert close


def test_no_rows_at_all() -> None:
    descriptor = Descriptor.parse(MANIFEST.formats[TILED[0]])
    check = checks.check("scaled_gemm")
    given = check.operands(descriptor, {"m": 0, "n": 8, "k": 64}, "bf16", {}, np.random.default_rng(1))
    assert check.expect(given, "bf16", {}).value.shape == (0, 8)
