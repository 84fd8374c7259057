"""Names and versions of wheels of artifacts, by packaging's rules. ValueError says what is wrong with one."""

from __future__ import annotations

import keyword
import re
import sys

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

TAKEN = {"wootz", "numpy", *sys.stdlib_module_names}
"""Packages that another one of the same name would hide, or be hidden by."""
_EXPRESSION = re.compile(r"\(*[\w.+:-]+\)*( (AND|OR|WITH) \(*[\w.+:-]+\)*)*")


def library(text: str) -> str:
    """The distribution of a library that `text` names: as `distribution`, and what to load it by."""
    instead = normal(text)
    if "." in text:
        raise ValueError(
            f"{text!r}: a dot leads to a part of a library, as in wootz.load('acme.cpu'): "
            f"choose {instead}, and load it by that"
        )
    return distribution(text)


def distribution(text: str) -> str:
    """The normal form of a distribution's name that makes a package of its own: "Acme_Kernels" is
    acme-kernels, its package acme_kernels."""
    name = normal(text)
    made = package(name)
    if not made.isidentifier() or keyword.iskeyword(made):
        raise ValueError(
            f"{text!r} would make the package {made}, which is no name in Python: choose another"
        )
    if made in TAKEN:
        raise ValueError(f"{text!r} would make the package {made}, which is taken: choose another")
    return name


def normal(text: str) -> str:
    """The normal form of any distribution's name."""
    try:
        return str(canonicalize_name(text, validate=True))
    except InvalidName as error:
        raise ValueError(
            f"{text!r} is no name of a distribution: want letters, digits, and '-', '_' or '.' inside"
        ) from error


def package(name: str) -> str:
    """The package of a distribution."""
    return name.replace("-", "_")


def version(text: str) -> str:
    """The normal form of a version: "1.0-RC1" is 1.0rc1."""
    try:
        return str(Version(text))
    except InvalidVersion as error:
        raise ValueError(f"{text!r} is no version: want one as 1.0, 2.1rc1 or 1.0.post2 (PEP 440)") from error


def licence(text: str) -> str:
    """An SPDX expression, as it is."""
    if text and not _EXPRESSION.fullmatch(text):
        raise ValueError(f"licence {text!r}: is no SPDX expression, as Apache-2.0 AND BSD-3-Clause is")
    return text
