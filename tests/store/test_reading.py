"""Reading a journal with its kept segments, while segments move and go."""

from __future__ import annotations

import pytest

from store.errors import Corrupt
from store.reading import Segments
from store.retention import RetentionSettings
from store.segment import segment_name
from tests.store.workload import DIRECTORY, Station
from tests.support.sim_files import SimFiles


def filled() -> SimFiles:
    """Some kept segments and some live ones."""
    files = SimFiles()
    station = Station(files, retention=RetentionSettings(enabled=True))
    queue = station.new_queue("q")
    for tick in range(6):
        ids = station.send([queue], [bytes(3000)])
        station.remove(queue, ids if tick < 4 else [])
        station.commit()
        station.step()
    return files


def positions(reading: Segments) -> list[int]:
    return [position for number in reading.numbers() for _, position, *_ in reading.records(number)]


def test_all_segments_in_order_kept_ones_too() -> None:
    files = filled()
    found = positions(Segments(files, DIRECTORY))
    assert found == list(range(found[0], found[0] + len(found)))
    assert found[0] == 0
    assert any("retention" in path for path in files.paths())


def test_a_segment_that_moves_meanwhile_is_read_where_it_is_and_one_that_goes_is_not_there() -> None:
    files = filled()
    reading = Segments(files, DIRECTORY)
    numbers = reading.numbers()
    live = [n for n in numbers if f"{DIRECTORY}/{segment_name(n)}" in files.paths()]
    moved, gone = live[0], live[1]
    day = next(path for path in files.paths() if "date=" in path).rpartition("/")[0]
    files.rename(f"{DIRECTORY}/{segment_name(moved)}", f"{day}/{segment_name(moved)}")
    assert list(reading.records(moved))
    files.remove(f"{DIRECTORY}/{segment_name(gone)}")
    assert list(reading.records(gone)) == []
    assert list(reading.records(gone)) == [], "nor the second time"


def test_damage_is_told_and_a_torn_tail_of_the_newest_is_not() -> None:
    files = filled()
    reading = Segments(files, DIRECTORY)
    numbers = reading.numbers()
    newest = f"{DIRECTORY}/{segment_name(numbers[-1])}"
    whole = len(list(reading.records(numbers[-1])))
    end = len(files.read(newest).rstrip(b"\0"))
    files.flip(newest, end - 1, 0x40)
    reading = Segments(files, DIRECTORY)
    reading.numbers()
    assert len(list(reading.records(numbers[-1]))) < whole
    older = f"{DIRECTORY}/{segment_name(numbers[-2])}"
    files.flip(older, 600, 0x01)
    reading = Segments(files, DIRECTORY)
    reading.numbers()
    with pytest.raises(Corrupt, match="no valid entry"):
        list(reading.records(numbers[-2]))
    files.flip(older, 0, 0x01)
    reading = Segments(files, DIRECTORY)
    reading.numbers()
    with pytest.raises(Corrupt):
        list(reading.records(numbers[-2]))


def test_files_in_retention_that_are_no_day_are_left_alone() -> None:
    files = filled()
    files.put(f"{DIRECTORY}/retention/notes.txt", b"mine")
    assert positions(Segments(files, DIRECTORY)) == positions(Segments(filled(), DIRECTORY))


def test_a_segment_that_is_listed_and_never_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    files = filled()
    reading = Segments(files, DIRECTORY)
    (number, *_) = [n for n in reading.numbers() if f"{DIRECTORY}/{segment_name(n)}" in files.paths()]
    reads: list[str] = []

    def read(path: str) -> bytes:
        reads.append(path)
        raise FileNotFoundError(path)

    monkeypatch.setattr(files, "read", read)
    assert list(reading.records(number)) == []
    assert len(reads) == 2
