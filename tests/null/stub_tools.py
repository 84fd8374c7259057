"""A kernel that a stub launches: its records, its stub and its binaries, for the stand-in of libcuda."""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import wootz

from tests.null import loader_tools as tools
from tests.null.loader_tools import Record

ROOT = Path(__file__).resolve().parents[2]
BUILD = hashlib.sha256(b"the text of the unit").hexdigest()
PARAMS = 256
"""Bytes of the parameter block: the struct Params of SOURCE."""

SOURCE = r"""
struct alignas(128) Params {
    unsigned char map[128];
    const void *x, *w, *bias, *y;
    int64_t m, n, k;
    double alpha, activation;
    void* workspace;
    uint64_t workspace_bytes;
    int32_t sms, clusters;
};
using Encode = int (*)(void*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*,
                       const uint32_t*, int, int, int, int);
static Encode encode;
#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT void wootz_stub_encode(void* function) { encode = reinterpret_cast<Encode>(function); }
EXPORT const char* wootz_stub_build() { return "BUILD"; }

static int make_map(const wootz_problem* p, void* map) {
    const uint64_t dims[2] = {uint64_t(p->shape[2]), uint64_t(p->shape[0])}, strides[1] = {2 * dims[0]};
    const uint32_t box[2] = {64, 128}, steps[2] = {1, 1};
    return encode(map, 6, 2, const_cast<void*>(p->arrays[0]), dims, strides, box, steps, 0, 3, 3, 0);
}

// m = 13: fails; m = 14: describes nothing; k no multiple of 8: another entry has to do it.
EXPORT int gemm_wide_query(const wootz_problem* p, wootz_launch* launch) {
    Params scratch;
    if (p->shape[2] % 8 != 0) return WOOTZ_STUB_CANNOT;
    if (p->shape[0] == 13) return 77;
    if (make_map(p, scratch.map) != 0) return WOOTZ_STUB_DEVICE;
    const uint32_t clusters = p->max_active_clusters > 0 ? p->max_active_clusters : 3;
    *launch = {sizeof(Params), alignof(Params), uint64_t(p->shape[0]) * 1024, SHARED, {384, 1, 1},
               {CLUSTER, 1, 1}, {CLUSTER * clusters, 1, 1}};
    if (p->shape[0] == 14) launch->params_align = 3;
    return WOOTZ_STUB_OK;
}

// m = 15: fails; m = 16: drops the encoder's answer, as CUTLASS does.
EXPORT int gemm_wide_fill(const wootz_problem* p, void* out, wootz_memset set, void* context) {
    Params* params = static_cast<Params*>(out);
    if (p->shape[0] == 15) return 78;
    if (uintptr_t(out) % alignof(Params) != 0) return WOOTZ_STUB_ALIGNMENT;
    const int encoded = make_map(p, params->map);
    if (encoded != 0 && p->shape[0] != 16) return WOOTZ_STUB_DEVICE;
    if (set(context, p->workspace, 0, 512) != 0) return WOOTZ_STUB_WORKSPACE;
    params->x = p->arrays[0], params->w = p->arrays[1], params->bias = p->arrays[2], params->y = p->arrays[3];
    params->m = p->shape[0], params->n = p->shape[1], params->k = p->shape[2];
    params->alpha = p->scalars[0], params->activation = p->scalars[1];
    params->workspace = p->workspace, params->workspace_bytes = p->workspace_bytes;
    params->sms = p->sm_count, params->clusters = p->max_active_clusters;
    return WOOTZ_STUB_OK;
}
static_assert(sizeof(Params) == PARAMS, "");
"""

RAN = """
#include <stdlib.h>
#include <stdio.h>
__attribute__((constructor)) static void ran() {
    FILE* file = fopen("NAME", "w");
    if (file) fclose(file);
}
"""


def stub(more: str = "", **words: Any) -> bytes:
    """The compiled stub; `words` replace others in its text: BUILD, SHARED, CLUSTER."""
    text = (ROOT / "csrc" / "stub_abi.h").read_text() + SOURCE + more
    for word, value in {"BUILD": BUILD, "SHARED": 100000, "CLUSTER": 2, "PARAMS": PARAMS, **words}.items():
        text = text.replace(word, str(value))
    with tempfile.TemporaryDirectory() as scratch:
        source, target = Path(scratch) / "stub.cpp", Path(scratch) / "stub.so"
        source.write_text(text)
        flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-z,defs"]
        command = [os.environ.get("CXX", "c++"), *flags, str(source), "-o", str(target)]
        subprocess.run(command, check=True)
        return target.read_bytes()


KERNEL: Record = {
    "key": "gemm",
    "operands": [
        {"name": "x", "kind": "array", "shape": ["m", "k"]},
        {"name": "w", "kind": "array", "shape": ["n", "k"]},
        {"name": "bias", "kind": "array", "shape": ["n"], "dtype": "f32", "optional": True},
    ],
    "output": {"name": "y", "shape": ["m", "n"], "dtype": "f32"},
    "limits": {},
    "options": [],
    "alias": False,
    "scalars": [
        {"name": "alpha", "type": "f32", "default": 1.0, "choices": []},
        {"name": "activation", "type": "u32", "default": 0, "choices": ["none", "relu", "silu"]},
    ],
}

ARGS = [
    ["x", "ptr", "in"], ["w", "ptr", "in"], ["bias", "ptr", "in"], ["y", "ptr", "out"],
    ["m", "u32", "shape"], ["n", "u32", "shape"], ["k", "u32", "shape"],
    ["alpha", "f32", "scalar"], ["activation", "u32", "scalar"],
]  # fmt: skip

WIDE: Record = {"symbol": "gemm_wide", "args": ARGS, "stub": "gemm_wide", "when": [["ge", "k", 16]]}
ANY: Record = {
    "symbol": "gemm_any",
    "args": ARGS,
    "block": [64, 1, 1],
    "grid": [["ceildiv", "n", 64], "m", 1],
    "shared": 0,
    "when": [],
}


def cubin(entries: list[Record], params: int = PARAMS) -> bytes:
    """The stand-in's binary, with the sizes of the parameters."""
    widths = {"u32": 4, "f32": 4, "map": 128}
    lines = ["FAKE templates"]
    for entry in (each for one in entries for each in (*one.get("prologue", ()), one)):
        sizes = [params] if entry.get("stub") else [widths.get(kind, 8) for _, kind, _ in entry["args"]]
        lines.append(" ".join([entry["symbol"], *map(str, sizes)]))
    return ("\n".join(lines) + "\n").encode()


def folder(
    entries: list[Record],
    image: bytes | None = None,
    kernel: Record = KERNEL,
    params: int = PARAMS,
    target: str = "gpu90a",
    **more: Any,
) -> tools.Folder:
    """A folder with one cell of `kernel` in f16, for the stand-in; `image`: its stub."""
    made = tools.Folder(Path(tempfile.mkdtemp()) / "a")
    made.kernels = [kernel]
    if image is not None:
        more = {"stub": made.file("stub/gemm/x.so", image), **more}
    more = {"source_sha256": BUILD, "entries": entries, "options": {}, **more}
    made.cell(kernel["key"], "-", "f16", target, [made.file("x.cubin", cubin(entries, params))], **more)
    return made


def kernel(*arguments: Any, **more: Any) -> wootz.Kernel:
    """The callable of `folder`."""
    return wootz.load(folder(*arguments, **more).write()).kernel("gemm", dtype="f16")
