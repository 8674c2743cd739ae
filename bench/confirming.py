"""Producers with one message under way each: they send the next when the one before it is confirmed.

What is measured is the time from a send to its confirmation, and how many confirmations come in a second.  Producer p
of n sends the messages p, p + n, p + 2n, ...; a consumer takes and acknowledges all of them meanwhile, and checks them
as in `consumer`, `amqp_consumer` and `mqtt_messages`.  All of it is one thread, which waits in the kernel: a producer
alone finds it asleep, as a client is.

What happens in the first moment, and what is under way when the time is over, does not count.
"""

from __future__ import annotations

import gc
import select
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from bench import generator
from bench.amqp_consumer import AmqpConsumer
from bench.amqp_generator import addresses_of, connect
from bench.amqp_link import BODY_AT, AmqpLink
from bench.amqp_messages import DELIVERY_ID_AT, DELIVERY_TAG_AT, AmqpPool
from bench.amqp_producer import accepted, attach_sender
from bench.consumer import Consumer
from bench.generator import STALL_S, Patience, Target
from bench.latency import Percentiles
from bench.link import BrokerFailed, Link
from bench.messages import LAP, FrameTemplate, Pool
from bench.mqtt_link import MqttLink
from bench.mqtt_load import Subscriber, open_link
from bench.mqtt_messages import PACKET_IDS, MqttPool
from protocols.amqp.performatives import Accepted, Disposition, Flow

SETTLING_S: Final = 0.3  # seconds of sending before anything counts
IDLE_S: Final = 0.1  # seconds between looks at the clock when nothing comes
LAPS_KEPT: Final = 4  # producers are not all in the same lap

_SUBSCRIBER: Final = "bench-drain"

#: CPU seconds so far, of whom.
Clocks = Mapping[str, Callable[[], float]]


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What a run found.  latency: from a send to its confirmation.  cpu_us: of whom, a message."""

    messages: int
    seconds: float
    latency: Percentiles
    cpu_us: Mapping[str, float]

    @property
    def rate(self) -> float:
        """Confirmations a second."""
        return self.messages / self.seconds


class Laps:
    """The bytes of message n, of a pool that makes 10,000 at once."""

    __slots__ = ("_laps", "_make", "_offsets")

    def __init__(self, make: Callable[[int], bytes], offsets: Sequence[int]) -> None:
        self._make = make
        self._offsets = offsets
        self._laps: dict[int, bytes] = {}

    def __getitem__(self, number: int) -> bytes:
        lap, index = divmod(number, LAP)
        data = self._laps.get(lap)
        if data is None:
            while len(self._laps) >= LAPS_KEPT:
                del self._laps[min(self._laps)]
            data = self._laps[lap] = self._make(lap)
        return data[self._offsets[index] : self._offsets[index + 1]]


class Sender(Protocol):
    """One producer, with one message under way."""

    @property
    def link(self) -> Link:
        """Its connection."""

    def send(self, number: int) -> None:
        """Send a message.  Raises BrokerFailed."""

    def hear(self) -> bool:
        """One read: whether the message is confirmed now.  Raises BrokerFailed when it is not what the broker says."""

    def close(self) -> None:
        """End the connection."""


def _send(link: Link, data: bytes) -> None:
    if link.send(data) != len(data):
        raise BrokerFailed("the broker does not read")


class StompSender:
    """SEND with a receipt."""

    def __init__(self, target: Target, laps: Laps) -> None:
        self.link = target.connect()
        self._laps = laps
        self._carry = b""
        self._receipt = b""

    def send(self, number: int) -> None:
        self._receipt = b"receipt-id:%010d\n" % number
        _send(self.link, self._laps[number])

    def hear(self) -> bool:
        data = self._carry + self.link.receive()
        frame, end, self._carry = data.lstrip(b"\r\n").partition(b"\0")
        if not end:
            self._carry = frame
            return False
        if not frame.startswith(b"RECEIPT") or self._receipt not in frame.replace(b"\r", b"") + b"\n":
            raise BrokerFailed(f"{self._receipt!r} is due, and the producer was told {frame!r}")
        return True

    def close(self) -> None:
        self.link.close()


class MqttSender:
    """PUBLISH with QoS 1."""

    def __init__(self, target: Target, laps: Laps, name: str) -> None:
        self.link: MqttLink = open_link(target, name, clean=True)
        self._laps = laps
        self._carry = b""
        self._wanted = b""

    def send(self, number: int) -> None:
        self._wanted = b"\x40\x02" + (1 + number % PACKET_IDS).to_bytes(2)
        _send(self.link, self._laps[number])

    def hear(self) -> bool:
        data = self._carry + self.link.receive()
        if len(data) < len(self._wanted):
            self._carry = data
            return False
        self._carry = b""
        if data != self._wanted:
            raise BrokerFailed(f"{self._wanted!r} is due, and the producer was told {data!r}")
        return True

    def close(self) -> None:
        self.link.leave()


class AmqpSender:
    """Unsettled transfers on a link for each of the producer's destinations."""

    def __init__(self, target: Target, pool: AmqpPool, laps: Laps, name: str, destinations: Sequence[int]) -> None:
        self._amqp: AmqpLink = connect(target, name)
        self.link = self._amqp.link
        self._laps = laps
        addresses, capabilities = addresses_of(target, pool)
        self._destinations = pool.shape.destinations
        self._credit = dict.fromkeys(destinations, 0)  # up to which transfer of the link
        self._sent = dict.fromkeys(destinations, 0)
        self._id = -1
        self._waiting: tuple[int, bytes] | None = None  # a transfer, and its link that has no credit yet
        for handle in destinations:
            attach_sender(self._amqp, handle, addresses[handle], capabilities, durable=True)
        for performative in self._amqp.heard:
            if isinstance(performative, Flow):
                self._take_credit(performative)

    def send(self, number: int) -> None:
        self._id += 1
        raw = bytearray(self._laps[number])
        for at in (DELIVERY_ID_AT, DELIVERY_TAG_AT):
            raw[at : at + 4] = self._id.to_bytes(4)
        self._waiting = number % self._destinations, bytes(raw)
        self._go()
        if self._waiting is not None:
            self.hear()  # credit may have come with the answer to ATTACH

    def _go(self) -> None:
        if self._waiting is not None and self._sent[self._waiting[0]] < self._credit[self._waiting[0]]:
            handle, raw = self._waiting
            self._waiting = None
            self._sent[handle] += 1
            _send(self.link, raw)

    def _take_credit(self, flow: Flow) -> None:
        if flow.handle is not None:
            handle = self._amqp.number(flow.handle)
            self._credit[handle] = (flow.delivery_count or 0) + (flow.link_credit or 0)

    def hear(self) -> bool:
        confirmed = False
        data, places = self._amqp.read()
        for at, end in pairwise(places):
            if end == at + BODY_AT:
                continue
            ids = accepted(data, at, end)
            if ids is None:
                said = self._amqp.control(data, at, end)
                if isinstance(said, Flow):
                    self._take_credit(said)
                    self._go()
                    continue
                if not isinstance(said, Disposition) or not isinstance(said.state, Accepted):
                    raise BrokerFailed(f"the producer was told {said!r}")
                ids = said.first, said.first if said.last is None else said.last
            confirmed = confirmed or ids[0] <= self._id <= ids[1]
        return confirmed

    def close(self) -> None:
        self._amqp.close()


class Drain(Protocol):
    """The consumer of all that is sent."""

    @property
    def link(self) -> Link:
        """Its connection."""

    @property
    def received(self) -> int:
        """Messages so far."""

    def pump(self) -> None:
        """One read: check and acknowledge what came.  Raises BrokerFailed when a message is not as it should be."""

    def end(self) -> None:
        """Leave nothing behind.  Raises BrokerFailed when more came than was sent."""

    def close(self) -> None:
        """End the connection."""


class StompDrain:
    """`ack:client-individual`, an ACK for each message."""

    def __init__(self, target: Target, pool: Pool, producers: int) -> None:
        self.link = target.connect()
        self._consumer = Consumer(self.link, pool, "client-individual", producers=producers)
        generator.subscribe(self._consumer, target)

    @property
    def received(self) -> int:
        return self._consumer.received

    def pump(self) -> None:
        self._consumer.pump(None)

    def end(self) -> None:
        generator.unsubscribe(self._consumer)

    def close(self) -> None:
        self.link.close()


class MqttDrain:
    """QoS 1, to a session that outlives its connection, until `end`."""

    def __init__(self, target: Target, pool: MqttPool, producers: int) -> None:
        self._target = target
        self.link = open_link(target, _SUBSCRIBER, clean=False)
        self.link.subscribe(pool.filter, pool.qos)
        self._subscriber = Subscriber(self.link, pool, producers=producers, ordered=target.ordered)

    @property
    def received(self) -> int:
        return self._subscriber.checker.received

    def pump(self) -> None:
        self._subscriber.pump()

    def end(self) -> None:
        while self._subscriber.owes:
            self._subscriber.pump()
        self.link.ping()
        self.link.leave()
        open_link(self._target, _SUBSCRIBER, clean=True).leave()

    def close(self) -> None:
        self.link.close()


class AmqpDrain:
    """Unsettled deliveries, a disposition for each."""

    def __init__(self, target: Target, pool: AmqpPool, producers: int) -> None:
        self._amqp = connect(target, "bench receives")
        self.link = self._amqp.link
        self._consumer = AmqpConsumer(self._amqp, pool, producers=producers)
        self._consumer.attach(*addresses_of(target, pool))

    @property
    def received(self) -> int:
        return self._consumer.received

    def pump(self) -> None:
        self._consumer.pump()

    def end(self) -> None:
        received = self._consumer.received
        self._consumer.detach()
        patience = Patience()
        while not self._consumer.closed:
            patience.tick(self._consumer.pump(), lambda: "no answer to DETACH")
        if self._consumer.received != received:
            raise BrokerFailed(f"{self._consumer.received - received} messages more than were sent")

    def close(self) -> None:
        self._amqp.close()


class Messages:
    """The messages of a shape in all protocols, each made when it is first asked for."""

    def __init__(self, shape: FrameTemplate) -> None:
        self._shape = shape
        self._pools: dict[str, Pool | AmqpPool | MqttPool] = {}

    def parties(self, target: Target, protocol: str, producers: int, stack: ExitStack) -> tuple[list[Sender], Drain]:
        """The connections of a run, which the stack closes.  Raises OSError, BrokerFailed."""
        pool = self._pools.get(protocol)
        if pool is None:
            pool = self._pools[protocol] = _MAKERS[protocol](self._shape)
        drain: Drain
        if isinstance(pool, Pool):
            drain, laps = StompDrain(target, pool, producers), Laps(pool.lap, pool.offsets)
        elif isinstance(pool, MqttPool):
            drain, laps = MqttDrain(target, pool, producers), Laps(pool.outgoing, pool.offsets.tolist())
        else:
            drain, laps = AmqpDrain(target, pool, producers), Laps(pool.lap, pool.offsets)
        stack.callback(drain.close)
        senders: list[Sender] = []
        count = self._shape.destinations
        for number in range(producers):
            if isinstance(pool, Pool):
                sender: Sender = StompSender(target, laps)
            elif isinstance(pool, MqttPool):
                sender = MqttSender(target, laps, f"bench-{number}")
            else:
                own = sorted({n % count for n in range(number, number + count * producers, producers)})
                sender = AmqpSender(target, pool, laps, f"bench-{number}", own)
            stack.callback(sender.close)
            senders.append(sender)
        return senders, drain


_MAKERS: Final[Mapping[str, Callable[[FrameTemplate], Pool | AmqpPool | MqttPool]]] = {
    "stomp": Pool,
    "amqp": AmqpPool,
    "mqtt": lambda shape: MqttPool(shape, 1),
}


def run(target: Target, protocol: str, messages: Messages, producers: int, seconds: float, clocks: Clocks) -> Confirmed:
    """Send for so long.  Raises BrokerFailed when a message is refused, lost, repeated, reordered or changed."""
    with ExitStack() as stack:
        senders, drain = messages.parties(target, protocol, producers, stack)
        poll = select.epoll()
        stack.callback(poll.close)
        stack.callback(gc.enable)
        gc.disable()  # a pause of the generator is no latency of the broker
        found = _Exchange(senders, drain, poll).run(seconds, {**clocks, "generator": time.process_time})
        drain.end()
        return found


class _Exchange:
    """One run, once all are connected."""

    def __init__(self, senders: Sequence[Sender], drain: Drain, poll: select.epoll) -> None:
        self._senders = senders
        self._drain = drain
        self._poll = poll
        self._next = [*range(len(senders))]  # the number of each sender's message that is under way, or was
        self._sent_at = [0.0] * len(senders)
        self._by_handle = {sender.link.sock.fileno(): at for at, sender in enumerate(senders)}
        for handle in (*self._by_handle, drain.link.sock.fileno()):
            poll.register(handle, select.EPOLLIN)
        self._confirmed = 0

    def run(self, seconds: float, clocks: Clocks) -> Confirmed:
        """From the first message to the last."""
        clock = time.perf_counter
        for at, sender in enumerate(self._senders):
            self._sent_at[at] = clock()
            sender.send(at)
        self._until(clock() + SETTLING_S, [])
        before = {name: read() for name, read in clocks.items()}
        begun, first, times = clock(), self._confirmed, list[float]()
        self._until(begun + seconds, times, since=begun)
        messages, took = self._confirmed - first, clock() - begun
        cpu = {name: 1e6 * (read() - before[name]) / max(messages, 1) for name, read in clocks.items()}
        self._finish()
        return Confirmed(messages, took, Percentiles.of(times), cpu)

    def _until(self, deadline: float, times: list[float], *, since: float = 0.0) -> None:
        """Send until then, and until there is a time; the times of messages that were sent after `since`."""
        clock = time.perf_counter
        senders, sent_at, step = self._senders, self._sent_at, len(self._senders)
        while (now := clock()) < deadline or (since and not times):
            if now > deadline + STALL_S:
                raise BrokerFailed(f"nothing was sent and confirmed in {STALL_S:.0f} s")
            drain = False
            for handle, _ in self._poll.poll(IDLE_S):
                at = self._by_handle.get(handle)
                if at is None:
                    drain = True
                elif senders[at].hear():
                    now = clock()
                    if sent_at[at] >= since:
                        times.append(now - sent_at[at])
                    self._confirmed += 1
                    self._next[at] += step
                    sent_at[at] = clock()
                    senders[at].send(self._next[at])
            if drain:
                self._drain.pump()

    def _finish(self) -> None:
        """Until all that was sent is confirmed and received."""
        waiting = set(range(len(self._senders)))
        sent = self._confirmed + len(waiting)
        moved_at = time.perf_counter()
        while waiting or self._drain.received < sent:
            for handle, _ in self._poll.poll(IDLE_S):
                moved_at = time.perf_counter()
                at = self._by_handle.get(handle)
                if at is not None and self._senders[at].hear():
                    waiting.discard(at)
            self._drain.pump()
            if time.perf_counter() - moved_at > STALL_S:
                received = f"{self._drain.received:,} of {sent:,} messages received"
                raise BrokerFailed(f"nothing came for {STALL_S:.0f} s: {received}, {len(waiting)} not confirmed")
