"""Hand-written kernels with the real nvcc: what it says of them, and what is seen in their cubins."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from gen.build import index
from gen.cli import main
from gen.toolchain import nvcc

HEAD = """\
version: 1
targets:
  sm_90a: {backend: cuda, capability: [9, 0], suffix: a, features: [f16, bf16]}
formats: {}
profiles: {default: {}}
kernels:
"""
ENTRY = """\
  NAME:
    dtypes: [f32]
    check: check.py
    operands: {x: {shape: [n]}}
    output: {z: {shape: [n]}}
    scalars: {a: {type: f32}}
    source: {cuda: {file: NAME.cu, block: 256, grid: [ceildiv, n, 256]}}
"""
CHECK = (
    "from wootz.checking import flat_shapes as shapes, flat_operands as operands\ndef expect(o, d, p): ...\n"
)
GOOD = """\
extern "C" __global__ void NAME_f32(const float* x, float* z, unsigned n, float a)
{
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) z[i] = a * x[i];
}
"""
BAD = {
    "fewer": (
        (", float a)\n{", ")\n{\n    const float a = 2.0f;"),
        "fewer.cu: wanted void fewer_f32(POINTER x, POINTER z, unsigned n, float a)",
    ),
    "wider": (
        ("unsigned n", "unsigned long long n"),
        "wider.cu: wanted void wider_f32(POINTER x, POINTER z, unsigned n, float a)",
    ),
    "other": (("NAME_f32", "another_f32"), 'identifier "other_f32" is undefined'),
    "mangled": (
        ('extern "C" ', ""),
        'lacks the entry mangled_f32; there is one with a C++ name: say extern "C"',
    ),
    "broken": (("a * x[i]", "b * x[i]"), 'broken.cu(4): error: identifier "b" is undefined'),
}


def project(folder: Path, names: list[str]) -> Path:
    (folder / "mine.yaml").write_text(HEAD + "".join(ENTRY.replace("NAME", name) for name in names))
    (folder / "check.py").write_text(CHECK)
    for name in names:
        (old, new), _ = BAD.get(name, (("", ""), ""))
        text = GOOD.replace(old, new) if old else GOOD
        (folder / f"{name}.cu").write_text(text.replace("NAME", name))
    return folder / "mine.yaml"


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a build of every bad kernel beside a good one, and what the build said."""
    if not nvcc.nvcc_candidates():
        pytest.skip("no nvcc on this machine")
    folder, error = tmp_path_factory.mktemp("bad"), io.StringIO()
    with contextlib.redirect_stderr(error):
        path = project(folder, ["good", *BAD])
        assert main(["build", "--manifest", str(path), "--out", str(folder / "out")]) == 1
    return folder / "out", error.getvalue()


@pytest.mark.parametrize("name", BAD)
def test_a_bad_kernel_is_named_with_its_reason(said: tuple[Path, str], name: str) -> None:
    out, text = said
    assert BAD[name][1] in text
    assert not (out / f"cubin/{name}/sm_90a.cubin").exists()


def test_nothing_is_shipped_beside_a_bad_kernel(said: tuple[Path, str]) -> None:
    out, text = said
    assert not (out / "index.json").exists()
    assert "wootz: good/" not in text
    assert (out / "cubin/good/sm_90a.cubin").is_file()  # for the next build


def test_the_good_one_alone_is_whole(said: tuple[Path, str]) -> None:
    out = said[0]
    assert (
        main(["build", "--manifest", str(out.parent / "mine.yaml"), "--kernels", "good", "--out", str(out)])
        == 0
    )
    assert index.validate(out) == []
