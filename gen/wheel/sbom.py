"""A software bill of materials of a wheel with artifacts: CycloneDX 1.6, as JSON.

The binaries are in groups, one a kernel and target: a component for each file would add 150 KB to a wheel of
3,000 files, and repeat what index.json and RECORD say of each. What other people wrote and compilers put into
the binaries are components of their own, on which those depend that hold it.
"""

from __future__ import annotations

import datetime
import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cyclonedx.model import HashAlgorithm, HashType, Property, XsUri
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from ..build import state
from . import naming
from .shipped import File, Shipped, ShippedError, files, of

PATH = "sboms/{name}.cdx.json"
"""Where it lies in a wheel's .dist-info folder: PEP 770."""

GROUP_HASH = (
    "The SHA-256 of a kernel's component is that of the lines that sha256sum prints for its files in the "
    "order of their names; each file's own is in index.json and in RECORD."
)
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "https://cyclonedx.org/schema/bom-1.6.schema.json#wootz")


@dataclass(frozen=True)
class Part:
    """Something by others. version: its key among the versions. licence: an SPDX identifier, or a name."""

    name: str
    version: str
    licence: str
    url: str
    package: tuple[str, str, str] | None
    note: str


CUTLASS = Part(
    "CUTLASS",
    "cutlass",
    "BSD-3-Clause",
    "https://github.com/NVIDIA/cutlass",
    ("github", "NVIDIA", "cutlass"),
    "Header templates that are instantiated in cubins and in host stubs.",
)
CUDA = Part(
    "CUDA Toolkit headers and libdevice",
    "nvcc",
    "NVIDIA CUDA Toolkit End User License Agreement",
    "https://docs.nvidia.com/cuda/eula/",
    None,
    "Inline device code of the toolkit's headers and of libdevice, which nvcc compiles into cubins, and "
    "declarations that host stubs include. No library of the toolkit is here or linked. Terms: the "
    "agreement, and its Attachment A on redistributable software.",
)
LINKED = {
    "pybind11": Part(
        "pybind11",
        "pybind11",
        "BSD-3-Clause",
        "https://github.com/pybind/pybind11",
        ("pypi", "", "pybind11"),
        "Header templates that are compiled into the extension module.",
    )
}
"""What extension modules beside the artifacts may hold, by name."""

COMPILERS = ("c++", "metal", "nvcc")


@dataclass(frozen=True)
class Group:
    """The binaries of one kernel for one target, by path, and the parts by others that are in them."""

    name: str
    files: Sequence[File]
    parts: Sequence[Part]

    @property
    def sha256(self) -> str:
        """As GROUP_HASH says."""
        return hashlib.sha256("".join(f"{f.sha256}  {f.path}\n" for f in self.files).encode()).hexdigest()


def groups(shipped: Shipped) -> list[Group]:
    """The binaries of an index, by kernel and target; cells that were emitted only have none."""
    backends = {key: target.get("backend") for key, target in shipped.sections["targets"].items()}
    found: dict[str, dict[str, File]] = {}
    parts: dict[str, dict[str, Part]] = {}
    for cell in shipped.cells.values():
        name = f"{cell['kernel']}/{cell['target']}"
        found.setdefault(name, {}).update((file.path, file) for file in files(cell))
        inside = [CUDA] if backends.get(cell["target"]) == "cuda" else []
        inside += [CUTLASS] if cell.get("source_kind") == state.CUTLASS else []
        parts.setdefault(name, {}).update((part.name, part) for part in inside)
    return [
        Group(name, [members[path] for path in sorted(members)], list(parts[name].values()))
        for name, members in sorted(found.items())
        if members
    ]


def document(
    index: Mapping[str, Any],
    name: str,
    version: str,
    licence: str = "",
    linked: Mapping[str, str] | None = None,
    time: datetime.datetime | None = None,
) -> bytes:
    """The document of a wheel `name` of `version`, which carries the artifacts of an index, as it was read
    from JSON. The same input gives the same bytes.

    licence: the wheel's, an SPDX expression; "" leaves it out. linked: name -> version of what else is
    compiled in, of LINKED. time: the time stamp; without one there is none.
    ArtifactsError: an index that is none. ShippedError: what is no name, version or licence, an
    unknown name in `linked`.
    """
    try:
        name, version = naming.normal(name), naming.version(version)
        naming.licence(licence)
    except ValueError as error:
        raise ShippedError(str(error)) from error
    for unknown in sorted(set(linked or {}) - set(LINKED)):
        raise ShippedError(f"{unknown}: not known to be linked; known: {', '.join(sorted(LINKED))}")
    shipped, root = of(index, "the index"), _root(name, version, licence)
    versions = {**shipped.header["compilers"], **(linked or {})}
    bom = Bom(metadata=BomMetaData(component=root))
    bom.metadata.timestamp = time  # type: ignore[assignment]  # None is left out
    made = _components(groups(shipped), versions, shipped, name, linked or {})
    for component, needs in made:
        bom.components.add(component)
        bom.register_dependency(component, needs)
    shipped_too = [c for c, _ in made if c.scope is not ComponentScope.EXCLUDED]
    bom.register_dependency(root, shipped_too)
    bom.serial_number = uuid.uuid5(_NAMESPACE, _identity(name, version, bom))
    return (JsonV1Dot6(bom).output_as_string(indent=1) + "\n").encode()


def _root(name: str, version: str, licence: str) -> Component:
    return Component(
        name=name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{name}@{version}",
        purl=PackageURL("pypi", None, name, version),
        licenses=[LicenseExpression(licence)] if licence else [],
        properties=[Property(name="wootz:group-hash", value=GROUP_HASH)],
    )


def _identity(name: str, version: str, bom: Bom) -> str:
    """What makes two documents the same one: the wheel, and the components with their hashes."""
    parts = (
        f"{c.name} {c.version} {' '.join(hash.content for hash in c.hashes)}" for c in sorted(bom.components)
    )
    return "\n".join((f"{name} {version}", *parts))


Made = list[tuple[Component, list[Component]]]
"""Components, each with those that it depends on."""


def _components(
    found: Sequence[Group],
    versions: Mapping[str, str],
    shipped: Shipped,
    name: str,
    linked: Mapping[str, str],
) -> Made:
    used = {part.name: part for group in found for part in group.parts}
    parts = {key: _part(part, versions.get(part.version, "")) for key, part in used.items()}
    generator = str(shipped.header["generator"])
    ours = [] if name == "wootz" else [_wootz(generator)]
    made: Made = [(component, []) for component in (*ours, *parts.values())]
    made += [(_part(LINKED[key], version), []) for key, version in linked.items()]
    made += [(_compiler(key, versions[key]), []) for key in COMPILERS if key in versions]
    made += [
        (_group(group, generator), [*ours, *(parts[part.name] for part in group.parts)]) for group in found
    ]
    return made


def _part(part: Part, version: str) -> Component:
    spdx = part.licence if " " not in part.licence else None
    licence = DisjunctiveLicense(
        id=spdx, name=None if spdx else part.licence, url=None if spdx else XsUri(part.url)
    )
    purl = None
    if part.package:
        kind, owner, package = part.package
        tag = f"v{version}" if kind == "github" else version  # of a repository: its tag
        purl = PackageURL(kind, owner or None, package, tag)
    return Component(
        name=part.name,
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"{part.name}@{version}",
        description=part.note,
        licenses=[licence],
        purl=purl,
    )


def _wootz(version: str) -> Component:
    """The generator and its templates, whose text is in everything that was made with it."""
    return Component(
        name="wootz",
        version=version,
        type=ComponentType.LIBRARY,
        bom_ref=f"wootz@{version}",
        licenses=[DisjunctiveLicense(id="Apache-2.0")],
        purl=PackageURL("pypi", None, "wootz", version),
    )


def _compiler(key: str, version: str) -> Component:
    return Component(
        name=key,
        version=version,
        type=ComponentType.APPLICATION,
        bom_ref=f"compiler {key}",
        scope=ComponentScope.EXCLUDED,
        description="A compiler of the binaries; not in the wheel.",
    )


def _group(group: Group, version: str) -> Component:
    numbers: Iterable[tuple[str, Any]] = (
        ("wootz:files", len(group.files)),
        ("wootz:bytes", sum(file.size for file in group.files)),
    )
    return Component(
        name=group.name,
        version=version,
        type=ComponentType.FILE,
        bom_ref=group.name,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=group.sha256)],
        properties=[Property(name=key, value=str(value)) for key, value in numbers],
    )
