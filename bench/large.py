"""One large body in and out again: how long that takes, and how much memory the broker ever had (VmHWM).

    python -m bench.large --bytes 4294967296 --protocol stomp --protocol amqp

The sender makes the body while it sends, the receiver checks its checksum while it reads: neither has it whole either.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import click
from crc32c import crc32c

from bench.brokers import Bartleby
from bench.generator import Target
from bench.link import BrokerFailed
from protocols.amqp.connection import AmqpConnection
from protocols.amqp.encode import encode
from protocols.amqp.events import Attached, Dispositions, Event, Portion
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import RECEIVER, Accepted, Header, Source
from protocols.amqp.performatives import Target as AmqpTarget

PIECE: Final = Random(7).randbytes(1 << 20)
SECTION_BYTES_MAX: Final = 1 << 30
READ_BYTES: Final = 256 << 10
#: Seconds without a byte after which the broker counts as stuck.
SILENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Seen:
    """sent_s: from the first byte to the confirmation.  received_s: from the subscription to the confirmed last byte.
    peak: the broker's memory at its highest, in bytes."""

    protocol: str
    sent_s: float
    received_s: float
    peak: int


def pieces(nbytes: int) -> Iterator[bytes]:
    """A body of so many bytes."""
    for at in range(0, nbytes, len(PIECE)):
        yield PIECE[: min(len(PIECE), nbytes - at)]


def checksum(nbytes: int) -> int:
    """Its CRC32C."""
    crc = 0
    for piece in pieces(nbytes):
        crc = crc32c(piece, crc)
    return crc


# -- STOMP -------------------------------------------------------------------------------------------------------------


def _open_stomp(target: Target) -> socket.socket:
    sock = socket.create_connection((target.host, target.port), timeout=SILENCE_S)
    sock.sendall(b"CONNECT\naccept-version:1.2\nhost:bench\nlogin:%b\npasscode:%b\n\n\0" % (_login(target)))
    if not sock.recv(4096).startswith(b"CONNECTED"):
        raise BrokerFailed("no CONNECTED")
    return sock


def _login(target: Target) -> tuple[bytes, bytes]:
    return (target.login or "").encode(), (target.passcode or "").encode()


def send_stomp(target: Target, nbytes: int) -> None:
    """SEND, and wait for its receipt."""
    with _open_stomp(target) as sock:
        sock.sendall(b"SEND\ndestination:/queue/large\npersistent:true\nreceipt:1\ncontent-length:%d\n\n" % nbytes)
        for piece in pieces(nbytes):
            sock.sendall(piece)
        sock.sendall(b"\0")
        answer = sock.recv(4096)
        if b"RECEIPT" not in answer:
            raise BrokerFailed(f"answer to SEND: {answer!r}")


def receive_stomp(target: Target) -> tuple[int, int]:
    """The body's length and checksum; it is acknowledged, and that is confirmed."""
    with _open_stomp(target) as sock:
        sock.sendall(b"SUBSCRIBE\ndestination:/queue/large\nid:s\nack:client-individual\n\n\0")
        data = b""
        while b"\n\n" not in data:
            data += _some(sock)
        head, _, data = data.partition(b"\n\n")
        headers = dict(line.split(b":", 1) for line in head.strip().split(b"\n")[1:])
        length = left = int(headers[b"content-length"])
        crc = 0
        while True:
            crc = crc32c(data[:left], crc)
            left -= min(left, len(data))
            if not left:
                break
            data = _some(sock)
        sock.sendall(b"ACK\nid:%b\nreceipt:2\n\n\0" % headers[b"ack"])
        while b"RECEIPT" not in data[-200:]:
            data = data[-200:] + _some(sock)
        return length, crc


def _some(sock: socket.socket) -> bytes:
    data = sock.recv(READ_BYTES)
    if not data:
        raise BrokerFailed("the broker hung up")
    return data


# -- AMQP --------------------------------------------------------------------------------------------------------------


class _Amqp:
    """A client connection on a blocking socket; `events` are those that came."""

    def __init__(self, target: Target) -> None:
        self.codec = AmqpConnection(Limits(), container_id="bench-large", server=False)
        self.sock = socket.create_connection((target.host, target.port), timeout=SILENCE_S)
        self.codec.send_open()
        self.session = self.codec.new_session()
        self.until(lambda: self.codec.peer is not None)
        self.session.send_begin()
        self.until(lambda: self.session.begin is not None)

    def say(self) -> None:
        """Everything that there is to say."""
        if data := self.codec.data_to_send():
            self.sock.sendall(data)

    def hear(self, *, wait: bool) -> list[Event]:
        """What has come."""
        self.say()
        if not wait and not select.select([self.sock], [], [], 0)[0]:
            return []
        self.codec.receive_data(_some(self.sock))
        events: list[Event] = []
        while found := self.codec.events():
            events += found
            if isinstance(found[-1], Portion) and found[-1].last:
                self.codec.resume()
        if self.codec.error is not None:
            raise BrokerFailed(str(self.codec.error))
        return events

    def until(self, done: object) -> list[Event]:
        """All events until a condition holds."""
        events: list[Event] = []
        assert callable(done)
        while not done():
            events += self.hear(wait=True)
        return events


def send_amqp(target: Target, nbytes: int) -> None:
    """Send, and wait until it is accepted."""
    client = _Amqp(target)
    link = client.session.new_sender("large")
    link.send_attach(source=Source("bench"), target=AmqpTarget("large", capabilities=("queue",)))
    client.until(lambda: link.room > 0)
    sending = link.stream("large")
    sending.send(encode(Header(True)), last=False)
    for at in range(0, nbytes, SECTION_BYTES_MAX):
        section = min(SECTION_BYTES_MAX, nbytes - at)
        lead = b"\x00\x53\x75\xb0" + section.to_bytes(4)
        left = section
        for piece in pieces(section):
            left -= len(piece)
            while not sending.room:
                client.hear(wait=True)
            sending.send(lead + piece, last=not left and at + section == nbytes)
            lead = b""
            client.hear(wait=False)
    events: list[Event] = []
    while not any(isinstance(event, Dispositions) for event in events):
        events += client.hear(wait=True)
    (outcome,) = [event for event in events if isinstance(event, Dispositions)]
    if not isinstance(outcome.state, Accepted):
        raise BrokerFailed(f"the message was not accepted: {outcome.state}")
    client.sock.close()


def receive_amqp(target: Target) -> tuple[int, int]:
    """The length and checksum of the data sections; it is accepted."""
    client = _Amqp(target)
    link = client.session.new_receiver("large")
    link.streams = True
    link.send_attach(source=Source("large", capabilities=("queue",)), target=AmqpTarget("bench"))
    while not any(isinstance(event, Attached) for event in client.hear(wait=True)):
        pass
    link.send_credit(1)
    reader = _Sections()
    while True:
        for event in client.hear(wait=True):
            if isinstance(event, Portion):
                reader.feed(event.payload)
                if event.last:
                    client.session.send_disposition(RECEIVER, event.id, event.id, state=Accepted())
                    client.say()
                    client.codec.send_close()
                    client.say()
                    while client.sock.recv(4096):
                        pass
                    client.sock.close()
                    return reader.length, reader.crc


class _Sections:
    """Takes the data sections of a message apart while it comes: a short header, and sections with long lengths."""

    def __init__(self) -> None:
        self.length = 0
        self.crc = 0
        self._left = 0
        self._pending = b""

    def feed(self, data: bytes) -> None:
        data = self._pending + data
        self._pending = b""
        while data:
            if not self._left:
                if len(data) < 8:
                    self._pending = data
                    return
                if data[2] != 0x75:  # a header or annotations: short ones
                    data = data[5 + data[4] :] if data[3] in (0xC0, 0xC1) else data[4:]
                    continue
                self._left = int.from_bytes(data[4:8])
                data = data[8:]
            piece = data[: self._left]
            self.crc = crc32c(piece, self.crc)
            self.length += len(piece)
            self._left -= len(piece)
            data = data[len(piece) :]


# -- the run -----------------------------------------------------------------------------------------------------------

_SEND: Final = {"stomp": send_stomp, "amqp": send_amqp}
_RECEIVE: Final = {"stomp": receive_stomp, "amqp": receive_amqp}


def measure(broker: Bartleby, protocol: str, nbytes: int) -> Seen:
    """One body in and out.  Raises BrokerFailed if it is not the same."""
    target = broker.target(protocol)
    begun = time.perf_counter()
    _SEND[protocol](target, nbytes)
    sent = time.perf_counter()
    found = _RECEIVE[protocol](target)
    received = time.perf_counter()
    expected = nbytes, checksum(nbytes) if protocol == "stomp" else _by_sections(nbytes)
    if found != expected:
        raise BrokerFailed(f"another body came back: {found} instead of {expected}")
    return Seen(protocol, sent - begun, received - sent, broker.process.peak_bytes())


def _by_sections(nbytes: int) -> int:
    crc = 0
    for at in range(0, nbytes, SECTION_BYTES_MAX):
        for piece in pieces(min(SECTION_BYTES_MAX, nbytes - at)):
            crc = crc32c(piece, crc)
    return crc


@click.command()
@click.option("--bytes", "nbytes", type=int, default=1 << 30, show_default=True, help="Length of the body.")
@click.option("--protocol", "protocols", multiple=True, type=click.Choice(sorted(_SEND)), default=["stomp", "amqp"])
@click.option("--work-dir", type=click.Path(path_type=Path), help="Where there is room for the body.")
@click.option("--config", type=click.Path(path_type=Path), default=Path("etc/broker.toml"), show_default=True)
def main(nbytes: int, protocols: tuple[str, ...], work_dir: Path | None, config: Path) -> None:
    """Send one large body and receive it again, with each protocol; a broker of its own for each."""
    for protocol in protocols:
        broker = Bartleby(work_dir, config)
        try:
            broker.start()
            seen = measure(broker, protocol, nbytes)
            broker.process.stop()  # the broker removes the file some time after it has confirmed that it can
            left = list((broker.data / "journal" / "bodies").iterdir())
        finally:
            broker.stop()
        mebibytes = nbytes / (1 << 20)
        click.echo(
            f"{seen.protocol}: {mebibytes:,.0f} MiB in {seen.sent_s:.1f} s ({mebibytes / seen.sent_s:,.0f} MiB/s), "
            f"out {seen.received_s:.1f} s ({mebibytes / seen.received_s:,.0f} MiB/s), "
            f"peak memory of the broker {seen.peak / (1 << 20):.0f} MiB, files left {len(left)}"
        )


if __name__ == "__main__":
    sys.exit(main())
