"""Ends PostgreSQL servers whose tests have ended, in whatever way: its standard input closes with them.

    python -m tests.support.postgresql_keeper DIRECTORY

PostgreSQL's processes are in sessions of their own, and a stopped one does not notice its postmaster's end.  But each
of them works in its server's data directory, and no other process does: that is how they are found.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def working_in(directory: Path) -> Iterator[int]:
    """Yield the processes whose working directory is this one, or below it."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or belongs to another user
            if Path(os.readlink(process / "cwd")).is_relative_to(directory):
                yield int(process.name)


def main() -> None:
    """Wait for the end of the standard input; then kill the servers and remove their directory."""
    directory = Path(sys.argv[1])
    while sys.stdin.buffer.read(1):
        pass
    while left := list(working_in(directory)):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
