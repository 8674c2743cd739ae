"""Clients that connect and never log in: their cost, how long they stay, and whether another client can still log in.

    slow       thousands of sockets that send the beginning of a frame, byte by byte, and never its end
    aborted    thousands of TLS handshakes that are broken off at every stage
    client     a client that logs in meanwhile

Memory is that of the broker's process: it includes that of the session, the event loop and TLS.
"""

from __future__ import annotations

import select
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from tests.support.certificates import Authority
from tests.support.daemon import DaemonProcess
from tests.support.process import PATIENCE_S
from tests.support.stomp_client import frame

SETTINGS: Final = """
[log]
level = "warning"
[acceptors.stomp]
protocol = "stomp"
handshake-timeout = "{timeout}"
[acceptors.amqp]
protocol = "amqp"
handshake-timeout = "{timeout}"
[acceptors.mqtt]
protocol = "mqtt"
handshake-timeout = "{timeout}"
[acceptors.web]
protocol = "mqtt"
port = 0
websocket = true
handshake-timeout = "{timeout}"
[acceptors.http]
protocol = "http"
[acceptors.secure]
protocol = "stomp"
handshake-timeout = "{timeout}"
[acceptors.secure.tls]
certificate = "{certificate}"
key = "{key}"
"""

#: The beginning of a first frame, for each acceptor, and its continuation: the only bytes that a stranger sends.
BEGINNINGS: Final = {
    "stomp": (b"CONNECT\nlogin:", b"x"),
    "amqp": (b"AMQP\3\1\0\0\0\0\x1f\xff\2\1\0\0\0\x53\x41\xd0\0\0\x1f\xef\0\0\0\3\xa3\5PLAIN\xb0\0\0\x1f\xd0", b"x"),
    "mqtt": (b"\x10\xfd\x3f\0\4MQTT\5\2\0\0\0\x3f\xf0", b"x"),
    "secure": (b"\x16\x03\x01\x02\x00\x01", b"\0"),
    "web": (b"GET /mqtt HTTP/1.1\r\n", b"X-Long: " + b"x" * 190 + b"\r\n"),
}

#: Handshakes that are begun and never finished, by kind: the acceptor, and what is sent.
HALF_OPEN: Final[dict[str, tuple[str, Callable[[], bytes]]]] = {
    "nothing": ("stomp", lambda: b""),
    "half a CONNECT of STOMP": ("stomp", lambda: BEGINNINGS["stomp"][0]),
    "half a header of AMQP": ("amqp", lambda: b"AMQP\3"),
    "half a login of AMQP": ("amqp", lambda: BEGINNINGS["amqp"][0]),
    "half a CONNECT of MQTT": ("mqtt", lambda: BEGINNINGS["mqtt"][0]),
    "half a request for a WebSocket": ("web", lambda: BEGINNINGS["web"][0]),
    "half a ClientHello": ("secure", lambda: hello()[:100]),
    "a ClientHello": ("secure", lambda: hello()),
    "half a line of HTTP": ("http", lambda: b"GET /live"),
}

#: Bytes that a stranger may have sent: limits.connect-bytes-max.
FULL_BYTES: Final = 8 << 10

#: The same for the request that opens a WebSocket.
REQUEST_BYTES: Final = 10 << 10

CONNECT: Final = frame("CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": "secret"})


def settings(authority: Authority, *, timeout: str = "10s") -> str:
    """Return a configuration with a certificate of an authority; `timeout` is that of the login."""
    certificate, key = authority.issue("broker")
    return SETTINGS.format(certificate=certificate, key=key, timeout=timeout)


class Connections:
    """Sockets that have connected and never log in."""

    def __init__(self, port: int, count: int, first: bytes) -> None:
        self.sockets: list[socket.socket] = []
        self.begun = time.monotonic()
        for _ in range(count):
            self.sockets.append(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
        for each in self.sockets:
            with suppress(OSError):  # another one has its place already
                each.sendall(first)

    def drip(self, more: bytes) -> None:
        """Send a little more on each socket that was not cut off."""
        for each in self.sockets:
            with suppress(OSError):
                each.send(more)

    def last_cut(self) -> float:
        """Return the seconds from the first connection until all were cut off.  Raises AssertionError."""
        poll = select.poll()
        for each in self.sockets:
            poll.register(each, select.POLLIN | select.POLLHUP)
        left = {each.fileno() for each in self.sockets}
        while left:
            ready = poll.poll(PATIENCE_S * 1000)
            assert ready, f"{len(left)} strangers are still there"
            for number, _ in ready:
                poll.unregister(number)
                left.discard(number)
        return time.monotonic() - self.begun

    def close(self) -> None:
        """Close all sockets."""
        for each in self.sockets:
            each.close()


@contextmanager
def connections(port: int, count: int, first: bytes) -> Iterator[Connections]:
    """Open connections, and close them afterwards."""
    found = Connections(port, count, first)
    try:
        yield found
    finally:
        found.close()


@contextmanager
def half_open(broker: DaemonProcess, count: int) -> Iterator[None]:
    """Begin some `count` handshakes of all kinds in turn, and finish none."""
    with ExitStack() as stack:
        for acceptor, first in HALF_OPEN.values():
            stack.enter_context(connections(broker.ports[acceptor], count // len(HALF_OPEN), first()))
        yield


def settled_bytes(broker: DaemonProcess, acceptor: str, count: int) -> int:
    """Return the broker's memory once it has `count` connections and has read their bytes: when it stops growing."""
    deadline = time.monotonic() + PATIENCE_S
    seen: list[int] = []
    while True:
        [state] = [each for each in broker.get("status")["acceptors"] if each["name"] == acceptor]
        here = state["connections"] == count or acceptor == "secure"  # which counts no connection before its handshake
        seen = [*seen[-4:], broker.memory_bytes()]
        if here and len(seen) == 5 and seen[0] == seen[-1]:
            return seen[-1]
        assert time.monotonic() < deadline, f"{state['connections']} of {count} strangers on {acceptor}: {seen}"


def cost(broker: DaemonProcess, acceptor: str, count: int, *, full: bool) -> int:
    """Return the bytes of memory for each of `count` strangers that have sent a few bytes, or nearly all they may.

    The broker must be a new one, as earlier memory would hide the cost, and have a long login timeout.
    """
    beginning, more = BEGINNINGS[acceptor]
    room = (REQUEST_BYTES if acceptor == "web" else FULL_BYTES) - len(beginning)
    first = beginning + more * ((room - 8) // len(more)) if full else beginning
    few = count // 10
    with connections(broker.ports[acceptor], few, first):  # the first connections cost more than their own memory
        before = settled_bytes(broker, acceptor, few)
        with connections(broker.ports[acceptor], count, first):
            return (settled_bytes(broker, acceptor, few + count) - before) // count


def patience(broker: DaemonProcess, count: int) -> float:
    """Return the seconds after which the last of `count` strangers was cut off."""
    with connections(broker.ports["stomp"], count, BEGINNINGS["stomp"][0]) as strangers:
        return strangers.last_cut()


def hello() -> bytes:
    """Return a client's first flight of TLS."""
    context = ssl.create_default_context()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


def abort_handshakes(port: int, count: int) -> None:
    """Break off `count` handshakes: at once, in the middle of the first flight, after it, with nonsense."""
    first = hello()
    ways = (
        b"",
        first[:9],
        first[: len(first) // 2],
        first,
        first + b"\x16\x03\x03\x00\x05junk!",
        b"GET / HTTP/1.1\r\n\r\n",
    )
    reset = struct.pack("ii", 1, 0)
    for number in range(count):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as client:
            if number % 2:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            client.sendall(ways[number % len(ways)])


def log_in(port: int, context: ssl.SSLContext | None = None) -> float:
    """Log a new client in; returns the seconds that it took.  Raises AssertionError."""
    begun = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as raw:
        client = raw if context is None else context.wrap_socket(raw, server_hostname="localhost")
        client.sendall(CONNECT)
        answer = client.recv(4096)
        client.close()
    assert answer.startswith(b"CONNECTED"), answer
    return time.monotonic() - begun


@dataclass(slots=True)
class Figures:
    """The number of logins, and the seconds of the slowest by TCP and by TLS."""

    logins: int = 0
    slowest_login: float = 0.0
    slowest_secure_login: float = 0.0


def besiege(broker: DaemonProcess, authority: Authority, *, slow: int, aborted: int) -> Figures:
    """Run slow strangers and aborted handshakes at once, while clients log in.  Raises AssertionError."""
    figures = Figures()
    context = authority.client()
    aborting = threading.Thread(target=abort_handshakes, args=(broker.ports["secure"], aborted))
    with connections(broker.ports["stomp"], slow, BEGINNINGS["stomp"][0]) as strangers:
        aborting.start()
        while aborting.is_alive() or not figures.logins:
            strangers.drip(b"x")
            figures.slowest_login = max(figures.slowest_login, log_in(broker.ports["stomp"]))
            figures.slowest_secure_login = max(figures.slowest_secure_login, log_in(broker.ports["secure"], context))
            figures.logins += 2
        aborting.join()
    return figures
