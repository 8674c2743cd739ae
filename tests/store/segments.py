"""Segments made by hand, also such as no broker would write."""

from __future__ import annotations

import struct

from crc32c import crc32c

from store.segment import FORMAT_VERSION, Entry, decode_header, encode_header, entry_of, pack_entries
from tests.store.workload import BROKER_ID, EPOCH


def header(number: int = 1, first: int = 0, broker_id: bytes = BROKER_ID) -> bytes:
    return encode_header(number=number, broker_id=broker_id, created=EPOCH, first_position=first)


def entry(segment: int, first: int, *records: bytes, timestamp: int = EPOCH) -> Entry:
    return entry_of([*records], segment=segment, first=first, timestamp=timestamp)


def packed(head: bytes, first: int, *records: bytes, durable: int = -1) -> bytes:
    """An entry of the segment with this header; it knew durable what is before `durable`, or all before it."""
    seed = decode_header(head).crc
    return bytes(pack_entries([entry(1, first, *records)], seed, first if durable < 0 else durable))


def made(*entries: list[bytes], number: int = 1, first: int = 0) -> bytes:
    """A segment with entries of these records."""
    data = head = header(number, first)
    for records in entries:
        data += packed(head, first, *records)
        first += len(records)
    return data


def newer(data: bytes) -> bytes:
    """A segment as software of the next format would write its header."""
    return of_version(data, FORMAT_VERSION + 1)


def of_version(data: bytes, version: int) -> bytes:
    """A segment whose header has this version of the format."""
    head = data[:8] + struct.pack("<H", version) + data[10:60]
    return head + struct.pack("<I", crc32c(head)) + data[64:]
