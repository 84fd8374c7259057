"""The kernels as custom ops of torch, and a Linear whose weights are quantised. `import wootz` never imports
this.

    import wootz.torch
    y = wootz.torch.linear(x, q)                    # x: [..., K], q: a QuantizedTensor or PackedTensor
    layer = wootz.torch.QuantLinear.from_linear(linear, "int4_g128")

Every kernel of the default library is an op of the namespace `wootz`, so torch.compile (fullgraph too),
torch.export and make_fx see one node, and here a function of the same name: wootz.torch.gemm(a, b, bias=b0),
wootz.torch.dequant(q, dtype=torch.float16). The ops are defined when this module is imported; where there is
no default library yet, when one is first asked for. `register` does the same for any other library, by
name for an installed package's. There is no backward: an operand that requires grad is refused.
"""

from __future__ import annotations

import contextlib
from typing import Any

from ..errors import ArtifactError
from .ops import NAMESPACE, Ops, default_ops, register, registered
from .quant_linear import QuantLinear

__all__ = ["Ops", "QuantLinear", "register"]


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(default_ops(), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(registered(NAMESPACE))})


with contextlib.suppress(ArtifactError):  # raised again when an op is first asked for
    default_ops()
