"""How long a message takes at a fixed rate: from the moment it should have been sent until the consumer has it.

An open loop: message n is due n/rate seconds after the start, whether or not those before it have arrived.  A broker
that stops for a moment delays every message of that moment, and each delay counts; a generator that waits for answers
would send fewer meanwhile, and would not see most of it.  Producer and consumer are one thread, so that both ends are
read from one clock.  How late it sent is part of each latency, and is told beside it.

    stomp    one durable queue, `ack:client-individual`, an ACK for each message
    mqtt     QoS 1, to a session that outlives its connection

The disk's own `write` and `fdatasync` of 2 KiB are timed before each round, in the directory with the broker's data: no
durable message can be quicker than its disk.
"""

from __future__ import annotations

import gc
import os
import select
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from bench.generator import STALL_S, Target
from bench.link import BrokerFailed, Link
from bench.messages import NUMBER_BYTES
from bench.mqtt_link import MqttLink
from bench.mqtt_messages import PACKET_IDS, varint

BODY_BYTES: Final = 200
PUBACK_BYTES: Final = 4
SETTLING_S: Final = 0.5  # seconds of sending before anything counts
DISK_WRITES: Final = 2_000
DISK_BYTES: Final = 2048  # of a write: some five messages and what their journal entry needs

_FILL: Final = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ .,;-_" * 3


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Of so many times, in ms."""

    count: int
    p50: float
    p99: float
    p999: float

    @classmethod
    def of(cls, seconds: Iterable[float]) -> Percentiles:
        """Those of at least one time."""
        times = sorted(seconds)
        p50, p99, p999 = (round(1000 * times[int(len(times) * part)], 3) for part in (0.5, 0.99, 0.999))
        return cls(len(times), p50, p99, p999)

    def __str__(self) -> str:
        return f"{self.p50:.2f} / {self.p99:.2f} / {self.p999:.2f}"


@dataclass(frozen=True, slots=True)
class Latency:
    """What a run found.  late: how long after it was due each message was sent.  cpu_us: the broker's, a message."""

    latency: Percentiles
    late: Percentiles
    disk: Percentiles
    cpu_us: float | None


class Flow(Protocol):
    """A producer's connection and a consumer's, ready for messages 0, 1, 2, ... in order."""

    @property
    def sending(self) -> Link:
        """The producer's."""

    @property
    def receiving(self) -> Link:
        """The consumer's."""

    def messages(self, first: int, stop: int) -> bytes:
        """These messages, as they are sent."""

    def take(self, data: bytes) -> tuple[int, bytes]:
        """What the consumer got: how many messages are whole now, and their acknowledgements.  Raises BrokerFailed."""

    def listen(self, data: bytes) -> None:
        """What the producer got.  Raises BrokerFailed."""

    def end(self) -> None:
        """Leaves nothing behind.  Raises BrokerFailed when more came than was sent."""


class StompFlow:
    """A durable queue of its own."""

    def __init__(self, target: Target, stack: ExitStack) -> None:
        self.receiving = target.connect()
        stack.callback(self.receiving.close)
        self.sending = target.connect()
        stack.callback(self.sending.close)
        headers = "".join(f"{line}\n" for line in target.subscription_headers)
        self.receiving.request(
            f"SUBSCRIBE\nid:0\ndestination:/queue/latency\nack:client-individual\nreceipt:r\n{headers}\n\0".encode()
        )
        self._head = b"SEND\ndestination:/queue/latency\npersistent:true\n\n" + _FILL[: BODY_BYTES - NUMBER_BYTES]
        self._carry = b""
        self._next = 0

    def messages(self, first: int, stop: int) -> bytes:
        return b"".join([b"%b%010d\0" % (self._head, number) for number in range(first, stop)])

    def take(self, data: bytes) -> tuple[int, bytes]:
        *frames, self._carry = (self._carry + data).split(b"\0")
        acks = []
        for frame in frames:
            if frame[-NUMBER_BYTES:] != b"%010d" % self._next:
                raise BrokerFailed(f"message {self._next} is due, and the consumer got {frame[-400:]!r}")
            self._next += 1
            start = frame.index(b"\nack:") + 5
            acks.append(b"ACK\nid:%b\n\n\0" % frame[start : frame.index(b"\n", start)])
        return len(frames), b"".join(acks)

    def listen(self, data: bytes) -> None:
        raise BrokerFailed(f"the producer was told {data[:300]!r}")

    def end(self) -> None:
        answer = self.receiving.request(b"UNSUBSCRIBE\nid:0\nreceipt:r\n\n\0")
        if not answer.startswith(b"RECEIPT"):
            raise BrokerFailed(f"more came than was sent: {answer[:300]!r}")


class MqttFlow:
    """A topic of its own, and a session that this ends."""

    TOPIC: Final = b"latency/0"
    ID: Final = "bench-latency"

    def __init__(self, target: Target, stack: ExitStack) -> None:
        self._target = target
        self.receiving = self._open(self.ID, stack, clean=False)
        self.receiving.subscribe(self.TOPIC.decode(), 1)
        self.sending = self._open("bench-producer", stack, clean=True)
        length = 2 + len(self.TOPIC) + 2 + BODY_BYTES
        self._head = varint(length) + len(self.TOPIC).to_bytes(2, "big") + self.TOPIC
        self._fill = _FILL[: BODY_BYTES - NUMBER_BYTES]
        self._id_at = 1 + len(self._head)
        self._size = 1 + len(varint(length)) + length
        self._carry = b""
        self._answers = b""
        self._next = 0

    def _open(self, client: str, stack: ExitStack, *, clean: bool) -> MqttLink:
        target = self._target
        link = MqttLink.open(
            target.host, target.port, client, clean=clean, login=target.login, passcode=target.passcode
        )
        stack.callback(link.close)
        return link

    def messages(self, first: int, stop: int) -> bytes:
        head, fill = self._head, self._fill
        return b"".join(
            [b"2%b%b%b%010d" % (head, (1 + n % PACKET_IDS).to_bytes(2, "big"), fill, n) for n in range(first, stop)]
        )

    def take(self, data: bytes) -> tuple[int, bytes]:
        data = self._carry + data
        size, id_at = self._size, self._id_at
        whole = len(data) // size
        acks = []
        for at in range(0, whole * size, size):
            packet = data[at : at + size]
            if packet[0] != 0x32 or packet[-NUMBER_BYTES:] != b"%010d" % self._next:
                raise BrokerFailed(f"message {self._next} is due, and the consumer got {packet!r}")
            self._next += 1
            acks.append(b"\x40\x02" + packet[id_at : id_at + 2])
        self._carry = data[whole * size :]
        return whole, b"".join(acks)

    def listen(self, data: bytes) -> None:
        data = self._answers + data
        whole = len(data) // PUBACK_BYTES * PUBACK_BYTES
        if data[0:whole:PUBACK_BYTES].strip(b"\x40"):
            raise BrokerFailed(f"the producer was told {data[:80]!r}")
        self._answers = data[whole:]

    def end(self) -> None:
        self.receiving.ping()
        self.receiving.leave()
        with ExitStack() as stack:
            self._open(self.ID, stack, clean=True).leave()  # ends the session


FLOWS: Final[dict[str, Callable[[Target, ExitStack], Flow]]] = {"stomp": StompFlow, "mqtt": MqttFlow}


class Out:
    """What one socket is still to be sent."""

    __slots__ = ("_link", "rest")

    def __init__(self, link: Link) -> None:
        self._link = link
        self.rest = b""

    def send(self, data: bytes = b"") -> None:
        """Sends what the socket takes."""
        self.rest += data
        if self.rest:
            self.rest = self.rest[self._link.send(self.rest) :]


def run(target: Target, protocol: str, rate: int, seconds: float, directory: Path) -> Latency:
    """Sends at this rate for so long.  Raises BrokerFailed when a message is lost, repeated or out of order."""
    disk = probe_disk(directory, DISK_WRITES)
    with ExitStack() as stack:
        flow = FLOWS[protocol](target, stack)
        stack.callback(gc.enable)
        gc.disable()  # a pause of the generator is no latency of the broker
        before = target.cpu() if target.cpu else 0.0
        latencies, late = _exchange(flow, rate, int(rate * (SETTLING_S + seconds)))
        cpu = 1e6 * (target.cpu() - before) / len(latencies) if target.cpu else None
        flow.end()
    skip = int(rate * SETTLING_S)
    return Latency(Percentiles.of(latencies[skip:]), Percentiles.of(late[skip:]), disk, cpu)


def _exchange(flow: Flow, rate: int, total: int) -> tuple[list[float], list[float]]:
    """Seconds that each message took, and that each was sent late."""
    clock = time.perf_counter
    sending, receiving = Out(flow.sending), Out(flow.receiving)
    producer, consumer = flow.sending.sock, flow.receiving.sock
    latencies: list[float] = []
    late: list[float] = []
    sent = 0
    start = moved_at = clock() + 0.01
    while len(latencies) < total:
        now = clock()
        due = min(total, int((now - start) * rate) + 1) if now >= start else 0
        if due > sent:
            sending.send(flow.messages(sent, due))
            late += [now - start - number / rate for number in range(sent, due)]
            sent = due
        wait = max(start + sent / rate - clock(), 0.0) if sent < total else 0.1
        blocked = [out.sock for out, one in ((flow.sending, sending), (flow.receiving, receiving)) if one.rest]
        ready, _, _ = select.select((consumer, producer), blocked, (), wait)
        if blocked:
            sending.send()
            receiving.send()
        if producer in ready:
            flow.listen(flow.sending.receive())
        if consumer in ready:
            data = flow.receiving.receive()
            now = moved_at = clock()
            count, acks = flow.take(data)
            latencies += [now - start - number / rate for number in range(len(latencies), len(latencies) + count)]
            receiving.send(acks)
        elif clock() - moved_at > STALL_S:
            raise BrokerFailed(f"nothing came for {STALL_S:.0f} s: {sent:,} sent, {len(latencies):,} received")
    return latencies, late


def probe_disk(directory: Path, writes: int) -> Percentiles:
    """Times of a `write` and `fdatasync` of 2 KiB each, one after the other, into a file that is allocated."""
    path = directory / f"bench-sync-{os.getpid()}"
    handle = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
    times = []
    try:
        os.posix_fallocate(handle, 0, DISK_BYTES * writes)
        for number in range(writes):
            begun = time.perf_counter()
            os.pwrite(handle, b"x" * DISK_BYTES, DISK_BYTES * number)
            os.fdatasync(handle)
            times.append(time.perf_counter() - begun)
    finally:
        os.close(handle)
        path.unlink()
    return Percentiles.of(times)
