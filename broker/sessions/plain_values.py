"""AMQP values as text and JSON, for protocols without types and for operators."""

from __future__ import annotations

import base64
import json
from math import isfinite
from types import NoneType
from typing import Final
from uuid import UUID

from protocols.amqp.types import Array, Char, Decimal32, Decimal64, Decimal128, Described, Pairs, Symbol

#: Types of values that JSON has: the usual ones, as a message may have thousands.
_SAME: Final = frozenset({NoneType, bool, int, str})

#: Types of values without a counterpart in JSON whose text says all.
_AS_TEXT: Final = frozenset({UUID, Char, Symbol})

_ENCODED: Final = (bytes, Decimal32, Decimal64, Decimal128)


def header_text(value: object) -> str:
    """Format a property as a header: null is empty, booleans are lower-case, bytes base64, maps and lists JSON."""
    if type(value) is str:
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return str(float(value))
    plain = _plain(value)
    return str(plain) if isinstance(plain, str | int) else _dumps(plain)


def to_json(value: object) -> bytes:
    """Encode a compound value as JSON."""
    return _dumps(_plain(value)).encode()


def _dumps(plain: object) -> str:
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))


def _plain(value: object) -> object:
    """Convert a value to JSON types: times are numbers, bytes base64, everything without a counterpart text."""
    kind = type(value)
    if kind in _SAME:
        return value
    if kind in _AS_TEXT:
        return str(value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):  # JSON has no NaN and no infinity
        return value if isfinite(value) else str(value)
    if isinstance(value, _ENCODED):
        return base64.b64encode(value if isinstance(value, bytes) else value.raw).decode()
    if isinstance(value, dict):
        return {header_text(key): _plain(each) for key, each in value.items()}
    if isinstance(value, Pairs):
        return [[_plain(key), _plain(each)] for key, each in value.pairs]
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Array):
        return [_plain(each) for each in value.items]
    if isinstance(value, Described):
        return _plain(value.value)
    return str(value)
