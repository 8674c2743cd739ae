"""The cases of `bench.stalls` in which one read, or one frame, of a STOMP or AMQP client asks for much.

Each function gets the ports and the number of messages, prepares, and returns what is measured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from bench.link import READ_BYTES, BrokerFailed, Link
from protocols.amqp.limits import Limits
from protocols.amqp.performatives import RECEIVER, Accepted, Released, Source, Target
from protocols.amqp.sender import Sender
from tests.support.amqp_client import AmqpSocket, message

#: Bytes that are sent at once: the broker reads 256 KiB of them at a time.
WRITE_BYTES: Final = 1 << 20

#: Messages of a transaction.
IN_TRANSACTION: Final = 10_000

#: Subscriptions, links and sessions of a connection.
SUBSCRIPTIONS: Final = 1_000

#: FLOWs in some reads.
FLOWS: Final = 30_000

#: How long an answer may take, in seconds.
PATIENCE_S: Final = 60.0

_DONE: Final = b"SEND\ndestination:/topic/nobody\nreceipt:done\n\n\0"

Work = Callable[[], object]


class Ports(NamedTuple):
    """Where the broker listens."""

    stomp: int
    amqp: int


Case = Callable[[Ports, int], Work]


def _stomp(ports: Ports) -> Link:
    return Link.connect("127.0.0.1", ports.stomp)


def _ask(link: Link, frames: bytes) -> None:
    """Sends frames and waits for the receipt `done`."""
    link.sock.settimeout(PATIENCE_S)
    link.sock.sendall(frames)
    rest = b""
    while b"receipt-id:done\n" not in rest:
        data = link.sock.recv(READ_BYTES)
        if not data or b"ERROR\n" in data:
            raise BrokerFailed(f"the broker says {data[:300]!r}")
        rest = rest[-20:] + data


def _asking(link: Link, frames: bytes) -> Work:
    return lambda: _ask(link, frames + _DONE)


def _filled(ports: Ports, messages: int, destination: str = "/queue/read") -> None:
    frame = f"SEND\ndestination:{destination}\npersistent:true\n\n{'x' * 100}\0".encode()
    _ask(_stomp(ports), frame * messages + _DONE)


def _held(ports: Ports, messages: int, ack: str) -> tuple[Link, list[bytes]]:
    """A client that was sent so many messages, and their ids for ACK."""
    _filled(ports, messages)
    link = _stomp(ports)
    link.sock.settimeout(PATIENCE_S)
    link.sock.sendall(f"SUBSCRIBE\nid:0\ndestination:/queue/read\nack:{ack}\nconsumer-window-size:-1\n\n\0".encode())
    seen, got = 0, []
    while seen < messages:
        data = link.sock.recv(READ_BYTES)
        seen += data.count(b"\0")
        got.append(data)
    lines = b"".join(got).split(b"\n")
    return link, [line[4:] for line in lines if line.startswith(b"ack:")]


# -- STOMP -------------------------------------------------------------------------------------------------------------


def stomp_sends(ports: Ports, messages: int) -> Work:
    """Reads full of the shortest SENDs to one queue."""
    frame = b"SEND\ndestination:/queue/q\n\n\0"
    return _asking(_stomp(ports), frame * (WRITE_BYTES // len(frame)))


def stomp_topics(ports: Ports, messages: int) -> Work:
    """Reads full of the shortest SENDs, each to another topic."""
    frames = b"".join([b"SEND\ndestination:/topic/%d\n\n\0" % n for n in range(WRITE_BYTES // 32)])
    return _asking(_stomp(ports), frames)


def stomp_acks(ports: Ports, messages: int) -> Work:
    """ACK of half as many messages, one by one."""
    link, ids = _held(ports, messages // 2, "client-individual")
    return _asking(link, b"".join([b"ACK\nid:%b\n\n\0" % id for id in ids]))


def stomp_nacks(ports: Ports, messages: int) -> Work:
    """NACK of half as many messages, one by one."""
    link, ids = _held(ports, messages // 2, "client-individual")
    return _asking(link, b"".join([b"NACK\nid:%b\n\n\0" % id for id in ids]))


def stomp_cumulative(ports: Ports, messages: int) -> Work:
    """One ACK for half as many messages."""
    link, ids = _held(ports, messages // 2, "client")
    return _asking(link, b"ACK\nid:%b\n\n\0" % ids[-1])


def stomp_nack_all(ports: Ports, messages: int) -> Work:
    """One NACK for half as many messages."""
    link, ids = _held(ports, messages // 2, "client")
    return _asking(link, b"NACK\nid:%b\n\n\0" % ids[-1])


def stomp_subscribes(ports: Ports, messages: int) -> Work:
    """1,000 SUBSCRIBEs at once, each to another topic."""
    frames = [b"SUBSCRIBE\nid:%d\ndestination:/topic/t.%d\n\n\0" % (n, n) for n in range(SUBSCRIPTIONS)]
    return _asking(_stomp(ports), b"".join(frames))


def _transaction(ports: Ports) -> Link:
    """A transaction with sends."""
    link = _stomp(ports)
    frame = b"SEND\ndestination:/queue/tx\npersistent:true\ntransaction:t\n\nx\0"
    _ask(link, b"BEGIN\ntransaction:t\n\n\0" + frame * IN_TRANSACTION + _DONE)
    return link


def stomp_commit(ports: Ports, messages: int) -> Work:
    """COMMIT of 10,000 sends."""
    return _asking(_transaction(ports), b"COMMIT\ntransaction:t\n\n\0")


def stomp_abort(ports: Ports, messages: int) -> Work:
    """ABORT of 10,000 sends."""
    return _asking(_transaction(ports), b"ABORT\ntransaction:t\n\n\0")


def _acknowledged(ports: Ports) -> Link:
    """A transaction with acknowledgements."""
    link, ids = _held(ports, IN_TRANSACTION, "client-individual")
    acks = b"".join([b"ACK\nid:%b\ntransaction:t\n\n\0" % id for id in ids])
    _ask(link, b"BEGIN\ntransaction:t\n\n\0" + acks + _DONE)
    return link


def stomp_commit_acks(ports: Ports, messages: int) -> Work:
    """COMMIT of 10,000 acknowledgements."""
    return _asking(_acknowledged(ports), b"COMMIT\ntransaction:t\n\n\0")


def stomp_abort_acks(ports: Ports, messages: int) -> Work:
    """ABORT of 10,000 acknowledgements."""
    return _asking(_acknowledged(ports), b"ABORT\ntransaction:t\n\n\0")


# -- AMQP --------------------------------------------------------------------------------------------------------------


def _received(ports: Ports, messages: int) -> tuple[AmqpSocket, int, int]:
    """A client that was sent so many messages, and their first and last ids."""
    _filled(ports, messages)
    client = AmqpSocket(ports.amqp, limits=Limits(unsettled_max=messages))
    client.receiver("read", "queue", credit=messages)
    arrived = client.take(messages)
    return client, arrived[0].id, arrived[-1].id


def amqp_sends(ports: Ports, messages: int) -> Work:
    """As many small messages as a link has credit for, in one write."""
    client = AmqpSocket(ports.amqp)
    link: Sender = client.sender("q", "queue")
    small = message("x")
    return lambda: client.put(link, *[small] * link.room)


def amqp_accepted(ports: Ports, messages: int) -> Work:
    """One DISPOSITION that accepts 10,000 messages; the broker settles."""
    client, first, last = _received(ports, IN_TRANSACTION)

    def work() -> None:
        client.ses.send_disposition(RECEIVER, first, last, settled=False, state=Accepted())
        client.wait(lambda: len(client.confirmed) >= IN_TRANSACTION)

    return work


def amqp_released(ports: Ports, messages: int) -> Work:
    """One DISPOSITION that releases 10,000 messages."""
    client, first, last = _received(ports, IN_TRANSACTION)

    def work() -> None:
        client.ses.send_disposition(RECEIVER, first, last, settled=False, state=Released())
        client.wait(lambda: len(client.confirmed) >= IN_TRANSACTION)

    return work


def amqp_one_by_one(ports: Ports, messages: int) -> Work:
    """A DISPOSITION for each of 10,000 messages, every other one first."""
    client, first, last = _received(ports, IN_TRANSACTION)

    def work() -> None:
        for id in [*range(first, last + 1, 2), *range(first + 1, last + 1, 2)]:
            client.ses.send_disposition(RECEIVER, id, id, settled=False, state=Accepted())
        client.wait(lambda: len(client.confirmed) >= IN_TRANSACTION)

    return work


def amqp_repeated(ports: Ports, messages: int) -> Work:
    """64 DISPOSITIONs that each accept 10,000 messages, of which every other one is settled."""
    client, first, last = _received(ports, IN_TRANSACTION)
    for id in range(first + 1, last + 1, 2):
        client.ses.send_disposition(RECEIVER, id, id, state=Accepted())
    client.say()

    def work() -> None:
        for end in [first + 300] + [last] * 64:  # the first one is read alone, those like it together
            client.ses.send_disposition(RECEIVER, first + 2, end, settled=False, state=Accepted())
        client.wait(lambda: len(client.confirmed) >= IN_TRANSACTION // 2 - 1)

    return work


def amqp_flows(ports: Ports, messages: int) -> Work:
    """Reads full of FLOWs that change nothing."""
    client = AmqpSocket(ports.amqp)

    def work() -> None:
        for _ in range(FLOWS):
            client.ses.send_flow()
        client.sender("q", "queue")

    return work


def amqp_links(ports: Ports, messages: int) -> Work:
    """1,000 links attached at once."""
    client = AmqpSocket(ports.amqp)

    def work() -> None:
        links = [client.ses.new_receiver(f"link {n}") for n in range(SUBSCRIPTIONS - 1)]
        for n, link in enumerate(links):
            link.send_attach(source=Source(f"t.{n}", capabilities=("topic",)), target=Target("me"))
        client.wait(lambda: links[-1].attach is not None or links[-1] in client.ends)

    return work


def amqp_sessions(ports: Ports, messages: int) -> Work:
    """As many sessions as a connection may have, begun at once, and their end."""
    client = AmqpSocket(ports.amqp)
    assert client.open is not None, "it is open"
    number = client.open.channel_max

    def work() -> None:
        sessions = [client.codec.new_session() for _ in range(number)]
        for session in sessions:
            session.send_begin()
        client.say()
        for session in sessions:
            session.send_end()
        client.wait(lambda: len(client.ends) >= number)

    return work


READ_CASES: Final[dict[str, Case]] = {
    each.__name__: each
    for each in (
        stomp_sends,
        stomp_topics,
        stomp_acks,
        stomp_nacks,
        stomp_cumulative,
        stomp_nack_all,
        stomp_subscribes,
        stomp_commit,
        stomp_abort,
        stomp_commit_acks,
        stomp_abort_acks,
        amqp_sends,
        amqp_accepted,
        amqp_released,
        amqp_one_by_one,
        amqp_repeated,
        amqp_flows,
        amqp_links,
        amqp_sessions,
    )
}
