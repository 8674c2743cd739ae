"""Which segments are not there, and whether that is right.

Numbers follow each other without a gap, and so do positions.  Where numbers are absent between two segments, the
positions between them are lost; whether the broker gave them up itself is judged by these rules, the first that fits:

    absent segment                                                     judgement
    ----------------------------------------------------------------   ---------
    the newest segment says that it is needed                          missing
    it was begun after the segment that says what is needed            missing
    a manifest says that it is kept, and no line that it was let go    missing
    a manifest says that it was let go                                 trimmed
    an older one is kept: retention lets the oldest go first           missing
    else: retention was off, or a limit has taken it long ago          trimmed

Trimmed means that no message in it was alive: nothing is wrong, but what is missing there cannot be audited any more.
A run of absent segments is split where a manifest knows a position between them; what cannot be split is missing as a
whole if any of it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise
from typing import Final

from spark_jobs.journal import files
from spark_jobs.journal.segments import Gap
from spark_jobs.journal.walk import UNKNOWN
from store.manifest import Manifest
from store.retention import day_name
from store.segment import segment_name

#: Why what is absent should be there; `it` is one segment or several.
_NEEDED: Final = "a broker needs {it}"
_KEPT: Final = "retention keeps {it}, by its manifest"
_UNEXPLAINED: Final = "older ones are kept, and no manifest says that the broker let {it} go"
_OVERLAP: Final = "what is behind {it} begins before what is in front ends"
_UNREADABLE: Final = "a segment beside {it} cannot be read, so nobody knows whose the lost records are"


@dataclass(frozen=True, slots=True)
class Absent:
    """The numbers `first` to `last` have no segment, between the positions `start` and `stop`.

    `since` and `until` are when the segments around them were begun, ms since the epoch, 0: not known.  `unreadable`:
    segments that cannot be read lie between the same positions.
    """

    first: int
    last: int
    start: int
    stop: int
    since: int = 0
    until: int = 0
    unreadable: bool = False

    @property
    def numbers(self) -> range:
        """The numbers."""
        return range(self.first, self.last + 1)


@dataclass(frozen=True, slots=True)
class Judge:
    """Judges what is absent.

    `needed`: the segments of which the newest one says so, ascending; `begun_after`: all above this number are needed
    too, None: no segment says anything.  `expected`: those of which the manifest says that they are kept, ascending.
    `oldest_kept`: the lowest number under retention, 0 if nothing is.  `journal` and
    `retention` are where segments would be, "" if that is not looked at.
    """

    manifest: Manifest
    expected: Sequence[int]
    needed: Sequence[int]
    begun_after: int | None
    oldest_kept: int
    journal: str
    retention: str

    def gaps(self, run: Absent) -> Iterator[tuple[bool, Gap]]:
        """The gaps of a run in order, each with whether it is missing."""
        if run.stop < run.start:
            yield True, self._gap(run, _OVERLAP)
        elif run.unreadable:
            yield True, self._gap(run, _UNREADABLE)
        else:
            for why, same in groupby(self._pieces(run), key=self._why_missing):
                pieces = [*same]
                whole = replace(pieces[0], last=pieces[-1].last, stop=pieces[-1].stop)
                if whole.stop > whole.start:  # a segment without records is no loss
                    yield bool(why), self._gap(whole, why)

    def _pieces(self, run: Absent) -> Iterator[Absent]:
        """The run split where a manifest knows the position between two of its segments."""
        kept = self.manifest.kept
        known: dict[int, int] = {}
        for number in sorted(kept.keys() & run.numbers):
            known[number] = kept[number].first_position
            known[number + 1] = kept[number].next_position
        known |= {run.first: run.start, run.last + 1: run.stop}
        firsts = sorted(known)
        if any(known[a] > known[b] for a, b in pairwise(firsts)):  # the manifest is not about this journal
            yield run
            return
        for first, behind in pairwise(firsts):
            yield replace(run, first=first, last=behind - 1, start=known[first], stop=known[behind])

    def _why_missing(self, piece: Absent) -> str:
        """Why any segment of a piece must be there, "" if none must."""
        manifest, numbers = self.manifest, piece.numbers
        if _any_within(self.needed, numbers):
            return _NEEDED
        if self.begun_after is not None and piece.last > self.begun_after:
            return _NEEDED
        if _any_within(self.expected, numbers):
            return _KEPT
        older = 0 < self.oldest_kept < piece.first
        if older and not all(manifest.why_removed(number) for number in numbers):
            return _UNEXPLAINED
        return ""

    def _gap(self, run: Absent, why: str) -> Gap:
        records = UNKNOWN if run.stop < run.start else run.stop - run.start
        one = run.first == run.last
        it, which = ("it", f"segment {run.first} is") if one else ("them", f"segments {run.first} to {run.last} are")
        if why:
            what = f"{which} missing: {why.format(it=it)}"
        elif not self.journal and run.first == 1:
            what = f"{which} before what is looked at"
        else:
            what = f"{which} no longer there: all messages in {it} had left"
        return Gap(self._place(run, why), run.first, run.last, run.start, records, what, run.since, run.until)

    def _place(self, run: Absent, why: str) -> str:
        """Where somebody would look for the first segment of a run."""
        kept = self.manifest.kept.get(run.first)
        if kept is None or why == _NEEDED or not self.retention:
            directory = self.journal or self.retention
        else:
            directory = files.join(self.retention, day_name(kept.created))
        return files.join(directory, segment_name(run.first))


def _any_within(ascending: Sequence[int], numbers: range) -> bool:
    at = bisect_left(ascending, numbers.start)
    return at < len(ascending) and ascending[at] in numbers
