"""Connections: how many new ones a second, what an idle one costs, and what another client feels beside very many.

    python -m bench.connections [--connections 10000] [--tls] [--python INTERPRETER]

MQTT clients connect as fast as the broker takes them, a hundred under way at a time.  Then all are idle, then each
sends a message of QoS 0 a second to a topic that nobody listens to; meanwhile one more sends PINGREQ after PINGREQ, and
what it waits for each PINGRESP is noted.  Then all close.
"""

from __future__ import annotations

import argparse
import select
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.brokers import Bartleby
from bench.generator import Target
from bench.link import BrokerFailed
from bench.mqtt_idle import HANDLES_SPARE, allow_handles
from bench.mqtt_link import MqttLink, connect_packet
from bench.report import say
from tests.support.certificates import Authority

#: Connections that have not been answered yet.
UNDER_WAY: Final = 100

#: Connections that come first and do not count: code is loaded, memory is taken.
WARM_UP: Final = 500

#: Seconds that connections are idle, or busy, while another one waits for its answers.
PROBED_S: Final = 10.0

#: Seconds between two looks at what came.
NAP_S: Final = 0.001

#: Seconds after which memory is looked at.
SETTLED_S: Final = 2.0

#: A message of QoS 0.
PUBLISH: Final = bytes([0x30, 12]) + b"\0\x05quiet" + b"hello"

TLS: Final = """
[acceptors.mqtt.tls]
certificate = "{certificate}"
key = "{key}"
"""


class Clients:
    """Connections to one acceptor."""

    def __init__(self, target: Target, context: ssl.SSLContext | None) -> None:
        self._target = target
        self._context = context
        self._opened: list[socket.socket] = []
        self._number = 0

    def open(self, count: int) -> None:
        """Open so many more.  Raises BrokerFailed."""
        poll = select.epoll()
        waiting: dict[int, Iterator[int]] = {}
        begun = 0
        try:
            while begun < count or waiting:
                while begun < count and len(waiting) < UNDER_WAY:
                    begun += 1
                    handle, steps = self._connect()
                    poll.register(handle, next(steps))
                    waiting[handle] = steps
                for handle, _ in poll.poll(1):
                    wanted = next(waiting[handle], 0)
                    if wanted:
                        poll.modify(handle, wanted)
                    else:
                        poll.unregister(handle)
                        del waiting[handle]
        finally:
            poll.close()

    def _connect(self) -> tuple[int, Iterator[int]]:
        sock = socket.create_connection((self._target.host, self._target.port))
        sock.setblocking(False)
        if self._context is not None:
            sock = self._context.wrap_socket(sock, do_handshake_on_connect=False, server_hostname=self._target.host)
        self._opened.append(sock)
        self._number += 1
        return sock.fileno(), self._introduce(sock, f"bench-{self._number}")

    def _introduce(self, sock: socket.socket, name: str) -> Iterator[int]:
        """Yields what it waits for, until it has its CONNACK."""
        while isinstance(sock, ssl.SSLSocket):
            try:
                sock.do_handshake()
                break
            except ssl.SSLWantReadError:
                yield select.EPOLLIN
        sock.send(connect_packet(name, clean=True, login=None, passcode=None))
        while True:
            yield select.EPOLLIN
            try:
                answer = sock.recv(16)
                break
            except ssl.SSLWantReadError:
                continue
        if answer != b"\x20\x02\x00\x00":
            raise BrokerFailed(f"answer to CONNECT: {answer!r}")

    def publish(self, start: int, stop: int) -> None:
        """Each of these sends a message."""
        for sock in self._opened[start:stop]:
            sock.send(PUBLISH)

    def __len__(self) -> int:
        return len(self._opened)

    def close(self) -> None:
        """All of them."""
        for sock in self._opened:
            sock.close()
        self._opened.clear()


def probe(link: MqttLink, busy: Clients | None) -> str:
    """What one waits for its answers, in ms; each of the `busy` ones sends once a second."""
    waits: list[float] = []
    begun = time.perf_counter()
    sent = 0
    while (now := time.perf_counter()) < begun + PROBED_S:
        if busy is not None:
            due = int((now - begun) * len(busy))
            start, stop = sent % len(busy), sent % len(busy) + due - sent
            busy.publish(start, stop)
            sent = due
        asked = time.perf_counter()
        link.ping()
        waits.append(1000 * (time.perf_counter() - asked))
        time.sleep(NAP_S)
    waits.sort()
    return f"p50 {waits[len(waits) // 2]:.2f}, p99 {waits[len(waits) * 99 // 100]:.2f}, longest {waits[-1]:.1f} ms"


def measure(target: Target, connections: int, context: ssl.SSLContext | None) -> None:
    """Connect, be idle, be busy, close; and say what it took."""
    assert target.cpu is not None
    assert target.memory is not None
    clients = Clients(target, context)
    link = MqttLink.open(target.host, target.port, "bench-probe") if context is None else None
    clients.open(WARM_UP)
    clients.close()
    time.sleep(SETTLED_S)
    memory, cpu, begun = target.memory(), target.cpu(), time.perf_counter()
    clients.open(connections)
    seconds, spent = time.perf_counter() - begun, 1e6 * (target.cpu() - cpu) / connections
    say("connected", f"{connections / seconds:,.0f} a second, {spent:.0f} us of CPU each")
    time.sleep(SETTLED_S)
    say("memory of an idle one", f"{(target.memory() - memory) / connections / 1024:.1f} KiB")
    if link is not None:
        say("another client, all idle", probe(link, None))
        cpu = target.cpu()
        busy = probe(link, clients)
        spent = 1e6 * (target.cpu() - cpu) / (connections * PROBED_S)
        say("another client, all busy", f"{busy}; {spent:.0f} us of CPU a message")
        link.close()
    cpu = target.cpu()
    clients.close()
    time.sleep(SETTLED_S)
    say("closed", f"{1e6 * (target.cpu() - cpu) / connections:.0f} us of CPU each")


def main(arguments: list[str]) -> int:
    """Measure, and say."""
    parser = argparse.ArgumentParser(prog="python -m bench.connections", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--tls", action="store_true", help="TLS 1.3, with a certificate of P-256")
    parser.add_argument("--python", default=sys.executable, help="interpreter for Bartleby")
    options = parser.parse_args(arguments)
    allow_handles(options.connections + WARM_UP + HANDLES_SPARE)
    with tempfile.TemporaryDirectory(prefix="bench-certificates-") as directory:
        settings, context = "", None
        if options.tls:
            authority = Authority(Path(directory))
            certificate, key = authority.issue("bench")
            settings, context = TLS.format(certificate=certificate, key=key), authority.client()
        broker = Bartleby(None, Path("etc/broker.toml"), options.python, settings=settings)
        try:
            broker.start()
            measure(broker.target("mqtt"), options.connections, context)
        finally:
            broker.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
