"""A folder of artifacts, opened: what it ships, and its kernels."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .arrays import parse_device
from .errors import ArgumentError, ArtifactError, NoKernelError, near
from .formats import Descriptor
from .jit import sources
from .joined import Part, join
from .kernel import Kernel, Request
from .log import event
from .plan import Plan, make_plan
from .profiling import traced
from .signature import Signature

if TYPE_CHECKING:
    from .jit import Jit

__all__ = ["Library", "default_folder", "default_library", "load"]

ENVIRONMENT = "WOOTZ_ARTIFACTS"


class Library:
    """The kernels of an artifact folder, or of several: the parts of an installed library. Opening reads the
    index; binaries are read when a kernel first runs.

    parts: the folders, links resolved, and what ships each. path: the first one's folder. where: what
    messages call it. index: the records of all parts. jit: what compiles for devices that no binary fits, or
    None. Raises ArtifactError when an index is missing or damaged, or parts do not go together.
    """

    def __init__(self, path: str | os.PathLike[str] | Sequence[Part], *, jit: bool | Jit = False) -> None:
        self.jit = _on_demand(jit)
        given = [Part("", Path(path))] if isinstance(path, (str, os.PathLike)) else path
        self.parts = tuple(Part(each.owner, each.folder.resolve()) for each in given)
        self.path = self.parts[0].folder
        self.where = ", ".join(each.owner for each in self.parts) if self.parts[1:] else str(self.path)
        self.index, self._homes = join(self.parts)
        self._formats: dict[str, Descriptor] = {}
        cells = self.index.count("cells")
        event("library_opened", f"{self.where}: {cells} cells", path=str(self.path), cells=cells)

    def __repr__(self) -> str:
        return f"<wootz library {self.where}: {self.index.count('cells')} cells>"

    @functools.cached_property
    def targets(self) -> tuple[dict[str, Any], ...]:
        """The target rows."""
        return tuple(self.index.records("targets"))

    def folder(self, cell: Mapping[str, Any]) -> Path:
        """Where the files of a cell lie."""
        return self._homes.get(cell["key"], self.path)

    def cells(self) -> list[dict[str, Any]]:
        """One dict a cell: key, kernel, format, dtype, target, options, files, entries, evidence (see the
        index).
        """
        return list(self.index.records("cells"))

    def formats(self) -> list[str]:
        """Names of the formats."""
        return list(self.index.keys("formats"))

    def kernels(self) -> list[str]:
        """Names of the kernels."""
        return list(self.index.keys("kernels"))

    def format(self, name: str) -> Descriptor:
        """The descriptor of a format. Raises NoKernelError with the nearest name."""
        known = self._formats.get(name)
        if known is None:
            record = self.index.find("formats", name)
            if record is None:
                hint = f"{near(name, self.formats())}; its formats() lists them"
                raise NoKernelError(f"no format {name!r} in {self.where}{hint}")
            record.pop("key")
            known = self._formats[name] = Descriptor.parse(record)
        return known

    def kernel(
        self,
        name: str,
        format: str | Descriptor | None = None,
        dtype: str = "f32",
        device: str | None = None,
        **options: str,
    ) -> Kernel:
        """A kernel as a callable; see Kernel.

        name: as "qgemv". format: of its quantised operand, if it has one: a name, or a tensor's. dtype:
        f16, bf16, f32, i8, e4m3 or e5m2, of its arrays. device: "cpu", "cuda", "cuda:N", "metal"; None:
        wherever the arrays of each call are. options: as op="add", and knobs, as math="fast"
        (their defaults go without saying). Raises NoKernelError when nothing of that description is shipped,
        ArgumentError for options that do not fit."""
        made = self._kernel(name, format, dtype, device, options)
        return traced(made, made.name)

    def _kernel(
        self,
        name: str,
        format: str | Descriptor | None,
        dtype: str,
        device: str | None,
        options: Mapping[str, str],
    ) -> Kernel:
        format = format.name if isinstance(format, Descriptor) else format
        for what, given in (("name", name), ("format", format or ""), ("dtype", dtype)):
            if not isinstance(given, str) or not given.isprintable():
                raise ArgumentError(f"{what} is {given!r}; want a name, a text")
        record = self.index.find("kernels", name)
        if record is None:
            hint = f"{near(name, self.kernels())}; its kernels() lists them"
            raise NoKernelError(f"no kernel {name!r} in {self.where}{hint}")
        signature = Signature.parse(record)
        where = parse_device(device) if device is not None else (None, None)
        request = Request(
            name, self._format_of(signature, format), dtype, self._options(signature, options), where
        )
        return Kernel(self, signature, request, self._check_shipped(signature, request))

    def plan(
        self,
        name: str,
        *,
        device: str,
        format: str | Descriptor | None = None,
        dtype: str = "f32",
        **settled: Any,
    ) -> Plan:
        """A kernel whose extents are settled; see Plan.

        name, format, dtype: as for `kernel`. device: "cpu", "cuda" (the first one), "cuda:N" or "metal".
        settled: the kernel's options, as op="add"; extents, as m=1, n=4096, k=4096, all that its operands
        have (of operands of any rank n=, the elements of one); scalars, as alpha=2.0; an optional operand's
        name with True where calls will give it; the format of a tensor that has one of its own. Loads the
        binaries and allocates the workspace. Raises what `kernel` and Kernel's calls do."""
        kind, number = parse_device(device)
        where = f"cuda:{number or 0}" if kind == "cuda" else kind
        record = self.index.find("kernels", name) if isinstance(name, str) else None
        wanted = {*(record.get("options") or ()), *(record.get("knobs") or ())} if record else set()
        options = {each: value for each, value in settled.items() if each in wanted}
        kernel = self._kernel(name, format, dtype, where, options)
        plan = make_plan(kernel, {each: value for each, value in settled.items() if each not in wanted})
        return traced(plan, plan.name)

    def shipped(self, stem: str) -> str:
        """The targets that have a binary of kernel/format/dtype, for messages."""
        cells = self.index.records("cells", f"{stem}/")
        return ", ".join(cell["target"] for cell in cells if cell["files"]) or "no target"

    def _format_of(self, signature: Signature, format: str | None) -> Descriptor | None:
        if signature.quantised and format is None:
            raise ArgumentError(f"{signature} takes a quantised operand: name its format=")
        if not signature.quantised and format is not None:
            raise ArgumentError(f"{signature} takes no quantised operand: leave format= out")
        return None if format is None else self.format(format)

    def _options(self, signature: Signature, options: Mapping[str, str]) -> dict[str, str]:
        wanted, knobs = signature.options, signature.knobs
        for given in options:
            if given not in wanted and given not in knobs:
                names = (*wanted, *knobs)
                raise ArgumentError(
                    f"{signature.name} has no option {given!r}{near(given, names)}; "
                    f"its options: {', '.join(names) or 'none'}"
                )
        for missing in (each for each in wanted if each not in options):
            choices = self._choices(signature.name, missing)
            raise ArgumentError(f"{signature.name} needs the option {missing}=, one of {', '.join(choices)}")
        tuned = {
            each: str(options[each]) for each in knobs if str(options.get(each, "")) not in ("", knobs[each])
        }
        return {each: str(options[each]) for each in wanted} | tuned

    def _choices(self, kernel: str, option: str) -> list[str]:
        cells = self.index.records("cells", f"{kernel}.")
        return sorted({cell["options"][option] for cell in cells if option in cell["options"]})

    def _check_shipped(self, signature: Signature, request: Request) -> Mapping[str, str]:
        """The dtypes that differ from the cell's, by operand: the same for all targets."""
        kind, backends = request.device[0], {row["key"]: row["backend"] for row in self.targets}
        found = list(self.index.records("cells", f"{request.stem}/"))
        fitting = [cell for cell in found if kind in (None, backends.get(cell["target"]))]
        for cell in fitting:
            if cell["files"] or (self.jit and sources.compilable(self, cell)):
                return _types(cell)
        if found:
            device = "any device" if kind is None else kind
            raise NoKernelError(
                f"{request.stem} has no binary for {device}; it is shipped for: {self.shipped(request.stem)}"
                f"{sources.advice(self, fitting)}"
            )
        for option, value in request.options.items():
            choices = self._choices(request.kernel, option)
            if option in signature.knobs:
                choices = [signature.knobs[option], *choices]
            if value not in choices:
                raise NoKernelError(
                    f"{request.kernel} has no {option}={value!r}{near(value, choices)}; "
                    f"known: {', '.join(choices)}"
                )
        raise NoKernelError(
            f"{request.stem} is not in {self.where}; of this kernel and format it has: "
            f"{self._dtypes(request)}"
        )

    def _dtypes(self, request: Request) -> str:
        prefix = request.stem.rpartition("/")[0]
        return (
            ", ".join(sorted({cell["dtype"] for cell in self.index.records("cells", f"{prefix}/")}))
            or "nothing"
        )


def _types(cell: Mapping[str, Any]) -> dict[str, str]:
    types = cell.get("types") or {}
    if not isinstance(types, dict):
        raise ArtifactError(f"{cell['key']}: the index has {types!r} where types are wanted: build it again")
    return types


def default_folder() -> Path:
    """WOOTZ_ARTIFACTS if set, else the folder `artifacts` inside the package, wherever that is installed."""
    named = os.environ.get(ENVIRONMENT)
    if named:
        return Path(named)
    # An editable install spreads the package over several folders.
    folders = [Path(each) / "artifacts" for each in sys.modules[__package__].__path__]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _on_demand(jit: bool | Jit) -> Jit | None:
    """What compiles for a library. Imports that only where it is wanted. Raises ArgumentError."""
    if jit is False:
        return None
    from .jit import Jit, shared

    if not isinstance(jit, (bool, Jit)):
        raise ArgumentError(f"jit is {jit!r}; want True, False or a wootz.jit.Jit")
    return shared() if jit is True else jit


def load(path: str | os.PathLike[str] | None = None, *, jit: bool | Jit = False) -> Library:
    """Opens an artifact folder, `path`, or an installed package's by its name; with none, that of
    WOOTZ_ARTIFACTS, or the one that wootz ships.

    A text without "/" is a name where a package has it (see wootz.packages), and else a folder: "./name" is
    always one. jit: for a CUDA device that no binary fits, compile the source that the folder carries
    (wootz.jit; needs the extra `wootz[jit]`): True, or a Jit of one's own. Raises ArgumentError,
    ArtifactError.
    """
    if path is not None and not isinstance(path, (str, os.PathLike)):
        raise ArgumentError(f"path is a {type(path).__name__}; want a folder, or the name of a package")
    if isinstance(path, str) and path and not {os.sep, os.altsep} & {*path} and path not in (".", ".."):
        return Library(_named(path), jit=jit)
    return Library(default_folder() if path is None else path, jit=jit)


def _named(name: str) -> str | Sequence[Part]:
    """The parts of the installed library `name`; without one, the folder of that name. Raises
    ArtifactError: there is neither.
    """
    from . import packages

    found = packages.find(name)
    if not found and not Path(name).exists():
        raise ArtifactError(packages.unknown(name))
    return found or name


def default_library() -> Library:
    """The library of load() with no path, opened once for each folder."""
    return _opened(str(default_folder().resolve()))


@functools.lru_cache(maxsize=4)
def _opened(folder: str) -> Library:
    return Library(folder)
