"""The cases of `bench.stalls` of long commits: how long another client's durable message waits meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bench.stalls_engine import Longest, TickMeter, segment_bytes
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker, SimClient

#: Frames that a client sends at once.
RUN: Final = 500

#: One in so many messages is in the transaction: 29,000 at 203,000.
MESSAGES_OF_A_COMMIT: Final = 7

#: Queues to which the transaction sends in turn.
QUEUES: Final = 100

#: Bytes that a transaction may have.
TRANSACTION_BYTES: Final = 64 << 20

BODY: Final = b"x" * 100


class CommitMeter(TickMeter):
    """A broker, a client that commits, and one that sends durable messages one by one and waits for their receipts."""

    def __init__(self, messages: int) -> None:
        self.count = messages // MESSAGES_OF_A_COMMIT
        limits = {"transaction_bytes_max": TRANSACTION_BYTES, "open_transactions_bytes_max": TRANSACTION_BYTES}
        changed = small().limits.model_copy(update=limits)
        super().__init__(SimBroker(small(segment_bytes=segment_bytes(messages), retained=False, limits=changed)))
        self.client, self._neighbour = self.broker.connect(), self.broker.connect()
        self._neighbour.confirmed("/queue/neighbour")
        self._sent_at = -1.0
        self._measures = False

    def send(self, client: SimClient, frames: bytes) -> None:
        """Send frames in the tick that is open."""
        client._tell(lambda: client.session.receive_data(frames))
        self.broker.tick.touch(client)

    def _meanwhile(self) -> None:
        ticks = self.broker.engine.ticks
        if self._measures and self._sent_at < 0 and (ticks.has_more or ticks.is_working):
            self.send(self._neighbour, b"SEND\ndestination:/queue/neighbour\npersistent:true\nreceipt:r\n\n\0")
            self._sent_at = self.used

    def _tick_ended(self) -> None:
        if self._neighbour.take("RECEIPT"):
            self.wait = max(self.wait, self.used - self._sent_at)
            self._sent_at = -1.0

    def filled(self, frame: Callable[[int], bytes]) -> None:
        """Send as many frames as the transaction has."""
        for first in range(0, self.count, RUN):
            self.client.raw(b"".join([frame(number) for number in range(first, min(first + RUN, self.count))]))

    def commit(self) -> Longest:
        """Commit, while the other client sends."""
        self.begin()
        self._measures = True
        self.ask("commit", lambda: self.send(self.client, b"COMMIT\ntransaction:t\nreceipt:done\n\n\0"))
        assert self.client.take("RECEIPT"), self.client.frames
        return self.longest()


def _sends(messages: int, queues: int) -> Longest:
    meter = CommitMeter(messages)
    meter.client.do("BEGIN", {"transaction": "t"})
    head = b"SEND\ndestination:/queue/q%d\npersistent:true\ntransaction:t\n\n%b\0"
    meter.filled(lambda number: head % (number % queues, BODY))
    return meter.commit()


def commit_sends(messages: int) -> Longest:
    """COMMIT of SENDs, one for seven messages, to a hundred queues in turn."""
    return _sends(messages, QUEUES)


def commit_each(messages: int) -> Longest:
    """COMMIT of SENDs, one for seven messages, each to a queue of its own."""
    return _sends(messages, messages)


def _settled(messages: int, head: bytes) -> Longest:
    meter = CommitMeter(messages)
    meter.filled(lambda number: b"SEND\ndestination:/queue/a\npersistent:true\n\n%b\0" % BODY)
    window = {"consumer-window-size": "-1"}
    meter.client.do("SUBSCRIBE", {"destination": "/queue/a", "id": "0", "ack": "client-individual", **window})
    ids = [frame.headers["ack"].encode() for frame in meter.client.take("MESSAGE")]
    assert len(ids) == meter.count, "all are in delivery"
    meter.client.do("BEGIN", {"transaction": "t"})
    meter.filled(lambda number: b"%b\nid:%b\ntransaction:t\n\n\0" % (head, ids[number]))
    return meter.commit()


def commit_acks(messages: int) -> Longest:
    """COMMIT of as many ACKs."""
    return _settled(messages, b"ACK")


def commit_nacks(messages: int) -> Longest:
    """COMMIT of as many NACKs: the messages return."""
    return _settled(messages, b"NACK")


def commit_deaths(messages: int) -> Longest:
    """COMMIT of as many NACKs that make dead letters."""
    return _settled(messages, b"NACK\nrequeue:false")


COMMIT_CASES: Final[dict[str, Callable[[int], Longest]]] = {
    case.__name__: case for case in (commit_sends, commit_each, commit_acks, commit_nacks, commit_deaths)
}
