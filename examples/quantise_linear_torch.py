"""A model of torch with its linear layers quantised, compiled as a whole, and compared with the original.

    pip install "wootz[torch]"
    python examples/quantise_linear_torch.py [--format int4_g128] [--device cuda] [--mode reduce-overhead]

A block of two layers, as transformers have it. On a GPU the weights are packed for matrix instructions; on
the CPU they lie as they are. Errors are relative, in the 2-norm: of quantisation, and of the kernels against
torch with the quantised weights as numbers. Exit status 1 if the kernels are further off than rounding to
the activations' type explains.
"""

from __future__ import annotations

import argparse
import copy
import sys
from typing import Any

import torch
import wootz.torch
from torch import nn

TOLERANCE = {torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 2e-2}


def quantised(model: nn.Module, format: str, packed: bool) -> nn.Module:
    """A copy of the model with every nn.Linear in it replaced."""
    made = copy.deepcopy(model)
    for name, child in list(made.named_modules()):
        if isinstance(child, nn.Linear):
            made.set_submodule(name, wootz.torch.QuantLinear.from_linear(child, format, packed=packed))
    return made


def with_numbers(model: nn.Module, small: nn.Module) -> nn.Module:
    """The model with the numbers that the quantised one's weights stand for."""
    made = copy.deepcopy(model)
    for name, child in small.named_modules():
        if isinstance(child, wootz.torch.QuantLinear):
            weight = made.get_submodule(name).weight
            weight.copy_(torch.from_numpy(child.weight.dequantize()))
    return made


def ratio(part: Any, whole: Any) -> float:
    return float(part.double().norm() / whole.double().norm())


def size(model: nn.Module) -> float:
    """MB of parameters and buffers."""
    return sum(each.nbytes for each in (*model.parameters(), *model.buffers())) / 1e6


@torch.inference_mode()
def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--format", default="int4_g128")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--mode", default="default", help="of torch.compile; none: not compiled")
    parser.add_argument("--width", type=int, default=1024)
    options = parser.parse_args()

    torch.manual_seed(0)
    on_gpu, k = options.device != "cpu", options.width
    dtype = torch.bfloat16 if on_gpu else torch.float32
    model = nn.Sequential(nn.Linear(k, 4 * k), nn.GELU(), nn.Linear(4 * k, k)).to(options.device)
    small = quantised(model, options.format, packed=on_gpu)
    exact = with_numbers(model, small)
    run = small if options.mode == "none" else torch.compile(small, fullgraph=True, mode=options.mode)
    print(small)
    print(f"\n{size(model):.1f} MB in f32, {size(small):.1f} MB in {options.format}\n")
    print("rows  quantisation  kernel error")
    right = True
    for rows in (1, 16, 256):
        x = torch.randn(rows, k, device=options.device)
        y, want = run(x.to(dtype)), exact(x.to(dtype).float())
        error = ratio(y - want, want)
        right &= error < TOLERANCE[dtype]
        print(f"{rows:4}  {ratio(want - model(x), model(x)):12.2e}  {error:12.2e}")
    return 0 if right else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except wootz.errors.WootzError as error:
        sys.exit(f"quantise_linear_torch: {error}")
