"""Files that are there as a whole or not at all: written under another name beside their own, synced, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def check_target(path: Path, *, directory: bool) -> None:
    """See that something could be written there, before an hour's work is done for it.  Raises OSError."""
    if directory:
        path.mkdir(parents=True, exist_ok=True)
    elif path.is_dir():
        raise IsADirectoryError(None, "is a directory; name a file in it", str(path))
    parent = path if directory else path.absolute().parent
    if not parent.is_dir():
        raise FileNotFoundError(None, "there is no such directory", str(parent))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise PermissionError(None, "may not be written to", str(parent))


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file by a function that is given it open.  Raises OSError; there is no half of a file then."""
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
    """Write a file of text.  Raises OSError."""
    write_file(path, lambda file: file.write(content.encode()))
