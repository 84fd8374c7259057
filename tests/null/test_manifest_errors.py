"""Bad manifests: each a typed error with file, line, path and near miss; nothing else escapes."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gen.manifest import document
from gen.manifest.reader import Manifest, ManifestError, load
from gen.manifest.schema import load_schema
from gen.plan import cells as plan

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "kernels.yaml"

HEAD = "version: 1\ntargets: {host: {backend: cpu}}\nkernels: {copy: {dtypes: [f32]}}\nformats:\n"
"""Three good lines; formats begin on line 5."""


def read(tmp_path: Path, text: str | bytes) -> Manifest:
    path = tmp_path / "m.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load(path)


def problems(tmp_path: Path, text: str | bytes) -> list[str]:
    """The error's lines, without the folder."""
    with pytest.raises(ManifestError) as caught:
        read(tmp_path, text)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(caught.value.messages)
    assert all(len(line) < 500 and line.isascii() and line.isprintable() for line in lines)
    return [line.removeprefix(f"{tmp_path}/") for line in lines]


def loads_or_says_why(path: Path) -> Manifest | None:
    """The manifest, or None after a ManifestError with lines and messages; nothing else may escape."""
    try:
        return load(path)
    except ManifestError as e:
        messages = e.messages
    assert messages
    assert all(p.line >= 1 and p.message for p in messages)
    return None


# --- bad input ---

FORMATS = [
    ("an unknown axis", "{element: e2m1, blok: 32}", "blok: unknown key 'blok'; did you mean 'block'?"),
    ("an unknown value", "{element: e2m1, scale: {type: e8m0, rule: nearst}}", "did you mean 'nearest'?"),
    ("an unknown element", "{element: e2n1}", "element: 'e2n1' is not known here; did you mean 'e2m1'?"),
    (
        "an unknown scale",
        "{element: e2m1, scale: f61}",
        "scale: 'f61' is not known here; did you mean 'f16'?",
    ),
    ("a wide element", "{element: f16}", "element: 'f16' is not known here"),
    ("a missing element", "{elment: e2m1}", "element is missing"),
    ("bits 0", "{element: {int: 0}}", "element.int: is 0, wanted 1 to 8"),
    ("bits 9", "{element: {int: 9}}", "element.int: is 9, wanted 1 to 8"),
    ("bits 9, short", "{element: int9}", "element: 'int9' is not known here; did you mean 'int"),
    ("bits 9, float", "{element: e5m3}", "makes 9 bits"),
    ("bits as a word", "{element: {int: four}}", "element.int: is 'four', wanted a whole number"),
    ("bits as a float", "{element: {int: 4.0}}", "element.int: is 4.0, wanted a whole number"),
    ("bits as a boolean", "{element: {int: true}}", "element.int: is true, wanted a whole number"),
    (
        "two kinds",
        "{element: {int: 4, codebook: [0, 1]}}",
        "wants exactly one of int, float, exponent, codebook",
    ),
    (
        "a stray axis",
        "{element: {codebook: [0, 1], signed: true}}",
        "signed goes with int, which is not here",
    ),
    ("block 0", "{element: e2m1, block: 0}", "block: is 0, wanted 1 to 65536"),
    ("block negative", "{element: e2m1, block: -32}", "block: is -32, wanted 1 to 65536"),
    ("block huge", f"{{element: e2m1, block: {10**30}}}", "wanted 1 to 65536"),
    ("block too long to read", f"{{element: e2m1, block: {'9' * 5000}}}", "is not a usable int"),
    ("block nan", "{element: e2m1, block: .nan}", "block: is nan, wanted a whole number"),
    ("block of three", "{element: e2m1, block: [1, 2, 3]}", "block: has 3 entries, wanted 2 to 2"),
    ("block of zeros", "{element: e2m1, block: [0, 32]}", "block[0]: is 0"),
    ("block unknown", "{element: e2m1, block: tenser}", "did you mean 'tensor'?"),
    ("codebook length", "{element: {codebook: [0, 1, 2]}}", "codebook: the codebook has 3 entries"),
    ("codebook bits", "{element: {codebook: [0, 1], bits: 3}}", "has 2 entries, wanted 8 for bits: 3"),
    ("codebook empty", "{element: {codebook: []}}", "codebook: has 0 entries"),
    ("codebook nan", "{element: {codebook: [0, .nan]}}", "codebook[1]: entry 1 is nan"),
    ("codebook inf", "{element: {codebook: [-.inf, 1]}}", "codebook[0]: entry 0 is -inf"),
    ("codebook past float32", "{element: {codebook: [0, 1e39]}}", "codebook[1]: entry 1 is 1e+39"),
    ("codebook past float64", "{element: {codebook: [0, 1e999]}}", "codebook[1]: entry 1 is inf"),
    ("codebook words", "{element: {codebook: [0, one]}}", "codebook[1]: is 'one', wanted a number"),
    ("codebook zeros", "{element: {codebook: [0, 0]}}", "every entry"),
    ("offset", "{element: {int: 3, offset: 8}}", "element.offset: offset 8 is outside the codes 0 to 7"),
    ("bias", "{element: {float: {exponent: 4, mantissa: 3, bias: -127}}}", "normal float32"),
    ("specials", "{element: {float: {exponent: 4, mantissa: 3, specials: iee}}}", "did you mean 'ieee'?"),
    ("e8m0 as element", "{element: e8m0}", "it is for scales"),
    (
        "rule of a float",
        "{element: e2m1, scale: {type: f16, rule: floor}}",
        "scale.rule: floor rounds an exponent",
    ),
    ("rule of e8m0", "{element: e2m1, scale: {type: e8m0, rule: absmax}}", "is not for powers of two"),
    ("minmax without zero", "{element: e2m1, scale: {type: f16, rule: minmax}}", "minmax needs a zero point"),
    (
        "zero without minmax",
        "{element: uint4, scale: {type: f16, rule: absmax}, zero: f16}",
        "needs rule minmax",
    ),
    ("zero without scale", "{element: uint4, zero: f16}", "zero goes with scale"),
    ("zero, scale none", "{element: uint4, scale: none, zero: f16}", "zero: a zero point needs a scale"),
    (
        "signed_absmax",
        "{element: e2m1, scale: {type: f16, rule: signed_absmax}}",
        "signed_absmax is for integers",
    ),
    ("signed scale", "{element: int4, scale: {type: uint6, rule: signed_absmax}}", "has no sign"),
    (
        "minus_one",
        "{element: uint4, scale: f16, zero: {type: f16, stored: minus_one}}",
        "minus_one is for integer",
    ),
    (
        "op of level 0",
        "{element: e2m1, scale: {type: f16, op: divide}}",
        "scale.op: the first level multiplies",
    ),
    ("scale without block", "{element: e2m1, scale: {type: e4m3, scale: f32}}", "scale goes with block"),
    ("block without scale", "{element: e2m1, scale: {type: e4m3, block: 32}}", "block goes with scale"),
    (
        "levels that do not nest",
        "{element: e2m1, block: 32, scale: {type: e4m3, block: 48, scale: f32}}",
        "scale.block: 1x48 is not made of whole blocks of the level below, 1x32",
    ),
    (
        "four levels",
        (
            "{element: e2m1, scale: {type: f16, block: row, scale: {type: f16, block: row, scale: "
            "{type: f16, block: row, scale: f16}}}}"
        ),
        "scale.scale.scale.scale: more than 3 scale levels",
    ),
    ("word", "{element: e2m1, packing: {word: 64}}", "packing.word: 64 is not known here; one of 8, 16, 32"),
    ("order", "{element: e2m1, packing: {order: lbs}}", "did you mean 'lsb'?"),
    ("permutation", "{element: e2m1, packing: {permutation: [0, 2, 2, 1]}}", "is not a permutation"),
    ("permutation and split", "{element: e2m1, packing: {permutation: [1, 0], split: 2}}", "give one"),
    ("split without a run", "{element: e2m1, packing: {split: half}}", "packing.split: split needs a run"),
    ("split uneven", "{element: e2m1, packing: {unit: 9, split: 2}}", "9 elements do not split into 2 parts"),
    ("split over uneven", "{element: e2m1, packing: {split: {parts: 4, over: 6}}}", "do not split into 4"),
    (
        "unit and permutation",
        "{element: e2m1, packing: {unit: 6, permutation: [3, 2, 1, 0]}}",
        "multiple of 4",
    ),
    ("unit too large", "{element: e2m1, packing: {unit: 513}}", "packing.unit: is 513, wanted 1 to 512"),
    (
        "planes with a gap",
        "{element: e2m1, packing: {planes: [{take: 1, from: 0}]}}",
        "the planes take bits [0]",
    ),
    (
        "planes twice",
        "{element: int2, packing: {planes: [{take: 2, from: 0}, {take: 1, from: 1}]}}",
        "wanted once",
    ),
    (
        "planes and order",
        "{element: int1, packing: {order: msb, planes: [{take: 1, from: 0}]}}",
        "axis of each plane",
    ),
    (
        "unit and interleaved block",
        "{element: int8, block: 32, scale: f16, packing: {unit: 48}, storage: [scale, codes]}",
        "packing.unit: unit 48 is not a multiple of the interleaved block, 32",
    ),
    (
        "interleaved block too long",
        "{element: int8, block: 2048, scale: f16, storage: [scale, codes]}",
        "the unit is 2048 elements, more than 512",
    ),
    (
        "interleaved block of odd bytes too long",
        "{element: int3, block: 511, scale: f16, storage: [scale, codes]}",
        "in 194 bytes repeats at a whole 32-bit word every 1022 elements, more than 512",
    ),
    (
        "interleaved tensor scale",
        "{element: e2m1, block: 9, scale: {type: e4m3, block: tensor, scale: f32}, storage: [scale1, codes]}",
        "storage[0]: scale1 covers tensor, which no unit of one row can hold",
    ),
    (
        "interleaved square",
        "{element: e4m3, block: [128, 128], scale: f32, storage: [codes, scale]}",
        "storage[1]: scale covers 128x128",
    ),
    (
        "storage unknown",
        "{element: e2m1, storage: [cods]}",
        "storage[0]: 'cods' is not known here; did you mean 'codes'?",
    ),
    (
        "storage absent",
        "{element: e2m1, block: 32, scale: f16, storage: [zero, codes]}",
        "this format has no zero",
    ),
    (
        "storage twice",
        "{element: e2m1, block: 32, scale: f16, storage: [codes, codes]}",
        "codes is stored twice",
    ),
    ("storage without codes", "{element: e2m1, block: 32, scale: f16, storage: [scale]}", "leaves out codes"),
    ("a list as format", "[1, 2]", "is a list, wanted a mapping"),
    ("nothing as format", "", "is empty, wanted a mapping"),
    ("a number as scale", "{element: e2m1, scale: 16}", "scale: is 16, wanted"),
    (
        "a python tag",
        "!!python/object/apply:os.system [ls]",
        "tag '!!python/object/apply:os.system' is not allowed",
    ),
    ("a custom tag", "{element: !e2m1 x}", "tag '!e2m1' is not allowed"),
    ("a list as key", "{[a]: 1}", "a list as a key"),
]


@pytest.mark.parametrize(("body", "wanted"), [pytest.param(b, w, id=i) for i, b, w in FORMATS])
def test_bad_format(tmp_path: Path, body: str, wanted: str) -> None:
    found = problems(tmp_path, f"{HEAD}  good: {{element: e2m1}}\n  bad: {body}\n")
    assert all(line.startswith("m.yaml:6: ") for line in found), found
    assert wanted in "\n".join(found)
    assert "tag" in found[0] or "key" in found[0] or "formats.bad" in found[0]
    assert len(found) <= 2, found


NAMES = [
    ("9bits", "the name '9bits' is not a letter"),
    ("a-b", "'a_b' would do"),
    ('"x;}; system(0)"', "it goes into symbols"),
    ('"../../etc"', "it goes into symbols"),
    ('"a\\nb"', "it goes into symbols"),
    ('"\\u00e9"', "it goes into symbols"),
    ("int", "is reserved"),
    ("half", "is reserved"),
    ("all", "is reserved"),
    ("CON", "is reserved"),
    ("x" * 65, "has 65 characters"),
    ("GOOD", "differs from 'good' in letter case"),
    ("7", "is not a word to YAML"),
    ("on", "is not a word to YAML"),
    ('""', "it goes into symbols"),
]


@pytest.mark.parametrize(("name", "wanted"), NAMES)
def test_bad_format_name(tmp_path: Path, name: str, wanted: str) -> None:
    found = problems(tmp_path, f"{HEAD}  good: {{element: e2m1}}\n  {name}: {{element: e2m1}}\n")
    assert found[0].startswith("m.yaml:6: "), found
    assert wanted in found[0], found


WHOLE = [
    ("missing sections", "version: 1\n", 1, "targets is missing"),
    ("no version", "targets: {}\n", 1, "version is missing"),
    ("another version", "version: 2\ntargets: {}\n", 1, "version: is 2; this generator reads version 1"),
    ("a version as a word", "version: '1'\n", 1, "this generator reads version 1"),
    ("a version as true", "version: true\n", 1, "this generator reads version 1"),
    ("not a mapping", "- 1\n- 2\n", 1, "is a list, wanted a mapping"),
    ("a word", "hello\n", 1, "is 'hello', wanted a mapping"),
    ("empty", "", 1, "is empty"),
    ("only a comment", "# nothing\n", 1, "is empty"),
    ("a tab", "version: 1\ntargets:\n\thost: {backend: cpu}\n", 3, "a tab in the indentation"),
    ("not YAML", "version: 1\ntargets: [1, 2\n", 3, "not YAML"),
    ("two documents", HEAD + "  a: {element: e2m1}\n---\nb: 1\n", 6, "a second document"),
    (
        "a duplicate key",
        HEAD + "  a: {element: e2m1}\n  a: {element: e2m3}\n",
        6,
        "the key 'a' is already on line 5",
    ),
    (
        "a duplicate axis",
        HEAD + "  a: {element: e2m1, element: e2m3}\n",
        5,
        "the key 'element' is already on line 5",
    ),
    ("a duplicate section", HEAD + "  a: {element: e2m1}\nversion: 1\n", 6, "already on line 1"),
    ("an unknown section", HEAD + "  a: {element: e2m1}\nprofile: {}\n", 6, "did you mean 'profiles'?"),
    (
        "a circle",
        HEAD + "  a: &a {element: {codebook: [*a]}}\n",
        5,
        "alias *a lies inside the value it names",
    ),
    ("an unknown alias", HEAD + "  a: &abc {element: e2m1}\n  b: *abd\n", 6, "did you mean 'abc'?"),
    ("not UTF-8", b"version: 1\n# caf\xe9\n", 2, "is not UTF-8: byte 0xe9"),
    ("UTF-16", "version: 1\n".encode("utf-16"), 1, "is not UTF-8"),
    ("a control character", HEAD + "  a: {element: \x01}\n", 5, "character that YAML does not allow"),
    ("deep lists", "a: " + "[" * 100_000, 1, "nest"),
    ("deep mappings", "{a: " * 100_000, 1, "nested more than"),
    ("deep blocks", "".join(" " * i + "a:\n" for i in range(200)), 65, "nested more than"),
]


@pytest.mark.parametrize(("text", "line", "wanted"), [pytest.param(t, n, w, id=i) for i, t, n, w in WHOLE])
def test_bad_file(tmp_path: Path, text: str | bytes, line: int, wanted: str) -> None:
    found = problems(tmp_path, text)
    assert any(p.startswith(f"m.yaml:{line}: ") and wanted in p for p in found), found


def test_alias_bomb(tmp_path: Path) -> None:
    """Ten values, ten times over, nine times: refused without being expanded."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    started = time.perf_counter()
    found = problems(tmp_path, "\n".join(lines))
    assert re.fullmatch(r"m\.yaml:\d+: aliases make this more than \d+ values \(an alias bomb\?\)", found[0])
    assert time.perf_counter() - started < 1


def test_alias_tower(tmp_path: Path) -> None:
    """Aliases that nest instead of growing: no recursion limit is met."""
    lines = ["a0: &a0 [1]"] + [f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 5000)]
    assert "aliases nest this more than 64 deep" in problems(tmp_path, "\n".join(lines))[0]


def test_alias_bomb_below_the_bound_is_bounded_work(tmp_path: Path) -> None:
    big = f"x: &x [{', '.join(['1'] * 1000)}]\ny: &y [{', '.join(['*x'] * 1000)}]\nz: [*y, *y]\n"
    started = time.perf_counter()
    assert "unknown key" in problems(tmp_path, HEAD + "  a: {element: e2m1}\n" + big)[0]
    assert time.perf_counter() - started < 5


def test_missing_file_and_directory(tmp_path: Path) -> None:
    for path, wanted in (
        (tmp_path / "none.yaml", "cannot be read: No such file"),
        (tmp_path, "is a directory"),
        (Path("/dev/null"), "is not a regular file"),
        (Path("nul\0.yaml"), "cannot be read"),
    ):
        with pytest.raises(ManifestError) as caught:
            load(path)
        assert str(caught.value).startswith(f"{path}:1: ")
        assert wanted in str(caught.value)


TARGETS = [
    ("a.b-c: {backend: cpu}", "the name 'a.b-c' is not letters, digits, _ and inner dots"),
    ("..: {backend: cpu}", "it goes into symbols"),
    ("native: {backend: cpu}", "is reserved"),
    ("a: {backend: cudda}", "backend: 'cudda' is not known here; did you mean 'cuda'?"),
    ("a: {}", "backend is missing"),
    ("a: {backend: cpu, features: [f61]}", "features[0]: 'f61' is not known here; did you mean 'f16'?"),
    ("a: {backend: cpu, features: [f16, f16]}", "features[1]: 'f16' is listed twice"),
    ("a: {backend: cpu, capability: [9, 0]}", "capability: is not for backend cpu"),
    ("a: {backend: cpu, limits: {shared: -1}}", "limits.shared: is -1"),
    ("sm_90: {backend: cuda}", "capability is missing"),
    (
        "sm_90: {backend: cuda, capability: [9, 0], suffix: a}",
        "arch 'sm_90' and capability + suffix (sm_90a) disagree",
    ),
    ("x: {backend: cuda, arch: sm_80, capability: [9, 0]}", "(sm_90) disagree"),
    ("x: {backend: cuda, arch: 'sm_80 --x', capability: [8, 0]}", "arch: is 'sm_80 --x', wanted"),
    ("m: {backend: metal, min_os: fourteen}", "min_os: is 'fourteen', wanted"),
    ("a: {backend: cpu, kernels: [cpoy]}", "kernels[0]: no kernel is named 'cpoy'; did you mean 'copy'?"),
    ("a: {backend: cpu, kernels: [copy, copy]}", "kernels[1]: 'copy' is listed twice"),
    ("a: {backend: cpu, kernels: copy}", "kernels: 'copy' is not known here; one of all"),
]


@pytest.mark.parametrize(("row", "wanted"), TARGETS)
def test_bad_target(tmp_path: Path, row: str, wanted: str) -> None:
    text = f"version: 1\nkernels: {{copy: {{dtypes: [f32]}}}}\ntargets:\n  host: {{backend: cpu}}\n  {row}\n"
    found = problems(tmp_path, text)
    assert found[0].startswith("m.yaml:5: targets."), found
    assert wanted in found[0], found


REST = [
    ("kernels: {copy: {dtypes: [f32]}, copi: {dtypes: [f23]}}", "kernels.copi.dtypes[0]: 'f23' is not known"),
    ("kernels: {a: {dtypes: [f32, f32]}}", "kernels.a.dtypes[1]: 'f32' is listed twice"),
    ("kernels: {a: {dtypes: []}}", "kernels.a.dtypes: has 0 entries"),
    ("kernels: {void: {dtypes: [f32]}}", "kernels.void: the name 'void' is reserved"),
    (
        "kernels: {a: {dtypes: [f32], targets: [hots]}}",
        "kernels.a.targets[0]: no target is named 'hots'; did you mean 'host'?",
    ),
    (
        "kernels: {a: {dtypes: [f32], formats: [fuor]}}",
        "formats[0]: no format is named 'fuor'; did you mean 'four'?",
    ),
    ("kernels: {a: {dtypes: [f32], options: {op: [ADD]}}}", "options.op[0]: is 'ADD', wanted"),
    ("kernels: {a: {dtypes: [f32], options: {'o p': [add]}}}", "it goes into symbols"),
    ("kernels: {a: {dtypes: [f32], knobs: {x: 1.5}}}", "knobs.x: is 1.5, wanted a list"),
    ("kernels: {a: {dtypes: [f32], knobs: {x: [4]}}}", "knobs.x[0]: is 4, wanted a word"),
    ("knobs: {x: {default: a}}", "knobs.x: values is missing"),
    ("knobs: {x: {default: a, values: {b: short}}}", "knobs.x.values.b: has 5 characters, wanted 8"),
    (
        "profiles: {p: {formats: [fuor]}}",
        "profiles.p.formats[0]: no format is named 'fuor'; did you mean 'four'?",
    ),
    (
        "profiles: {p: {targets: [hots]}}",
        "profiles.p.targets[0]: no target is named 'hots'; did you mean 'host'?",
    ),
    ("profiles: {p: {kernels: [native]}}", "no kernel is named 'native'"),
    ("profiles: {p: {targets: al}}", "did you mean 'all'?"),
    ("profiles: {p: {targets: [host, host]}}", "'host' is listed twice"),
    ("skips: [{format: fo?, reason: not needed here}]", "skips[0].format: 'fo?' matches no format"),
    (
        "skips: [{target: hots, reason: not needed here}]",
        "skips[0].target: 'hots' matches no target; did you mean 'host'?",
    ),
    ("skips: [{dtype: f64, reason: not needed here}]", "skips[0].dtype: 'f64' matches no dtype"),
    ("skips: [{format: four}]", "skips[0]: reason is missing"),
    ("skips: [{format: four, reason: nope}]", "skips[0].reason: has 4 characters"),
    ("skips: [{reason: not needed here}]", "skips[0]: names nothing to skip"),
    ("skips: {a: 1}", "skips: is a mapping, wanted a list"),
]


@pytest.mark.parametrize(("line", "wanted"), REST)
def test_bad_kernel_profile_or_skip(tmp_path: Path, line: str, wanted: str) -> None:
    kernels = "" if line.startswith("kernels") else "kernels: {copy: {dtypes: [f32]}}\n"
    head = f"version: 1\n{kernels}targets: {{host: {{backend: cpu}}}}\nformats: {{four: {{element: e2m1}}}}\n"
    found = problems(tmp_path, head + line + "\n")
    number = head.count("\n") + 1
    assert found[0].startswith(f"m.yaml:{number}: "), found
    assert wanted in found[0], found


def test_profiles_may_name_native(tmp_path: Path) -> None:
    text = HEAD + "  a: {element: e2m1}\nprofiles: {native: {targets: [host, native]}}\n"
    assert read(tmp_path, text).profiles["native"].targets == ("host", "native")


def test_all_problems_at_once_by_line(tmp_path: Path) -> None:
    text = """version: 1
targets:
  host: {backend: cpx}
kernels:
  copy: {dtypes: [f32], formats: [gone]}
formats:
  one:
    element: e2m1
    block: 0
    storage:
      - codes
      - scale
  two:
    element:
      codebook: [0, 1,
        .nan, 3]
    packing: {permutation: [0, 0]}
  two: {element: e9m9}
"""
    found = problems(tmp_path, text)
    assert [int(line.split(":")[1]) for line in found] == [3, 5, 9, 16, 18]
    assert found[3].startswith("m.yaml:16: formats.two.element.codebook[2]: entry 2 is nan")


def test_the_schema_and_the_axes_are_both_told(tmp_path: Path) -> None:
    """A stray key of a format does not hide what its element says."""
    found = problems(
        tmp_path, HEAD + "  a:\n    blok: 32\n    element: {codebook: [0, 1, 2]}\n    scale: f61\n"
    )
    assert [line.split(":")[1] for line in found] == ["6", "7", "8"]


def test_a_bad_packing_and_a_bad_scale_are_both_told(tmp_path: Path) -> None:
    text = HEAD + (
        "  a:\n    element: e2m1\n    scale: {type: f16, rule: floor}\n    packing: {permutation: [0, 0]}\n"
    )
    assert [line.split(":")[1] for line in problems(tmp_path, text)] == ["7", "8"]


# --- nothing else escapes, and it is quick ---


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.data())
def test_damaged_manifests_raise_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """The shipped manifest with bytes cut, doubled or replaced: loads, or is a ManifestError."""
    raw = bytearray(KERNELS.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        length = data.draw(st.integers(0, 40))
        raw[at : at + length] = data.draw(
            st.one_of(
                st.binary(max_size=6),
                st.sampled_from([b"[", b"{", b": ", b"&a ", b"*a", b"\n", b"~", b"-", b"'"]),
            )
        )
    path = tmp_path_factory.getbasetemp() / "damaged.yaml"
    path.write_bytes(bytes(raw))
    loads_or_says_why(path)


WORDS = ["e2m1", "e8m0", "f16", "int4", "uint4", "tensor", "half", "lsb", "codes", "scale", "none", "x"]
KEYS = sorted({key for body in load_schema()["$defs"].values() for key in body.get("properties", {})})
VALUES = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-3, 300),
        st.floats(),
        st.sampled_from(WORDS),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(KEYS),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=8,
)
AXES = ["element", "block", "scale", "zero", "packing", "storage"]


SECTIONS = ["version", "targets", "formats", "kernels", "profiles", "skips"]
ENTRIES = [
    "kernel",
    "format",
    "target",
    "dtypes",
    "formats",
    "options",
    "reason",
    "backend",
    "limits",
    "a",
    "b c",
]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(SECTIONS[1:]),
    st.one_of(
        VALUES,
        st.dictionaries(st.sampled_from(ENTRIES), VALUES),
        st.lists(st.dictionaries(st.sampled_from(ENTRIES), VALUES)),
        st.dictionaries(st.sampled_from(ENTRIES), st.dictionaries(st.sampled_from(ENTRIES), VALUES)),
    ),
)
def test_any_section_loads_or_is_a_manifest_error(
    tmp_path_factory: pytest.TempPathFactory, section: str, value: Any
) -> None:
    data = yaml.safe_load(HEAD + "  a: {element: e2m1}\n")
    path = tmp_path_factory.getbasetemp() / "section.yaml"
    path.write_text(yaml.safe_dump({**data, section: value}))
    loads_or_says_why(path)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.dictionaries(st.sampled_from(AXES), VALUES, min_size=1))
def test_any_format_body_loads_or_is_a_manifest_error(
    tmp_path_factory: pytest.TempPathFactory, body: dict[str, Any]
) -> None:
    data = {
        "version": 1,
        "targets": {"host": {"backend": "cpu"}},
        "kernels": {"copy": {"dtypes": ["f32"]}},
        "formats": {"a": {"element": "e2m1", **body}},
    }
    path = tmp_path_factory.getbasetemp() / "body.yaml"
    path.write_text(yaml.safe_dump(data))
    if loaded := loads_or_says_why(path):
        assert json.dumps(loaded.formats["a"].descriptor(), allow_nan=False)


def test_without_libyaml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pure Python parser gives the same manifest and the same lines."""
    shipped = load(KERNELS)
    monkeypatch.setattr(document, "_LOADER", yaml.SafeLoader)
    assert load(KERNELS) == shipped
    for text, line, wanted in (
        ("version: 1\ntargets:\n\thost: 1\n", 3, "a tab"),
        ("version: 1\n\x01", 2, "character that YAML does not allow"),
        ("a: " + "[" * 5000, 1, "nest"),
        (HEAD + '  a: {element: "\\ud800"}\n', 5, "is not known here"),
    ):
        found = problems(tmp_path, text)
        assert found[0].startswith(f"m.yaml:{line}: "), found
        assert wanted in found[0], found


def test_ten_thousand_problems(tmp_path: Path) -> None:
    """Each told, in bounded time, near misses included."""
    rows = HEAD + "".join(f"  f{i}: {{element: e2m1, block: {i + 1}, scale: f16}}\n" for i in range(2000))
    names = ", ".join(f"g{i}" for i in range(10_000))
    started = time.perf_counter()
    found = problems(tmp_path, rows + f"profiles: {{p: {{formats: [{names}]}}}}\n")
    assert len(found) == 10_000
    assert time.perf_counter() - started < 20


@pytest.mark.parametrize(
    ("kernel", "wanted"),
    [
        (
            "binary: {dtypes: [f32], options: {op: [pow]}}",
            "kernels.binary.options.op[0]: 'pow' is no value of op",
        ),
        ("binary: {dtypes: [f32], options: {op: [ad]}}", "did you mean 'add'?"),
        ("binary: {dtypes: [f32]}", "kernels.binary: the option op is missing"),
        ("copy: {dtypes: [f32], options: {op: [add]}}", "kernels.copy.options.op: no option of copy"),
        ("copy: {dtypes: [f32], knobs: {foo: [bar]}}", "kernels.copy.knobs.foo: no knob is named 'foo'"),
        ("copy: {dtypes: [f32], formats: all}", "kernels.copy.formats: copy takes no quantised operand"),
        ("dequant: {dtypes: [f32]}", "kernels.dequant: dequant takes a quantised operand"),
    ],
)
def test_kernels_are_asked_for_what_they_declare(tmp_path: Path, kernel: str, wanted: str) -> None:
    path = tmp_path / "m.yaml"
    path.write_text(
        "version: 1\ntargets:\n  cpu: {backend: cpu, isa: [baseline], features: [f16]}\n"
        f"formats:\n  one: {{element: e2m1}}\nkernels:\n  {kernel}\nprofiles:\n  default: {{}}\n"
    )
    with pytest.raises(ManifestError) as caught:
        plan.load(path)
    assert f"{path}:7: " in str(caught.value)
    assert wanted in str(caught.value)
