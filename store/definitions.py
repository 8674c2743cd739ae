"""Definitions (addresses, queues, sessions ...): the latest record of each, and the segments that have one.

A segment can be read alone, so a definition that its records refer to is repeated in it (`mentioned`).  Definitions do
not keep a segment: those whose latest record it has are first repeated elsewhere (`lost_with`).  A segment more than
half full of them stays until the cleaner writes them again: otherwise, with more definitions than fit into a segment,
each new segment would be filled with them, and they would be rewritten for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from store.space import Space


@dataclass(slots=True, eq=False)
class _Definition:
    """The latest record, the segment that has it, and all segments that have a record of this definition."""

    record: bytes = b""
    latest: int = 0
    segments: set[int] = field(default_factory=set)


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
        self._by_key: dict[int, _Definition] = {}
        # Bytes of the latest definitions, by segment; and of the complete segments that stay for them.
        self._bytes: dict[int, int] = {}
        self._staying: dict[int, int] = {}

    def record(self, key: int) -> bytes:
        """The latest record of a definition."""
        return self._by_key[key].record

    def defined(self, key: int, record: bytes, segment: int) -> None:
        """Note that a record in this segment is the latest definition of the key."""
        definition = self._by_key.get(key)
        if definition is None:
            definition = self._by_key[key] = _Definition()
        else:
            self._count(definition.latest, -len(definition.record))
        self._count(segment, len(record))
        definition.record = record
        definition.latest = segment
        definition.segments.add(segment)

    def undefined(self, key: int, segment: int) -> None:
        """Note that a record in this segment deletes the key: it must stay as long as any segment that defines it."""
        self.mentioned.discard(key)
        self.later.discard(key)
        definition = self._by_key.pop(key, None)
        if definition is not None:
            self._count(definition.latest, -len(definition.record))
            for other in definition.segments:
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
        return self._latest_in({segment}) if segment in self._staying else []

    def lost_with(self, segments: set[int]) -> list[int]:
        """The definitions whose latest record is in these segments, which are about to be dropped."""
        for definition in self._by_key.values():
            definition.segments -= segments
        return self._latest_in(segments)

    def _latest_in(self, segments: set[int]) -> list[int]:
        return [key for key, definition in self._by_key.items() if definition.latest in segments]
