"""Limits on the size of a peer's frames, checked before their contents are looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each limit is inclusive: that much is allowed, one more is an error."""

    #: Headers of one frame.  Applications use some tens; each costs a dictionary entry.
    header_count_max: int = 256
    #: Bytes of one header line, name, colon and value.  A selector or a trace context fits many times.
    header_line_bytes_max: int = 16 << 10
    #: Bytes of command and header lines of one frame together, without the empty line.
    header_bytes_max: int = 64 << 10
    #: Bytes of one body.
    body_bytes_max: int = 10 << 20
    #: Bytes of one body that is read as a whole, in memory.  A SEND's body may have more, up to `body_bytes_max`: it is
    #: read in parts.
    whole_bytes_max: int = 10 << 20
    #: Bytes of the whole first frame with its NUL: the most that is buffered for a client that has not logged in.
    connect_bytes_max: int = 8 << 10
