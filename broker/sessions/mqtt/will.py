"""Stores wills: messages to publish when a client's connection ends abnormally (MQTT 5.0, 3.1.2.5, 3.1.3.2)."""

from __future__ import annotations

import base64
from typing import Final

from broker.sessions.mqtt.format import make_head, read_properties
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, WILL_DELAY_INTERVAL, Properties


def delay_of(will: Will | None) -> int | None:
    """Return after how many seconds a will is published; None: there is none."""
    return None if will is None else will.properties.get(WILL_DELAY_INTERVAL) or 0


#: What a will takes in memory beside its content: its objects, and those of its stored form.
OVERHEAD_BYTES: Final = 1_000


def memory_of(will: Will | None) -> int:
    """Return what a will takes in memory, in bytes: as it is, and as it is stored, in Base64."""
    if will is None:
        return 0
    return OVERHEAD_BYTES + 3 * (len(will.topic) + len(will.payload) + len(will.properties.raw))


def to_json(will: Will) -> dict[str, object]:
    """Return what is stored with the session."""
    expiry = will.properties.get(MESSAGE_EXPIRY_INTERVAL)
    return {
        "topic": will.topic,
        "payload": base64.b64encode(will.payload).decode(),
        "head": base64.b64encode(make_head(will.qos, will.retain, will.properties)).decode(),
        "delay": delay_of(will),
        "expiry": -1 if expiry is None else expiry,
    }


def from_json(stored: dict[str, object]) -> Will:
    """Restore a stored will."""
    head = base64.b64decode(str(stored["head"]))
    delay, expiry = int(str(stored["delay"])), int(str(stored["expiry"]))
    pairs = [(WILL_DELAY_INTERVAL, delay)] if delay else []
    if expiry >= 0:
        pairs.append((MESSAGE_EXPIRY_INTERVAL, expiry))
    properties = Properties([*pairs, *read_properties(head)])
    return Will(
        str(stored["topic"]), base64.b64decode(str(stored["payload"])), head[0] & 3, bool(head[0] & 4), properties
    )
