"""The kinds of values of broker.toml's keys, read from the models, and the conversion of XML texts to them.

So the importer grows with the models: a setting added there is taken over from then on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Annotated, Final, get_args, get_origin

from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from broker.config import units
from broker.config.acceptors import Acceptor
from broker.config.schema import annotation_at, arms, model_fields, sections

Key = tuple[str, ...]
"""A key as a path; an entry of a list has its match in place of its index."""

_SIZE: Final = re.compile(r"([0-9]{1,18})\s*([kmg]?)i?b?", re.IGNORECASE)
_SIZE_FACTORS: Final = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
LISTS: Final = ("address-settings", "resource-limit-settings", "security-settings")


class Kind(Enum):
    """The kinds of values that texts are converted to."""

    TRUTH = "true or false"
    INTEGER = "an integer"
    NUMBER = "a number"
    DURATION = "milliseconds"
    SIZE = "bytes, or a number with k, m or g"
    TEXT = "a text"
    WORD = "one of some words"
    LIST = "texts with commas"


def known(key: Key) -> bool:
    """Whether the models have this key."""
    return annotation_at(_as_in_file(key)) is not None


def kind_of(key: Key) -> Kind | None:
    """The kind of a key's value, or None if the models do not have the key."""
    path = _as_in_file(key)
    field = model_fields(annotation_at(path[:-1])).get(str(path[-1]))
    return None if field is None else _kind(field)


def value_of(kind: Kind | None, text: str) -> object:
    """A text of XML converted to a value; for an unknown key it stays text.  Raises ValueError."""
    try:
        return _read(kind, text)
    except ValueError:
        assert kind is not None
        raise ValueError(f"this is not {kind.value}") from None


def acceptor_keys() -> dict[str, frozenset[str]]:
    """The keys of each protocol's acceptor."""
    found: dict[str, frozenset[str]] = {}
    for model in sections(Acceptor):
        protocol = get_args(model.model_fields["protocol"].annotation)[0]
        found[protocol] = frozenset(model_fields(model))
    return found


def written(key: Key, value: object) -> object:
    """A value for people: durations and sizes with a unit."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        kind = kind_of(key)
        if kind is Kind.DURATION:
            return units.written(value, units.DURATION_UNITS)
        if kind is Kind.SIZE:
            return units.written(value, units.SIZE_UNITS)
    return value


def format_value(value: object) -> str:
    """A value in TOML notation."""
    return json.dumps(value, ensure_ascii=False)


def _as_in_file(key: Key) -> list[str | int]:
    path: list[str | int] = list(key)
    if len(path) > 1 and path[0] in LISTS:
        path[1] = 0
    return path


def _read(kind: Kind | None, text: str) -> object:
    if kind is Kind.TRUTH:
        return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse()
    if kind in (Kind.INTEGER, Kind.DURATION):
        return int(text)
    if kind is Kind.NUMBER:
        return float(text)
    if kind is Kind.SIZE:
        return size(text)
    if kind is Kind.WORD:
        return text.upper() if text.upper() != text and text.upper().isidentifier() else text
    if kind is Kind.LIST:
        return [part.strip() for part in text.split(",") if part.strip()]
    return text


def _refuse() -> object:
    raise ValueError


def size(text: str) -> int:
    """Bytes, with Artemis's units: powers of 1024 in any case.  Raises ValueError."""
    if text == "-1":
        return -1
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise ValueError("no size")
    return int(found[1]) * _SIZE_FACTORS[found[2].lower()]


def _kind(field: FieldInfo) -> Kind | None:
    parts = [*_annotations(field.annotation), *field.metadata]
    checks = [part.func for part in parts if isinstance(part, BeforeValidator)]
    if units.duration in checks:
        return Kind.DURATION
    if units.size in checks:
        return Kind.SIZE
    for arm in arms(field.annotation):
        if get_origin(arm) is tuple or get_origin(arm) is list:
            return Kind.LIST
        if isinstance(arm, type) and issubclass(arm, Enum):
            return Kind.WORD
        if arm in _PLAIN:
            return _PLAIN[arm]
    return Kind.TEXT


_PLAIN: Final[dict[object, Kind]] = {bool: Kind.TRUTH, int: Kind.INTEGER, float: Kind.NUMBER, str: Kind.TEXT}


def _annotations(annotation: object) -> Iterator[object]:
    """The metadata of Annotated, at any depth."""
    if get_origin(annotation) is Annotated:
        yield from get_args(annotation)[1:]
    for argument in get_args(annotation):
        yield from _annotations(argument)
