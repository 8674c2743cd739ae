"""MQTT over WebSocket: each packet that the broker sends is a message of its own.

The specification lets a message have several packets, or part of one (MQTT 5.0, 6), and the broker accepts both.  But
some clients, Paho's for C among them, read one packet of a message and the next only when more bytes arrive: a SUBACK
behind another packet would be waited for in vain.
"""

from __future__ import annotations

from broker.sessions.session import Session
from broker.sessions.websocket.session import WebSocketSession


class MqttWebSocketSession(WebSocketSession):
    """An MQTT session in a WebSocket."""

    _left = 0  # bytes of the packet whose message has begun that have not been sent

    def _send_from(self, inner: Session) -> None:
        data = inner.data_to_send()
        at, end = 0, len(data)
        if self._left and data:
            at = min(self._left, end)
            self._left -= at
            self._ws.send_continuation(data[:at], fin=not self._left)
        while at < end:
            stop = _end_of_packet(data, at)
            self._left = max(stop - end, 0)
            self._ws.send_binary(data[at:stop], fin=not self._left)
            at = stop


def _end_of_packet(data: bytes, at: int) -> int:
    """Return where the packet at `at` ends; its length has been written whole."""
    length = shift = 0
    while True:
        at += 1
        length |= (data[at] & 0x7F) << shift
        if data[at] < 0x80:
            return at + 1 + length
        shift += 7
