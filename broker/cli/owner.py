"""Ownership of files: commands run by root must not leave files that the broker cannot read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def left_to_owner(directory: Path) -> Iterator[None]:
    """At the end, give files that root created below a directory to the directory's owner.

    It does not act as that user, which may not exist outside its unit (DynamicUser) or may not reach the directory.
    """
    owner = directory.stat() if os.path.isdir(directory) else None  # False also for a directory that cannot be accessed
    try:
        yield
    finally:
        if os.geteuid() == 0 and owner is not None and owner.st_uid:
            for place, _, names in os.walk(directory):
                for path in [place, *(os.path.join(place, name) for name in names)]:
                    if os.lstat(path).st_uid == 0:
                        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
