"""The receiving half of a run: transfers counted and checked by their tags, settled by prebuilt dispositions.

The checks are those of `consumer`: every message comes exactly once and in the order of its destination, and one
message a read is compared as a whole. Delivery ids count up by one; the one message a read tells whether that holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np

from bench.amqp_link import BODY_AT, TRANSFER, WINDOW, AmqpLink, decoded
from bench.amqp_messages import AmqpPool
from bench.link import BrokerFailed
from bench.messages import NUMBER_BYTES
from protocols.amqp.composite import Composite
from protocols.amqp.performatives import (
    RECEIVER,
    Attach,
    Detach,
    Disposition,
    Flow,
    SenderSettleMode,
    Source,
    Target,
    Transfer,
)

CREDIT: Final = 1000  # messages of each link that the broker may send; given again when half of it is used

#: The frame that accepts and settles the deliveries from the id at 16 to the one at 21.
_DISPOSITION: Final = b"\0\0\0\x1e\2\0\0\0\0\x53\x15\xc0\x11\5\x41\x70\0\0\0\0\x70\0\0\0\0\x41\0\x53\x24\x45"
_FIRST_AT: Final = 16
_LAST_AT: Final = 21


class AmqpConsumer:
    """Receives messages 0, 1, 2, ... over one link a destination.

    received: messages so far. acked: dispositions sent. ack_every: deliveries to a disposition.
    closed: the broker has answered the DETACH of all links, which comes after the last disposition.
    """

    __slots__ = (
        "_answers", "_link", "_next_id", "_offered", "_pool", "_settled_to", "_want",
        "ack_every", "acked", "closed", "received",
    )  # fmt: skip

    def __init__(self, link: AmqpLink, pool: AmqpPool, ack_every: int = 1, *, producers: int = 1) -> None:
        self._link = link
        self._pool = pool
        self._want = list(range(pool.shape.lanes(producers)))
        self._offered = [CREDIT] * pool.shape.destinations  # of each link, up to which of its messages our credit goes
        self._next_id = -1  # the delivery id of the next message, unknown before the first
        self._settled_to = -1
        self._answers = 0
        self.ack_every = ack_every
        self.acked = 0
        self.received = 0
        self.closed = False

    def attach(self, addresses: Sequence[str], capabilities: tuple[str, ...]) -> None:
        """A link a destination, with credit.  Raises BrokerFailed."""
        mode = SenderSettleMode.UNSETTLED if self._pool.shape.durable else SenderSettleMode.SETTLED
        for handle, address in enumerate(addresses):
            source, target = Source(address, capabilities=capabilities), Target("bench")
            self._link.attach(Attach(f"receive {handle}", handle, RECEIVER, mode, source=source, target=target))
        for handle in range(len(addresses)):
            self._give_credit(handle, 0)
        self._link.flush()

    def _give_credit(self, handle: int, count: int) -> None:
        """Let the broker send CREDIT messages of a link more than the `count` it has sent."""
        self._offered[handle] = count + CREDIT
        self._link.say(Flow(self.received, WINDOW, 0, WINDOW, handle, count, CREDIT))

    def pump(self) -> int:
        """One read: checks and settles what came; returns its bytes.  Raises BrokerFailed when a check fails."""
        data, places = self._link.read()
        if len(places) > 1:
            self._take(data, places)
            if self._pool.shape.durable:
                self._settle(self.ack_every)
            self._top_up()
        self._link.flush()
        return places[-1]

    def settle_early(self) -> None:
        """Settle all that came, whatever `ack_every` says."""
        if self._pool.shape.durable and self._next_id >= 0:
            self._settle(self.ack_every)
            if self._settled_to != self._next_id:
                self._settle(self._next_id - self._settled_to)
            self._link.flush()

    def detach(self) -> None:
        """Close all links; `closed` is set when the broker has answered. What comes after is too much."""
        self.settle_early()
        for handle in range(len(self._offered)):
            self._link.say(Detach(handle, True))
        self._link.flush()

    def _take(self, data: bytes, places: list[int]) -> None:
        try:
            numbers = [int(data[end - NUMBER_BYTES : end]) for end in places[1:]]
        except ValueError:  # rare: not all of them are messages
            spans = [(at, end) for at, end in pairwise(places) if not self._is_control(data, at, end)]
            numbers = [int(data[end - NUMBER_BYTES : end]) for _, end in spans]
        else:
            spans = [(places[0], places[1])]
        if numbers:
            self._check(numbers)
            self._look(data, *spans[0], numbers[0])
            self.received += len(numbers)
            self._next_id += len(numbers)

    def _check(self, numbers: list[int]) -> None:
        want = self._want
        count = len(want)
        for number in numbers:
            destination = number % count
            if want[destination] != number:
                expected = want[destination]
                fault = "is missing" if number > expected else "comes again or out of order"
                culprit = expected if number > expected else number
                text = f"message {culprit} {fault} (destination {destination}, expected {expected}, got {number})"
                raise BrokerFailed(text)
            want[destination] = number + count

    def _look(self, data: bytes, at: int, end: int, number: int) -> None:
        """Compare one message as a whole, and its delivery id."""
        transfer, stop = decoded(data, at, end)
        assert isinstance(transfer, Transfer)
        if transfer.more or transfer.delivery_id is None:
            raise BrokerFailed(f"message {number} comes in several frames, which is not foreseen here")
        if self._next_id < 0:
            self._next_id = self._settled_to = transfer.delivery_id
        if transfer.delivery_id != self._next_id:
            raise BrokerFailed(f"the delivery after {self._next_id - 1} has the id {transfer.delivery_id}")
        if bool(transfer.settled) is self._pool.shape.durable:
            raise BrokerFailed(f"message {number} comes with settled = {transfer.settled}")
        if difference := self._pool.difference(number, data[stop:end]):
            raise BrokerFailed(f"message {number} was changed on its way: {difference}")

    def _is_control(self, data: bytes, at: int, end: int) -> bool:
        """Whether a frame is no message; then it has been dealt with."""
        if data[at + BODY_AT : at + BODY_AT + len(TRANSFER)] == TRANSFER:
            return False
        if end > at + BODY_AT:
            self._hear(self._link.control(data, at, end))
        return True

    def _hear(self, performative: Composite) -> None:
        if isinstance(performative, Detach):
            self._answers += 1
            self.closed = self._answers == len(self._offered)
        elif not isinstance(performative, Flow | Disposition):
            raise BrokerFailed(f"the consumer was told {performative!r}")

    def _settle(self, every: int) -> None:
        """Accept each full `every` deliveries."""
        count = (self._next_id - self._settled_to) // every
        if count:
            first = np.arange(self._settled_to, self._settled_to + count * every, every, dtype=np.int64)
            frames = np.tile(np.frombuffer(_DISPOSITION, np.uint8), (count, 1))
            for at, ids in ((_FIRST_AT, first), (_LAST_AT, first + every - 1)):
                frames[:, at : at + 4] = ids.astype(">u4").view(np.uint8).reshape(count, 4)
            self._link.write(frames.tobytes())
            self._settled_to += count * every
            self.acked += count

    def _top_up(self) -> None:
        lanes, links = len(self._want), len(self._offered)
        for handle, offered in enumerate(self._offered):
            count = sum([want // lanes for want in self._want[handle::links]])
            if offered - count <= CREDIT // 2:
                self._give_credit(handle, count)
