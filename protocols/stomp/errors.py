"""The error for a peer's invalid bytes.  Its text is sent in an ERROR frame, and the connection closes (STOMP 1.2,
ERROR)."""

from __future__ import annotations

from typing import Final

#: The most bytes of a peer's value quoted in an error.
_SHOWN_BYTES_MAX: Final = 80


class StompError(Exception):
    """An error of the peer.

    `message` is short and fit for the `message` header; `detail` is a sentence that names the frame, the header and
    what is allowed; `receipt` is the receipt header of the frame in question, if it could be read; `redirect` names
    the servers to use instead, for the header of that name.
    """

    def __init__(self, message: str, detail: str, receipt: bytes | None = None, *, redirect: str = "") -> None:
        super().__init__(f"{message}: {detail}")
        self.message = message
        self.detail = detail
        self.receipt = receipt
        self.redirect = redirect


class FirstTooLarge(StompError):
    """The first frame is larger than allowed before login."""


def format_value(value: bytes) -> str:
    """A peer's bytes as quoted in an error: short and printable."""
    text = value[:_SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f"'{plain}...'" if len(value) > _SHOWN_BYTES_MAX else f"'{plain}'"
