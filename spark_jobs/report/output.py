"""Files that are written completely or not at all: written under a temporary name, synced, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def check_target(path: Path, *, directory: bool) -> None:
    """Check that this path is writable, before an hour of work is done for it.  Raises OSError."""
    if directory:
        path.mkdir(parents=True, exist_ok=True)
    elif path.is_dir():
        raise IsADirectoryError(None, "is a directory; name a file in it", str(path))
    parent = path if directory else path.absolute().parent
    if not parent.is_dir():
        raise FileNotFoundError(None, "there is no such directory", str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(None, "is not writable", str(parent))


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file by calling a function with the open file.  Raises OSError; no partial file remains then."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, content: str) -> None:
    """Write a text file.  Raises OSError."""
    write_file(path, lambda file: file.write(content.encode()))
