"""What a client sends while its login is not answered: nothing is read on, and it costs next to nothing."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from broker.security import passwords
from broker.security.users_file import StoredUser
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S
from tests.support.stomp_client import frame

SETTINGS: Final = """
[limits]
connect-bytes-max = "8KiB"
[acceptors.stomp]
protocol = "stomp"
[acceptors.amqp]
protocol = "amqp"
also = "mqtt"
[acceptors.mqtt]
protocol = "mqtt"
[acceptors.web]
protocol = "amqp"
port = 0
websocket = true
[acceptors.http]
protocol = "http"
"""

CLIENTS: Final = 20
#: What each client tries to send while it waits.
SENT_BYTES: Final = 8 << 20
#: What one client may cost: one read, which may be under way when the broker stops to read.
COST_BYTES: Final = 280 << 10
#: What is no client's: two hashes, and the allocator.
NOISE_BYTES: Final = 8 << 20

#: A password whose check takes longer than any of these tests, and a megabyte.
SLOW: Final = StoredUser(frozenset({"amq"}), passwords.DECOY.replace("m=19456,t=2", "m=1024,t=200000"), {})


def init(mechanism: bytes, response: bytes) -> bytes:
    """The AMQP client's SASL header and its `sasl-init`."""
    fields = b"\xa3" + bytes((len(mechanism),)) + mechanism + b"\xa0" + bytes((len(response),)) + response
    body = b"\x00\x53\x41\xc0" + bytes((len(fields) + 1, 2)) + fields
    return b"AMQP\x03\x01\x00\x00" + (8 + len(body)).to_bytes(4) + b"\x02\x01\x00\x00" + body


def plain(number: int) -> bytes:
    return init(b"PLAIN", f"\0bob\0wrong{number}".encode())


def connect(number: int) -> bytes:
    """MQTT's."""
    password = f"wrong{number}".encode()
    body = b"\0\4MQTT\5\xc2\0\0\0\0\0\0\3bob\0" + bytes((len(password),)) + password
    return bytes((0x10, len(body))) + body


def over_websocket(data: bytes) -> bytes:
    """The request, and a message that goes on for longer than is ever sent."""
    request = (
        b"GET / HTTP/1.1\r\nHost: h\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    )
    return request + b"\x82\xff" + (1 << 40).to_bytes(8) + b"\0\0\0\0" + data


FIRST: Final[dict[str, Callable[[int], bytes]]] = {
    "stomp": lambda n: frame(
        "CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": f"wrong{n}"}
    ),
    "amqp": plain,
    "mqtt": connect,
    "web": lambda n: over_websocket(plain(n)),
}

#: What follows, for each acceptor, so that nothing of it is wrong in itself.
MORE: Final = {"stomp": b"\n", "amqp": b"AMQP\0\1\0\0", "mqtt": b"\xc0\0", "web": b"AMQP\0\1\0\0"}


def flood(sockets: list[socket.socket], data: bytes) -> list[int]:
    """Send what each socket takes, at most SENT_BYTES, until none takes any for a while; how much that was."""
    sent = dict.fromkeys(sockets, 0)
    for each in sockets:
        each.setblocking(False)
    open_ones = set(sockets)
    while open_ones:
        _, writable, _ = select.select([], open_ones, [], 1.0)
        if not writable:
            break
        for each in writable:
            try:
                sent[each] += each.send(data)
            except OSError:
                open_ones.discard(each)
            if sent[each] >= SENT_BYTES:
                open_ones.discard(each)
    return list(sent.values())


def attack(broker: DaemonProcess, acceptor: str, stack: ExitStack, first: int, count: int) -> int:
    """Logins, and then all that is taken behind them; how many bytes that was."""
    sockets = []
    for number in range(first, first + count):
        each = socket.create_connection(("127.0.0.1", broker.ports[acceptor]), PATIENCE_S)
        sockets.append(stack.enter_context(each))
        each.sendall(FIRST[acceptor](number))
    more = MORE[acceptor]
    return sum(flood(sockets, more * ((64 << 10) // len(more))))


@pytest.mark.parametrize("acceptor", FIRST)
def test_nothing_is_read_while_a_login_is_pending(tmp_path: Path, acceptor: str) -> None:
    with running(tmp_path, SETTINGS, stored={"bob": SLOW}) as broker, ExitStack() as stack:
        attack(broker, acceptor, stack, 0, 2)  # what the first ones cost is not theirs
        before = broker.memory_bytes()
        sent = attack(broker, acceptor, stack, 2, CLIENTS)
        begun = time.monotonic()
        assert broker.get("status")["acceptors"]
        answered = time.monotonic() - begun
        grown = broker.memory_bytes() - before
    print(f"{acceptor}: {sent >> 20} MiB sent, {grown >> 10} KiB grown, status in {answered:.3f} s")
    assert "login.refused" not in broker.log, "the logins were pending"
    assert grown < CLIENTS * COST_BYTES + NOISE_BYTES
    assert answered < PATIENCE_S / 4, "a check that held up the others would take minutes"


def test_amqp_that_follows_a_pending_login_counts(tmp_path: Path) -> None:
    """As much as connect-bytes-max waits for the answer; one byte more ends the connection, and the log says why."""
    with running(tmp_path, SETTINGS, stored={"bob": SLOW}) as broker:
        with socket.create_connection(("127.0.0.1", broker.ports["amqp"]), PATIENCE_S) as peer:
            peer.sendall(init(b"PLAIN", b"\0bob\0secret") + MORE["amqp"] + b"\0" * (8192 - len(MORE["amqp"]) + 1))
            while peer.recv(65536):
                pass
        broker.await_log("login.too_large")
        assert "8193" in broker.log
        assert "login.refused" not in broker.log
