"""The published JSON schema, applied fast and in words.

A manifest of ten thousand formats holds a few hundred distinct element, scale and packing bodies: definitions
named in `_SPREAD` are checked one level deep, their parts on their own, every other part once per content.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path as FilePath
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema import validators as jsonschema_validators

from ..formats.axes import MAX_BITS
from .problems import Path, near, show

Found = tuple[Path, str]
ValidationError = Any  # jsonschema.ValidationError, whose attributes are unions that nothing narrows
_SPREAD = ("manifest", "targets", "formats", "kernels", "profiles", "knobs", "format")
_INTEGERS = tuple(f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, MAX_BITS + 1))
_KINDS = {
    "object": "a mapping",
    "array": "a list",
    "string": "a word",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "nothing",
}


@lru_cache(maxsize=1)
def load_schema() -> dict[str, Any]:
    """The schema as data."""
    text = FilePath(__file__).with_name("manifest.schema.json").read_text("utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def _whole(_: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@lru_cache(maxsize=1)
def _strict() -> Any:
    """Draft 2020-12, where 32.0 is no integer: the parsers rely on the Python type."""
    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", _whole)
    make: Any = jsonschema_validators.extend
    return make(Draft202012Validator, type_checker=checker)


@lru_cache(maxsize=64)
def _validator(name: str, shallow: bool) -> Any:
    definitions = load_schema()["$defs"]
    if not shallow:
        return _strict()({"$ref": f"#/$defs/{name}", "$defs": definitions})
    top = dict(definitions[name])
    if "properties" in top:
        top["properties"] = dict.fromkeys(top["properties"], True)
    if isinstance(top.get("additionalProperties"), dict):
        top["additionalProperties"] = True
    return _strict()(top)


class Checker:
    """Checks parts of one document against the schema's definitions, remembering what it has seen."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], tuple[Found, ...]] = {}

    def check(self, name: str, plain: Any, path: Path = ()) -> Iterator[Found]:
        """(path, message) for everything in `plain` that definition `name` does not allow."""
        definition = load_schema()["$defs"][name]
        if name not in _SPREAD or not isinstance(plain, dict):
            for below, message in self._once(name, plain):
                yield (*path, *below), message
            return
        for below, message in _translate_all(_validator(name, True).iter_errors(plain)):
            yield (*path, *below), message
        rest = definition.get("additionalProperties")
        for key, value in plain.items():
            part = definition.get("properties", {}).get(key, rest)
            if isinstance(part, dict):
                yield from self.check(part["$ref"].rsplit("/", 1)[-1], value, (*path, key))

    def _once(self, name: str, plain: Any) -> tuple[Found, ...]:
        key = (name, repr(plain))
        if key not in self._seen:
            self._seen[key] = tuple(_translate_all(_validator(name, False).iter_errors(plain)))
        return self._seen[key]


def _translate_all(errors: Iterable[ValidationError]) -> list[Found]:
    return [found for error in errors for found in _translate(error)]


def _kind(value: object) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return show(value)
    if isinstance(value, (dict, list)):
        return show(value)
    return f"{show(value)}"


def _translate(error: ValidationError) -> list[Found]:
    """One jsonschema error -> what a person is told. The path is relative to the checked part."""
    path: Path = tuple(error.absolute_path)
    rule = str(error.validator)
    if rule == "additionalProperties":
        known = list(error.schema["properties"])
        return [
            ((*path, key), f"unknown key {show(key)}{near(key, known)}")
            for key in error.instance
            if key not in known
        ]
    if rule == "anyOf":
        return _alternatives(error, path)
    if rule == "dependentRequired":
        return [
            ((*path, key), f"{key} goes with {wanted}, which is not here")
            for key, needs in error.validator_value.items()
            for wanted in needs
            if key in error.instance
            and wanted not in error.instance
            and error.message.startswith(f"{wanted!r} ")
            and error.message.endswith(f" {key!r}")
        ]
    return [(path, _message(rule, error))]


def _message(rule: str, error: ValidationError) -> str:
    value, limit, schema = error.instance, error.validator_value, error.schema
    shown = _kind(value)
    if rule == "type":
        return f"is {shown}, wanted {_KINDS[limit]}"
    if rule == "enum":
        return _not_one_of(value, limit)
    if rule == "pattern":
        return _not_one_of(value, _words(error)) if "examples" in schema else f"is {shown}, wanted {limit}"
    if rule in ("minimum", "maximum"):
        return f"is {shown}, wanted {schema.get('minimum')} to {schema.get('maximum')}"
    if rule in ("minItems", "maxItems"):
        return (
            f"has {len(value)} entries, wanted {schema.get('minItems', 0)} to {schema.get('maxItems', 'any')}"
        )
    if rule in ("minLength", "maxLength"):
        least, most = schema.get("minLength", 0), schema.get("maxLength", "any")
        return f"has {len(value)} characters, wanted {least} to {most}"
    if rule == "minProperties":
        return "is empty" if not value else f"has {len(value)} keys, wanted {limit} or more"
    if rule == "required":
        missing = [key for key in limit if key not in value and error.message.startswith(f"{key!r} ")]
        return f"{missing[0] if missing else limit} is missing{_meant(missing, value, schema)}"
    if rule == "oneOf":
        return f"wants exactly one of {', '.join(option['required'][0] for option in limit)}"
    return str(error.message)


def _meant(missing: list[str], value: dict[str, Any], schema: dict[str, Any]) -> str:
    """For a missing key: the unknown key that may have been meant for it."""
    strangers = [key for key in value if key not in schema.get("properties", {})]
    hint = near(missing[0], strangers) if missing else ""
    return (
        hint if "did you mean" not in hint else hint.replace("did you mean", "is it").replace("?", " here?")
    )


def _not_one_of(value: object, words: Iterable[Any]) -> str:
    known = [w if isinstance(w, str) else show(w) for w in words]
    return f"{_kind(value)} is not known here{near(value, known) or '; one of ' + ', '.join(known)}"


def _words(error: ValidationError) -> list[str]:
    """The words that an enum or a pattern with examples would have taken."""
    if error.validator == "enum":
        return [w for w in error.validator_value if isinstance(w, str)]
    if error.validator == "pattern":
        examples = list(error.schema.get("examples", ()))
        return [*examples, *_INTEGERS] if examples else []
    return [w for inner in error.context or () for w in _words(inner)]


def _alternatives(error: ValidationError, path: Path) -> list[Found]:
    """None of several shapes fits: speak about the shape that was meant, which its type tells."""
    if isinstance(error.instance, str):
        words = list(dict.fromkeys(_words(error)))
        if words:
            return [(path, _not_one_of(error.instance, words))]
    branches: dict[Any, list[ValidationError]] = {}
    for inner in error.context or ():
        branches.setdefault(inner.schema_path[0], []).append(inner)
    for errors in branches.values():
        if not any(_foreign(e) for e in errors):
            return _translate_all(errors)
    shapes = dict.fromkeys(s for e in error.context or () for s in _shapes(e))
    return [(path, f"is {_kind(error.instance)}, wanted {' or '.join(shapes)}")]


def _foreign(error: ValidationError) -> bool:
    """Whether the branch that this error is from was for another type of value."""
    if error.path:
        return False
    if error.validator == "anyOf":
        branches: dict[Any, bool] = {}
        for inner in error.context or ():
            branches[inner.schema_path[0]] = branches.get(inner.schema_path[0], False) or _foreign(inner)
        return all(branches.values())
    if error.validator == "enum":
        return not any(type(w) is type(error.instance) for w in error.validator_value)
    return bool(error.validator == "type")


def _shapes(error: ValidationError) -> list[str]:
    if error.validator == "type":
        return [_KINDS[str(error.validator_value)]]
    if error.validator == "enum":
        return [show(w) for w in error.validator_value]
    return [s for inner in error.context or () for s in _shapes(inner)]
