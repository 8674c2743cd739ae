"""A row of the tables of settings: the type, bounds and purpose of one setting, defined once.

The fields of `AddressSettings` and `QueueAttributes` are such rows.  The configuration's sections, clients' options,
operators' changes, the definitions in the journal, imports and the reference are made from them.  Their modules are not
compiled: mypyc keeps no annotations that tell `str | None` from `object`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final, NamedTuple, get_type_hints

#: The key of a field's metadata.
_ROW: Final = "row"


class Unit(Enum):
    """What a number counts."""

    NONE = ""
    MILLISECONDS = "ms"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Row:
    """The allowed values and the purpose; `low` and `high` are the least and the greatest number, None: no bound.

    `zero`: why 0 is not allowed; empty: it is.  `chars_max`: the longest text, -1: no limit.
    """

    why: str
    unit: Unit = Unit.NONE
    low: float | None = None
    high: float | None = None
    zero: str = ""
    chars_max: int = -1


class Described(NamedTuple):
    """A setting by its field's name: its type (without None), its default, its row."""

    name: str
    type: type
    default: object
    row: Row


def row(
    default: Any,
    why: str,
    *,
    unit: Unit = Unit.NONE,
    low: float | None = None,
    high: float | None = None,
    zero: str = "",
    chars_max: int = -1,
) -> Any:
    """A dataclass field that is a row: its default, and the rest as in `Row`."""
    described = Row(why, unit, low, high, zero, chars_max)
    return field(default=default, metadata={_ROW: described})


def duration(default: int, why: str, *, low: int = -1) -> Any:
    """A row for a length of time; -1, where allowed, means off or unlimited."""
    return row(default, why, unit=Unit.MILLISECONDS, low=low)


def size(default: int, why: str, *, low: int = -1) -> Any:
    """A row for a number of bytes."""
    return row(default, why, unit=Unit.BYTES, low=low)


def rows(table: type[Any]) -> Mapping[str, Described]:
    """The rows of a table in their order, by field name."""
    hints = get_type_hints(table)
    return {
        each.name: Described(each.name, _plain(hints[each.name]), each.default, each.metadata[_ROW])
        for each in fields(table)
        if _ROW in each.metadata
    }


def _plain(hint: Any) -> type:
    """The type without None: `str` for `str | None`."""
    found: type = hint if isinstance(hint, type) else next(each for each in hint.__args__ if each is not type(None))
    return found


def kebab(name: str) -> str:
    """The public name of a field: ring_size is ring-size."""
    return name.replace("_", "-")
