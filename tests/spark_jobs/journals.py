"""Journals for the data source: random ones from the real store, written to a real directory as often as they grow."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from store import decode
from store.decode import RawRecord
from store.record import RecordType
from store.retention import RetentionSettings
from store.segment import decode_header, scan, segment_number
from store.segment_directory import open_segment
from tests.store.workload import DIRECTORY, Script, Station
from tests.support.sim_files import Crash, Fault, SimFiles

_ROOT: Final = DIRECTORY.rpartition("/")[0]


class Growing:
    """A broker's data directory that grows: `run` does random things, `show` writes what is on the disk then."""

    def __init__(self, directory: Path, seed: int, *, keep: bool = True) -> None:
        self.data = directory
        self.files = SimFiles(seed)
        self._retention = RetentionSettings(enabled=keep)
        self.station = Station(self.files, retention=self._retention)
        self.script = Script(seed)
        self._shown = 0  # the position after the last entry that was shown whole

    @property
    def journal(self) -> Path:
        """The journal's directory."""
        return self.data / DIRECTORY.rpartition("/")[2]

    def run(self, commits: int) -> None:
        """Random operations; everything is on the disk afterwards."""
        self.script.run(self.station, commits)
        self.station.commit()
        self.station.step()

    def power_cut(self, directory: Path) -> None:
        """Messages are written, but the power goes before they are durable; then the broker starts again.

        `directory` becomes what a reader saw in between, the data directory what is left.
        """
        self.station.send(list(self.station.queues)[:1], [b"lost"] * 3)
        self.station.commit()
        self.files.plan(2, Fault.CRASH)  # the first operation is the write, the second would be the sync
        try:
            self.station.step()
        except Crash:
            self.show(at=directory)
        else:
            raise AssertionError("the power did not go")
        self.files.crash(keep=0.0)
        self.show()
        self.station = Station(self.files, retention=self._retention)

    def show(self, *, half_written: bool = False, at: Path | None = None) -> Path:
        """Make the directory, or another one, what the disk is.  Returns it.

        `half_written`: only half of the last entry is there, unless it has been shown whole before.
        """
        directory = dump(self.files, at or self.data)
        newest = max((directory / self.journal.name).glob("*.journal"))
        data = newest.read_bytes()
        entries = scan(data, decode_header(data)).entries
        if half_written and entries and entries[-1].first >= self._shown:
            *entries, last = entries
            middle = (last.offset + last.end) // 2
            newest.write_bytes(data[:middle] + bytes(len(data) - middle))
        self._shown = max([self._shown, *(entry.first + entry.count for entry in entries[-1:])])
        return directory


def dump(disk: SimFiles, directory: Path) -> Path:
    """Make a directory, which it returns, what is on the simulated disk."""
    wanted = {directory / Path(path).relative_to(_ROOT): path for path in disk.paths()}
    for path in [path for path in directory.rglob("*") if path.is_file()]:
        if path not in wanted:
            path.unlink()
    for path, source in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(disk.read(source))
    return directory


def segments(data: Path) -> list[Path]:
    """All segments, kept ones too, oldest first."""
    found = [path for path in data.rglob("*.journal") if segment_number(path.name)]
    return sorted(found, key=lambda path: path.name)


def iso(ms: int) -> str:
    """A time as an option of the data source has it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def raw(data: Path) -> Iterator[RawRecord]:
    """All records, as the store reads them."""
    for path in segments(data):
        yield from open_segment(str(path), segment_number(path.name), path.read_bytes()).records()


def rows(data: Path) -> list[tuple[int, str]]:
    """Position and record type of each row of the records view, in order: a record about n messages has n."""
    found = []
    for _, position, _, type, buffer, offset in raw(data):
        ids = getattr(decode.decode(buffer, offset), "ids", (0,))
        found += [(position, RecordType(type).name.lower().replace("_", "-"))] * len(ids)
    return found


def row_positions(data: Path) -> list[int]:
    """Only the positions of these."""
    return [position for position, _ in rows(data)]


def dead_letters(data: Path) -> list[tuple[int, int, int]]:
    """Position, old and new id of each dead letter, in order."""
    found = []
    for _, position, _, type, buffer, offset in raw(data):
        if type == RecordType.DEAD_LETTERED:
            death = decode.decode_dead_lettered(buffer, offset)
            found.append((position, death.old_id, death.new_id))
    return found
