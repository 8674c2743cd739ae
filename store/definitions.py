"""Definitions (addresses, queues, sessions ...): the latest record of each, and the segments that have one.

A segment can be read alone, so a definition that its records refer to is repeated in it (`mentioned`).  Definitions do
not keep a segment: those whose latest record it has are first repeated elsewhere (`lost_with`).  A segment more than
half full of them stays until the cleaner writes them again: otherwise, with more definitions than fit into a segment,
each new segment would be filled with them, and they would be rewritten for ever.

All subscriptions of a topic, 100,000 perhaps, are repeated when the first message to it comes to a segment: so what is
known of a definition is in plain dicts, of which many are changed at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import repeat

from store.record import repeated
from store.space import Space


class Definitions:
    """The definitions of one journal, by id.

    `mentioned` are those that the current segment has; `later`: those of them that only an entry has which is written
    behind others (`Journal.hold`).
    """

    def __init__(self, space: Space, *, segment_bytes: int) -> None:
        self.mentioned: set[int] = set()
        self.later: set[int] = set()
        self._space = space
        self._stays_above = segment_bytes // 2
        self._records: dict[int, bytes] = {}  # the latest of each, as a repetition ...
        self._latest: dict[int, int] = {}  # ... and the segment that has it
        self._in: dict[int, set[int]] = {}  # those of which a segment has a record, by segment
        # Bytes of the latest definitions, by segment; and of the complete segments that stay for them.
        self._bytes: dict[int, int] = {}
        self._staying: dict[int, int] = {}

    def begin(self, segment: int) -> None:
        """Begin a segment, which has none."""
        self.mentioned = self._in[segment] = set()

    def record(self, key: int) -> bytes:
        """The record that repeats a definition."""
        return self._records[key]

    def differs(self, key: int, record: bytes) -> bool:
        """Whether a record would change a definition, rather than repeat it or make one."""
        return self._records.get(key, record) not in (record, repeated(record))

    def defined(self, key: int, record: bytes, segment: int) -> None:
        """Note that a record in this segment is the latest definition of the key."""
        before = self._records.get(key)
        if before is not None:
            self._count(self._latest[key], -len(before))
        self._count(segment, len(record))
        self._records[key] = repeated(record)
        self._latest[key] = segment
        self._in.setdefault(segment, set()).add(key)

    def repeat(self, keys: Sequence[int], segment: int) -> tuple[list[bytes], int]:
        """Return the records that repeat definitions, and their bytes, and note that they are in this segment."""
        records = list(map(self._records.__getitem__, keys))
        nbytes = sum(map(len, records))
        before = set(map(self._latest.__getitem__, keys))
        if len(before) == 1:
            self._count(before.pop(), -nbytes)
        else:
            for key, record in zip(keys, records, strict=True):
                self._count(self._latest[key], -len(record))
        self._count(segment, nbytes)
        self._latest.update(zip(keys, repeat(segment)))
        self._in.setdefault(segment, set()).update(keys)
        return records, nbytes

    def undefined(self, key: int, segment: int) -> None:
        """Note that a record in this segment deletes the key: it must stay as long as any segment that defines it."""
        self.later.discard(key)
        record = self._records.pop(key, None)
        if record is None:
            return
        self._count(self._latest.pop(key), -len(record))
        for other, keys in self._in.items():
            if key in keys:
                keys.remove(key)
                self._space.refer(segment, other)

    def _count(self, segment: int, nbytes: int) -> None:
        left = self._bytes.pop(segment, 0) + nbytes
        if left:
            self._bytes[segment] = left
        if left <= self._stays_above and segment in self._staying:
            self._space.unpin(segment, self._staying.pop(segment))

    def completed(self, segment: int) -> None:
        """Note that a segment is complete: it stays if it is more than half full of definitions."""
        nbytes = self._bytes.get(segment, 0)
        if nbytes > self._stays_above:
            self._staying[segment] = nbytes
            self._space.pin(segment, nbytes)

    def staying_in(self, segment: int) -> list[int]:
        """The definitions for which a segment stays."""
        return self._latest_in((segment,), self._in[segment]) if segment in self._staying else []

    def lost_with(self, segments: Collection[int]) -> list[int]:
        """The definitions whose latest record is in these segments, which are about to be dropped."""
        return self._latest_in(segments, set().union(*[self._in.pop(segment, ()) for segment in segments]))

    def _latest_in(self, segments: Collection[int], keys: Collection[int]) -> list[int]:
        """Those of these definitions whose latest record is in these segments, in the order in which they came."""
        return sorted([key for key in keys if self._latest[key] in segments])
