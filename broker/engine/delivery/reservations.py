"""Reservations: messages sent to a link of another broker that it had not settled when its connection ended.

Another broker that reads a queue may have stored a message already when the connection is lost.  Only that broker would
recognise the message again (see `duplicates`), so it stays reserved for its link until

    the link is attached again        it gets the reserved messages before any others, and settles them
    the reservation is released       by an operator, or after its time: others get them, `redelivered`
    the queue is deleted              with its messages

A reservation is a stored session (`client_sessions.sessions`): an INFLIGHT record, written before a message is sent,
says for which link it is reserved, also after a crash of this broker.  Its packet ids have no meaning outside the
journal.

A link may read with several consumers: the `whole`, and parts with selectors of their own.  The whole gets the reserved
messages of all of them.  Messages never sent to the link are not reserved: nothing has happened to them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker.engine.client_sessions.sessions import RESERVED, StoredSessions
from broker.engine.client_sessions.stored_session import Definition, Sent, StoredSession
from broker.engine.delivery import closing, dispatch, redelivery
from broker.engine.delivery.redelivery import CLOSED, DeliveryOutcome
from broker.engine.model.errors import TooManyConsumers
from broker.engine.model.limits import RESERVE_MS_MAX
from broker.engine.model.message import Message
from broker.engine.queues import consumer_lifecycle
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.state import NO_WAY_BACK, State

#: The most messages reserved for one link: the number of packet ids.  Those beyond are not reserved.
RESERVED_MAX: Final = 0xFFFF

#: The reservations of one user: many times the routes that read from a broker.  Each takes some 5 KB.
RESERVATIONS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Reserve:
    """A link's request for a reservation: its name, for how many ms, and whether this consumer is only a part.

    Names are `$link/in/USER/NAME`, of a user's link, and `$link/out/LINK/ROUTE`.
    """

    name: str
    ms: int
    part: bool = False


class LinkReservation:
    """The reservation of one link on one queue: keeps its deliveries when its connection ends."""

    __slots__ = ("_all", "_earlier", "_free", "_highest", "_packets", "consumers", "ms", "queue", "session", "stand_in")

    def __init__(self, everybody: Reservations, session: StoredSession, queue: Queue, stand_in: Consumer) -> None:
        self.session = session
        self.queue = queue
        self.ms = int(str(session.definition["kept_ms"]))
        self.stand_in = stand_in
        self.consumers: dict[Consumer, bool] = {}  # whether each is the whole
        self._all = everybody
        self._packets: dict[int, int] = {}  # by message id
        self._free: list[int] = []  # packet ids up to the highest
        self._highest = 0
        self._earlier: set[int] = set()  # messages sent over connections that have ended
        stand_in.reservation = self
        stand_in.away = stand_in.paused = True
        everybody.sessions.resume(session, self._current)
        queue.add_reservation(self)

    @property
    def name(self) -> str:
        """The name of its link."""
        return self.session.name

    @property
    def whole(self) -> Consumer | None:
        return next((consumer for consumer, whole in self.consumers.items() if whole), None)

    def restore(self, packets: dict[int, int], messages: list[Message]) -> None:
        """Restore what a restart found: packet ids by message id, and the messages."""
        self._packets = packets
        used = set(packets.values())
        self._highest = max(used, default=0)
        self._free = [id for id in range(1, self._highest) if id not in used]
        self._earlier = {message.id for message in messages}
        self.queue.reserved.update(dict.fromkeys(packets, self))

    # -- deliveries ------------------------------------------------------------------------------------------------

    def delivered(self, messages: list[Message]) -> bool:
        messages = messages[: RESERVED_MAX - len(self._packets)]
        packets = self._allocate(len(messages))
        ids = [message.id for message in messages]
        self._packets.update(zip(ids, packets, strict=True))
        self.queue.reserved.update(dict.fromkeys(ids, self))
        return self._all.sessions.in_flight.sent(self.session, self.queue, messages, packets)

    def _allocate(self, count: int) -> list[int]:
        """Allocate `count` packet ids: free ones first."""
        found = self._free[:count]
        del self._free[:count]
        new = count - len(found)
        found += range(self._highest + 1, self._highest + 1 + new)
        self._highest += new
        return found

    def has_left(self, id: int) -> bool:
        return id in self._earlier

    def keep(self, messages: list[Message]) -> None:
        unacked = self.stand_in.unacked
        self.stand_in.take(messages)
        if len(unacked) > len(messages):  # restore their order: they may come from several consumers
            self.stand_in.unacked = dict(sorted(unacked.items()))
        self._earlier.update([message.id for message in messages])

    def returned(self, messages: list[Message]) -> None:
        stored = [message for message in messages if message.segment]
        ids = [self._packets[message.id] for message in stored]
        self.settled([message.id for message in messages])
        if stored and self.queue.durable and not self.session.ended:
            self._all.sessions.in_flight.returned(self.session, stored, ids)

    def settled(self, ids: list[int]) -> None:
        pop = self._packets.pop
        self._free += [pop(id) for id in ids]
        if self._earlier:
            self._earlier.difference_update(ids)

    def _current(self) -> list[Sent]:
        """The messages in flight, and those reserved."""
        packets, queue = self._packets, self.queue
        holders = (self.stand_in, *self.consumers)
        return [(packets[m.id], queue, m) for each in holders for m in each.unacked.values() if m.id in packets]

    # -- its consumers ---------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer, *, whole: bool) -> None:
        """Add a consumer of the link."""
        self.consumers[consumer] = whole
        consumer.reservation = self
        self.stand_in.user, self.stand_in.remote = consumer.user, consumer.remote
        self._all.state.alarms.cancel((RESERVED, self.name))

    def detached(self, consumer: Consumer) -> None:
        del self.consumers[consumer]
        if self.consumers or self.queue.deleted:
            return
        state, kept = self._all.state, len(self.stand_in.unacked)
        if not kept:
            self._end()
            return
        self.await_return()
        state.report("link.reserved", link=self.name, queue=self.queue.name, messages=kept, milliseconds=self.ms)

    def await_return(self) -> None:
        """Start the link's time to return, after which other consumers get the messages."""
        state = self._all.state
        text = f"its link did not come back within {self.ms} ms"
        state.alarms.at((RESERVED, self.name), state.now + self.ms, lambda: self.release(text))

    def release(self, why: str) -> None:
        state, queue = self._all.state, self.queue
        state.mark = NO_WAY_BACK
        messages = self.stand_in.settle_all()
        if messages:
            state.report("link.unreserved", link=self.name, queue=queue.name, messages=len(messages), why=why)
            redelivery.give_back(state, queue, messages, DeliveryOutcome(0, False, why, left=True), self.stand_in)
            consumer_lifecycle.on_detach(state, queue)
        if not self.consumers:
            self._end()

    def queue_gone(self) -> None:
        self._end()

    def _end(self) -> None:
        state = self._all.state
        state.alarms.cancel((RESERVED, self.name))
        self.queue.remove_reservation(self)
        self._all.forget(self)
        self.stand_in.reservation = None  # these refer to this one
        self.session.current = _none_in_flight


class Reservations:
    """All reservations, by name.  `number` makes the ids of consumers."""

    def __init__(self, state: State, sessions: StoredSessions, number: Callable[[], int]) -> None:
        self.state = state
        self.sessions = sessions
        self._number = number
        self._by_name: dict[str, LinkReservation] = {}
        self._counts: Counter[str] = Counter()  # by owner
        self._nothing_left: list[StoredSession] = []

    def attach(self, consumer: Consumer, asked: Reserve) -> None:
        """Reserve from now on the messages sent to a link's consumer.  Raises DiskFull, TooManyConsumers.

        A `whole` replaces the consumers of a link that is still attached, over a connection whose loss only the other
        broker has noticed.
        """
        reservation, queue = self._by_name.get(asked.name), consumer.queue
        if reservation is not None and not asked.part:
            for other in list(reservation.consumers):
                closing.end(self.state, other, CLOSED, "the link was attached again")
            reservation = self._by_name.get(asked.name)
        if reservation is not None and reservation.queue is not queue:
            reservation.release("its link reads another queue now")
            reservation = self._by_name.get(asked.name)
            if reservation is not None:
                return  # a part of a link whose whole reads something else
        if reservation is None:
            if self._counts[_owner(asked.name)] >= RESERVATIONS_MAX:
                text = f"user {consumer.user} has {RESERVATIONS_MAX} links with reservations, the most: end one"
                raise TooManyConsumers(text)
            definition: Definition = {RESERVED: queue.name, "kept_ms": min(asked.ms, RESERVE_MS_MAX)}
            reservation = self._make(self.sessions.open(asked.name, definition), queue)
        reservation.attach(consumer, whole=not asked.part)

    def _make(self, session: StoredSession, queue: Queue) -> LinkReservation:
        stand_in = Consumer(
            self._number(),
            queue,
            _StandInSink(),
            ack_mode=AckMode.INDIVIDUAL,
            window=-1,
            counted=True,
            client_id=session.name,
            forwards=True,
        )
        self._by_name[session.name] = reservation = LinkReservation(self, session, queue, stand_in)
        self._counts[_owner(session.name)] += 1
        return reservation

    def forget(self, reservation: LinkReservation) -> None:
        """Forget a reservation that has ended."""
        del self._by_name[reservation.name]
        owner = _owner(reservation.name)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
        self.sessions.drop(reservation.session)

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self) -> None:
        """Restore the reservations of the journal, before there are consumers; their time starts again."""
        for session in self.sessions.reserving():
            sent = [(queue, message, id) for id, (queue, message) in session.inflight.items()]
            if not sent:
                self._nothing_left.append(session)
                continue
            queue = sent[0][0]
            reservation = self._make(session, queue)
            found = [message for at, message, _ in sent if at is queue]
            kept = dispatch.take(self.state, reservation.stand_in, found)
            ready = {message.id for message in kept}
            reservation.restore({message.id: id for _, message, id in sent if message.id in ready}, kept)
            reservation.await_return()

    def finish_restore(self) -> None:
        """End restored reservations without messages, once the journal can be written again."""
        for session in self._nothing_left:
            self.sessions.drop(session)
        self._nothing_left.clear()


def _none_in_flight() -> list[Sent]:
    return []


def _owner(name: str) -> str:
    """Return the part of a reservation's name that says whose it is."""
    return "/".join(name.split("/", 3)[:3])


class _StandInSink:
    """The sink of a stand-in, which never gets messages."""

    transport = None

    def journals_deliveries(self, consumer: Consumer) -> bool:
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        raise AssertionError("a stand-in is sent no messages")

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """Do nothing: its reservation ends with its queue."""
