"""How much a peer may send before anybody looks at what it means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Each is inclusive: as much as this is allowed, one more is an error."""

    #: Headers of one frame.  Applications use some tens; each costs a dictionary entry.
    header_count_max: int = 256
    #: Bytes of one header line, name, colon and value.  A selector or a trace context fits many times.
    header_line_bytes_max: int = 16 << 10
    #: Bytes of command and header lines of one frame together, without the empty line.
    header_bytes_max: int = 64 << 10
    #: Bytes of one body.
    body_bytes_max: int = 10 << 20
    #: Bytes of one body that comes with its frame, and is in memory until then.  That of a SEND may have more, up to
    #: `body_bytes_max`: it comes in parts.
    whole_bytes_max: int = 10 << 20
    #: Bytes of the whole first frame with its NUL: all that is kept for somebody who has not logged in.
    connect_bytes_max: int = 8 << 10
