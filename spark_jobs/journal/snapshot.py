"""A snapshot: the pinned list of a journal's segments, so that every scan of an audit reads the same records.

Taking one reads the headers of the live segments and the manifests of retention.  The newest live segment is read
whole, once: where its valid entries end is where the snapshot ends, whatever the broker writes behind.  Segments in
front of a hole whose end no manifest tells are read too, so that what the hole has swallowed is counted to the record.

A segment is read from one place although there may be several copies: a live one is preferred, and of several live
journals the one that goes on longest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from typing import Any, Final

from spark_jobs.journal import files
from spark_jobs.journal.bounds import CLOCK_SLACK_MS, UNBOUNDED, Bounds
from spark_jobs.journal.listing import Listing, NothingThere, look
from spark_jobs.journal.pinning import Pinning
from spark_jobs.journal.segments import Gap, OpenSegments, SegmentRef, Vanished

#: Bytes of segments in one partition: a task costs 20 to 80 ms to start, which is little beside reading so much, and
#: a worker holds it in memory.
PARTITION_BYTES: Final = 64 << 20

#: Headers and directories that are read side by side: a request to an object store takes about 50 ms, mostly waiting.
THREADS: Final = 16

#: How often a journal is listed again when segments vanish, or seem to be missing, while it is looked at.  Each time
#: at least one more has gone: a broker that gives up so many during so many looks keeps nothing that could be audited.
ATTEMPTS_MAX: Final = 50

#: Of the JSON of a snapshot.
_VERSION: Final = 1


class SnapshotError(Exception):
    """There is nothing to audit; the message says why and what to do."""


class NoJournal(SnapshotError):
    """There are no segments."""


class SeveralBrokers(SnapshotError):
    """The segments are not all of one broker."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What there is to read, and what should be there.

    `broker_id` in hex; `journals` are the locations that were given; `segments` ascend by number and position.
    `missing` are holes that must not be: nothing can be proved about them.  `trimmed` are holes that the broker made
    itself, whose messages had all left.  `next_position` follows the last record.  `open_below`: ids below it may have
    lived in a trimmed hole, 0 if there is none.  `torn_bytes`: the unfinished end of the newest segment, which is
    normal.  `leftovers` are live segments, numbers, that the broker no longer needs and removes next.  `notes` are
    sentences for an operator.  `bounds`: what of the segments is wanted.
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
        """How much there is to read."""
        return sum(ref.limit for ref in self.segments)

    def to_json(self) -> str:
        """For the option of a data source; `from_json` makes the same snapshot of it.  A directory is named once."""
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
        """Raises ValueError."""
        try:
            plain: dict[str, Any] = json.loads(text)
            version, parents = plain.pop("version"), plain.pop("parents")
            if version != _VERSION:
                raise ValueError(f"a snapshot of version {version}, this software reads {_VERSION}")
            plain["segments"] = [SegmentRef(files.join(parents[row[0]], row[1]), *row[2:]) for row in plain["segments"]]
            plain |= {name: [Gap(*row) for row in plain[name]] for name in ("missing", "trimmed")}
            plain["bounds"] = Bounds(*plain["bounds"])
            plain |= {name: tuple(value) for name, value in plain.items() if isinstance(value, list)}
            return cls(**plain)
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ValueError(f"this is no snapshot: {error!r}") from error

    def bounded(self, **bounds: int | None) -> Snapshot:
        """What of it is within these bounds (the fields of Bounds) too.  See `within`."""
        return self.within(Bounds(**bounds))

    def within(self, bounds: Bounds) -> Snapshot:
        """Without the segments and holes that have nothing within these bounds and its own.

        A segment that may have something stays whole: readers apply the bounds to its records.  A hole is cut to the
        positions; it stays whole if its time, which nobody knows exactly, may be within.
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
        """Where the records of each segment may lie (Bounds.meet), by what is known of it and of its neighbours.

        A segment is begun after the one before it was begun, and before it its entries are not; all of them are sealed
        before the next one is begun.
        """
        for before, ref, behind in zip((None, *self.segments), self.segments, (*self.segments[1:], None), strict=False):
            end, first_time, last_time = ref.next_first, ref.first_time, ref.last_time
            if end is None and behind is not None:
                end = behind.first_position
            if not first_time and before is not None:
                first_time = before.created - CLOCK_SLACK_MS
            if not last_time and behind is not None and behind.created:
                last_time = behind.created + CLOCK_SLACK_MS
            yield ref.first_position, end, first_time, last_time or None

    def partitions(self, target_bytes: int = PARTITION_BYTES) -> list[list[SegmentRef]]:
        """The segments in order, packed to at most `target_bytes`; one that is larger stands alone."""
        packed: list[list[SegmentRef]] = []
        room = 0
        for ref in self.segments:
            if not packed or ref.limit > room:
                packed.append([])
                room = target_bytes
            packed[-1].append(ref)
            room -= ref.limit
        return packed


def by_broker(paths: Sequence[str], *, threads: int = THREADS) -> list[list[str]]:
    """These locations, those of one broker together, the broker of the first one first.

    Where nothing tells the broker, it is that of the first.  Raises as `take`.
    """
    if len(paths) == 1:
        return [[*paths]]
    found: dict[str, list[str]] = {}
    with ThreadPoolExecutor(threads) as pool:
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


def take(paths: Sequence[str], *, threads: int = THREADS, opened: OpenSegments | None = None) -> Snapshot:
    """Pin what is at these locations.

    Each is a data directory (with `journal` in it), a journal, a retention directory or one day of it; several of one
    broker are one journal.  `threads` read headers side by side.  What is in `opened` stays readable until that
    is closed.  Raises NoJournal, SeveralBrokers, Vanished, files.BadLocation, OSError.
    """
    places = [files.location(path) for path in paths]
    before: tuple[Gap, ...] = ()
    attempt = 0
    with ThreadPoolExecutor(threads) as pool:
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
            # What seems to be missing may have moved while it was looked for; then it is found the next time.
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
    for number in [number for number, told in kept.items() if told.broker_id != broker_id]:
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
        f"{left} of {len(segments)} segments are more files than may be open (ulimit -n): if the broker removes one of "
        "them meanwhile, it is missing"
    )
    return replace(found, segments=tuple(segments), notes=(*found.notes, *([note] if left else [])))


def _broker_of(listing: Listing) -> str:
    """The broker whose segments these are, "" if none can be read.  Raises SeveralBrokers."""
    brokers: dict[str, str] = {}
    for copy in listing.copies():
        if not copy.problem:
            brokers.setdefault(copy.broker_id, copy.uri)
    if len(brokers) > 1:
        examples = "; ".join(f"{broker_id}: {uri}" for broker_id, uri in brokers.items())
        raise SeveralBrokers(f"segments of {len(brokers)} brokers, audit them one at a time: {examples}")
    return next(iter(brokers), "")
