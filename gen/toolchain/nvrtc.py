"""How sources are compiled where they are used, by NVRTC: as nvcc compiles them here (ninja.py), in the words
of cuda.core's ProgramOptions. The index hands the table on to the loader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Union

from ..build import state

Options = Mapping[str, Union[str, bool]]

_COMMON: Options = {"std": "c++17", "define_macro": "NDEBUG"}

KINDS: Mapping[str, Options | str] = {
    state.DSL: {**_COMMON, "fma": False},
    # constexpr functions of the templates run on the device
    state.LEAN: {**_COMMON, "device_as_default_execution_space": True},
    state.CUTLASS: "it includes headers of CUTLASS and is launched by a host stub",
}
"""By what a unit's text is made of: options; or, as a text, why NVRTC does not take it."""
