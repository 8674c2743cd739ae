"""Reading a local file without leaving it in the page cache, where others have what they need.

The kernel says which pages are there before they are read (mincore(2)); afterwards the others are dropped.  So what the
broker itself has just written, or reads back for its consumers, stays.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Final

import numpy as np

_PAGE: Final = mmap.PAGESIZE


def absent(handle: int) -> list[tuple[int, int]]:
    """The stretches of an open file that are not in the page cache: where they begin, and how many bytes they have.

    None where the system does not say.
    """
    size = os.fstat(handle).st_size
    if not size or not hasattr(_libc, "mincore"):
        return []
    with mmap.mmap(handle, size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as mapped:
        pages = np.empty(-(-size // _PAGE), np.uint8)
        start = ctypes.c_char.from_buffer(mapped)
        try:
            where, length = ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size)
            failed = _libc.mincore(where, length, pages.ctypes.data_as(ctypes.c_void_p))
        finally:
            del start  # or it could not be unmapped
    if failed:
        return []
    edges = np.diff((pages & 1) == 0, prepend=False, append=False)
    bounds = (np.flatnonzero(edges) * _PAGE).reshape(-1, 2)
    return [(first, behind - first) for first, behind in bounds.tolist()]


def drop(handle: int, stretches: list[tuple[int, int]]) -> None:
    """Let go of these stretches.  What is not on disk yet stays."""
    for start, nbytes in stretches:
        os.posix_fadvise(handle, start, nbytes, os.POSIX_FADV_DONTNEED)


_libc: Final = ctypes.CDLL(None, use_errno=True)
