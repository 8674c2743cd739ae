"""What is left to Python's collector of reference cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: The packages whose objects an ended connection must not leave.
OURS = ("broker.", "protocols.", "store.", "websockets.server.", "uvloop.")


@contextmanager
def nothing_left() -> Iterator[None]:
    """Fail if the collector of cycles finds objects of `OURS` afterwards that were made meanwhile."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
    finally:
        gc.set_debug(0)
        gc.enable()
        gc.unfreeze()
        found, gc.garbage[:] = gc.garbage[:], []
    assert not "\n".join(sorted({name for each in found if (name := _qualified(each)).startswith(OURS)}))


def _qualified(each: object) -> str:
    return f"{type(each).__module__}.{type(each).__qualname__}"
