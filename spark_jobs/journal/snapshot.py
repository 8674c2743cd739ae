"""A snapshot: the pinned list of a journal's segments, so that every scan of an audit reads the same records.

Taking one reads the headers of the live segments and the manifests of retention.  The newest live segment is read
completely, once: the snapshot ends where its valid entries end, whatever the broker writes after that.  Segments before
a hole are also read if no manifest has their end, so that the lost records are counted exactly.

Even if there are several copies of a segment, it is read from only one place: a live one is preferred, and of several
live journals the longest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final

from spark_jobs.journal import files
from spark_jobs.journal.bounds import CLOCK_SLACK_MS, UNBOUNDED, Bounds, sealed_between
from spark_jobs.journal.listing import Listing, NothingThere, look
from spark_jobs.journal.pinning import Pinning
from spark_jobs.journal.segments import Gap, OpenSegments, SegmentRef, Vanished
from spark_jobs.journal.walk import UNKNOWN

#: Bytes of segments in one partition: starting a task costs 20 to 80 ms, which is little compared to reading this much.
#: A worker holds one partition in memory.
PARTITION_BYTES: Final = 64 << 20

#: Number of headers and directories read in parallel: a request to an object store takes about 50 ms, mostly waiting.
THREADS: Final = 16

#: Maximum number of times that a journal is listed if segments vanish, or seem to be missing, meanwhile.  Each time, at
#: least one more has vanished: a broker that removes segments this fast keeps nothing that could be audited.
ATTEMPTS_MAX: Final = 50

#: What is said of kept segments that a ledger cannot use.
_BROKEN_OFF: Final = "kept, but the broker did not keep segments behind it"

#: The version of a snapshot's JSON.
_VERSION: Final = 1


class SnapshotError(Exception):
    """The journal cannot be audited; the message says why and what to do."""


class NoJournal(SnapshotError):
    """There are no segments."""


class SeveralBrokers(SnapshotError):
    """The segments belong to several brokers."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A journal at one moment: its segments to read, and those that are absent.

    `broker_id` is in hex; `journals` are the given locations; `segments` ascend by number and position.  `missing` are
    holes that must not exist: nothing can be proved about them.  `trimmed` are holes that the broker made itself, after
    all their messages had left.  `next_position` follows the last record.  `open_below`: ids below it may have been in
    use in a trimmed hole, 0 if there is none.  `torn_bytes`: the unfinished end of the newest segment, which is normal.
    `leftovers` are the numbers of live segments that the broker no longer needs: it will remove them next, or they are
    in a copy of the journal that is older than the rest.  `notes` are messages for an operator.  `bounds`: the part of
    the segments to read.
    """

    broker_id: str
    journals: tuple[str, ...]
    segments: tuple[SegmentRef, ...]
    missing: tuple[Gap, ...] = ()
    trimmed: tuple[Gap, ...] = ()
    next_position: int = 0
    open_below: int = 0
    torn_bytes: int = 0
    leftovers: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    bounds: Bounds = UNBOUNDED

    @property
    def bytes(self) -> int:
        """The number of bytes to read."""
        return sum(ref.limit for ref in self.segments)

    @property
    def broken_off(self) -> frozenset[int]:
        """The numbers of trimmed segments in front of a hole that the broker made: retention was turned off after them.

        They are kept or left over.  A message in them whose removal cannot be found may have left in the hole.  If it
        did not, there is a copy of it in another segment, as all messages in them had left or were copied forward.
        """
        hole = max((gap.last_segment for gap in self.trimmed), default=0)
        return frozenset(number for number in self._unneeded if number < hole)

    @property
    def lifeless(self) -> frozenset[int]:
        """The numbers of the segments in which no message is alive at the end of the snapshot.

        A message that they store has left, or is in another segment as well: copied forward.  If the snapshot does not
        reach the end of a live journal, this is only known of `broken_off`.
        """
        bounds = self.bounds
        to_the_end = bounds.to_position is None and bounds.to_time is None and any(ref.newest for ref in self.segments)
        return frozenset(self._unneeded) if to_the_end else self.broken_off

    @property
    def _unneeded(self) -> set[int]:
        left_over = set(self.leftovers)
        return {ref.number for ref in self.segments if ref.kept or ref.number in left_over}

    def without_broken_off(self) -> Snapshot:
        """The snapshot with `broken_off` as parts of the holes."""
        gone = self.broken_off
        left = [
            Gap(ref.uri, ref.number, ref.number, ref.first_position, ref.records, _BROKEN_OFF, ref.created, ref.created)
            for ref in self.segments
            if ref.number in gone
        ]
        holes: list[Gap] = []
        for gap in sorted((*self.trimmed, *left), key=lambda each: each.first_segment):
            if left and holes and holes[-1].last_segment + 1 == gap.first_segment:
                holes[-1] = _joined(holes[-1], gap)
            else:
                holes.append(gap)
        return replace(
            self, segments=tuple(ref for ref in self.segments if ref.number not in gone), trimmed=tuple(holes)
        )

    def to_json(self) -> str:
        """JSON for the option of a data source; see `from_json`.  Each directory is named once."""
        parents: dict[str, int] = {}
        plain: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        plain |= {name: [astuple(row) for row in plain[name]] for name in ("segments", "missing", "trimmed")}
        plain["segments"] = [
            (parents.setdefault(files.parent_of(uri), len(parents)), files.name_of(uri), *rest)
            for uri, *rest in plain["segments"]
        ]
        plain |= {"version": _VERSION, "parents": [*parents], "bounds": astuple(self.bounds)}
        return json.dumps(plain, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Snapshot:
        """The snapshot that `to_json` wrote.  Raises ValueError."""
        try:
            plain: dict[str, Any] = json.loads(text)
            version, parents = plain.pop("version"), plain.pop("parents")
            if version != _VERSION:
                raise ValueError(f"the snapshot has version {version}, this software reads {_VERSION}")
            plain["segments"] = [SegmentRef(files.join(parents[row[0]], row[1]), *row[2:]) for row in plain["segments"]]
            plain |= {name: [Gap(*row) for row in plain[name]] for name in ("missing", "trimmed")}
            plain["bounds"] = Bounds(*plain["bounds"])
            plain |= {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
            return cls(**plain)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"this is not a snapshot: {error!r}") from error

    def bounded(self, **bounds: int | None) -> Snapshot:
        """The snapshot restricted to these bounds (the fields of Bounds)."""
        return self.within(Bounds(**bounds))

    def within(self, bounds: Bounds) -> Snapshot:
        """The snapshot restricted to these bounds and its own, without segments and holes that are completely outside.

        A segment that may have records within stays complete: readers apply the bounds to its records.  A hole is cut
        to the range of positions, but not to the times, which are not known exactly.
        """
        bounds = bounds.within(self.bounds)
        return replace(
            self,
            segments=tuple(ref for ref, span in zip(self.segments, self._spans(), strict=True) if bounds.meet(*span)),
            missing=tuple(bounds.cut(self.missing)),
            trimmed=tuple(bounds.cut(self.trimmed)),
            bounds=bounds,
        )

    def _spans(self) -> Iterator[tuple[int, int | None, int, int | None]]:
        """Where the records of each segment may be (Bounds.meet), from what is known about it and its neighbours.

        A segment is begun after the previous one; its entries are sealed after that, and before the next one is begun.
        If the clock was set back since the previous one was begun, it says nothing.
        """
        for before, ref, behind in zip((None, *self.segments), self.segments, (*self.segments[1:], None), strict=False):
            end, first_time, last_time = ref.next_first, ref.first_time, ref.last_time
            if end is None and behind is not None:
                end = behind.first_position
            since, until = sealed_between(ref.created, 0 if behind is None else behind.created)
            if before is not None and before.created < ref.created:
                since = min(since, before.created - CLOCK_SLACK_MS)
            yield ref.first_position, end, first_time or since, last_time or until

    def partitions(self, target_bytes: int = PARTITION_BYTES) -> list[list[SegmentRef]]:
        """The segments in order, packed to at most `target_bytes` each; a larger segment is a partition of its own."""
        packed: list[list[SegmentRef]] = []
        room = 0
        for ref in self.segments:
            if not packed or ref.limit > room:
                packed.append([])
                room = target_bytes
            packed[-1].append(ref)
            room -= ref.limit
        return packed


def _joined(one: Gap, behind: Gap) -> Gap:
    """One hole of two, with no segment between them."""
    records = UNKNOWN if UNKNOWN in (one.records, behind.records) else one.records + behind.records
    return replace(one, last_segment=behind.last_segment, records=records, until=behind.until)


def by_broker(paths: Sequence[str]) -> list[list[str]]:
    """These locations grouped by broker, beginning with the broker of the first location.

    Locations whose broker is unknown belong to the first group.  Raises the same exceptions as `take`.
    """
    if len(paths) == 1:
        return [[*paths]]
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(THREADS) as pool:
        for path in paths:
            found.setdefault(_broker_at(files.location(path), pool), []).append(path)
    untold = found.pop("", [])
    groups = [*found.values()] or [[]]
    groups[0] += untold
    return groups


def _broker_at(place: str, pool: ThreadPoolExecutor) -> str:
    for _ in range(ATTEMPTS_MAX - 1):
        try:
            return _broker_of(_look([place], pool))
        except Vanished:
            continue
    return _broker_of(_look([place], pool))


def take(paths: Sequence[str], *, opened: OpenSegments | None = None) -> Snapshot:
    """Pin the contents of these locations.

    Each is a data directory (with `journal` in it), a journal, a retention directory or one day of it; several of one
    broker are one journal.  Segments in `opened` stay readable until it is closed.  Raises NoJournal, SeveralBrokers,
    Vanished, files.BadLocation, OSError.
    """
    places = [files.location(path) for path in paths]
    before: tuple[Gap, ...] = ()
    attempt = 0
    with ThreadPoolExecutor(THREADS) as pool:
        while True:
            attempt += 1
            try:
                found = _take(places, pool)
                if opened is not None:
                    found = _opened(found, opened)
            except Vanished:
                if attempt == ATTEMPTS_MAX:
                    raise
                continue
            # Segments that seem to be missing may have moved meanwhile: then they are found the next time.
            if found.missing == before or attempt == ATTEMPTS_MAX:
                return found
            before = found.missing


def _look(places: Sequence[str], pool: ThreadPoolExecutor) -> Listing:
    try:
        return look(places, pool)
    except NothingThere as nothing:
        raise NoJournal(str(nothing)) from nothing


def _take(places: Sequence[str], pool: ThreadPoolExecutor) -> Snapshot:
    listing = _look(places, pool)
    if not any(listing.copies()):
        raise NoJournal(f"{', '.join(places) or 'no location was given'}: there are no segments (NNNNNNNNNN.journal)")
    broker_id = _broker_of(listing)
    kept = listing.manifest.kept
    for number in [number for number, segment in kept.items() if segment.broker_id != broker_id]:
        del kept[number]
    pinned = Pinning(listing, pool)
    return Snapshot(
        broker_id=broker_id,
        journals=tuple(places),
        segments=tuple(pinned.segments),
        missing=tuple(pinned.missing),
        trimmed=tuple(pinned.trimmed),
        next_position=pinned.next_position,
        open_below=pinned.open_below,
        torn_bytes=pinned.torn_bytes,
        leftovers=tuple(pinned.leftovers),
        notes=tuple(pinned.notes),
    )


def _opened(found: Snapshot, opened: OpenSegments) -> Snapshot:
    segments, left = opened.open(found.segments)
    note = (
        f"{left} of {len(segments)} segments exceed the limit of open files (ulimit -n): if the broker removes one of "
        "them meanwhile, it is missing"
    )
    return replace(found, segments=tuple(segments), notes=(*found.notes, *([note] if left else [])))


def _broker_of(listing: Listing) -> str:
    """The broker to which these segments belong, "" if none can be read.  Raises SeveralBrokers."""
    brokers: dict[str, str] = {}
    for copy in listing.copies():
        if not copy.problem:
            brokers.setdefault(copy.broker_id, copy.uri)
    if len(brokers) > 1:
        examples = "; ".join(f"{broker_id}: {uri}" for broker_id, uri in brokers.items())
        raise SeveralBrokers(f"the segments belong to {len(brokers)} brokers, audit them one at a time: {examples}")
    return next(iter(brokers), "")
