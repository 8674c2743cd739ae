"""Root, who repairs or imports for a broker, leaves nothing behind that the broker cannot read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def left_to_owner(directory: Path) -> Iterator[None]:
    """At the end, what root has made below a directory belongs to the directory's owner.

    Not by acting as that user: it may not exist outside of its unit (DynamicUser), nor get through to the directory.
    """
    owner = directory.stat() if os.path.isdir(directory) else None  # False also for what cannot be looked at
    try:
        yield
    finally:
        if os.geteuid() == 0 and owner is not None and owner.st_uid:
            for place, _, names in os.walk(directory):
                for path in [place, *(os.path.join(place, name) for name in names)]:
                    if os.lstat(path).st_uid == 0:
                        os.chown(path, owner.st_uid, owner.st_gid, follow_symlinks=False)
