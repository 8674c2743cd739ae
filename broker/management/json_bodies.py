"""How many values a JSON body of a request may hold: parsing a million takes longer than clients can wait."""

from __future__ import annotations

from typing import Final

#: Values in a body that a model reads: the definitions of some thousand queues.  They are parsed within some ms.
VALUES_MAX: Final = 20_000

#: Bytes that are looked at in one go.
_PART: Final = 1 << 16

#: One of these comes before each value but the first.
_BEFORE_VALUES: Final = (b",", b"[", b"{")


def has_more_values(body: bytes, most: int) -> bool:
    """Whether a body certainly has more than `most` values, or so many of these bytes, some of which are in texts."""
    found = 0
    for at in range(0, len(body), _PART):
        found += sum(body.count(each, at, at + _PART) for each in _BEFORE_VALUES)
        if found > most:
            return True
    return False


def has_more_values_outside_texts(body: bytes, most: int) -> bool:
    """Whether a body has more than `most` values, whatever its texts hold."""
    if not has_more_values(body, most):
        return False
    if _count(body, b'"') - _count(body, b'\\"') > 4 * most:  # each value may be a text, with a name
        return True
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return has_more_values(b"".join(plain.split(b'"')[::2]), most)


def _count(body: bytes, each: bytes) -> int:
    return sum(body.count(each, at, at + _PART) for at in range(0, len(body), _PART))
