"""YAML text -> nodes that know their line. Safe by construction: events only, no tag constructs an object.

The tree is built without recursion, and bounded: nesting, the expansion by aliases, the length of numbers.
Every failure is a `Problem`; syntax errors end the reading, the others are collected.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from .problems import Path, Problem, near, path_text, show

MAX_DEPTH = 64
MAX_EXPANDED = 4_000_000
MAX_NUMBER = 64
MAX_BYTES = 64 << 20

_TAG = "tag:yaml.org,2002:"
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(slots=True)
class Node:
    """A YAML value and its line. `data`: {name: (line of the key, Node)}, a list of Nodes, or a scalar."""

    line: int
    data: Any
    size: int = 1  # nodes after alias expansion
    height: int = 1
    open: bool = False
    _plain: Any = None

    def plain(self) -> Any:
        """The value as Python data; shared where the document shares it. Do not change it."""
        if self._plain is None:
            if isinstance(self.data, dict):
                self._plain = {key: node.plain() for key, (_, node) in self.data.items()}
            elif isinstance(self.data, list):
                self._plain = [node.plain() for node in self.data]
            else:
                return self.data
        return self._plain

    def items(self) -> Iterator[tuple[str, int, Node]]:
        """(name, line of the name, value) of a mapping."""
        for key, (line, node) in self.data.items():
            yield key, line, node

    def line_at(self, path: Path) -> int:
        """The line of the part that `path` leads to, or of the last part on the way that exists."""
        node, line = self, self.line
        for step in path:
            if isinstance(node.data, dict) and step in node.data:
                line, node = node.data[step]
            elif isinstance(node.data, list) and isinstance(step, int) and step < len(node.data):
                node = node.data[step]
                line = node.line
            else:
                break
        return line


class _FatalError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line, self.message = line, message


def read(path: FilePath, problems: list[Problem]) -> Node | None:
    """The root node of the YAML file at `path`; None, and a problem, where there is none to be had."""
    file = str(path)
    try:
        return parse(_text(path), file, problems)
    except _FatalError as e:
        problems.append(Problem(file, e.line, "", e.message))
    return None


def _text(path: FilePath) -> str:
    try:
        if path.is_dir():
            raise _FatalError(1, "is a directory, wanted a YAML file")
        if path.exists() and not path.is_file():
            raise _FatalError(1, "is not a regular file, wanted a YAML file")
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise _FatalError(1, f"has {size} bytes; a manifest has at most {MAX_BYTES}")
        raw = path.read_bytes()
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) and e.strerror else str(e)
        raise _FatalError(1, f"cannot be read: {reason}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        line = raw.count(b"\n", 0, e.start) + 1
        raise _FatalError(
            line, f"is not UTF-8: byte 0x{raw[e.start]:02x} at offset {e.start}; save it as UTF-8"
        ) from None


def parse(text: str, file: str, problems: list[Problem]) -> Node | None:
    """As `read`, from text."""
    try:
        root = _Builder(file, problems).build(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as e:
        mark = e.problem_mark or e.context_mark
        raise _FatalError(mark.line + 1 if mark else 1, _syntax(e, text.splitlines(), mark)) from None
    except yaml.reader.ReaderError as e:
        line = text.encode().count(b"\n", 0, e.position) + 1
        raise _FatalError(line, f"holds a character that YAML does not allow: {e.reason}") from None
    except yaml.YAMLError as e:
        raise _FatalError(1, f"is not YAML: {e}") from None
    if root is None:
        raise _FatalError(1, "is empty, wanted a mapping that begins with version: 1")
    return root


def _syntax(e: yaml.MarkedYAMLError, lines: list[str], mark: Any) -> str:
    line = lines[mark.line] if mark and mark.line < len(lines) else ""
    if "\t" in line[: (mark.column if mark else 0) + 1]:
        return "a tab in the indentation; YAML indents with spaces"
    return f"not YAML: {e.problem or 'cannot be parsed'}" + (f" ({e.context})" if e.context else "")


@dataclass(slots=True)
class _Frame:
    node: Node
    key: tuple[str, int] | None = None
    merges: list[tuple[int, Node]] | None = None


class _Builder:
    """Events -> one Node tree. Duplicate keys and odd scalars are collected; the rest is fatal."""

    def __init__(self, file: str, problems: list[Problem]) -> None:
        self.file, self.problems = file, problems
        self.stack: list[_Frame] = []
        self.anchors: dict[str, Node] = {}
        self.root: Node | None = None

    def problem(self, line: int, message: str) -> None:
        path = tuple(f.key[0] for f in self.stack if f.key)
        self.problems.append(Problem(self.file, line, path_text(path), message))

    def build(self, events: Iterable[Any]) -> Node | None:
        for event in events:
            line = event.start_mark.line + 1 if event.start_mark else 1
            if isinstance(event, yaml.ScalarEvent):
                node = Node(line, self.scalar(event, line))
                if event.anchor:
                    self.anchors[event.anchor] = node
                self.add(node, event)
            elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
                self.start(event, line)
            elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
                self.end()
            elif isinstance(event, yaml.AliasEvent):
                self.alias(str(event.anchor), line, event)
            elif isinstance(event, yaml.DocumentStartEvent) and self.root is not None:
                raise _FatalError(line, "a second document begins; a manifest is one")
        return self.root

    def start(self, event: Any, line: int) -> None:
        mapping = isinstance(event, yaml.MappingStartEvent)
        frame = self.stack[-1] if self.stack else None
        if frame and isinstance(frame.node.data, dict) and frame.key is None:
            raise _FatalError(line, f"a {'mapping' if mapping else 'list'} as a key; keys are plain words")
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            self.problem(line, f"tag {_tag(event.tag)} is not allowed; a manifest is plain data")
        if len(self.stack) >= MAX_DEPTH:
            raise _FatalError(line, f"nested more than {MAX_DEPTH} deep")
        node = Node(line, {} if mapping else [], open=True)
        if event.anchor:
            self.anchors[event.anchor] = node
        self.stack.append(_Frame(node))

    def end(self) -> None:
        frame = self.stack.pop()
        node = frame.node
        node.open = False
        for _, source in frame.merges or ():
            for key, line, value in source.items():
                node.data.setdefault(key, (line, value))
        children = [n for _, n in node.data.values()] if isinstance(node.data, dict) else node.data
        node.size += sum(c.size for c in children)
        node.height += max((c.height for c in children), default=0)
        if node.size > MAX_EXPANDED:
            raise _FatalError(
                node.line, f"aliases make this more than {MAX_EXPANDED} values (an alias bomb?)"
            )
        if node.height + len(self.stack) > MAX_DEPTH:
            raise _FatalError(node.line, f"aliases nest this more than {MAX_DEPTH} deep")
        self.add(node, None)

    def alias(self, anchor: str, line: int, event: Any) -> None:
        node = self.anchors.get(anchor)
        if node is None:
            raise _FatalError(line, f"alias *{anchor} has no anchor before it{near(anchor, self.anchors)}")
        if node.open:
            raise _FatalError(
                line, f"alias *{anchor} lies inside the value it names (line {node.line}): a circle"
            )
        self.add(node, event)

    def add(self, node: Node, event: Any) -> None:
        """Put a finished node where it belongs: as a key, a value, an entry, or the root."""
        if not self.stack:
            self.root = node
            return
        frame = self.stack[-1]
        if isinstance(frame.node.data, list):
            frame.node.data.append(node)
        elif frame.key is None:
            self.key(frame, node, event)
        else:
            (name, line), frame.key = frame.key, None
            if name == "<<" and frame.merges is not None and frame.merges[-1][1] is _PENDING:
                frame.merges[-1:] = [(line, n) for n in self.merged(node)]
            elif name in frame.node.data:
                first = frame.node.data[name][0]
                self.problem(line, f"the key {show(name)} is already on line {first}")
            else:
                frame.node.data[name] = (line, node)

    def key(self, frame: _Frame, node: Node, event: Any) -> None:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.ScalarEvent) and event.implicit[0] and event.value == "<<":
            frame.merges = [*(frame.merges or []), (line, _PENDING)]
            frame.key = ("<<", line)
        elif isinstance(node.data, str):
            frame.key = (node.data, line)
        else:
            text = event.value if isinstance(event, yaml.ScalarEvent) else show(node.data)
            frame.key = (text, line)
            self.problem(line, f"the key {show(text)} is not a word to YAML; put it in quotes")

    def merged(self, node: Node) -> list[Node]:
        """The mappings that a merge key (<<) brings in."""
        nodes = node.data if isinstance(node.data, list) else [node]
        good = [n for n in nodes if isinstance(n.data, dict)]
        if len(good) != len(nodes):
            self.problem(node.line, "<< takes a mapping, or a list of mappings")
        return good

    def scalar(self, event: Any, line: int) -> Any:
        if event.tag in (None, "!"):
            tag = _implicit(event.value) if event.implicit[0] and event.tag is None else "str"
        else:
            tag = event.tag[len(_TAG) :] if event.tag.startswith(_TAG) else "?"
            if tag not in _CONSTRUCT:
                self.problem(line, f"tag {_tag(event.tag)} is not allowed; a manifest is plain data")
                return event.value
        try:
            return _construct(tag, event.value)
        except (ValueError, OverflowError):
            self.problem(line, f"{show(event.value)} is not a usable {tag}; quote it if it is text")
            return event.value


def _tag(tag: str) -> str:
    return show(tag.replace(_TAG, "!!"))


_PENDING = Node(0, {})
_FLOAT_12 = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@lru_cache(maxsize=65536)
def _implicit(text: str) -> str:
    """The tag of a plain scalar: YAML 1.1 as PyYAML resolves it, with 1e-3 and -.5 numbers as in YAML 1.2."""
    for tag, regexp in yaml.SafeLoader.yaml_implicit_resolvers.get(text[:1], ()):
        if regexp.match(text):
            return str(tag)[len(_TAG) :]
    return "float" if _FLOAT_12.fullmatch(text) else "str"


def _number(text: str) -> str:
    if len(text) > MAX_NUMBER:
        raise ValueError("too long")
    return text


def _int(text: str) -> int:
    digits = _number(text).replace("_", "").lower()
    sign, body = (-1 if digits.startswith("-") else 1), digits.lstrip("+-")
    octal = len(body) > 1 and body[0] == "0" and body[1] not in "bxo"
    return sign * (int(body, 8) if octal else int(body, 0))


def _float(text: str) -> float:
    return float(_number(text).replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))


_BOOLS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _bool(text: str) -> bool:
    if text.lower() not in _BOOLS:
        raise ValueError(text)
    return _BOOLS[text.lower()]


_CONSTRUCT: dict[str, Any] = {
    "str": str,
    "merge": str,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "null": lambda _: None,
}


@lru_cache(maxsize=65536)
def _construct(tag: str, text: str) -> Any:
    make = _CONSTRUCT.get(tag)
    if make is None:
        raise ValueError(tag)
    return make(text)
