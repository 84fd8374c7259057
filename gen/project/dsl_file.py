"""A kernel file of a project -> its Family, whose functions run under the guard.

The file is Python, read afresh: `from wootz.gen.api import ...` is this generator whether it is installed or
a checkout, and `from ._other import ...` a file beside it. No bytecode is written or trusted.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from .. import api
from ..formats.axes import Format
from ..manifest.problems import near, show
from ..manifest.target import Target
from ..variants.family import Family, Instance, Variant
from . import guard
from .own import Own, ProjectError
from .signature import wrong_with

PUBLIC = "wootz.gen.api"
"""The name of `api` in files of projects."""
_ASKED = ("fmt", "dtype", "target", "options")
_FUNCTIONS = {"variants": _ASKED, "accepts": _ASKED, "lattice": _ASKED, "types": ("dtype", "options")}
"""The functions of a Family, and what each is called with."""


@cache
def load(own: Own) -> Family:
    """The FAMILY of a project's file. Raises ProjectError: file, line, what is wrong."""
    path = own.path
    module = guard.run("reading the file", path, _execute, path)
    found = getattr(module, "FAMILY", None)
    if found is None:
        hint = near("FAMILY", [n for n in vars(module) if n.isupper()])
        raise ProjectError(f"{path}: has no FAMILY; a kernel file declares FAMILY = Family(...){hint}")
    if not isinstance(found, Family):
        raise ProjectError(f"{path}: FAMILY is {_kind(found)}, wanted a Family of {PUBLIC}")
    for what, names in _FUNCTIONS.items():
        _check_function(path, what, getattr(found, what), names)
    if wrong := wrong_with(found):
        raise ProjectError(f"{path}: FAMILY: {wrong}")
    return _guarded(path, found)


def _execute(path: Path) -> ModuleType:
    package = f"wootz_project_{hashlib.sha256(str(path.parent).encode()).hexdigest()[:12]}"
    module = ModuleType(f"{package}.{path.stem}")
    module.__file__, module.__package__ = str(path), package
    text = path.read_text(encoding="utf-8")
    with _imports(package, path.parent):
        sys.modules[module.__name__] = module
        exec(compile(text, str(path), "exec"), module.__dict__)
        _check_imports(package, path.parent)
    return module


def _check_imports(package: str, folder: Path) -> None:
    """What was imported relatively lies beside the file: an edit of anything else would not be seen."""
    for name in (n for n in sys.modules if n.startswith(f"{package}.")):
        file = getattr(sys.modules[name], "__file__", None)
        if file is None or Path(file).parent != folder:
            short = name.removeprefix(f"{package}.")
            raise ProjectError(
                f"{folder}: a kernel file imports .{short}, which is not beside it: put it there"
            )


@contextmanager
def _imports(package: str, folder: Path) -> Iterator[None]:
    """While a file is read: its folder is a package, and this generator has its public name."""
    for known in [n for n in sys.modules if n == package or n.startswith(f"{package}.")]:
        del sys.modules[known]  # of an earlier reading
    importlib.invalidate_caches()
    around = ModuleType(package)
    around.__path__ = [str(folder)]
    sys.modules[package] = around
    public, bytecode = sys.modules.get(PUBLIC), sys.dont_write_bytecode
    sys.modules[PUBLIC], sys.dont_write_bytecode = api, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = bytecode
        if public is None:
            del sys.modules[PUBLIC]
        else:
            sys.modules[PUBLIC] = public


def _check_function(path: Path, what: str, function: Any, names: tuple[str, ...]) -> None:
    if function is None and what != "variants":
        return
    if not callable(function):
        raise ProjectError(f"{path}: {what} is {_kind(function)}, wanted a function({', '.join(names)})")
    try:
        inspect.signature(function).bind(*names)
    except TypeError as error:
        line = getattr(getattr(function, "__code__", None), "co_firstlineno", 0)
        where = f"{path}:{line}" if line else str(path)
        raise ProjectError(f"{where}: {what}: wanted a function({', '.join(names)}): {error}") from error
    except ValueError:  # some builtins do not tell
        return


def _kind(value: object) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


# What runs under the guard


def _guarded(path: Path, family: Family) -> Family:
    def calls(what: str) -> Callable[..., Any]:
        return partial(guard.run, what, path, getattr(family, what))

    given: dict[str, Any] = {w: calls(w) for w in ("accepts", "lattice") if getattr(family, w)}
    given |= {"types": partial(_types, path, family)} if family.types else {}
    return replace(family, variants=partial(_variants, path, family), **given)


def _types(path: Path, family: Family, dtype: str, options: dict[str, str]) -> dict[str, str]:
    found = guard.run("types", path, family.types or dict, dtype, options)
    if not isinstance(found, dict) or not all(isinstance(t, str) for t in (*found, *found.values())):
        raise ProjectError(f"{path}: types gave {show(found)}, wanted a dict of operand -> dtype")
    return found


def _variants(
    path: Path, family: Family, fmt: Format | None, dtype: str, target: Target, options: dict[str, str]
) -> Iterable[Variant | Instance]:
    made = guard.run("variants", path, _all, family, fmt, dtype, target, options)
    if isinstance(made, str):
        raise ProjectError(f"{path}: variants {made}")
    return [_variant(path, each) for each in made]


def _all(
    family: Family, fmt: Format | None, dtype: str, target: Target, options: dict[str, str]
) -> list[Variant | Instance] | str:
    """Every variant, or what came in place of one."""
    given: Any = family.variants(fmt, dtype, target, options)
    if not isinstance(given, Iterable) or isinstance(given, (str, bytes)):
        return f"gave {_kind(given)}, wanted Variants: yield them, or give a list"
    made = list(given)
    strange = [each for each in made if not isinstance(each, (Variant, Instance))]
    if strange:
        return f"gave {_kind(strange[0])} among its entries, wanted Variants"
    return made or f"gave none for {dtype} on {target.backend}; refuse the cell in accepts"


def _variant(path: Path, variant: Variant | Instance) -> Variant | Instance:
    if isinstance(variant, Instance):
        return variant
    before = _variant(path, variant.before) if variant.before else None
    _check_function(path, "build", variant.build, ("b",))
    build = partial(guard.run, "build", path, variant.build)
    assert before is None or isinstance(before, Variant)
    return replace(variant, build=build, before=before)
