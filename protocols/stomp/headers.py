"""Escapes in header names and values, by version.

    1.0   none
    1.1   \\\\  \\n  \\c             (backslash, LF, colon)
    1.2   \\\\  \\n  \\c  \\r         (and CR)

An undefined escape is an error; CONNECT and CONNECTED are never escaped, so that a 1.0 peer can read them.
"""

from __future__ import annotations

import re
from typing import Final

from protocols.stomp.errors import StompError

_ESCAPES: Final = {
    "1.1": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c"},
    "1.2": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c", b"\r": b"\\r"},
}
_UNESCAPES: Final = {
    version: {escaped: plain for plain, escaped in table.items()} for version, table in _ESCAPES.items()
}
_SPECIAL: Final = {"1.1": re.compile(rb"[\\\n:]"), "1.2": re.compile(rb"[\\\n:\r]")}
_ESCAPED: Final = re.compile(rb"\\.?", re.DOTALL)


def escape(value: bytes, version: str) -> bytes:
    """A header name or value as it goes on the wire.  1.0 has no way to write LF or CR: they become spaces."""
    if version == "1.0":
        return value.replace(b"\n", b" ").replace(b"\r", b" ")
    table = _ESCAPES[version]
    return _SPECIAL[version].sub(lambda match: table[match[0]], value)


def unescape(value: bytes, version: str) -> bytes:
    """The inverse of `escape`.  Raises StompError on an escape that the version does not define."""
    if version == "1.0" or b"\\" not in value:
        return value
    table = _UNESCAPES[version]

    def plain(match: re.Match[bytes]) -> bytes:
        found = table.get(match[0])
        if found is None:
            shown = match[0].decode("ascii", "replace")
            raise StompError("undefined escape", f"{shown} is no escape in a header of STOMP {version}")
        return found

    return _ESCAPED.sub(plain, value)
