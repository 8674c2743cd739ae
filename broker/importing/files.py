"""Reading files of other brokers as text."""

from __future__ import annotations


class InvalidFile(ValueError):
    """The file cannot be imported; the text says why and what to do."""


def text_of(data: bytes, bytes_max: int, kind: str) -> str:
    """The text of a file.  Raises InvalidFile if it is larger than any of its kind, or not UTF-8."""
    if len(data) > bytes_max:
        raise InvalidFile(f"it is larger than {bytes_max >> 20} MiB: no {kind} is")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidFile(f"line {line}: not UTF-8: save the file as UTF-8") from None
