"""A journal that a newer version has written to: a broker refuses it by name, and leaves it as it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from broker.reasons.exit_status import ExitStatus
from store.files import OsFiles
from store.segment import segment_name
from store.segment_directory import SegmentDirectory, read_segment
from tests.store.segments import newer, packed
from tests.support.daemon import DaemonProcess
from tests.support.stomp_py import DURABLE, connected


def contents(directory: Path) -> dict[str, bytes]:
    """All files with contents: the lock names the process that has it, and a spare is only room."""
    found = {path.name: path for path in directory.iterdir() if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if name != "lock" and path.suffix != ".spare"}


def of_the_next_format(data: bytes, end: int, position: int) -> bytes:
    return newer(data)


def with_an_unknown_record(data: bytes, end: int, position: int) -> bytes:
    entry = packed(data[:64], position, b"\x08\0\0\0\x63\x01\0\0")
    return data[:end] + entry + data[end + len(entry) :]


def with_a_record_of_a_new_version(data: bytes, end: int, position: int) -> bytes:
    entry = packed(data[:64], position, b"\x08\0\0\0\x01\x09\0\0")
    return data[:end] + entry + data[end + len(entry) :]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (of_the_next_format, "format version 3, this software reads up to 2: a newer version wrote it"),
        (with_an_unknown_record, "record type 99 version 1 is unknown: a newer version wrote it"),
        (with_a_record_of_a_new_version, "record type 1 version 9 is unknown: a newer version wrote it"),
    ],
)
def test_data_of_a_newer_version_is_refused_by_name(
    tmp_path: Path, change: Callable[[bytes, int, int], bytes], told: str
) -> None:
    broker = DaemonProcess(tmp_path)
    try:
        broker.start()
        with connected(broker.port) as client:
            client.put("/queue/q", "x", DURABLE)
        broker.kill()
        journal = broker.data / "journal"
        found = read_segment(SegmentDirectory(OsFiles(), str(journal)), 1)
        (journal / segment_name(1)).write_bytes(change(found.data, found.found.end, found.found.position))
        before = contents(journal)
        broker.begin()
        assert broker.wait() == ExitStatus.DISK_FAILED
        [line] = [line for line in broker.log.splitlines() if " start.newer " in line]
        assert told in line
        assert "nothing is damaged: start that version" in line
        assert contents(journal) == before
    finally:
        broker.close()
