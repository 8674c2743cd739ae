"""The real file system, and what must hold when it misbehaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from store.errors import DirectoryLocked
from store.files import OsFiles, write_all


@pytest.fixture
def files() -> OsFiles:
    return OsFiles()


def test_a_file_is_allocated_written_cut_and_read(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    file = files.create(path)
    file.allocate(10_000)
    assert files.size(path) == 10_000
    assert file.write_at(b"hello", 3) == 5
    file.sync()
    file.truncate(9)
    file.close()
    assert files.read(path) == b"\0\0\0hello\0"
    assert files.read_range(path, 0, 4) == b"\0\0\0h"
    again = files.open(path)
    again.write_at(b"x", 0)
    again.close()
    assert files.read_range(path, 0, 100) == b"x\0\0hello\0"
    files.create(path).close()
    assert files.size(path) == 0


def test_names(files: OsFiles, tmp_path: Path) -> None:
    deep = str(tmp_path / "x" / "y")
    files.make_dir(deep)
    files.make_dir(deep)
    files.create(f"{deep}/b").close()
    files.create(f"{deep}/a").close()
    files.rename(f"{deep}/b", f"{deep}/c")
    files.sync_dir(deep)
    assert files.list_dir(deep) == ["a", "c"]
    files.remove(f"{deep}/a")
    files.remove(f"{deep}/c")
    files.remove_dir(deep)
    assert files.list_dir(str(tmp_path / "x")) == []
    with pytest.raises(FileNotFoundError):
        files.open(f"{deep}/a")


def test_files_are_private(files: OsFiles, tmp_path: Path) -> None:
    files.make_dir(str(tmp_path / "d"))
    files.create(str(tmp_path / "d" / "f")).close()
    assert (tmp_path / "d").stat().st_mode & 0o007 == 0
    assert (tmp_path / "d" / "f").stat().st_mode & 0o007 == 0


def test_a_file_system_that_cannot_preallocate_gets_zeros(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    path = str(tmp_path / "a")
    file = files.create(path)
    file.write_at(b"x", 0)
    file.allocate((1 << 20) + 5)
    file.close()
    assert files.read(path) == b"x" + bytes((1 << 20) + 4)


def test_other_errors_of_preallocation_are_told(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, nbytes: int) -> None:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    file = files.create(str(tmp_path / "a"))
    with pytest.raises(OSError, match="no space"):
        file.allocate(10)
    file.close()


class Stingy:
    """A file that takes at most a few bytes at a time, and at last none."""

    def __init__(self, takes: list[int]) -> None:
        self.takes = takes
        self.data = bytearray(100)
        self.durable = False

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        n = min(self.takes.pop(0), len(data))
        self.data[offset : offset + n] = data[:n]
        return n

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        self.durable = True
        return self.write_at(data, offset)

    def allocate(self, nbytes: int) -> None: ...

    def sync(self) -> None: ...

    def truncate(self, nbytes: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("durably", [True, False])
def test_short_writes_are_continued(durably: bool) -> None:
    file = Stingy([3, 1, 100])
    write_all(file, b"0123456789", 5, durably=durably)
    assert file.data[4:16] == b"\x000123456789\0"
    assert file.durable is durably


def test_a_system_that_cannot_make_one_write_durable_writes_and_syncs(
    files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, buffers: object, offset: int, flags: int) -> int:
        raise OSError(why, os.strerror(why))

    synced: list[int] = []
    path = str(tmp_path / "a")
    file = files.create(path)
    assert file.write_durably(b"ab", 1) == 2
    monkeypatch.setattr(os, "pwritev", refuse)
    monkeypatch.setattr(os, "fdatasync", synced.append)
    why = errno.EOPNOTSUPP
    assert file.write_durably(b"cd", 3) == 2
    assert len(synced) == 1
    why = errno.EIO
    with pytest.raises(OSError, match="output error"):
        file.write_durably(b"ef", 5)
    file.close()
    assert files.read(path) == b"\0abcd"


def test_a_file_that_takes_nothing_more_is_an_error() -> None:
    with pytest.raises(OSError, match="takes no more"):
        write_all(Stingy([3, 0]), b"0123456789", 0)


def test_the_lock_names_its_owner(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    lock = files.lock(path)
    with pytest.raises(DirectoryLocked, match=f"in use by process {os.getpid()}") as caught:
        files.lock(path)
    assert caught.value.pid == os.getpid()
    lock.release()
    files.lock(path).release()


def test_the_lock_of_another_process(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "lock")
    hold = (
        "import fcntl, os, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", hold, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(DirectoryLocked, match="process unknown") as caught:
            files.lock(path)
        assert caught.value.pid == 0
        process.communicate(b"\n")
    files.lock(path).release()


def test_a_lock_that_fails_otherwise(files: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, nbytes: int) -> None:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "ftruncate", refuse)
    with pytest.raises(OSError, match="broken"):
        files.lock(str(tmp_path / "lock"))
    monkeypatch.undo()
    files.lock(str(tmp_path / "lock")).release()


def test_how_much_room_there_is(files: OsFiles, tmp_path: Path) -> None:
    used, free = files.space(str(tmp_path))
    assert used > 0
    assert free > 0
    with pytest.raises(OSError, match="No such file"):
        files.space(str(tmp_path / "nowhere"))


def test_a_part_of_a_file(files: OsFiles, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    (tmp_path / "a").write_bytes(b"0123456789")
    files.will_need(path, 2, 5)
    assert files.read_range(path, 2, 5) == b"23456"
    assert files.read_range(path, 8, 5) == b"89"
