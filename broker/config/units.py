"""Durations, sizes and words as written in a configuration, read and written.

| kind     | written                            | stored       |
|----------|------------------------------------|--------------|
| duration | `1500`, `"500ms"`, `"30s"`, `"5min"`, `"2h"`, `"7d"` | milliseconds |
| size     | `1024`, `"64KiB"`, `"10M"`, `"1GiB"`                 | bytes        |

As in Artemis a size's unit is a power of 1024 whether it is written K, KB or KiB. -1 (off, unlimited) has no unit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Final

from pydantic import BeforeValidator, Field

DURATION_UNITS: Final = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}

_SIZE_NAMES: Final = {
    name.lower(): factor for unit, factor in SIZE_UNITS.items() for name in (unit, unit[0], unit.replace("i", ""))
}
_QUANTITY: Final = re.compile(r"\s*([0-9]{1,19})\s*([A-Za-z]+)\s*", re.ASCII)


def _quantity(value: object, units: Mapping[str, int], fix: str) -> object:
    """The value in the smallest unit; integers and others are left to the type's check. Raises ValueError."""
    if isinstance(value, bool | float):
        raise ValueError(fix)
    if not isinstance(value, str):
        return value
    found = _QUANTITY.fullmatch(value)
    if found is None or found[2] not in units:
        raise ValueError(fix)
    return int(found[1]) * units[found[2]]


def duration(value: object) -> object:
    """Milliseconds of an integer or of a text with a unit. Raises ValueError with the fix."""
    fix = 'give milliseconds as an integer, or a text with a unit: "500ms", "30s", "5min", "2h", "7d"'
    return _quantity(value, DURATION_UNITS, fix)


def size(value: object) -> object:
    """Bytes of an integer or of a text with a unit. Raises ValueError with the fix."""
    fix = 'give bytes as an integer, or a text with a unit: "64KiB", "10MiB", "1GiB"'
    return _quantity(value.lower() if isinstance(value, str) else value, _SIZE_NAMES, fix)


def word_of(words: type[StrEnum]) -> Callable[[object], StrEnum]:
    """Converts a text to one of these words.  Raises ValueError with the fix."""

    def read(value: object) -> StrEnum:
        if isinstance(value, str) and value in list(words):
            return words(value)
        raise ValueError(f"give one of {', '.join(json.dumps(word) for word in words)}")

    return read


def written(value: int, units: Mapping[str, int]) -> str:
    """The value with the largest unit that divides it, as `64MiB`; 0 and -1 have no unit."""
    if value <= 0:
        return str(value)
    unit, factor = max(((u, f) for u, f in units.items() if value % f == 0), key=lambda pair: pair[1])
    return f"{value // factor}{unit}"


LARGEST: Final = 2**63 - 1  # the largest in the journal and the protocols

Milliseconds = Annotated[int, BeforeValidator(duration), Field(ge=0, le=LARGEST)]
MillisecondsOrOff = Annotated[int, BeforeValidator(duration), Field(ge=-1, le=LARGEST)]
Bytes = Annotated[int, BeforeValidator(size), Field(ge=0, le=LARGEST)]
BytesOrUnlimited = Annotated[int, BeforeValidator(size), Field(ge=-1, le=LARGEST)]
