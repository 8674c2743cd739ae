"""Which messages a segment speaks of, and whether one of them may be it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from spark_jobs.journal.layout import PLURAL, Int64s, Records, Source, groups, offset_of
from spark_jobs.journal.walk import Walk
from store.id_index import ORIGIN
from store.record import RecordType


class IdFilter:
    """Tells most ids that are not among those it was made of: a Bloom filter with one hash, the lowest bits of an id.

    It takes half a byte to a byte an id, and as ids are given out in order, few have their lowest bits in common.
    """

    def __init__(self, parts: Sequence[Int64s]) -> None:
        size = 1 << (2 * sum(map(len, parts))).bit_length()
        table = np.zeros(max(size, 8), np.bool_)
        self._mask = len(table) - 1
        for ids in parts:
            table[ids & self._mask] = True
        self._bits = np.packbits(table, bitorder="little")

    def may_have(self, id: int) -> bool:
        """False if it is certain that an id is not among them."""
        at = id & self._mask
        return bool(self._bits[at >> 3] >> (at & 7) & 1)


_ID_FIELDS: Final[dict[int, tuple[str, ...]]] = {
    RecordType.MESSAGE: ("id",),
    RecordType.DEAD_LETTERED: ("old_id", "new_id"),
    RecordType.EXPIRED: ("old_id", "new_id"),
}


#: What a copy says of the message that it was made of.  Elsewhere in a segment it does no harm.
_ORIGIN: Final = re.compile(ORIGIN + rb"(\d{1,18})\b")


def message_ids(data: bytes, walk: Walk) -> Iterator[Int64s]:
    """The ids of the messages that are stored, moved or removed in a segment, and that stored ones were before.

    In no order, some several times.
    """
    yield np.array([int(id) for id in _ORIGIN.findall(data)], np.int64)
    source = Source(data)
    for type, indices in groups(walk.types):
        offsets = walk.offsets[indices]
        if type in PLURAL:
            yield Records(source, type, offsets).ids()
        for field in _ID_FIELDS.get(type, ()):
            yield source.integers(offsets + offset_of(type, field))
