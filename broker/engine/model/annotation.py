"""Annotations: values added to a message besides those of its sender, and their form in the journal.

An annotation is a text or a number.  One from a protocol with more types carries the name of its type, as in
`{"ulong": 18446744073709551615}` in the journal; other code sees a plain text or number.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from sys import intern

from broker.engine.model.message import OWN_PREFIX
from store.record import encode_json


class TypedInt(int):
    """A number with the name of its type in the sender's protocol."""

    type: str


class TypedText(str):
    """A text with the name of its type in the sender's protocol."""

    type: str


def typed(value: str | int, type: str) -> TypedInt | TypedText:
    """A text or a number with the name of its type."""
    made = TypedInt(value) if isinstance(value, int) else TypedText(value)
    made.type = type
    return made


def to_json(annotations: Mapping[str, str | int]) -> dict[str, object]:
    """Annotations as a JSON object."""
    return {
        name: {value.type: value} if isinstance(value, TypedInt | TypedText) else value
        for name, value in annotations.items()
    }


def from_json(found: Mapping[str, object]) -> dict[str, str | int]:
    """The inverse of `to_json`.  Raises ValueError for a value that is no annotation."""
    return {
        _shared(name): value if isinstance(value, str | int) else _typed(name, value) for name, value in found.items()
    }


def _shared(name: str) -> str:
    """The one object of the broker's own name, which all messages share in memory."""
    return intern(name) if name.startswith(OWN_PREFIX) else name


def _typed(name: str, value: object) -> str | int:
    if isinstance(value, dict) and len(value) == 1:
        [(type, inner)] = value.items()
        if isinstance(inner, str | int):
            return typed(inner, type)
    raise ValueError(f"the annotation {name} is neither a text nor a number")


def encode(annotations: Mapping[str, str | int]) -> bytes:
    """Annotations encoded for a record."""
    return encode_json(to_json(annotations))


def decode(raw: bytes) -> dict[str, str | int]:
    """The inverse of `encode`.  Raises ValueError if they are invalid."""
    found = json.loads(raw)
    if not isinstance(found, dict):
        raise ValueError("annotations that are no JSON object")
    return from_json(found)
