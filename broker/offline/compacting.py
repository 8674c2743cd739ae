"""Compacting: everything that lives is copied together, and every segment behind it goes."""

from __future__ import annotations

from dataclasses import dataclass

from broker.offline.parts import Progress, Stopped


@dataclass(frozen=True, slots=True)
class Compacted:
    """How many segments there were, how many there are, and how many messages were copied."""

    before: int
    after: int
    messages: int


def compact(broker: Stopped, progress: Progress) -> Compacted:
    """Clean every segment that is complete.  Raises JournalFull, LogError; what was done till then stays done."""
    engine, journal = broker.parts.engine, broker.parts.journal
    old = [segment for segment in journal.space.segments if segment < journal.segment]
    copied = 0
    for done, segment in enumerate(old, 1):
        if segment in journal.space.segments:  # else it went with one before it
            broker.parts.tick.enter()
            copied += engine.cleaner.whole(segment)
            broker.settle()
        progress(done, len(old))
    return Compacted(len(old) + 1, len(journal.space.segments), copied)
