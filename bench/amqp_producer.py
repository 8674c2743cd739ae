"""The sending half of a run: laps of prebuilt transfers, as far as the broker's credit and window let them go.

Consecutive messages go to consecutive links, so the first link without credit bounds them all: when the link d of n has
credit up to its m-th message, message `m * n + d` is the first that may not go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from bench.amqp_link import BODY_AT, AmqpLink
from bench.amqp_messages import AmqpPool
from bench.link import BrokerFailed
from bench.messages import LAP
from bench.producer import SEND_BYTES
from protocols.amqp.composite import Composite
from protocols.amqp.performatives import (
    SENDER,
    Accepted,
    Attach,
    Disposition,
    Flow,
    SenderSettleMode,
    Source,
    Target,
)

#: Of a disposition: from its descriptor to the receiver's role, without the list's size and count.
_DISPOSITION: Final = b"\x00\x53\x15\xc0"
_ROLE_AT: Final = 14
_UINT_BYTES: Final = {0x43: 0, 0x52: 1, 0x70: 4}
#: Settled, and accepted, as brokers write it; other encodings are left to the codec.
_ACCEPTED: Final = frozenset(
    settled + b"\x00\x53\x24" + empty + batchable
    for settled in (b"\x41", b"\x56\x01")
    for empty in (b"\x45", b"\xc0\x01\x00")
    for batchable in (b"", b"\x42")
)


class AmqpProducer:
    """Sends messages 0, 1, 2, ... on one link a destination.

    total: number of messages of this run, or None while that is still open (`finish` closes it).
    settled: messages that the broker has accepted; where we settle them ourselves, those that are out.
    outcomes: dispositions that said so.
    """

    __slots__ = (
        "_allowed", "_lap", "_lap_number", "_link", "_offset", "_pool", "_seen", "_window",
        "outcomes", "settled", "total",
    )  # fmt: skip

    def __init__(self, link: AmqpLink, pool: AmqpPool, total: int | None) -> None:
        self._link = link
        self._pool = pool
        self._lap_number = 0
        self._lap = memoryview(pool.lap(0))
        self._offset = 0
        self._allowed = [0] * pool.shape.destinations  # of each link, up to which message credit goes
        self._window = link.window  # the first transfer that the session's window does not let go
        self._seen = bytearray()  # 1 for each message with an outcome
        self.outcomes = 0
        self.settled = 0
        self.total = total

    def attach(self, addresses: Sequence[str], capabilities: tuple[str, ...]) -> None:
        """A link a destination.  Raises BrokerFailed."""
        for handle, address in enumerate(addresses):
            attach_sender(self._link, handle, address, capabilities, durable=self._pool.shape.durable)
        for performative in self._link.heard:
            self._hear(performative)

    @property
    def sent(self) -> int:
        """Messages that the kernel has taken whole."""
        return self._lap_number * LAP + bisect_right(self._pool.offsets, self._offset) - 1

    @property
    def confirmed(self) -> bool:
        """The broker has accepted all messages of the run, or they are out if we settle them."""
        return self.settled == self.sent == self.total

    def finish(self) -> None:
        """No more messages than those begun."""
        if self.total is None:
            self.total = max(self._lap_number * LAP + bisect_left(self._pool.offsets, self._offset), 1)

    def pump(self, limit: int) -> int:
        """One send of messages numbered below `limit`; returns the bytes that the socket took."""
        pool, count = self._pool, len(self._allowed)
        stop = min(limit, self._window, *[most * count + number for number, most in enumerate(self._allowed)])
        if self.total is not None:
            stop = min(stop, self.total)
        if self._offset == pool.offsets[LAP] and stop > (self._lap_number + 1) * LAP:
            self._lap_number += 1
            self._lap = memoryview(pool.lap(self._lap_number))
            self._offset = 0
        end = pool.offsets[min(max(stop - self._lap_number * LAP, 0), LAP)]
        taken = 0
        if self._offset < end:
            taken = self._link.link.send(self._lap[self._offset : min(end, self._offset + SEND_BYTES)])
            self._offset += taken
        if not pool.shape.durable:
            self.settled = self.sent
        return taken

    def listen(self) -> None:
        """Take the credit and the outcomes that have come.  Raises BrokerFailed if one is not `accepted`."""
        data, places = self._link.read()
        for at, end in pairwise(places):
            if end == at + BODY_AT:
                continue
            ids = accepted(data, at, end)
            if ids is None:
                self._hear(self._link.control(data, at, end))
            else:
                self._settle(*ids)

    def _settle(self, first: int, last: int) -> None:
        """Count outcomes, each message once: RabbitMQ's ranges run over messages that it has settled before."""
        seen, stop = self._seen, last + 1
        if stop > len(seen):
            seen.extend(bytes(stop - len(seen) + LAP))
        self.settled += seen.count(0, first, stop)
        seen[first:stop] = b"\1" * (stop - first)
        self.outcomes += 1

    def _hear(self, performative: Composite) -> None:
        if isinstance(performative, Disposition):
            if not isinstance(performative.state, Accepted):
                raise BrokerFailed(f"the outcome of message {performative.first} is {performative.state!r}")
            self._settle(performative.first, performative.first if performative.last is None else performative.last)
        elif isinstance(performative, Flow):
            self._window = (performative.next_incoming_id or 0) + performative.incoming_window
            if performative.handle is not None:
                link = self._link.number(performative.handle)
                self._allowed[link] = (performative.delivery_count or 0) + (performative.link_credit or 0)
        else:
            raise BrokerFailed(f"the producer was told {performative!r}")


def attach_sender(link: AmqpLink, handle: int, address: str, capabilities: tuple[str, ...], *, durable: bool) -> None:
    """Attach a link that sends.  Raises BrokerFailed."""
    mode = SenderSettleMode.UNSETTLED if durable else SenderSettleMode.SETTLED
    source, target = Source("bench"), Target(address, capabilities=capabilities)
    attached = Attach(f"send {handle}", handle, SENDER, mode, source=source, target=target)
    attached.initial_delivery_count = 0
    link.attach(attached)


def accepted(data: bytes, at: int, end: int) -> tuple[int, int] | None:
    """The first and the last delivery of a disposition that accepts and settles; None if that is not plain."""
    if data[at + 8 : at + 12] != _DISPOSITION or data[at + _ROLE_AT] != 0x41:
        return None
    first_at = at + _ROLE_AT + 2
    width = _UINT_BYTES.get(data[first_at - 1])
    if width is None:
        return None
    last_at = first_at + width + 1
    first = last = int.from_bytes(data[first_at : last_at - 1])
    code = data[last_at - 1]
    if code != 0x40:
        width = _UINT_BYTES.get(code)
        if width is None:
            return None
        last = int.from_bytes(data[last_at : last_at + width])
        last_at += width
    return (first, last) if data[last_at:end] in _ACCEPTED else None
