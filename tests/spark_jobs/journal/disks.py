"""Journals on the local disk, and the truth about them: where each record of a whole journal is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from spark_jobs.journal.snapshot import Snapshot, take
from store.manifest import MANIFEST
from store.retention import DIRECTORY
from store.segment import decode_header, scan, segment_name, segment_number
from tests.spark_jobs.journals import Growing

COMMITS: Final = 80


@dataclass(frozen=True, slots=True)
class Truth:
    """A segment as it was before anything happened to it."""

    number: int
    first: int
    end: int
    created: int
    times: tuple[tuple[int, int], ...]  # position and time of each record

    @property
    def records(self) -> int:
        """How many it has."""
        return self.end - self.first


def truth(data: Path) -> dict[int, Truth]:
    """All segments below a directory, by number."""
    found = {}
    for path in sorted(data.rglob("*.journal")):
        content = path.read_bytes()
        header = decode_header(content)
        scanned = scan(content, header)
        times = [
            (p, entry.timestamp) for entry in scanned.entries for p in range(entry.first, entry.first + entry.count)
        ]
        found[header.number] = Truth(
            header.number, header.first_position, scanned.position, header.created, tuple(times)
        )
    return dict(sorted(found.items()))


def write(data: Path, seed: int = 1, commits: int = COMMITS, *, keep: bool = True) -> Growing:
    """A broker's data directory.  With retention every segment that ever was is there."""
    growing = Growing(data, seed, keep=keep)
    growing.run(commits)
    growing.show()
    return growing


def path_of(data: Path, number: int) -> Path:
    """Where a segment is."""
    (path,) = data.rglob(segment_name(number))
    return path


def kept(data: Path) -> list[int]:
    """The numbers under retention."""
    return sorted(segment_number(path.name) for path in (data / "journal" / DIRECTORY).rglob("*.journal"))


def live(data: Path) -> list[int]:
    """The numbers in the journal itself."""
    return sorted(segment_number(path.name) for path in (data / "journal").glob("*.journal"))


def without_manifests(data: Path) -> None:
    """As if retention had kept none."""
    for path in data.rglob(MANIFEST):
        path.unlink()


def check(snapshot: Snapshot, whole: dict[int, Truth], bad: frozenset[int] = frozenset()) -> None:
    """Every position of the whole journal is in exactly one place: a segment or a hole; `bad` cannot be read."""
    covered: list[tuple[int, int]] = []
    for ref in snapshot.segments:
        known = whole[ref.number]
        if ref.number not in bad:
            assert (ref.first_position, ref.next_first, ref.created) == (known.first, known.end, known.created)
        if ref.next_first is not None:
            covered.append((ref.first_position, ref.next_first))
    covered += [
        (gap.first_position, gap.first_position + gap.records) for gap in (*snapshot.missing, *snapshot.trimmed)
    ]
    positions = [position for first, end in sorted(covered) for position in range(first, end)]
    assert positions == list(range(snapshot.next_position))
    assert snapshot.next_position == max(known.end for known in whole.values())


def pinned(data: Path) -> Snapshot:
    """A snapshot of it."""
    return take([str(data)])
