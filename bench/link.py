"""One STOMP 1.2 connection on a raw socket: blocking during the handshake, non-blocking under load."""

from __future__ import annotations

import socket
import sys
from typing import Final

READ_BYTES: Final = 1 << 18  # bytes a read; large enough that a busy socket is emptied in one call
HANDSHAKE_S: Final = 10.0  # seconds a broker may take to answer CONNECT or SUBSCRIBE


class BrokerFailed(Exception):
    """The broker sent an ERROR, closed the connection, stalled, or delivered something it should not have."""


class Link:
    """`request` blocks for one answer; `send` and `receive` never block."""

    __slots__ = ("_rest", "sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self._rest = b""

    @classmethod
    def connect(
        cls, host: str, port: int, login: str | None = None, passcode: str | None = None, virtual_host: str = ""
    ) -> Link:
        """Connects and logs in. Raises OSError when nobody listens, BrokerFailed when the broker refuses."""
        sock = socket.create_connection((host, port), timeout=HANDSHAKE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = cls(sock)
        headers = ["accept-version:1.2", f"host:{virtual_host or host}", "heart-beat:0,0"]
        headers += [f"login:{login}"] if login is not None else []
        headers += [f"passcode:{passcode}"] if passcode is not None else []
        try:
            answer = link.request(("CONNECT\n" + "\n".join(headers) + "\n\n\0").encode())
            if not answer.startswith(b"CONNECTED"):
                raise BrokerFailed(f"answer to CONNECT: {answer!r}")
        except BaseException:
            link.close()
            raise
        return link

    def request(self, frame: bytes) -> bytes:
        """Sends a frame and returns the next frame received (NUL excluded). Raises BrokerFailed, also on ERROR."""
        self.sock.settimeout(HANDSHAKE_S)
        try:
            self.sock.sendall(frame)
            while b"\0" not in self._rest:
                data = self.sock.recv(READ_BYTES)
                if not data:
                    raise BrokerFailed(f"connection closed after {frame[:80]!r}")
                self._rest += data
        except TimeoutError:
            raise BrokerFailed(f"no answer in {HANDSHAKE_S:.0f} s to {frame[:80]!r}") from None
        finally:
            self.sock.setblocking(False)
        answer, _, self._rest = self._rest.partition(b"\0")
        answer = answer.lstrip(b"\r\n")
        if answer.startswith(b"ERROR"):
            raise BrokerFailed(f"broker says {answer.decode(errors='replace')}")
        return answer

    def send(self, data: memoryview | bytes) -> int:
        """Bytes taken by the kernel; 0 when its buffer is full. Raises BrokerFailed when the connection is gone."""
        try:
            return self.sock.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise BrokerFailed(f"connection lost while sending: {error}") from error

    def receive(self) -> bytes:
        """What has arrived; b"" when nothing has. Raises BrokerFailed when the connection is gone."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        try:
            data = self.sock.recv(READ_BYTES)
        except BlockingIOError:
            return b""
        except OSError as error:
            raise BrokerFailed(f"connection lost while receiving: {error}") from error
        if not data:
            raise BrokerFailed("the broker closed the connection")
        return data

    @property
    def resent(self) -> int:
        """TCP segments sent again so far (tcp(7), tcpi_total_retrans, at byte 100 of tcp_info)."""
        info = self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return int.from_bytes(info[100:104], sys.byteorder)

    def close(self) -> None:
        self.sock.close()
