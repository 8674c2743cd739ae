"""The disk: the only place that touches the operating system.

`Files` has the operations that the journal needs, no more, so that a simulated disk can replace it.  Paths are plain
strings.  Every method raises OSError as the operating system does.  Nothing here retries, and nothing is durable before
`sync` (a file's bytes) or `sync_dir` (names: after create, rename and remove) has returned.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from typing import Final, Protocol

from store.errors import DirectoryLocked

#: Zeros written at a time where the file system cannot preallocate: large enough to be fast, small in memory.
ZEROS_BYTES: Final = 1 << 20

#: The errors of a system that cannot preallocate, or cannot make one write durable.
_NOT_SUPPORTED: Final = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})

#: The errors of a full file system, or of an exhausted quota.
NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT})

#: The errors of a process or a system whose descriptors or memory are used up.
EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})

#: What is missing, by error: the same work may be tried again when it is there.
_LACKING: Final = {
    **dict.fromkeys(NO_ROOM, "the disk is full"),
    errno.EMFILE: "the process has no file descriptors left",
    errno.ENFILE: "the machine has no file descriptors left",
    errno.ENOMEM: "the machine has no memory left",
}


def lacking(error: OSError) -> str:
    """What is missing, if work that failed with this error may be tried again when it is there; else empty."""
    return _LACKING.get(error.errno or 0, "")


class File(Protocol):
    """A file open for writing."""

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write at `offset`; returns how many bytes were written, which may be fewer than given."""

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """The same, and return once the written bytes are durable; this says nothing about earlier writes."""

    def allocate(self, nbytes: int) -> None:
        """Reserve room up to `nbytes`; bytes never written read as zero."""

    def sync(self) -> None:
        """Return once the file's bytes are durable."""

    def truncate(self, nbytes: int) -> None:
        """Cut the file to `nbytes`."""

    def close(self) -> None:
        """Close the file; this says nothing about durability."""


class Lock(Protocol):
    """A lock held by this process."""

    def release(self) -> None:
        """Release the lock."""


class Files(Protocol):
    """A file system."""

    def make_dir(self, path: str) -> None:
        """Create a directory and its parents, durably; no effect if it exists."""

    def list_dir(self, path: str) -> list[str]:
        """The names in a directory, sorted."""

    def size(self, path: str) -> int:
        """Bytes of a file."""

    def read(self, path: str) -> bytes:
        """All bytes of a file."""

    def space(self, path: str) -> tuple[int, int]:
        """Used and free bytes of a directory's file system; space reserved for root is neither."""

    def read_range(self, path: str, offset: int, nbytes: int) -> bytes:
        """Read `nbytes` of a file from `offset`, fewer if it ends before."""

    def will_need(self, path: str, offset: int, nbytes: int) -> None:
        """Announce that this part of a file will soon be read, so that the disk may begin."""

    def create(self, path: str) -> File:
        """Create an empty file, truncating an existing one of that name."""

    def open(self, path: str) -> File:
        """Open an existing file for writing."""

    def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file of the new name."""

    def remove(self, path: str) -> None:
        """Remove a file."""

    def remove_dir(self, path: str) -> None:
        """Remove an empty directory."""

    def sync_dir(self, path: str) -> None:
        """Return once the names in a directory are durable."""

    def lock(self, path: str) -> Lock:
        """Lock a file for this process and write its pid into it.  Raises DirectoryLocked."""


def write_all(file: File, data: bytes | bytearray, offset: int, *, durably: bool = False) -> None:
    """Write all of `data`.  Raises OSError, also if the file accepts no more bytes."""
    write = file.write_durably if durably else file.write_at
    written = write(data, offset)
    if written == len(data):
        return
    with memoryview(data) as view:
        while written < len(data):
            taken = write(view[written:], offset + written)
            if taken <= 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            written += taken


def write_file(files: Files, path: str, data: bytes) -> None:
    """Create a file with these bytes, durable when this returns, unlike its name.  Raises OSError."""
    with contextlib.closing(files.create(path)) as file:
        write_all(file, data, 0)
        file.sync()


class OsFile:
    """A file of the operating system."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write_at(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        return os.pwrite(self._fd, data, offset)

    def write_durably(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Use one system call if possible: between two, another thread may hold the interpreter for a while."""
        try:
            return os.pwritev(self._fd, (data,), offset, os.RWF_DSYNC)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        written = os.pwrite(self._fd, data, offset)
        os.fdatasync(self._fd)
        return written

    def allocate(self, nbytes: int) -> None:
        """Preallocate or, where the file system cannot, write and sync zeros instead."""
        try:
            os.posix_fallocate(self._fd, 0, nbytes)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
            self._fill(nbytes)

    def _fill(self, nbytes: int) -> None:
        offset = os.fstat(self._fd).st_size
        while offset < nbytes:
            offset += os.pwrite(self._fd, bytes(min(ZEROS_BYTES, nbytes - offset)), offset)
        os.fdatasync(self._fd)

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def truncate(self, nbytes: int) -> None:
        os.ftruncate(self._fd, nbytes)

    def close(self) -> None:
        os.close(self._fd)


class OsLock:
    """A lock file; the operating system releases it when the process ends, however it ends."""

    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        """Release the lock.  The file stays: removing it would let two processes lock two files of the same name."""
        os.close(self._fd)


class OsFiles:
    """The file system of the operating system.  New files and directories are private to the user and the group."""

    def make_dir(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_dir(parent)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o750)
        try:
            self.sync_dir(parent)
        except OSError:
            with contextlib.suppress(OSError):
                os.rmdir(path)  # or the next call would take it for durable
            raise

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def space(self, path: str) -> tuple[int, int]:
        found = os.statvfs(path)
        return (found.f_blocks - found.f_bfree) * found.f_frsize, found.f_bavail * found.f_frsize

    def read_range(self, path: str, offset: int, nbytes: int) -> bytes:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, nbytes, offset)
        finally:
            os.close(fd)

    def will_need(self, path: str, offset: int, nbytes: int) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.posix_fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(fd)

    def create(self, path: str) -> File:
        return OsFile(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o640))

    def open(self, path: str) -> File:
        return OsFile(os.open(path, os.O_RDWR | os.O_CLOEXEC))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as taken:
            owner = os.pread(fd, 32, 0).strip()
            os.close(fd)
            raise DirectoryLocked(os.path.dirname(path), int(owner) if owner.isdigit() else 0) from taken
        except OSError:
            os.close(fd)
            raise
        return OsLock(fd)
