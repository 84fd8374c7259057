"""The manifest reader on good input: what ships, what each spelling means, and how fast it is."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from gen.manifest import reader as manifest
from gen.manifest.reader import Declared, Manifest, ManifestError, load
from gen.manifest.schema import load_schema

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels.yaml"

HEAD = "version: 1\ntargets: {host: {backend: cpu}}\nkernels: {copy: {dtypes: [f32]}}\nformats:\n"


def read(tmp_path: Path, text: str) -> Manifest:
    path = tmp_path / "m.yaml"
    path.write_text(text)
    return load(path)


# --- what ships ---


def test_shipped_manifest() -> None:
    m = load(KERNELS)
    assert list(m.targets) == [
        "cpu", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100a", "sm_120a", "metal3.1",
    ]  # fmt: skip
    assert list(m.kernels)[:3] == ["copy", "binary", "dequant"]
    assert m.kernels["binary"].options == {"op": ("add", "sub", "mul", "div", "min", "max")}
    assert m.kernels["qgemv"].formats == "all"
    assert m.kernels["copy"].formats == ()
    assert m.profiles["default"].targets == ("cpu", "sm_80", "sm_90a", "sm_120a", "metal3.1")
    assert m.profiles["native"].targets == ("cpu", "native")
    assert set(m.profiles["release"].targets) == set(m.targets) - set(m.profiles["portable"].targets)
    sm = m.targets["sm_90a"]
    assert (sm.arch, sm.capability, sm.suffix, sm.extension) == ("sm_90a", (9, 0), "a", "fatbin")
    assert (sm.shared_bytes, sm.shared_max, sm.simd, sm.registers) == (49152, 232448, 32, 65536)
    assert sm.has("wgmma")
    assert not m.targets["sm_80"].has("wgmma")
    cpu, metal = m.targets["cpu"], m.targets["metal3.1"]
    assert (cpu.isa, cpu.simd, cpu.extension) == (("x86-64-v3", "baseline"), 1, "so")
    assert (metal.arch, metal.min_os, metal.extension) == ("metal3.1", "14.0", "metallib")


def test_the_thirty_formats_and_those_beside_them() -> None:
    """formats.md section 1, as axes: (element, block, scale) by name."""
    formats = load(KERNELS).formats
    bits = (2, 3, 4, 5, 6, 8)
    thirty = {"nvfp4", "mxfp4", "mxfp8_e4m3", "mxfp8_e5m2", "nvfp8", "fp4", "fp8_e4m3", "fp8_e5m2"}
    thirty |= {"nvfp8_f16", "fp4_f16", "fp8_e4m3_f16", "fp8_e5m2_f16"}
    thirty |= {
        f"{prefix}int{b}{suffix}" for b in bits for prefix, suffix in (("", ""), ("mx", ""), ("", "_f16"))
    }
    others = {"uint4_z", "nf4", "q4_0", "q8_0", "mxfp6_e2m3", "mxfp6_e3m2", "affine4", "fp8_e4m3_b128"}
    others |= {"int4_g128"}
    assert len(thirty) == 30
    assert set(formats) == thirty | others
    for name in thirty:
        f = formats[name]
        wide = f.scales[-1].element
        if name.startswith("mx"):
            assert (wide.kind, f.scales[0].rule, f.block.cols) == ("exponent", "nearest", 32)
        else:
            assert wide.type == ("f16" if name.endswith("_f16") else "f32")
        if "int" in name:
            assert f.element.symmetric
            assert f.block.cols == (32 if name.startswith("mx") else 64)
            assert f.element.bits == int(re.findall(r"\d", name)[0])
    nvfp4 = formats["nvfp4"]
    assert [(tuple(s.block), s.rule, s.op, s.element.bits) for s in nvfp4.scales] == [
        ((1, 16), "absmax", "multiply", 8),
        ((0, 0), "absmax", "multiply", 32),
    ]
    assert tuple(formats["fp8_e4m3_b128"].block) == (128, 128)
    affine = formats["affine4"].zero
    assert affine is not None
    assert (affine.domain, formats["affine4"].scales[0].rule) == ("value", "minmax")
    packed = formats["uint4_z"].zero
    assert packed is not None
    assert (packed.domain, packed.element.bits, packed.stored) == ("code", 4, "value")


def test_shipped_manifest_passes_the_plain_json_schema() -> None:
    """What an editor sees: the published schema and YAML data, with none of our code between."""
    schema = json.loads((ROOT / "gen" / "manifest" / "manifest.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(yaml.safe_load(KERNELS.read_text()), schema)


def test_every_schema_key_is_described_or_plain() -> None:
    """Axes of a format carry a description in the schema: it is the grammar's documentation."""
    definitions = load_schema()["$defs"]
    bare = [
        f"{name}.{key}"
        for name in ("fullElement", "fullScale", "fullZero", "packing")
        for key, body in definitions[name]["properties"].items()
        if not {"description", "$ref", "type"} & set(body)
    ]
    assert not bare


PAIRS = [
    ("element", "e2m1", "{float: {exponent: 2, mantissa: 1, bias: 1, specials: none, signed: true}}"),
    ("element", "e4m3", "{float: {exponent: 4, mantissa: 3, bias: 7, specials: nan, signed: true}}"),
    ("element", "e5m2", "{float: {exponent: 5, mantissa: 2, bias: 15, specials: ieee}}"),
    ("element", "int5", "{int: 5, signed: true, symmetric: false}"),
    ("element", "uint5", "{int: 5, signed: false}"),
    ("element", "uint5", "{int: 5, offset: 0}"),
    ("element", "{codebook: [0, 1, 1e1, -.5]}", "{codebook: [0.0, 1.0, 10.0, -0.5], bits: 2}"),
    ("block", "32", "[1, 32]"),
    ("scale", "f16", "{type: f16, rule: absmax}"),
    ("scale", "e8m0", "{type: {exponent: 8}, rule: floor, op: multiply}"),
    ("scale", "{type: e4m3, block: tensor, scale: f32}", "{type: e4m3, block: tensor, scale: {type: f32}}"),
    ("zero", "uint4", "{type: {int: 4, signed: false}, domain: code, stored: value}"),
    ("zero", "f16", "{type: f16, domain: value, stored: value}"),
    ("packing", "{}", "{order: lsb, word: 8, padded: false, unit: 2}"),
    ("packing", "{unit: 16, split: half}", "{unit: 16, split: {parts: 2, over: 16}}"),
    ("packing", "{unit: 8, split: 2}", "{unit: 8, permutation: [0, 4, 1, 5, 2, 6, 3, 7]}"),
    ("packing", "{order: msb}", "{planes: [{take: 4, from: 0, order: msb}]}"),
    ("storage", "separate", "[codes]"),
]


@pytest.mark.parametrize(("axis", "short", "full"), PAIRS)
def test_shorthand_and_explicit_form_mean_the_same(tmp_path: Path, axis: str, short: str, full: str) -> None:
    body = {"element": "uint4", "block": "16", "scale": "f32"}
    if axis == "zero":
        body["scale"] = "f16"
    texts = []
    for name, spelling in (("a", short), ("b", full)):
        axes = {**body, axis: spelling}
        texts.append(f"  {name}: {{{', '.join(f'{k}: {v}' for k, v in axes.items())}}}\n")
    formats = read(tmp_path, HEAD + "".join(texts)).formats
    a, b = (dict(formats[n].descriptor(), name="") for n in "ab")
    assert a == b


def test_aliases_and_merge_keys_are_plain_yaml(tmp_path: Path) -> None:
    text = HEAD + "  a: &a {element: e2m1, block: 32, scale: f16}\n  b: {<<: *a, block: 16}\n  c: *a\n"
    formats = read(tmp_path, text).formats
    assert [f.block.cols for f in formats.values()] == [32, 16, 32]


def test_skip_matches() -> None:
    skip = manifest.Skip(kernel="q*", target="sm_8?", reason="because")
    assert skip.matches("qgemv", "x", "f32", "sm_80")
    assert not skip.matches("qgemv", "x", "f32", "sm_90a")


def test_known_kernels(tmp_path: Path) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(HEAD.replace("copy", "copi") + "  a: {element: e2m1}\n")
    with pytest.raises(ManifestError, match=r"m.yaml:3: kernels.copi: no such kernel; did you mean 'copy'\?"):
        load(path, known_kernels=dict.fromkeys(("copy", "binary"), Declared(False, {})))


def many_formats(count: int) -> str:
    """A manifest of `count` different formats."""
    elements = [
        "e2m1",
        "e4m3",
        "e2m3",
        "{int: 4, symmetric: true}",
        "{int: 3}",
        "int5",
        "uint4",
        "{codebook: [0, 1, 2, 5]}",
    ]
    scales = ["f32", "f16", "{type: e8m0, rule: nearest}", "{type: e4m3, block: tensor, scale: f32}"]
    packings = ["{}", "{word: 32}", "{order: msb}", "{word: 32, padded: true}"]
    product = itertools.product(range(8, 8000, 8), elements, scales, packings)
    rows = (
        f"  f{i}: {{element: {e}, block: {b}, scale: {s}, packing: {p}}}\n"
        for i, (b, e, s, p) in enumerate(itertools.islice(product, count))
    )
    return HEAD + "".join(rows)


def test_ten_thousand_formats(tmp_path: Path) -> None:
    """Under 8 s of work and 1 GB, in a process of its own."""
    (tmp_path / "big.yaml").write_text(many_formats(10_000))
    script = (
        "import sys, time; sys.path.insert(0, sys.argv[2]); from gen.manifest.reader import load\n"
        "started = time.process_time(); n = len(load(sys.argv[1]).formats)\n"
        "took = time.process_time() - started; import resource as r, pathlib, re\n"
        # The peak of a process counts the one that started it, but for Linux' own account.
        "status = pathlib.Path('/proc/self/status')\n"
        "own = re.search(r'VmHWM:\\s+(\\d+)', status.read_text())[1] if status.exists() else 0\n"
        "print(n, took, own or r.getrusage(r.RUSAGE_SELF).ru_maxrss)"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "big.yaml", ROOT],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    peak = int(out[2]) * (1 if sys.platform == "darwin" else 1024)
    assert int(out[0]) == 10_000
    assert float(out[1]) < 8, out
    assert peak < 1 << 30, out


def test_the_table_marks_what_a_default_wheel_lacks() -> None:
    text = (ROOT / "docs/kernels.md").read_text(encoding="utf-8")
    table = text[text.index("| kernel | computes |") : text.index("## Packed weights")]
    marks: dict[str, bool] = {}
    for row in re.findall(r"^\| (`.*?) \|", table, re.M):
        stem = ""
        for short, mark in re.findall(r"`([^`]+)`( †)?", row):
            stem = stem if short.startswith("…") else short
            marks[short.replace("…", stem)] = bool(mark)
    source = load(KERNELS)
    assert marks == {name: name not in source.profiles["default"].kernels for name in source.kernels}
