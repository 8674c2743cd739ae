"""Retention: keeps segments that the broker no longer needs, for audits.

Large bodies that such segments refer to are kept beside them, without a line in the manifest: what an audit needs of
them, length and checksum, is in their records.

A segment is moved to `retention/date=YYYY-MM-DD/`, the UTC day on which it was created, and the manifest of that day
describes it.  Two limits apply after each move, by age and by bytes; the oldest segments beyond them are removed first.
A day's directory is removed with its last segment.

An audit considers a segment missing if it is neither in the journal nor kept although an older one is kept, and no
manifest says why.  So a line is written, durably and beforehand, whenever a segment above the oldest kept one is
removed: by a limit, because retention is off at the moment, or because the oldest kept one has just become older (a
segment that was needed for long is trimmed after newer ones).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from errno import ENOENT
from itertools import pairwise, takewhile
from typing import Final

from store import manifest
from store.files import EXHAUSTED, NO_ROOM, Files
from store.manifest import MANIFEST, KeptSegment, Manifest
from store.segment import SEGMENT_HEADER_BYTES, Entry, EntryHead, decode_header, scan, segment_name, segment_number
from store.segment_directory import SegmentDirectory

DIRECTORY: Final = "retention"
DAY_PREFIX: Final = "date="


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """The limits: `age_days` counts from the end of a segment's day, `bytes_max` is for all kept segments; -1: none."""

    enabled: bool = False
    age_days: int = -1
    bytes_max: int = -1


@dataclass(slots=True)
class Extent:
    """The extent of a segment: the position behind its last record, the lowest and highest time of its entries.

    The writer of the segment knows it without reading it.  Times in ms since the epoch, 0: there are no entries.
    """

    next_position: int
    first_time: int = 0
    last_time: int = 0

    def grow(self, entries: Sequence[Entry] | Sequence[EntryHead]) -> None:
        """Extend it by entries that were written."""
        times = [entry.timestamp for entry in entries]  # not sorted if the clock was set back
        self.next_position = entries[-1].first + entries[-1].count
        self.first_time = min(self.first_time or times[0], *times)
        self.last_time = max(self.last_time, *times)


# -- kept segments -----------------------------------------------------------------------------------------------------


def day_name(created: int) -> str:
    """The name of the directory for kept segments that were created then (ms since the epoch)."""
    return f"{DAY_PREFIX}{_day(created)}"


def _day(ms: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)).date().isoformat()


def _days(files: Files, directory: str) -> dict[str, list[str]]:
    """The directories of the days, oldest first, each with the names in it.

    Beside a running broker, a day may be removed after its name was listed.
    """
    root = f"{directory}/{DIRECTORY}"
    days: dict[str, list[str]] = {}
    with suppress(FileNotFoundError):
        for name in files.list_dir(root):
            with suppress(FileNotFoundError):
                if name.startswith(DAY_PREFIX):
                    days[f"{root}/{name}"] = files.list_dir(f"{root}/{name}")
    return days


def kept(files: Files, directory: str) -> list[str]:
    """The paths of all kept segments, oldest first."""
    return [f"{day}/{name}" for day, names in _days(files, directory).items() for name in names if segment_number(name)]


def kept_numbers(files: Files, directory: str) -> list[int]:
    """The numbers of all kept segments."""
    return [segment_number(path.rpartition("/")[2]) for path in kept(files, directory)]


def read_manifests(files: Files, directory: str) -> Manifest:
    """The combined manifests of all days.  Raises OSError."""
    found = Manifest()
    for day, names in _days(files, directory).items():
        if MANIFEST in names:
            with suppress(FileNotFoundError):
                found.add(files.read(f"{day}/{MANIFEST}"))
    return found


# -- unneeded segments and bodies --------------------------------------------------------------------------------------


class Retention:
    """Keeps the segments and large bodies that a journal no longer needs, within the limits, or removes them.

    `now` returns ms since the epoch.  Unless the journal is `synced`, segments are made durable before they are kept.
    """

    def __init__(
        self, files: Files, directory: str, settings: RetentionSettings, *, now: Callable[[], int], synced: bool
    ) -> None:
        self.enabled = settings.enabled
        #: The extents of the segments begun in this run; the writer updates them.
        self.extents: dict[int, Extent] = {}
        self._files = files
        self._directory = directory
        self._settings = settings
        self._now = now
        self._synced = synced
        self._unsynced: list[str] = []
        self._moved = 0  # the last segment that was moved or removed

    def let_go(self, segment: int) -> None:
        """Move a segment from the journal to retention, or remove it; durably.  Raises OSError, and may be repeated."""
        self._sync_dirs()
        if segment != self._moved:
            if self.enabled:
                self._keep(segment)
            else:
                self._discard(segment)
            self._moved = segment
            self._sync_dirs()
        self.extents.pop(segment, None)

    def _sync_dirs(self) -> None:
        """Sync the directories of earlier moves and removals, which a lack of descriptors may have prevented."""
        while self._unsynced:
            self._files.sync_dir(self._unsynced[0])
            del self._unsynced[0]

    def _keep(self, segment: int) -> None:
        files, directory = self._files, self._directory
        path = SegmentDirectory(files, directory).path(segment)
        if not self._synced:
            with closing(files.open(path)) as file:
                file.sync()
        described = _describe(files, path, self.extents.get(segment))
        lines = [
            manifest.removed_line(gone[0], manifest.GONE, through=gone[-1])
            for gone in _gone_above(files, directory, segment)
        ]
        day = f"{directory}/{DIRECTORY}/{day_name(described.created)}"
        files.make_dir(day)
        manifest.append(files, day, [*lines, manifest.kept_line(described)])
        files.rename(path, f"{day}/{segment_name(segment)}")
        self._unsynced += [day, directory]

    def _discard(self, segment: int) -> None:
        files, directory = self._files, self._directory
        days = [*_days(files, directory)]

        def remove() -> None:
            files.remove(SegmentDirectory(files, directory).path(segment))

        if days:
            _record_and(remove, files, days[-1], [manifest.removed_line(segment, manifest.OFF)])
        else:
            remove()
        self._unsynced.append(directory)

    def keep_body(self, path: str) -> None:
        """Move a large body from the journal to retention, under the day on which it became unneeded.  Raises OSError.

        So it stays at least as long as the segment with its message, which is kept under an earlier day or the same.
        The move is durable: the segment may be moved next, and then no record of the journal would refer to a body that
        reappeared.
        """
        files, now = self._files, self._now()
        day = f"{self._directory}/{DIRECTORY}/{day_name(now)}"
        home, _, name = path.rpartition("/")
        files.make_dir(day)
        files.rename(path, f"{day}/{name}")
        self._unsynced += [day, home]
        try:
            self._sync_dirs()
            _enforce(files, self._directory, self._settings, now)
        except OSError as error:
            if error.errno not in EXHAUSTED:  # else it is done before the next segment moves
                raise

    def enforce(self) -> None:
        """Remove kept segments and large bodies beyond the limits of age and bytes.  Raises OSError."""
        if self.enabled:
            _enforce(self._files, self._directory, self._settings, self._now())


def find_body(files: Files, directory: str, name: str) -> str:
    """The path of a kept large body.  Raises FileNotFoundError."""
    for day, names in _days(files, directory).items():
        if name in names:
            return f"{day}/{name}"
    raise FileNotFoundError(ENOENT, "it is not kept", name)


def _gone_above(files: Files, directory: str, segment: int) -> list[range]:
    """Runs of segments that no longer exist, between this one and the oldest kept one or the newest in the journal."""
    there = {number for number in SegmentDirectory(files, directory).segments() if number > segment}
    oldest = min(kept_numbers(files, directory), default=max(there, default=0))
    if oldest < segment:
        return []
    there |= read_manifests(files, directory).expected
    bounds = [segment, *sorted(number for number in there if segment < number < oldest), oldest]
    return [range(low + 1, high) for low, high in pairwise(bounds) if high > low + 1]


def _describe(files: Files, path: str, extent: Extent | None) -> KeptSegment:
    data = files.read_range(path, 0, SEGMENT_HEADER_BYTES)
    header = decode_header(data)
    if extent is None:
        data = files.read(path)
        found = scan(data, header)
        times = [entry.timestamp for entry in found.entries]
        extent = Extent(found.position, min(times, default=0), max(times, default=0))
    return KeptSegment(
        segment=header.number,
        broker_id=header.broker_id.hex(),
        first_position=header.first_position,
        next_position=extent.next_position,
        created=header.created,
        first_time=extent.first_time,
        last_time=extent.last_time,
        bytes=files.size(path),
    )


# -- limits ------------------------------------------------------------------------------------------------------------


def _enforce(files: Files, directory: str, settings: RetentionSettings, now: int) -> None:
    days = {day: [name for name in names if name != MANIFEST] for day, names in _days(files, directory).items()}
    sizes = {f"{day}/{name}": files.size(f"{day}/{name}") for day, names in days.items() for name in names}
    total = sum(sizes.values())
    oldest = _day(now - (settings.age_days + 1) * 86_400_000) if settings.age_days >= 0 else ""
    old = {day for day in days if day.rpartition(DAY_PREFIX)[2] <= oldest}
    going: list[str] = []
    for path in sizes:
        if path.rpartition("/")[0] not in old and not 0 <= settings.bytes_max < total:
            break
        going.append(path)
        total -= sizes[path]
    if going:
        _let_go(files, going, old, newest=[*days][-1])
    staying = next((path.rpartition("/")[0] for path in [*sizes][len(going) :]), None)
    for day in takewhile(lambda day: day != staying, days):
        _clear(files, day, directory, too_old=day in old)


def _let_go(files: Files, paths: Sequence[str], old: Collection[str], *, newest: str) -> None:
    """Remove kept segments and bodies; those of the `old` days because of their age."""
    lines = []
    for path in paths:
        day, _, name = path.rpartition("/")
        if not segment_number(name):
            continue
        lines.append(manifest.removed_line(segment_number(name), manifest.AGE if day in old else manifest.BYTES))

    def remove() -> None:
        for path in paths:
            files.remove(path)

    _record_and(remove, files, newest, lines)
    for day in dict.fromkeys(path.rpartition("/")[0] for path in paths):
        files.sync_dir(day)  # a segment must not reappear once the lines are removed with the last day


def _record_and(remove: Callable[[], None], files: Files, day: str, lines: Sequence[bytes]) -> None:
    """Write the manifest's lines about a removal, then remove.

    On a full disk the order is reversed, as the removal makes room; if there is none even then, an audit will report
    the segments as missing.
    """
    written = _append_if_room(files, day, lines)
    remove()
    if not written:
        _append_if_room(files, day, lines)


def _append_if_room(files: Files, day: str, lines: Sequence[bytes]) -> bool:
    try:
        manifest.append(files, day, lines)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return False
    return True


def _clear(files: Files, day: str, directory: str, *, too_old: bool) -> None:
    """Remove the directory of a day without segments, unless its manifest lists one that no limit has removed."""
    if MANIFEST in files.list_dir(day):
        found = Manifest()
        found.add(files.read(f"{day}/{MANIFEST}"))
        if not too_old and found.kept.keys() & read_manifests(files, directory).expected:
            return
        files.sync_dir(day)  # nor a segment, once no line says that it was removed
        files.remove(f"{day}/{MANIFEST}")
    if not files.list_dir(day):
        files.sync_dir(day)  # a name must not reappear in a removed directory
        files.remove_dir(day)
