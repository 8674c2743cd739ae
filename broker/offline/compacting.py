"""Compacting: copy all live records together, and delete the segments that they were in."""

from __future__ import annotations

from dataclasses import dataclass

from broker.offline.parts import Progress, Stopped


@dataclass(frozen=True, slots=True)
class Compacted:
    """The number of segments before and after, and of messages copied."""

    before: int
    after: int
    messages: int


def compact(broker: Stopped, progress: Progress) -> Compacted:
    """Clean every complete segment.  Raises JournalFull, LogError; the segments cleaned until then stay cleaned."""
    engine, journal = broker.parts.engine, broker.parts.journal
    old = [segment for segment in journal.space.segments if segment < journal.segment]
    copied = 0
    for done, segment in enumerate(old, 1):
        if segment in journal.space.segments:  # else it was deleted together with an earlier one
            broker.parts.tick.enter()
            copied += engine.cleaner.whole(segment)
            broker.run_ticks()
        progress(done, len(old))
    return Compacted(len(old) + 1, len(journal.space.segments), copied)
