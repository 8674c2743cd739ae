"""Detects the protocol of a peer by its first bytes: one port can serve several.

    AMQP                    AMQP 1.0 (part 2, 2.2): its protocol header
    10                      MQTT: a CONNECT packet, whose first byte no other protocol sends
    anything else           STOMP, if it is served here: a command, or empty lines before one

From then on, all bytes go to a session of that protocol.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.sessions.session import Session
from broker.sessions.wrapping import WrappingSession

MakeSession = Callable[[], Session]

_AMQP: Final = b"AMQP"
_MQTT_CONNECT: Final = 0x10


def detect(first: bytes) -> str | None:
    """Return the protocol of a connection that begins with these bytes; None: too few to tell."""
    if first[0] == _MQTT_CONNECT:
        return "mqtt"
    if first.startswith(_AMQP):
        return "amqp"
    return None if _AMQP.startswith(first) else "stomp"


class DetectingSession(WrappingSession):
    """A session that becomes one of `served` (by protocol name).  Peers of other protocols are disconnected."""

    def __init__(self, served: Mapping[str, MakeSession]) -> None:
        super().__init__()
        self._served = served
        self._first = b""

    def receive_data(self, data: bytes) -> None:
        if self.inner is not None:
            self.inner.receive_data(data)
            return
        if self.ended:
            return
        self._first += data
        protocol = detect(self._first)
        if protocol is None:
            return
        make = self._served.get(protocol)
        if make is None:
            self.ended = True
            return
        self.inner = make()
        first, self._first = self._first, b""
        self.inner.receive_data(first)
