"""A body in a file of its own: the reference to it in its message's record, and its object in memory.

The record (MESSAGE or COPIED of version 2) has 24 bytes in place of the body: the number of the file, its length,
its checksum.  In memory a `LargeBody` represents it.  The file exists as long as one of its objects does; after the
last one, it is removed once the journal has committed the records that made it unneeded (`bodies`).
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final, Protocol

from crc32c import crc32c

from store.errors import BodyUnreadable

#: id, bytes, crc, reserved
_REFERENCE: Final = Struct("<QQI4x")

#: Bytes of a reference in a record.
REFERENCE_BYTES: Final = _REFERENCE.size


@dataclass(frozen=True, slots=True)
class BodyReference:
    """The file of a body: its number, its length in bytes, and the CRC32C of its contents."""

    id: int
    nbytes: int
    crc: int

    def encode(self) -> bytes:
        """The reference as it is stored in a record."""
        return _REFERENCE.pack(self.id, self.nbytes, self.crc)


def decode_reference(data: bytes) -> BodyReference:
    """The inverse of `encode`.  Raises struct.error when the length is wrong."""
    return BodyReference(*_REFERENCE.unpack(data))


class InternalOwner(Protocol):
    """The owner of bodies' files, which counts their objects."""

    def held(self, reference: BodyReference) -> None:
        """Count one more object of this file."""

    def dropped(self, id: int) -> None:
        """Count one object less: called at any time, by any thread."""

    def read(self, id: int, offset: int, nbytes: int) -> bytes:
        """Read `nbytes` of the file.  Raises BodyUnreadable."""


class LargeBody:
    """A body that is in a file.  Immutable; `len` is its length in bytes."""

    __slots__ = ("_keeper", "reference")

    def __init__(self, internal_owner: InternalOwner, reference: BodyReference) -> None:
        self.reference = reference
        self._keeper = internal_owner
        internal_owner.held(reference)

    def __len__(self) -> int:
        return self.reference.nbytes

    def __del__(self) -> None:
        self._keeper.dropped(self.reference.id)

    def read(self, offset: int, nbytes: int) -> bytes:
        """Read bytes from `offset` on, fewer only at the end.  Raises BodyUnreadable."""
        return self._keeper.read(self.reference.id, offset, min(nbytes, self.reference.nbytes - offset))

    def whole(self) -> bytes:
        """Read the whole body into memory: for bodies known to be small enough.  Raises BodyUnreadable."""
        checksum = Checksum(self)
        data = self.read(0, self.reference.nbytes)
        checksum.passed(data)
        return data


class Checksum:
    """Checks a body that is read from beginning to end, piece by piece, so a damaged body is never passed on whole."""

    __slots__ = ("_body", "_crc", "_left")

    def __init__(self, body: LargeBody) -> None:
        self._body = body
        self._crc = 0
        self._left = body.reference.nbytes

    def passed(self, data: bytes) -> None:
        """Check the next piece.  Raises BodyUnreadable at the last one if the body's checksum is wrong."""
        self._crc = crc32c(data, self._crc)
        self._left -= len(data)
        if not self._left and self._crc != self._body.reference.crc:
            raise BodyUnreadable(f"body {self._body.reference.id}", "its checksum is wrong: the file is damaged")
