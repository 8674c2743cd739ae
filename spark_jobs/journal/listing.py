"""The contents of some locations: every copy of every segment, and the manifests of retention.

A live journal is listed before its retention directory, and this before the manifests are read.  Thus, a segment that
moves meanwhile is seen twice instead of never, and the removal of a segment because of a limit is explained.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from spark_jobs.journal import files
from spark_jobs.journal.files import Found
from spark_jobs.journal.segments import Vanished
from store.manifest import MANIFEST, Manifest
from store.retention import DAY_PREFIX, DIRECTORY
from store.segment import SEGMENT_HEADER_BYTES, BadHeader, decode_header, header_of, scan, segment_number

#: The journal in a broker's data directory.
_JOURNAL: Final = "journal"


class NothingThere(Exception):
    """A location is not a directory with parts of a journal; the message says which."""


@dataclass(slots=True)
class Copy:
    """A segment's file.

    The header's fields come from the manifest line, if there is one that matches the file, or were read; `problem` says
    why they could not be read.  `next_position`, `first_time` and `last_time` come only from a manifest.
    """

    uri: str
    number: int
    size: int
    live: bool
    broker_id: str = ""
    first_position: int = 0
    created: int = 0
    next_position: int | None = None
    first_time: int = 0
    last_time: int = 0
    problem: str = ""

    def fail(self, error: OSError) -> None:
        """Note that the disk cannot read it; any other error is raised."""
        if error.errno != errno.EIO:
            raise error
        self.problem = f"the disk cannot read it: {error}"

    def differs(self, other: Copy) -> bool:
        """Whether another copy of the same segment differs, as far as is known."""
        if self.problem or other.problem:
            return self.problem != other.problem
        mine = (self.first_position, self.created, self.size)
        return mine != (other.first_position, other.created, other.size)


@dataclass(slots=True)
class Directory:
    """A directory with segments: a live journal, or one day of retention."""

    uri: str
    live: bool
    copies: list[Copy] = field(default_factory=list)
    manifest: bool = False

    @property
    def newest(self) -> int:
        """The highest segment number in it, 0 if it is empty."""
        return max([copy.number for copy in self.copies], default=0)


@dataclass(slots=True)
class Listing:
    """All directories and manifests."""

    directories: list[Directory]
    manifest: Manifest = field(default_factory=Manifest)
    notes: list[str] = field(default_factory=list)

    @property
    def journal(self) -> Directory | None:
        """The live journal; if there are several copies, the longest."""
        live = [directory for directory in self.directories if directory.live and directory.copies]
        return max(live, key=lambda each: each.newest, default=None)

    def copies(self) -> Iterator[Copy]:
        """All copies in order of preference: those of the live journal, kept ones, those of other journals."""
        journal = self.journal
        for directory in sorted(self.directories, key=lambda each: (each is not journal, each.live)):
            yield from directory.copies


def look(places: Sequence[str], pool: Executor) -> Listing:
    """List the contents of these locations, and read the manifests and the headers that these lack.

    Raises NothingThere, Vanished, OSError, files.BadLocation.
    """
    directories: dict[str, Directory] = {}
    for place in places:
        for directory in _list(place, pool):
            directories.setdefault(directory.uri, directory)
    listing = Listing([*directories.values()])
    _read_manifests(listing, pool)
    _read_headers(listing, pool)
    _put_the_longest_first(listing, pool)
    return listing


def _list(place: str, pool: Executor) -> list[Directory]:
    """The directories with segments at a location, live ones first."""
    try:
        inside = files.list_dir(place)
    except FileNotFoundError as missing:
        raise NothingThere(f"{place}: there is no such directory") from missing
    except NotADirectoryError as file:
        raise NothingThere(f"{place}: this is a file, but a journal is a directory") from file
    folders = {each.name for each in inside if each.directory}
    if any(name.startswith(DAY_PREFIX) for name in folders):
        return _list_days(place, inside, pool)
    here = _directory(place, inside)
    if files.name_of(place).startswith(DAY_PREFIX) or (here.manifest and DIRECTORY not in folders):
        return [_directory(place, inside, live=False)]
    if _JOURNAL in folders and not here.copies:
        return _list(files.join(place, _JOURNAL), pool)
    if DIRECTORY not in folders:
        return [here]
    retention = files.join(place, DIRECTORY)
    return [here, *_list_days(retention, files.list_dir(retention), pool)]


def _list_days(retention: str, inside: Sequence[Found], pool: Executor) -> list[Directory]:
    days = [files.join(retention, each.name) for each in inside if each.name.startswith(DAY_PREFIX) and each.directory]
    return [found for found in pool.map(_list_day, days) if found is not None]


def _list_day(day: str) -> Directory | None:
    try:
        return _directory(day, files.list_dir(day), live=False)
    except FileNotFoundError:  # a limit removed it
        return None


def _directory(place: str, inside: Sequence[Found], *, live: bool = True) -> Directory:
    names = [each for each in inside if not each.directory]
    copies = [
        Copy(files.join(place, each.name), number, each.size, live)
        for each in names
        if (number := segment_number(each.name))
    ]
    return Directory(place, live, copies, any(each.name == MANIFEST for each in names))


# -- contents of the segments ------------------------------------------------------------------------------------------


def _read_manifests(listing: Listing, pool: Executor) -> None:
    """Read all manifests, and apply them to the copies."""
    places = [files.join(day.uri, MANIFEST) for day in listing.directories if day.manifest]
    manifest = listing.manifest
    for place, data in zip(places, pool.map(_read_if_there, places), strict=True):
        before = manifest.unreadable
        manifest.add(data)
        if manifest.unreadable > before:
            lines = manifest.unreadable - before
            listing.notes.append(f"{place}: {lines} lines cannot be read: incomplete writes, or damage")
    for copy in listing.copies():
        line = manifest.kept.get(copy.number)
        if line is not None and not copy.live and line.bytes == copy.size:
            copy.broker_id, copy.first_position, copy.created = line.broker_id, line.first_position, line.created
            copy.next_position, copy.first_time, copy.last_time = line.next_position, line.first_time, line.last_time


def _read_if_there(place: str) -> bytes:
    try:
        return files.read(place)
    except FileNotFoundError:  # its day was removed
        return b""


def _read_headers(listing: Listing, pool: Executor) -> None:
    """Read the headers that no manifest has.  Drops vanished copies; raises Vanished if it was the last copy."""
    unknown = [copy for copy in listing.copies() if not copy.broker_id]
    gone = [copy for copy, there in zip(unknown, pool.map(_read_header, unknown), strict=True) if not there]
    for directory in listing.directories if gone else ():
        directory.copies = [copy for copy in directory.copies if not any(copy is each for each in gone)]
    there = {copy.number for copy in listing.copies()}
    for copy in gone:
        if copy.number not in there:
            raise Vanished(f"{copy.uri}: the segment is no longer there")


def _read_header(copy: Copy) -> bool:
    """Read a copy's header, or note what is wrong with it.  Returns whether the copy still exists."""
    try:
        header = header_of(copy.number, files.read(copy.uri, SEGMENT_HEADER_BYTES))
    except FileNotFoundError:
        return False
    except OSError as error:
        copy.fail(error)
    except BadHeader as bad:
        copy.problem = str(bad)
    else:
        copy.broker_id = header.broker_id.hex()
        copy.first_position, copy.created = header.first_position, header.created
    return True


def _put_the_longest_first(listing: Listing, pool: Executor) -> None:
    """Among live journals that end with the same segment, prefer the one with the longest content.

    The sizes are no indication: a segment is allocated completely when it is begun.
    """
    live = [directory for directory in listing.directories if directory.live and directory.copies]
    last = [copy for directory in live for copy in directory.copies if copy.number == max(d.newest for d in live)]
    if len(last) > 1:
        ends = {files.parent_of(copy.uri): end for copy, end in zip(last, pool.map(_read_end, last), strict=True)}
        listing.directories.sort(key=lambda directory: -ends.get(directory.uri, 0))


def _read_end(copy: Copy) -> int:
    """The position after a copy's last entry, 0 if it cannot be read."""
    try:
        data = files.read(copy.uri)
        return scan(data, decode_header(data)).position
    except (OSError, BadHeader):
        return 0
