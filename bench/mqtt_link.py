"""One MQTT 3.1.1 connection on a raw socket: blocking during the handshake, non-blocking under load.

3.1.1 because every broker speaks it, and its packets are the same bytes on the way in and on the way out.
"""

from __future__ import annotations

import socket
from typing import Final

from bench.link import HANDSHAKE_S, READ_BYTES, BrokerFailed, Link
from bench.mqtt_messages import varint

_DISCONNECT: Final = b"\xe0\x00"
_PINGREQ: Final = b"\xc0\x00"
PINGRESP: Final = b"\xd0\x00"


def _text(value: str) -> bytes:
    raw = value.encode()
    return len(raw).to_bytes(2, "big") + raw


def connect_packet(client_id: str, *, clean: bool, login: str | None = None, passcode: str | None = None) -> bytes:
    """CONNECT without keep-alive."""
    flags = (2 if clean else 0) | (0x80 if login is not None else 0) | (0x40 if passcode is not None else 0)
    body = _text("MQTT") + bytes([4, flags, 0, 0]) + _text(client_id)
    body += b"".join(_text(one) for one in (login, passcode) if one is not None)
    return b"\x10" + varint(len(body)) + body


class MqttLink(Link):
    """A connection with a session of its own; `clean` as in the protocol."""

    __slots__ = ()

    @classmethod
    def open(
        cls,
        host: str,
        port: int,
        client_id: str,
        *,
        clean: bool = True,
        login: str | None = None,
        passcode: str | None = None,
    ) -> MqttLink:
        """Connects.  Raises OSError when nobody listens, BrokerFailed when the broker refuses."""
        sock = socket.create_connection((host, port), timeout=HANDSHAKE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(sock)
        try:
            answer = link.ask(connect_packet(client_id, clean=clean, login=login, passcode=passcode), 4)
            if answer[:2] != b"\x20\x02" or answer[3]:
                raise BrokerFailed(f"answer to CONNECT: {answer!r}")
        except BaseException:
            link.close()
            raise
        return link

    def ask(self, packet: bytes, answer_bytes: int) -> bytes:
        """Sends a packet and returns its answer, which has so many bytes.  Raises BrokerFailed."""
        self.sock.settimeout(HANDSHAKE_S)
        try:
            self.sock.sendall(packet)
            answer = b""
            while len(answer) < answer_bytes:
                data = self.sock.recv(answer_bytes - len(answer))
                if not data:
                    raise BrokerFailed(f"connection closed after {packet[:80]!r}")
                answer += data
        except TimeoutError:
            raise BrokerFailed(f"no answer in {HANDSHAKE_S:.0f} s to {packet[:80]!r}") from None
        finally:
            self.sock.setblocking(False)
        return answer

    def subscribe(self, filter: str, qos: int) -> None:
        """SUBSCRIBE and its SUBACK.  Raises BrokerFailed."""
        body = b"\x00\x01" + _text(filter) + bytes([qos])
        answer = self.ask(b"\x82" + varint(len(body)) + body, 5)
        if answer != b"\x90\x03\x00\x01" + bytes([qos]):
            raise BrokerFailed(f"answer to SUBSCRIBE: {answer!r}")

    def ping(self) -> None:
        """PINGREQ and PINGRESP: nothing else may be on its way.  Raises BrokerFailed."""
        answer = self.ask(_PINGREQ, 2)
        if answer != PINGRESP:
            raise BrokerFailed(f"more came than was sent: {answer + self.sock.recv(READ_BYTES)!r}"[:300])

    def leave(self) -> None:
        """DISCONNECT."""
        self.send(_DISCONNECT)
        self.close()
