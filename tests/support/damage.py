"""Damage to a journal of a mebibyte: bytes flipped, segments cut, sectors zeroed or written to the wrong place.

Each damaged segment is checked as recovery would check it: its header, the scan, the order of the segments, and a torn
tail in the newest one.  The damage must be detected, and no entry may be found that was not written.  A cut of the
newest segment may also leave what a crash could have left: the entries before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Final

from store.errors import Corrupt
from store.record import RemovalReason
from store.recovery import check_follows, torn_bytes
from store.retention import RetentionSettings
from store.segment import EntryHead, decode_header, scan, segment_number
from store.segment_directory import open_segment
from tests.store.workload import Script, Station
from tests.support.sim_files import SECTOR, SimFiles

SEGMENT_BYTES: Final = 64 << 10
SEGMENTS: Final = 20

#: A damage: the segment, its new bytes, and a description.
Wound = tuple[int, bytes, str]


class Whole:
    """A journal that was closed cleanly, and its entries."""

    def __init__(self, seed: int = 1) -> None:
        files = SimFiles(seed)
        station = Station(files, retention=RetentionSettings(enabled=True), segment_bytes=SEGMENT_BYTES)
        script = Script(seed)
        while station.journal.segment < SEGMENTS:
            script.run(station, 40)
            queue = next(iter(station.queues))
            for id in station.on(queue)[20:]:
                station.remove(queue, [id], RemovalReason.PURGED)
        station.journal.close()
        paths = [path for path in files.paths() if path.endswith(".journal")]
        self.segments = {segment_number(path.rpartition("/")[2]): files.read(path) for path in paths}
        self.newest = max(self.segments)
        self.entries: dict[int, list[EntryHead]] = {}
        self.positions: dict[int, int] = {}
        for number, data in self.segments.items():
            found = scan(data, decode_header(data))
            assert not found.damage
            self.entries[number] = found.entries
            self.positions[number] = found.position

    @property
    def nbytes(self) -> int:
        """Bytes of all segments."""
        return sum(map(len, self.segments.values()))

    def told(self, number: int, data: bytes) -> bool:
        """Whether recovery detects that these bytes are not the segment; raises AssertionError for a wrong entry."""
        if len(data) < 64:
            return True  # no header
        try:
            segment = open_segment("", number, data)
        except Corrupt:
            return True
        found = segment.found
        truth = self.entries[number]
        assert found.entries == truth[: len(found.entries)], "an entry that is not there"
        try:
            if number == self.newest:
                return torn_bytes(segment) > 0
            check_follows("", number + 1, self.positions[number], number, found.position)
        except Corrupt:
            return True
        return bool(found.damage)

    def harmless(self, number: int, data: bytes) -> bool:
        """Whether undetected bytes are no damage: nothing has changed, or a crash could have left them so.

        A crash may leave the newest segment without its last entries: they are zeros, or missing.
        """
        whole = self.segments[number]
        if data.rstrip(b"\0") == whole.rstrip(b"\0"):
            return True
        end = scan(data, decode_header(data)).end
        return number == self.newest and data[:end] == whole[:end] and not any(data[end:])


def flips(whole: Whole, stride: int, random: Random) -> Iterator[Wound]:
    """Change each byte, or one byte every `stride`."""
    for number, data in whole.segments.items():
        for at in range(random.randrange(stride), len(data), stride):
            hurt = bytearray(data)
            hurt[at] ^= random.randrange(1, 256)
            yield number, bytes(hurt), f"byte {at}"


def cuts(whole: Whole, stride: int, random: Random) -> Iterator[Wound]:
    """Cut each segment at every byte, or every `stride`."""
    for number, data in whole.segments.items():
        for at in range(random.randrange(stride), len(data), stride):
            yield number, data[:at], f"cut at {at}"


def zeroed(whole: Whole, stride: int, random: Random) -> Iterator[Wound]:
    """Zero each sector and each entry, or some of them."""
    for number, data in whole.segments.items():
        places = [(at, at + SECTOR) for at in range(0, len(data), SECTOR)]
        places += [(entry.offset, entry.end) for entry in whole.entries[number]]
        for start, end in places[:: max(stride // SECTOR, 1)]:
            end = min(end, len(data))
            yield number, data[:start] + bytes(end - start) + data[end:], f"zeros from {start} to {end}"


def misdirected(whole: Whole, stride: int, random: Random) -> Iterator[Wound]:
    """Write a sector or an entry of any segment to another one's place."""
    for _ in range(whole.nbytes // stride):
        number, other = random.choice(list(whole.segments)), random.choice(list(whole.segments))
        data, source = whole.segments[number], whole.segments[other]
        if random.random() < 0.5:
            taken = random.randrange(0, max(len(source) - SECTOR, 1), SECTOR)
            piece = source[taken : taken + SECTOR]
            at = random.randrange(0, max(len(data) - SECTOR, 1), SECTOR)
        else:
            entry = random.choice(whole.entries[other])
            piece = source[entry.offset : entry.end]
            at = random.choice(whole.entries[number]).offset
        hurt = data[:at] + piece + data[at + len(piece) :]
        if hurt != data:
            yield number, hurt, f"{len(piece)} bytes of segment {other} at {at}"


KINDS: Final[dict[str, Callable[[Whole, int, Random], Iterator[Wound]]]] = {
    "flipped": flips,
    "cut": cuts,
    "zeroed": zeroed,
    "misdirected": misdirected,
}


def hurt(whole: Whole, kind: str, *, stride: int, seed: int) -> tuple[int, int]:
    """Try all damages of a kind; returns how many, and how many were detected.  Raises AssertionError for a miss."""
    tried = told = 0
    for number, data, what in KINDS[kind](whole, stride, Random(seed)):
        tried += 1
        if whole.told(number, data):
            told += 1
        else:
            assert whole.harmless(number, data), f"segment {number}, {what}: nobody was told"
    return tried, told
