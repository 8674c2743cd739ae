"""Transfers as bytes, and what is told of them."""

from __future__ import annotations

from collections.abc import Iterable

from protocols.amqp.events import Event, Transfers
from protocols.amqp.frames import frame
from protocols.amqp.performatives import Transfer
from protocols.amqp.serial import MASK, add
from tests.protocols.amqp.peer import FIRST_ID


def transfer(number: int, payload: bytes = b"x", **fields: object) -> bytes:
    """The frame of the `number`th delivery of a session."""
    body = Transfer(0, add(FIRST_ID, number), b"%d" % number, 0)
    for name, value in fields.items():
        setattr(body, name, value)
    return frame(0, body.encode() + payload)


def told(events: Iterable[Event]) -> list[tuple[int, bytes, bytes]]:
    """Number, tag and payload of each delivery."""
    return [
        ((id - FIRST_ID) & MASK, tag, payload)
        for event in events
        if isinstance(event, Transfers)
        for id, tag, payload in zip(event.ids, event.tags, event.payloads, strict=True)
    ]
