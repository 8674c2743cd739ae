"""The ids of the messages in a segment, and a filter for them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from spark_jobs.journal.layout import PLURAL, Int64s, Records, Source, groups, offset_of
from spark_jobs.journal.walk import Walk
from store.record import RecordType
from store.trail.id_index import ORIGIN


class IdFilter:
    """A Bloom filter of ids with one hash, the lowest bits of an id: excludes most ids that it does not contain.

    It takes half a byte to one byte per id.  As ids are assigned in order, few have the same lowest bits.
    """

    def __init__(self, parts: Sequence[Int64s]) -> None:
        size = 1 << (2 * sum(map(len, parts))).bit_length()
        table = np.zeros(max(size, 8), np.bool_)
        self._mask = len(table) - 1
        for ids in parts:
            table[ids & self._mask] = True
        self._bits = np.packbits(table, bitorder="little")

    def may_have(self, id: int) -> bool:
        """False if it certainly does not contain an id."""
        at = id & self._mask
        return bool(self._bits[at >> 3] >> (at & 7) & 1)


_ID_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    RecordType.MESSAGE: ("id",),
    RecordType.COPIED: ("id",),
    RecordType.DEAD_LETTERED: ("old_id", "new_id"),
    RecordType.EXPIRED: ("old_id", "new_id"),
}


#: The id of the original in a moved message.  Accidental matches elsewhere in a segment do no harm.
_ORIGIN: Final = re.compile(ORIGIN + rb"(\d{1,18})\b")


def message_ids(data: bytes, walk: Walk) -> Iterator[Int64s]:
    """The ids of the messages stored, moved or removed in a segment, and the earlier ids of the stored ones.

    They are in no particular order, and may be repeated.
    """
    yield np.array([int(id) for id in _ORIGIN.findall(data)], np.int64)
    source = Source(data)
    for type, indices in groups(walk.types):
        offsets = walk.offsets[indices]
        if type in PLURAL:
            yield Records(source, type, offsets).ids()
        for field in _ID_FIELDS.get(type, ()):
            yield source.integers(offsets + offset_of(type, field))
