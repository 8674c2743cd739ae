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

from protocols.stomp.errors import StompError, format_value

_BACKSLASH: Final = 92
_ESCAPES: Final = {
    "1.0": {b"\n": b" ", b"\r": b" ", b"\0": b" "},
    "1.1": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c", b"\0": b" "},
    "1.2": {b"\\": b"\\\\", b"\n": b"\\n", b":": b"\\c", b"\r": b"\\r", b"\0": b" "},
}
#: All but that of the backslash.
_UNESCAPES: Final = {
    version: {escaped: plain for plain, escaped in table.items() if escaped != b" " and plain != b"\\"}
    for version, table in _ESCAPES.items()
}
_SPECIAL: Final = {
    version: re.compile(b"[%b]" % b"".join(re.escape(plain) for plain in table)) for version, table in _ESCAPES.items()
}
_UNDEFINED: Final = {
    version: re.compile(rb"\\(?![%b]).?" % b"".join([escaped[1:] for escaped in table]), re.DOTALL)
    for version, table in _UNESCAPES.items()
    if table
}


def escape(value: bytes, version: str) -> bytes:
    """A header name or value as sent on the wire.

    Characters that the version cannot express become spaces: LF and CR in 1.0, and NUL, which many clients take for the
    end of the frame.
    """
    if _SPECIAL[version].search(value) is not None:
        for plain, escaped in _ESCAPES[version].items():  # the backslash is the first of them
            value = value.replace(plain, escaped)
    return value


def is_name(name: bytes, version: str) -> bool:
    """Whether a header may have this name: in 1.0 not one with a colon, as its first part would be read as the name."""
    return version != "1.0" or b":" not in name


def unescape(value: bytes, version: str) -> bytes:
    """The inverse of `escape`.  Raises StompError on an escape that the version does not define."""
    if _BACKSLASH not in value or version == "1.0":
        return value
    if b"\0" in value:  # in no frame, but perhaps in what was imported
        return b"\0".join([unescape(part, version) for part in value.split(b"\0")])
    # A run of backslashes begins where an escape may, so its pairs are found from left to right.  Each step is one call
    # for the whole value: a client may send 64 KiB of escapes in each frame.
    value = value.replace(b"\\\\", b"\0")
    undefined = _UNDEFINED[version].search(value)
    if undefined is not None:
        raise StompError("undefined escape", f"{format_value(undefined[0])[1:-1]} is not an escape of STOMP {version}")
    for escaped, plain in _UNESCAPES[version].items():
        value = value.replace(escaped, plain)
    return value.replace(b"\0", b"\\")
