"""Escapes in header names and values, by version.

    1.0   none
    1.1   \\\\  \\n  \\c             (backslash, LF, colon)
    1.2   \\\\  \\n  \\c  \\r         (and CR)

An undefined escape is an error; CONNECT and CONNECTED are never escaped, so that a 1.0 peer can read them.  NUL has no
escape in any version.
"""

from __future__ import annotations

import re
from typing import Final

from protocols.stomp.errors import StompError, shown

_BACKSLASH: Final = 92
_ESCAPES: Final = {
    "1.0": {b"\n": b" ", b"\r": b" ", b"\0": b" "},
    "1.1": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c", b"\0": b" "},
    "1.2": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c", b"\r": b"\\r", b"\0": b" "},
}
_UNESCAPES: Final = {
    version: {escaped: plain for plain, escaped in table.items() if escaped != b" "}
    for version, table in _ESCAPES.items()
}
_SPECIAL: Final = {
    version: re.compile(b"[%b]" % b"".join(re.escape(plain) for plain in table)) for version, table in _ESCAPES.items()
}
_ESCAPED: Final = re.compile(rb"\\.?", re.DOTALL)


def escape(value: bytes, version: str) -> bytes:
    """A header name or value as sent on the wire.

    Characters that the version cannot express become spaces: LF and CR in 1.0, and NUL, which many clients take for the
    end of the frame.
    """
    table = _ESCAPES[version]
    return _SPECIAL[version].sub(lambda match: table[match[0]], value)


def is_name(name: bytes, version: str) -> bool:
    """Whether a header may have this name: in 1.0 not one with a colon, as its first part would be read as the name."""
    return version != "1.0" or b":" not in name


def unescape(value: bytes, version: str) -> bytes:
    """The inverse of `escape`.  Raises StompError on an escape that the version does not define."""
    if _BACKSLASH not in value or version == "1.0":
        return value
    table = _UNESCAPES[version]

    def plain(match: re.Match[bytes]) -> bytes:
        found = table.get(match[0])
        if found is None:
            raise StompError("undefined escape", f"{shown(match[0])[1:-1]} is not an escape of STOMP {version}")
        return found

    return _ESCAPED.sub(plain, value)
