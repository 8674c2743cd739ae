"""What is wrong with a peer's bytes.  There is one error: whatever it says, an ERROR frame says it too, and the
connection closes (STOMP 1.2, ERROR)."""

from __future__ import annotations

from typing import Final

#: Bytes of the peer's that a sentence quotes.
_SHOWN_BYTES_MAX: Final = 80


class StompError(Exception):
    """The peer's fault.

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
    """The first frame is larger than that of somebody unknown may be."""


def shown(value: bytes) -> str:
    """Bytes of the peer in a sentence: short, and nothing that is not printable."""
    text = value[:_SHOWN_BYTES_MAX].decode("utf-8", "backslashreplace")
    plain = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return f"'{plain}...'" if len(value) > _SHOWN_BYTES_MAX else f"'{plain}'"
