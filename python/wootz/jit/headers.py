"""The headers that an emitted source includes: those of the C library, which NVRTC lacks and of which the
sources use a few names, and those of the CUDA toolkit, which are looked for.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

__all__ = ["digest", "expand", "folders", "missing"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.M)

_WIDTHS = ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
_INTEGERS = " ".join(
    f"typedef {sign} {kind} {prefix}int{bits}_t;"
    for bits, kind in _WIDTHS
    for sign, prefix in (("signed", ""), ("unsigned", "u"))
)
_TRAITS = (
    "namespace std { "
    "template <bool, class A, class> struct conditional { using type = A; }; "
    "template <class A, class B> struct conditional<false, A, B> { using type = B; }; "
    "template <bool C, class A, class B> using conditional_t = typename conditional<C, A, B>::type; }"
)
_STANDARD = {
    "cstdint": _INTEGERS,
    "stdint.h": _INTEGERS,
    "limits.h": "#define INT_MAX 2147483647",
    "math.h": "",  # NVRTC has their functions built in
    "string.h": "",
    "type_traits": _TRAITS,
}
"""By header: the line that takes the place of its #include, so that line numbers stay."""


def expand(text: str) -> str:
    """The source with the C library's headers written into it."""
    return _INCLUDE.sub(lambda found: _STANDARD.get(found[1], found[0]), text)


def folders(major: int) -> tuple[str, ...]:
    """Where headers of the CUDA toolkit of this major version lie, the best place first: those that exist, of
    the wheels, of CUDA_HOME and CUDA_PATH, of conda, of the usual folder.
    """
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    conda = [Path(os.environ["CONDA_PREFIX"])] if os.environ.get("CONDA_PREFIX") else []
    roots = [
        *(wheel / part for wheel in _wheels() for part in (f"cu{major}", "cuda_runtime", "cuda_cccl")),
        *homes,
        *(target for prefix in conda for target in sorted(prefix.glob("targets/*"))),
        Path("/usr/local/cuda"),
    ]
    found = [each for root in roots for each in (root / "include", root / "include" / "cccl")]
    return tuple(dict.fromkeys(str(folder) for folder in found if folder.is_dir()))


def _wheels() -> list[Path]:
    """Where NVIDIA's wheels put their files."""
    try:
        spec = importlib.util.find_spec("nvidia")
    except (ImportError, ValueError):
        return []
    return [Path(each) for each in (spec.submodule_search_locations if spec else None) or ()]


def missing(text: str, where: Iterable[str]) -> list[str]:
    """The headers that an expanded source includes and no folder has."""
    return [name for name in _INCLUDE.findall(text) if _find(name, tuple(where)) is None]


def digest(text: str, where: tuple[str, ...]) -> str:
    """Of every header that an expanded source includes, and that those include, as far as it is in the
    folders; and of what stands in for the C library's.
    """
    return _digest(tuple(_INCLUDE.findall(text)), where)


@functools.lru_cache(maxsize=64)
def _digest(names: tuple[str, ...], where: tuple[str, ...]) -> str:
    whole = hashlib.sha256(repr(sorted(_STANDARD.items())).encode())
    for name, data in _closure(names, where):
        whole.update(f"{name}\0{len(data)}\0".encode() + data)
    return whole.hexdigest()


def _closure(names: Iterable[str], where: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    pending, seen = list(reversed(list(names))), set[str]()
    while pending:
        name = pending.pop()
        path = None if name in seen else _find(name, where)
        seen.add(name)
        if path is not None:
            data = path.read_bytes()
            yield name, data
            pending += reversed(_INCLUDE.findall(data.decode("utf-8", "replace")))


def _find(name: str, where: tuple[str, ...]) -> Path | None:
    return next((path for folder in where if (path := Path(folder) / name).is_file()), None)
