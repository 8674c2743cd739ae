"""The spare: room for the next segment, allocated in advance.  On a full disk it is the only room left."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from errno import ENOSPC
from typing import Final

from store.files import EXHAUSTED, File, Files, lacking
from store.segment import spare_name

#: If the disk cannot hold a whole spare segment, one part in this many of one is enough for removals.
SMALLEST_SPARE: Final = 16

#: The same for the first segment of a run: as little as the last run may have left, so that a broker starts again.
SMALLEST_START: Final = 64

DISK_FULL: Final = lacking(OSError(ENOSPC, ""))


class Spare:
    """The spare of one log.  Only the writer's thread changes it; others may read it.

    `whole`: bytes of a whole segment; `failed` makes the log's error from the failed action and the system's error.
    """

    def __init__(self, files: Files, directory: str, whole: int, failed: Callable[[str, OSError], Exception]) -> None:
        #: The highest segment that can be begun without allocating room, or the last one that was begun.
        self.ready = 0
        #: The bytes of the spare; 0: there is none.
        self.nbytes = 0
        #: What was missing at the last attempt to get room for a whole segment; empty: nothing.
        self.lacking = ""
        self._left = ""  # the path of a file that could not be removed
        self._files = files
        self._directory = directory
        self._whole = whole
        self._failed = failed

    @property
    def full(self) -> bool:
        """Whether the last attempt to get room for a whole segment failed."""
        return bool(self.lacking)

    def path(self, segment: int) -> str:
        """The path of the spare for a segment."""
        return f"{self._directory}/{spare_name(segment)}"

    def allocate(self, segment: int) -> None:
        """Allocate room for a segment: a whole one if possible, else half of one, a quarter and so on."""
        whole = self._whole
        least = whole // (SMALLEST_SPARE if self.ready else SMALLEST_START)
        nbytes = whole
        missing = ""
        while nbytes >= least and nbytes > self.nbytes:
            refused = self._allocate(self.path(segment), nbytes)
            if refused is None:
                self.nbytes = nbytes  # before `ready`: a thread that sees that may read this
                self.ready = segment
                break
            missing = lacking(refused)
            if refused.errno in EXHAUSTED:  # a smaller file needs a descriptor too
                break
            nbytes //= 2
        self.lacking = "" if self.nbytes >= whole else missing or self.lacking or DISK_FULL

    def use(self) -> None:
        """Note that the spare's file has become the segment's."""
        self.nbytes = 0
        self._left = ""

    def give_up(self, segment: int) -> None:
        """Remove the spare, to leave its room to `segment`, the last one begun.  Raises OSError."""
        self._files.remove(self.path(self.ready))
        self.nbytes = 0
        self.ready = segment
        self.lacking = DISK_FULL

    def _has_room(self, nbytes: int) -> bool:
        """Whether the disk has this much room: a failing attempt would briefly fill the disk for all its users.

        A quota is not visible here, so the attempt may still fail.
        """
        try:
            return self._files.space(self._directory)[1] >= nbytes
        except OSError:
            return True

    def _allocate(self, path: str, nbytes: int) -> OSError | None:
        """Allocate room up to `nbytes`, or return the error of what is missing and leave everything as it was."""
        if not self._has_room(nbytes - self.nbytes):
            return OSError(ENOSPC, "the disk has less")
        try:
            file = self._files.open(path) if self.nbytes or self._left == path else self._files.create(path)
        except OSError as error:
            self._check(path, error)
            return error  # there is no file, as without a descriptor or an inode, or it has its earlier size
        with closing(file):
            try:
                file.allocate(nbytes)
            except OSError as error:
                self._check(path, error)
                self._give_back(path, file)
                return error
        return None

    def _check(self, path: str, error: OSError) -> None:
        if not lacking(error):
            raise self._failed(f"allocating {path}", error) from error

    def _give_back(self, path: str, file: File) -> None:
        """Undo a failed allocation: the spare has its earlier size again, or is gone.

        If the system lacks what that needs, the file stays as it is: the next attempt finds it.
        """
        try:
            if self.nbytes:
                file.truncate(self.nbytes)
            else:
                self._files.remove(path)
        except OSError as error:
            if not lacking(error):
                raise self._failed(f"giving back {path}", error) from error
            self._left = path
