"""Many connections that do nothing: what each costs in memory, and whether new ones delay those that work.

Connections are opened at a given rate; meanwhile another one sends PINGREQ after PINGREQ, and what it waits for each
PINGRESP is noted.  The same is noted before, for comparison.
"""

from __future__ import annotations

import resource
import select
import socket
import time
from dataclasses import dataclass
from typing import Final

from bench.generator import Target
from bench.link import BrokerFailed
from bench.mqtt_link import MqttLink, connect_packet

BASELINE_S: Final = 1.0  # seconds of pings before any connection is opened
HANDSHAKES_S: Final = 30.0  # seconds until all have to be there
HANDLES_SPARE: Final = 200


@dataclass(frozen=True, slots=True)
class Idle:
    """connections: that many were open at once.  rate: of them that came a second.  memory: the broker's, of each, in
    bytes.  calm_ms, busy_ms: 99th percentile of a PINGRESP before, and while connections came."""

    broker: str
    connections: int
    rate: float
    memory: float
    calm_ms: float
    busy_ms: float


def measure(name: str, target: Target, connections: int, rate: int) -> Idle:
    """Opens so many connections, so many a second.  Raises BrokerFailed."""
    assert target.memory is not None, "the memory of this broker cannot be seen"
    allow_handles(connections + HANDLES_SPARE)
    pinger = MqttLink.open(target.host, target.port, "bench-pinger", login=target.login, passcode=target.passcode)
    opened: list[socket.socket] = []
    try:
        calm = _pings(pinger, BASELINE_S)
        before = target.memory()
        begun = time.perf_counter()
        busy = _open_all(target, pinger, opened, connections, rate)
        seconds = time.perf_counter() - begun
        memory = (target.memory() - before) / connections
        return Idle(name, connections, connections / seconds, memory, _worst(calm), _worst(busy))
    finally:
        for sock in opened:
            sock.close()
        pinger.close()


def allow_handles(number: int) -> None:
    """Raises the limit of open files.  Raises BrokerFailed when the machine does not allow so many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < number:
        raise BrokerFailed(f"{number} open files are needed, the machine allows {hard}: ulimit -H -n")
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _ping(link: MqttLink) -> float:
    """Milliseconds of a round trip."""
    start = time.perf_counter()
    link.ping()
    return 1000 * (time.perf_counter() - start)


def _pings(link: MqttLink, seconds: float) -> list[float]:
    found = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        found.append(_ping(link))
        time.sleep(0.001)
    return found


def _open_all(
    target: Target, pinger: MqttLink, opened: list[socket.socket], connections: int, rate: int
) -> list[float]:
    poll = select.epoll()
    waiting: dict[int, socket.socket] = {}
    pings: list[float] = []
    begun = time.perf_counter()
    try:
        while len(opened) < connections or waiting:
            now = time.perf_counter()
            if now - begun > HANDSHAKES_S + connections / rate:
                raise BrokerFailed(f"{len(waiting)} of {len(opened)} connections have no CONNACK")
            while len(opened) < min(connections, (now - begun) * rate):
                sock = socket.create_connection((target.host, target.port))
                opened.append(sock)
                sock.sendall(
                    connect_packet(
                        f"bench-idle-{len(opened)}", clean=True, login=target.login, passcode=target.passcode
                    )
                )
                waiting[sock.fileno()] = sock
                poll.register(sock, select.EPOLLIN)
            for handle, _ in poll.poll(0):
                try:
                    answer = waiting.pop(handle).recv(16)
                except ConnectionResetError:
                    raise BrokerFailed(f"connection {len(opened)} or one before it was refused") from None
                poll.unregister(handle)
                if answer != b"\x20\x02\x00\x00":
                    raise BrokerFailed(f"answer to CONNECT: {answer!r}")
            pings.append(_ping(pinger))
            time.sleep(0.001)
    finally:
        poll.close()
    return pings


def _worst(pings: list[float]) -> float:
    """99th percentile."""
    return sorted(pings)[len(pings) * 99 // 100]
