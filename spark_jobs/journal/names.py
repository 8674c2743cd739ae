"""The names of queues and sessions, from the definitions in a segment, and looking up many ids at once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from spark_jobs.journal.layout import Bools, Int64s
from spark_jobs.journal.walk import Definition
from store.record import Json, RecordType

#: Ids within a span of this size are looked up in a table (8 bytes each), others by bisection, which takes six times as
#: long.  Queues that are created together have adjacent ids.
TABLE_SPAN_MAX: Final = 1 << 20


def member(definition: Json, name: str) -> str | None:
    """A member of a definition if it is a string, otherwise None."""
    value = definition.get(name)
    return value if isinstance(value, str) else None


def learn_names(names: dict[int, str | None], definitions: Iterable[Definition]) -> None:
    """Add the queues that a segment defines, each by its last definition; by a deletion only if there is none."""
    for definition in definitions:
        name = member(definition.value, "name")
        if definition.type == RecordType.QUEUE:
            names[definition.id] = name
        elif definition.type == RecordType.QUEUE_DELETED:
            names.setdefault(definition.id, name)


def learn_sessions(names: dict[int, str | None], definitions: Iterable[Definition]) -> None:
    """Add the sessions that a segment defines."""
    for definition in definitions:
        if definition.type in (RecordType.SESSION, RecordType.SESSION_DELETED):
            names[definition.id] = member(definition.value, "name")


class Lookup:
    """Finds the index of ids among known ones, which ascend."""

    __slots__ = ("_table", "ids")

    def __init__(self, ids: Sequence[int] | Int64s) -> None:
        self.ids = np.asarray(ids, np.int64)
        self._table: Int64s | None = None
        if len(self.ids) and self.ids[-1] - self.ids[0] < TABLE_SPAN_MAX:
            self._table = np.zeros(self.ids[-1] - self.ids[0] + 1, np.int64)
            self._table[self.ids - self.ids[0]] = np.arange(len(self.ids))

    def find(self, wanted: Int64s) -> tuple[Int64s, Bools]:
        """The index of each wanted id (arbitrary if it is unknown), and whether it is known."""
        if not len(self.ids):
            return np.zeros(len(wanted), np.int64), np.zeros(len(wanted), np.bool_)
        if self._table is None:
            indices = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
        else:
            indices = self._table[np.clip(wanted, self.ids[0], self.ids[-1]) - self.ids[0]]
        return indices, self.ids[indices] == wanted
