"""The unsettled deliveries of one direction of a session, by their delivery ids.

Deliveries are almost always settled in order, and many at once, so they are stored as stretches of consecutive ids,
each id with its link, as links may take turns: settling in order cuts slices off the first stretch, anything else
splits a stretch in two.  No operation takes longer than the number of stretches, whatever range of ids a peer names.

The ids in use never span more than half of all ids, as RFC 1982 requires to distinguish earlier from later; `room` says
how many more may be used while the oldest one is not settled.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Final, Generic, TypeVar

from protocols.amqp.serial import HALF, MASK

Owner = TypeVar("Owner")

#: The most deliveries of one stretch: removing the first of a list moves the others.
_RUN_MAX: Final = 512

#: Stretches that are looked at together: some milliseconds at most, if links take turns.
PORTION_MAX: Final = 16


class Run(Generic[Owner]):
    """Consecutive deliveries of one link: the id of the first, and the context of each."""

    __slots__ = ("contexts", "first", "owner")

    def __init__(self, owner: Owner, first: int, contexts: list[object]) -> None:
        self.owner = owner
        self.first = first
        self.contexts = contexts


class _Stretch(Generic[Owner]):
    """Consecutive deliveries: the id of the first, and the link and context of each."""

    __slots__ = ("contexts", "first", "owners")

    def __init__(self, first: int, owners: list[Owner], contexts: list[object]) -> None:
        self.first = first
        self.owners = owners
        self.contexts = contexts

    def part(self, begin: int, end: int) -> _Stretch[Owner]:
        """The deliveries between these offsets."""
        return _Stretch((self.first + begin) & MASK, self.owners[begin:end], self.contexts[begin:end])

    def known(self) -> list[_Stretch[Owner]]:
        """The parts whose contexts are not forgotten."""
        blank = self.contexts.count(None)
        if not blank:
            return [self]
        parts: list[_Stretch[Owner]] = []
        if blank < len(self.contexts):
            at = 0
            for known, some in groupby(self.contexts, lambda context: context is not None):
                end = at + len(list(some))
                if known:
                    parts.append(self.part(at, end))
                at = end
        return parts

    def runs(self) -> list[Run[Owner]]:
        """The same deliveries as runs of one link each."""
        owners, contexts = self.owners, self.contexts
        total = len(owners)
        if owners.count(owners[0]) == total:
            return [Run(owners[0], self.first, contexts)]
        found: list[Run[Owner]] = []
        begin = 0
        for at in range(1, total + 1):
            if at == total or owners[at] is not owners[begin]:
                found.append(Run(owners[begin], (self.first + begin) & MASK, contexts[begin:at]))
                begin = at
        return found


class Unsettled(Generic[Owner]):
    """The unsettled deliveries, as stretches in the order of their ids."""

    __slots__ = ("_stretches", "count")

    def __init__(self) -> None:
        self.count = 0
        self._stretches: list[_Stretch[Owner]] = []

    def add(self, owner: Owner, first: int, contexts: Sequence[object]) -> None:
        """Add deliveries of one link from the id `first` on, which is after all that were added before."""
        self.add_each([owner] * len(contexts), first, contexts)

    def add_each(self, owners: Sequence[Owner], first: int, contexts: Sequence[object]) -> None:
        """Add deliveries, each of its own link."""
        self.count += len(contexts)
        stretches = self._stretches
        if stretches:
            last = stretches[-1]
            size = len(last.contexts)
            if size + len(contexts) <= _RUN_MAX and (last.first + size) & MASK == first:
                last.owners.extend(owners)
                last.contexts.extend(contexts)
                return
        for at in range(0, len(contexts), _RUN_MAX):
            stop = at + _RUN_MAX
            stretches.append(_Stretch((first + at) & MASK, list(owners[at:stop]), list(contexts[at:stop])))

    def room(self, next_id: int) -> int:
        """How many ids from `next_id` on may be used."""
        return HALF - ((next_id - self._stretches[0].first) & MASK) if self._stretches else HALF

    def take(self, first: int, length: int) -> list[Run[Owner]]:
        """Remove and return, in order, the deliveries among the `length` ids from `first` on."""
        return [run for found in self._remove(first, length) for run in found.runs()]

    def look(self, first: int, length: int) -> list[Run[Owner]]:
        """The deliveries among the `length` ids from `first` on whose contexts are known, without removing them."""
        found = self._cut(first, length, remove=False)
        return [run for stretch in found for part in stretch.known() for run in part.runs()]

    def portion(self, first: int, length: int) -> int:
        """How many of the `length` ids from `first` on are few enough to be taken or looked at together."""
        stretches = self._stretches
        if len(stretches) <= PORTION_MAX:
            return length
        base = stretches[0].first
        low = ((first - base + HALF) & MASK) - HALF  # as in `_cut`
        beyond = self._find(base, max(low, 0)) + PORTION_MAX
        if beyond >= len(stretches):
            return length
        return min(length, ((stretches[beyond].first - base) & MASK) - low)

    def blank(self, first: int, length: int) -> None:
        """Forget the contexts of the deliveries among the `length` ids from `first` on, which stay unsettled."""
        stretches = self._stretches
        base = stretches[0].first if stretches else first
        low = ((first - base + HALF) & MASK) - HALF  # as in `_cut`
        at = self._find(base, max(low, 0))
        while at < len(stretches):
            stretch = stretches[at]
            offset = (stretch.first - base) & MASK
            if offset >= low + length:
                break
            begin, end = max(low - offset, 0), min(low + length - offset, len(stretch.contexts))
            stretch.contexts[begin:end] = [None] * (end - begin)
            at += 1

    def remove(self, first: int, length: int) -> list[tuple[list[Owner], list[object]]]:
        """Remove the deliveries among the `length` ids from `first` on; returns their links and their contexts."""
        return [(stretch.owners, stretch.contexts) for stretch in self._remove(first, length)]

    def forget(self, owner: Owner) -> list[tuple[int, int]]:
        """Remove all deliveries of a link; returns them as ranges: the first id, and how many."""
        kept: list[_Stretch[Owner]] = []
        gone: list[tuple[int, int]] = []
        for stretch in self._stretches:
            if owner not in stretch.owners:
                kept.append(stretch)
                continue
            for run in stretch.runs():
                if run.owner is owner:
                    gone.append((run.first, len(run.contexts)))
                else:
                    kept.append(_Stretch(run.first, [run.owner] * len(run.contexts), run.contexts))
        self._stretches = kept
        self.count = sum(len(stretch.contexts) for stretch in kept)
        return gone

    def _remove(self, first: int, length: int) -> list[_Stretch[Owner]]:
        stretches = self._stretches
        if stretches and stretches[0].first == first and length <= len(stretches[0].contexts):  # in order: usual
            stretch = stretches[0]
            self.count -= length
            if length == len(stretch.contexts):
                return [stretches.pop(0)]
            taken = stretch.part(0, length)
            del stretch.owners[:length], stretch.contexts[:length]
            stretch.first = (first + length) & MASK
            return [taken]
        return self._cut(first, length, remove=True)

    def _cut(self, first: int, length: int, *, remove: bool) -> list[_Stretch[Owner]]:
        stretches = self._stretches
        if not stretches:
            return []
        base = stretches[0].first
        low = (first - base) & MASK
        if low >= HALF:
            low -= MASK + 1
        high = low + length  # ids are counted from the oldest one; this is the first one beyond
        found: list[_Stretch[Owner]] = []
        kept: list[_Stretch[Owner]] = []
        at = start = self._find(base, max(low, 0))
        while at < len(stretches):
            stretch = stretches[at]
            offset = (stretch.first - base) & MASK
            if offset >= high:
                break
            at += 1
            size = len(stretch.contexts)
            begin, end = max(low - offset, 0), min(high - offset, size)
            if begin >= end:
                kept.append(stretch)
                continue
            found.append(stretch.part(begin, end))
            if begin:
                kept.append(stretch.part(0, begin))
            if end < size:
                kept.append(stretch.part(end, size))
        if remove:
            stretches[start:at] = kept
            self.count -= sum(len(stretch.contexts) for stretch in found)
        return found

    def _find(self, base: int, offset: int) -> int:
        """The index of the last stretch that begins at or before `offset` ids after `base`."""
        stretches = self._stretches
        low, high = 0, len(stretches)
        while high - low > 1:
            middle = (low + high) // 2
            if (stretches[middle].first - base) & MASK <= offset:
                low = middle
            else:
                high = middle
        return low
