"""Decode functors on a GPU against their twins on a host: every format known to the tests, both types.

    python tests/gpu/functors.py OUT [ARCH]      # here; needs nvcc (ARCH: what it is told, default sm_90a)
    OUT/functors OUT/data.bin                    # on the machine with the GPU; needs nothing else

The program has all functors; the data file holds packed units; what their twins make of them, compiled by
g++ and checked by tests/null/test_functor.py, is in the program as checksums. It prints each case that
differs, how many there were, and exits with 1 if any differed.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "python"), str(ROOT / "tests" / "null")]
import functor_host as host  # noqa: E402
import test_functor as functors  # noqa: E402
from wootz.formats.packed import PackedTensor, prepack  # noqa: E402
from wootz.formats.sample import random_tensor  # noqa: E402

from gen.lower import templates  # noqa: E402
from gen.lower.functor import functor  # noqa: E402

MAIN = """
#include <cstdio>
#include <fstream>
#include <iterator>
#include <vector>

template <class W>
__global__ void decode_units(const uint8_t* units, const void* first, const void* second, uint32_t* decoded,
                             uint32_t* folded, float* scales) {
    const void* const fields[] = {first, second};
    float tensor[4] = {};
    tensor_levels<W>(std::make_integer_sequence<int, W::tensors>(), fields, tensor);
    const uint8_t* unit = units + static_cast<size_t>(blockIdx.x) * W::unit_bytes;
    decoded += static_cast<size_t>(blockIdx.x) * W::steps * 128;
    folded += static_cast<size_t>(blockIdx.x) * W::steps * 128;
    one_lane<W>(unit, tensor, threadIdx.x, decoded, folded);
    if (threadIdx.x < 8) {
        row_scales<W>(unit, tensor, threadIdx.x, scales + static_cast<size_t>(blockIdx.x) * W::runs * 16);
    }
}

static void must(cudaError_t error) {
    if (error != cudaSuccess) {
        std::printf("CUDA: %s\\n", cudaGetErrorString(error));
        std::exit(2);
    }
}

// Order matters; any NaN counts as any other.
template <class T>
static uint64_t checksum(const T* values, size_t count, T magnitude, T infinity) {
    uint64_t sum = 0;
    for (size_t i = 0; i < count; ++i) {
        const T value = (values[i] & magnitude) > infinity ? magnitude : values[i];
        sum += (value + 1ull) * ((i * 0x9e3779b97f4a7c15ull) | 1);
    }
    return sum;
}

template <class W>
static bool right(const std::vector<char>& data, size_t at, unsigned count, size_t first, size_t second,
                  uint16_t infinity, const uint64_t (&wanted)[3]) {
    char* bytes;
    uint32_t *decoded, *folded;
    float* scales;
    const size_t registers = static_cast<size_t>(count) * W::steps * 128, entries = count * W::runs * 16ull;
    must(cudaMalloc(&bytes, data.size()));
    must(cudaMemcpy(bytes, data.data(), data.size(), cudaMemcpyHostToDevice));
    must(cudaMalloc(&decoded, registers * 4));
    must(cudaMalloc(&folded, registers * 4));
    must(cudaMalloc(&scales, entries * 4));
    const uint8_t* units = reinterpret_cast<const uint8_t*>(bytes + at);
    decode_units<W><<<count, 32>>>(units, bytes + first, bytes + second, decoded, folded, scales);
    must(cudaDeviceSynchronize());
    std::vector<uint32_t> found(std::max(registers, entries));
    const uint16_t* pairs = reinterpret_cast<const uint16_t*>(found.data());
    bool same = true;
    for (int i = 0; i < 2; ++i) {
        must(cudaMemcpy(found.data(), i ? folded : decoded, registers * 4, cudaMemcpyDeviceToHost));
        same &= checksum<uint16_t>(pairs, 2 * registers, 0x7fff, infinity) == wanted[i];
    }
    must(cudaMemcpy(found.data(), scales, entries * 4, cudaMemcpyDeviceToHost));
    same &= checksum<uint32_t>(found.data(), entries, 0x7fffffff, 0x7f800000) == wanted[2];
    for (void* p : {static_cast<void*>(bytes), static_cast<void*>(decoded), static_cast<void*>(folded),
                    static_cast<void*>(scales)}) {
        must(cudaFree(p));
    }
    return same;
}

int main(int count, char** names) {
    std::ifstream file(count > 1 ? names[1] : "data.bin", std::ios::binary);
    const std::vector<char> data((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (data.size() != $SIZE) {
        std::printf("the data file is not this program's\\n");
        return 2;
    }
    int cases = 0, wrong = 0;
    const auto check = [&](const char* name, bool same) {
        ++cases;
        if (!same) { ++wrong, std::printf("%s differs\\n", name); }
    };
$CALLS    std::printf("%d cases, %d differ\\n", cases, wrong);
    return wrong != 0;
}
"""
INFINITY = {"f16": 0x7C00, "bf16": 0x7F80}


@dataclass(frozen=True)
class Placed:
    """A case's units and fields in the data file: bytes, and where the parts begin."""

    data: bytes
    offsets: tuple[int, ...]


def place(packed: PackedTensor, start: int) -> Placed:
    parts = [packed.fields["units"], *(packed.fields[name] for name in packed.packing.tensors)]
    data, offsets = b"", []
    for part in parts:
        offsets.append(start + len(data))
        raw = np.ascontiguousarray(part).tobytes()
        data += raw + bytes(-len(raw) % 256)
    return Placed(data, tuple(offsets))


def checksum(values: NDArray[Any], infinity: int) -> int:
    """As the program computes it."""
    bits = (
        np.ascontiguousarray(values)
        .view(np.uint16 if infinity < 0x8000 else np.uint32)
        .ravel()
        .astype(np.uint64)
    )
    magnitude = np.uint64(0x7FFF if infinity < 0x8000 else 0x7FFFFFFF)
    bits = np.where((bits & magnitude) > infinity, magnitude, bits)
    factors = (np.arange(bits.size, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) | np.uint64(1)
    return int(((bits + np.uint64(1)) * factors).sum(dtype=np.uint64))


def build(out: Path, arch: str) -> None:
    """OUT/functors and OUT/data.bin."""
    cases = functors.cases()
    with tempfile.TemporaryDirectory() as folder:
        twins = host.Functors(Path(folder), cases)
    data, calls, texts = b"", [], []
    for name, (fmt, activations, target) in cases.items():
        d = host.descriptor(fmt)
        shape = (32, 4 * int(d.raw["packed"]["unit_k"]))
        packed = prepack(random_tensor(d, shape, np.random.default_rng(len(data)), specials=True))
        placed = place(packed, len(data))
        data += placed.data
        texts.append(functor(fmt, activations, target, name))
        decoded, folded, scales = twins.raw(name, packed)
        infinity = INFINITY[activations]
        wanted = [checksum(decoded, infinity), checksum(folded, infinity), checksum(scales, 0x7F800000)]
        first, second = (*placed.offsets[1:], 0, 0)[:2]
        sums = ", ".join(f"{w}ull" for w in wanted)
        given = f"data, {placed.offsets[0]}, 8, {first}, {second}, {infinity}, {{{sums}}}"
        calls.append(f'    check("{name}", right<{name}>({given}));\n')
    out.mkdir(parents=True, exist_ok=True)
    main = MAIN.replace("$SIZE", str(len(data))).replace("$CALLS", "".join(calls))
    source = out / "functors.cu"
    source.write_text(templates.inline(["fragment.cuh"], texts) + host.LANE + main)
    (out / "data.bin").write_bytes(data)
    subprocess.run(
        ["nvcc", "-std=c++17", f"-arch={arch}", "-o", str(out / "functors"), str(source)], check=True
    )


if __name__ == "__main__":
    build(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "sm_90a")
