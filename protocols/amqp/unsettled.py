"""The deliveries of one direction of a session that are not settled, by their delivery ids.

Deliveries are settled in order almost always, and many at once, so they are kept as runs of consecutive ids of one
link: settling in order cuts slices off the first run, and everything else cuts a run in two.  No operation takes longer
than the number of runs, whatever range of ids a peer names.

The ids in use never span more than half of all ids, as RFC 1982 needs it to tell earlier from later; `room` says how
many more may be used while the oldest one is not settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from protocols.amqp.serial import HALF, MASK

Owner = TypeVar("Owner")

#: Deliveries of one run: removing the first of a list moves the others.
_RUN_MAX: Final = 512


class Run(Generic[Owner]):
    """Consecutive deliveries of one link: the id of the first, and what each stands for."""

    __slots__ = ("contexts", "first", "owner")

    def __init__(self, owner: Owner, first: int, contexts: list[object]) -> None:
        self.owner = owner
        self.first = first
        self.contexts = contexts


class Unsettled(Generic[Owner]):
    """Runs in the order of their ids."""

    __slots__ = ("_runs", "count")

    def __init__(self) -> None:
        self.count = 0
        self._runs: list[Run[Owner]] = []

    def add(self, owner: Owner, first: int, contexts: Sequence[object]) -> None:
        """Deliveries from the id `first` on, which is after all that were added before."""
        self.count += len(contexts)
        runs = self._runs
        if runs:
            last = runs[-1]
            size = len(last.contexts)
            if last.owner is owner and size + len(contexts) <= _RUN_MAX and (last.first + size) & MASK == first:
                last.contexts.extend(contexts)
                return
        for at in range(0, len(contexts), _RUN_MAX):
            runs.append(Run(owner, (first + at) & MASK, list(contexts[at : at + _RUN_MAX])))

    def room(self, next_id: int) -> int:
        """How many ids from `next_id` on may be used."""
        return HALF - ((next_id - self._runs[0].first) & MASK) if self._runs else HALF

    def take(self, first: int, length: int) -> list[Run[Owner]]:
        """Remove the deliveries among the `length` ids from `first` on; what was there, in order."""
        runs = self._runs
        if runs and runs[0].first == first and length < len(runs[0].contexts):  # in order: the usual case
            run = runs[0]
            taken = Run(run.owner, first, run.contexts[:length])
            del run.contexts[:length]
            run.first = (first + length) & MASK
            self.count -= length
            return [taken]
        return self._cut(first, length, remove=True)

    def look(self, first: int, length: int) -> list[Run[Owner]]:
        """The deliveries among the `length` ids from `first` on, which stay."""
        return self._cut(first, length, remove=False)

    def forget(self, owner: Owner) -> None:
        """Remove all deliveries of a link."""
        self._runs = [run for run in self._runs if run.owner is not owner]
        self.count = sum(len(run.contexts) for run in self._runs)

    def of(self, owner: Owner) -> list[Run[Owner]]:
        """The runs of a link."""
        return [run for run in self._runs if run.owner is owner]

    def _cut(self, first: int, length: int, *, remove: bool) -> list[Run[Owner]]:
        if not self._runs:
            return []
        base = self._runs[0].first
        low = (first - base) & MASK
        if low >= HALF:
            low -= MASK + 1
        high = low + length  # ids are counted from the oldest one; this is the first one beyond
        found: list[Run[Owner]] = []
        kept: list[Run[Owner]] = []
        at = self._find(base, max(low, 0))
        start = at
        for run in self._runs[at:]:
            offset = (run.first - base) & MASK
            if offset >= high:
                break
            at += 1
            begin, end = max(low - offset, 0), min(high - offset, len(run.contexts))
            if begin >= end:
                kept.append(run)
                continue
            found.append(Run(run.owner, (run.first + begin) & MASK, run.contexts[begin:end]))
            if begin:
                kept.append(Run(run.owner, run.first, run.contexts[:begin]))
            if end < len(run.contexts):
                kept.append(Run(run.owner, (run.first + end) & MASK, run.contexts[end:]))
        if remove:
            self._runs[start:at] = kept
            self.count -= sum(len(run.contexts) for run in found)
        return found

    def _find(self, base: int, offset: int) -> int:
        """The index of the last run that begins at or before `offset` ids after `base`."""
        runs = self._runs
        low, high = 0, len(runs)
        while high - low > 1:
            middle = (low + high) // 2
            if (runs[middle].first - base) & MASK <= offset:
                low = middle
            else:
                high = middle
        return low
