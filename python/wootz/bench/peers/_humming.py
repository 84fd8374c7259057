"""Humming (humming-kernels), which compiles a kernel for each layer when it first runs."""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from typing import Any

from ._peer import OWN_CODES, Given, Made, Peer

WEIGHTS: dict[str, dict[str, Any]] = {
    **{f"int{bits}": {"dtype": f"int{bits}", "group_size": 64} for bits in (2, 3, 4, 5, 6, 8)},
    "int4_g128": {"dtype": "int4", "group_size": 128},
    "mxfp4": {"dtype": "float4e2m1", "group_size": 32, "scale_dtype": "float8e8m0"},
    "mxfp8_e4m3": {"dtype": "float8e4m3", "group_size": 32, "scale_dtype": "float8e8m0"},
    "nvfp4": {"dtype": "float4e2m1", "group_size": 16, "scale_dtype": "float8e4m3"},
    "fp8_e4m3": {"dtype": "float8e4m3", "group_size": 32},
}
"""By our format: the weights that Humming has nearest to it; it quantises the same numbers itself."""
COMPUTES = "the same numbers, quantised by Humming"


def _layers(given: Given) -> list[Any]:
    """One for each set of operands, the same weights in different places."""
    torch, problem = given.torch, given.problem
    *bank, n, k = problem.shapes.get("w", problem.values["w"].shape)
    config = dict(WEIGHTS[str(problem.cell["format"])])
    kind = {"f16": torch.float16, "bf16": torch.bfloat16}[problem.dtype]
    layer = (
        importlib.import_module("humming.layer")
        .HummingLayer(
            shape_n=n,
            shape_k=k,
            weight_config=config,
            torch_dtype=kind,
            num_experts=bank[0] if bank else None,
        )
        .cuda()
    )
    layer.load_from_unquantized(given.dense("w", problem.dtype, 0))
    layer.transform()
    return [layer, *(copy.deepcopy(layer) for _ in range(min(len(given.placed.operands), 16) - 1))]


def _dense(given: Given) -> Made:
    layers, out = _layers(given), given.blank()
    launches = given.each(lambda o, i: lambda: layers[i % len(layers)](o["x"], outputs=out))

    def off() -> float:
        launches[0]()
        return given.distance(out)

    return Made(launches, off)


def _grouped(given: Given) -> Made:
    """Groups one after the other, as ours are given."""
    torch, layers, out = given.torch, _layers(given), given.blank()
    o = given.placed.operands[0]
    ends = torch.cat([o["offsets"], (o["offsets"] + o["counts"])[-1:]]).long()
    config = {"gemm_type": "grouped_contiguous"}
    launches = given.each(
        lambda o, i: (
            lambda: layers[i % len(layers)](o["x"], outputs=out, expert_layout=ends, compute_config=config)
        )
    )

    def off() -> float:
        launches[0]()
        return given.distance(out)

    return Made(launches, off)


_FLOATS, _FORMATS = ("f16", "bf16"), tuple(WEIGHTS)


def _peer(kernels: tuple[str, ...], make: Callable[[Given], Made]) -> Peer:
    return Peer("humming", "humming", "cuda", kernels, COMPUTES, make, OWN_CODES, _FLOATS, _FORMATS)


PEERS = (_peer(("qgemv", "qmm", "qmm_packed"), _dense), _peer(("grouped_qmm",), _grouped))
