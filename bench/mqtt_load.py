"""One run of MQTT against one broker: a publisher and any number of subscribers in one thread.

QoS 0: clean sessions.  QoS 1: the subscriber has a session that outlives its connection, so that the broker has to
keep every message until its PUBACK; the run ends when the publisher has all its PUBACKs and the broker all ours.

Subscribers share one buffer of what is to come: what arrives is compared with it as a whole (`mqtt_messages`), which
costs less than any broker's sending.  As for STOMP the loop naps after a turn that moved little.
"""

from __future__ import annotations

import select
import time
from bisect import bisect_left, bisect_right
from typing import Final

from bench.generator import BUSY_BYTES, NAP_S, STALL_S, Load, Outcome, Target
from bench.link import BrokerFailed
from bench.messages import LAP
from bench.mqtt_link import MqttLink
from bench.mqtt_messages import Checker, MqttPool

SEND_BYTES: Final = 1 << 18  # bytes a send; about two thousand messages
#: Messages to a subscriber that may be on their way whatever the number of subscribers: batches as in real life.
IN_FLIGHT_MIN: Final = 100


class Publisher:
    """Sends messages 0, 1, 2, ...; `total` is their number, None while that is open.  `confirmed`: PUBACKs so far."""

    __slots__ = ("_carry", "_lap", "_lap_number", "_link", "_offset", "_offsets", "_pool", "confirmed", "total")

    def __init__(self, link: MqttLink, pool: MqttPool, total: int | None) -> None:
        self._link = link
        self._pool = pool
        self._offsets: list[int] = pool.offsets.tolist()
        self._lap_number = 0
        self._lap = memoryview(pool.outgoing(0))
        self._offset = 0
        self._carry = b""
        self.total = total
        self.confirmed = 0

    @property
    def sent(self) -> int:
        """Messages that the kernel has taken whole."""
        return self._lap_number * LAP + bisect_right(self._offsets, self._offset) - 1

    @property
    def done(self) -> bool:
        """Whether all is sent, and confirmed if it is to be."""
        return self.total == self.sent and (not self._pool.qos or self.confirmed == self.total)

    def finish(self) -> None:
        """No more after those begun."""
        if self.total is None:
            self.total = self._lap_number * LAP + bisect_left(self._offsets, self._offset)

    def limited(self, limit: int, unconfirmed_max: int) -> int:
        """`limit`, or what may be sent with so many messages not confirmed."""
        return min(limit, self.confirmed + unconfirmed_max) if self._pool.qos else limit

    def pump(self, limit: int) -> int:
        """One send of messages numbered below `limit`; returns the bytes that the socket took."""
        stop = limit if self.total is None else min(limit, self.total)
        if stop > (self._lap_number + 1) * LAP and self._offset == self._offsets[LAP]:
            self._lap_number += 1
            self._lap = memoryview(self._pool.outgoing(self._lap_number))
            self._offset = 0
        end = self._offsets[min(max(stop - self._lap_number * LAP, 0), LAP)]
        if self._offset >= end:
            return 0
        taken = self._link.send(self._lap[self._offset : min(end, self._offset + SEND_BYTES)])
        self._offset += taken
        return taken

    def listen(self) -> int:
        """Takes the PUBACKs that have come; returns their bytes.  Raises BrokerFailed on anything else."""
        data = self._link.receive()
        if data:
            received = self._carry + data
            whole = len(received) // 4 * 4
            if received[0:whole:4].strip(b"\x40") or received[1:whole:4].strip(b"\x02"):
                raise BrokerFailed(f"the publisher was told {received[:80]!r}")
            self.confirmed += whole // 4
            self._carry = received[whole:]
        return len(data)


class Subscriber:
    """Receives all messages, checks them, and acknowledges them as their QoS demands."""

    __slots__ = ("_out", "acked", "checker", "link")

    def __init__(self, link: MqttLink, pool: MqttPool, *, producers: int = 1, ordered: bool = True) -> None:
        self.link = link
        self.checker = Checker(pool, producers, ordered=ordered)
        self.acked = 0
        self._out = b""

    def pump(self) -> tuple[int, int]:
        """One read: its bytes, and the messages that were whole by then.  Raises BrokerFailed."""
        data = self.link.receive()
        before = self.checker.received
        if data:
            answers = self.checker.take(data)
            self.acked += len(answers) // 4
            self._out += answers
        if self._out:
            self._out = self._out[self.link.send(self._out) :]
        return len(data), self.checker.received - before

    @property
    def owes(self) -> bool:
        """Whether PUBACKs wait to be sent."""
        return self._out != b""


def run(target: Target, pool: MqttPool, load: Load, subscribers: int = 1) -> Outcome:
    """Sends and receives at once; `messages` of the outcome are those received by all subscribers together.

    Raises BrokerFailed when a message is lost, repeated, out of order or changed.
    """
    links: list[MqttLink] = []
    try:
        for number in range(subscribers):
            links.append(open_link(target, f"bench-{number}", clean=not pool.qos))
            links[-1].subscribe(pool.filter, pool.qos)
        sending = open_link(target, "bench-publisher", clean=True)
        links.append(sending)
        receiving = [Subscriber(link, pool) for link in links[:-1]]
        outcome = _exchange(target, Publisher(sending, pool, load.messages), receiving, load)
        for link in links:
            link.ping()
            link.leave()
        if pool.qos:
            open_link(target, "bench-0", clean=True).leave()  # ends the session
        return outcome
    finally:
        for link in links:
            link.close()


def open_link(target: Target, client_id: str, *, clean: bool) -> MqttLink:
    """A connection to the target.  Raises OSError, BrokerFailed."""
    return MqttLink.open(target.host, target.port, client_id, clean=clean, login=target.login, passcode=target.passcode)


def _exchange(target: Target, publisher: Publisher, subscribers: list[Subscriber], load: Load) -> Outcome:
    count = len(subscribers)
    window = max(load.in_flight // count, IN_FLIGHT_MIN)
    poll = select.epoll()
    by_handle = {one.link.sock.fileno(): one for one in subscribers}
    for handle in by_handle:
        poll.register(handle, select.EPOLLIN)
    received = 0
    broker_start = target.cpu() if target.cpu else 0.0
    own_start = time.process_time()
    start = moved_at = time.perf_counter()
    deadline = start + load.seconds if load.seconds is not None else float("inf")
    try:
        while not (publisher.done and received == count * (publisher.total or 0)):
            limit = received // count + window
            moved = publisher.pump(publisher.limited(limit, load.in_flight)) + publisher.listen()
            ready = {by_handle[handle] for handle, _ in poll.poll(0)}
            for one in subscribers if len(ready) == count else [one for one in subscribers if one in ready or one.owes]:
                size, messages = one.pump()
                moved += size
                received += messages
            now = time.perf_counter()
            if now >= deadline:
                publisher.finish()
            if moved:
                moved_at = now
            elif now - moved_at > STALL_S:
                raise BrokerFailed(
                    f"nothing moved for {STALL_S:.0f} s: {publisher.sent:,} sent, {publisher.confirmed:,} confirmed, "
                    f"{received:,} received by {count} subscribers"
                )
            if moved < BUSY_BYTES:
                time.sleep(NAP_S)
        while any(one.owes for one in subscribers):
            for one in subscribers:
                one.pump()
        seconds = time.perf_counter() - start
    finally:
        poll.close()
    return Outcome(
        messages=received,
        seconds=seconds,
        broker_cpu_s=target.cpu() - broker_start if target.cpu else None,
        generator_cpu_s=time.process_time() - own_start,
        receipts=publisher.confirmed,
        acks=sum(one.acked for one in subscribers),
        resent=sum(one.link.resent for one in subscribers),
    )
