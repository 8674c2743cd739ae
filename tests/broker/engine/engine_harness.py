"""An engine with its journal on a simulated disk, driven verb by verb: no sessions, no protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from broker.config.diverts import DivertSection
from broker.engine.delivery.redelivery import CLOSED, DeliveryOutcome, rejected
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.delivery.transaction import Transaction
from broker.engine.engine import Engine
from broker.engine.model.errors import DiskFull
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.moves.transfer import MessageRange, MoveResult
from broker.engine.publish.send import Send
from broker.engine.queues.address import Producer
from broker.engine.queues.consumer import AckMode
from broker.engine.queues.queue import Consumer, Queue
from broker.engine.queues.steps import TOGETHER_MAX
from broker.engine.routing import alter, destinations
from store.record import RecordType
from store.segment import SEGMENT_HEADER_BYTES, decode_header, scan
from store.segment_directory import raw_records
from tests.simulation.world import SEGMENT_BYTES, check_accounts, check_counters, journal_directory, reasons, small
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker

FORMAT = 1

#: All messages of a queue, as many as one step may move.
EVERYTHING = MessageRange()


class Taker:
    """A consumer and the sink that takes its messages."""

    transport: object = None

    def __init__(self) -> None:
        self.taken: list[Message] = []
        self.closed: list[str] = []
        self.consumer: Consumer

    def journals_deliveries(self, consumer: Consumer) -> bool:
        """Deliveries leave without a record of their own."""
        return False

    def deliver(self, consumer: Consumer, messages: list[Message]) -> None:
        """What the engine hands out."""
        assert consumer is self.consumer
        self.taken += messages

    def consumer_closed(self, consumer: Consumer, reason: str) -> None:
        """The engine took the queue away."""
        self.closed.append(reason)

    def take(self) -> list[bytes]:
        """The bodies that came since the last call."""
        bodies = [body_of(message) for message in self.taken]
        self.taken = []
        return bodies


T = TypeVar("T", bound=Taker)


class Waiting:
    """Somebody who waits for confirmations."""

    transport: object = None

    def __init__(self) -> None:
        self.told: list[int] = []

    def durable(self, number: int) -> None:
        """See Waiter."""
        self.told.append(number)


class Producing:
    """A producer that may be stopped."""

    transport: object = None

    def __init__(self) -> None:
        self.blocked = False

    def unblock(self) -> None:
        """See Producer."""
        assert self.blocked, "told to go on without having been stopped"
        self.blocked = False


class EngineBroker(SimBroker):
    """A broker without protocols: stored sessions stay as the journal has them."""

    def restore_sessions(self) -> None:
        """Nobody takes them over."""


class Bench:
    """A broker's engine; `settings` are those of address-settings sections, `engine_limits` as `SimBroker` has them."""

    def __init__(
        self,
        *settings: dict[str, object],
        lazy_disk: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
        engine_limits: Mapping[str, int] | None = None,
        running: SimBroker | None = None,
        **sections: Any,
    ) -> None:
        config = small(*settings, segment_bytes=segment_bytes, **sections)
        self.broker = running or EngineBroker(config, lazy_disk=lazy_disk, engine_limits=engine_limits)

    @property
    def engine(self) -> Engine:
        """The engine."""
        return self.broker.engine

    def restart(self, *, crash: bool = True) -> Bench:
        """The next run on the same disk."""
        return Bench(running=self.broker.restart(crash=crash))

    def enter(self) -> Engine:
        """Begin a tick, in which verbs may be called; `run` ends it."""
        return self.broker.enter()

    def limit_ticks(self, budget: int, *, least: int, together: int = TOGETHER_MAX) -> None:
        """Give each tick less, in microseconds, and let fewer messages be treated together (`Steps`)."""
        steps = self.engine._state.steps
        steps.budget, steps.budget_min, steps.deliveries_min = budget, least, least
        steps.together_max = together

    def run(self) -> None:
        """End the tick and all that follow from it."""
        self.broker.run()

    def header(self, address: str, *, durable: bool = True, **more: Any) -> MessageHeader:
        """Facts of a message sent now."""
        format = self.engine.formats[FORMAT]
        return MessageHeader(address, format, durable=durable, timestamp=self.broker.now, **more)

    def prepare(
        self,
        destination: str,
        *bodies: bytes,
        routing_type: RoutingType | None = RoutingType.ANYCAST,
        head: bytes = b"",
        **more: Any,
    ) -> Send:
        """A run of messages that is still to be published, in the tick that begins here."""
        address, queue = destinations.destination(self.enter()._state, destination, routing_type)
        header = self.header(address.name, routing_type=routing_type, **more)
        return Send.at(address, queue, routing_type, [Message(header, head, body) for body in bodies])

    def send(
        self,
        destination: str,
        *bodies: bytes,
        routing_type: RoutingType | None = RoutingType.ANYCAST,
        head: bytes = b"",
        tx: Transaction | None = None,
        producer: Producer | None = None,
        **more: Any,
    ) -> list[Message]:
        """Publish a run of messages, in a transaction or not; the tick stays open."""
        send = self.prepare(destination, *bodies, routing_type=routing_type, head=head, **more)
        if tx is None:
            self.engine.producers.publish([send], producer=producer).check()
        else:
            tx.send([send], send.messages)
        return send.messages

    def sent(self, destination: str, *bodies: bytes, **more: Any) -> list[Message]:
        """The same, and everything that follows from it."""
        messages = self.send(destination, *bodies, **more)
        self.run()
        return messages

    def take(self, destination: str, routing_type: RoutingType | None = RoutingType.ANYCAST, **more: Any) -> Taker:
        """Subscribe; acknowledged one by one unless `ack_mode` says otherwise."""
        taker = self.attach(Taker(), destination, routing_type, **more)
        self.run()
        return taker

    def attach(
        self, taker: T, destination: str, routing_type: RoutingType | None = RoutingType.ANYCAST, **more: Any
    ) -> T:
        """The same for a sink of one's own, and the tick stays open."""
        more.setdefault("ack_mode", AckMode.INDIVIDUAL)
        if "durable_name" in more:
            more |= {"name": more.pop("durable_name"), "durable": True}
        taker.consumer = self.enter().consumers.subscribe(taker, SubscribeRequest(destination, routing_type, **more))
        return taker

    def ack(self, taker: Taker, *messages: Message, tx: Transaction | None = None) -> None:
        """Acknowledge, and everything that follows."""
        engine = self.enter()
        for message in messages:
            engine.consumers.acknowledge(taker.consumer, message.id, tx)
        self.run()

    def nack(self, taker: Taker, *messages: Message, requeue: bool = True, tx: Transaction | None = None) -> None:
        """Refuse, and everything that follows."""
        engine = self.enter()
        for message in messages:
            if requeue:
                engine.consumers.give_back(taker.consumer, message.id, rejected(""), tx)
            else:
                engine.consumers.reject(taker.consumer, message.id, tx=tx)
        self.run()

    def grant(self, taker: Taker, credit: int) -> None:
        """Set a consumer's credit, and everything that follows."""
        self.enter().consumers.grant(taker.consumer, credit)
        self.run()

    def close(self, taker: Taker, how: DeliveryOutcome) -> None:
        """Detach a consumer, and everything that follows."""
        self.enter().consumers.close(taker.consumer, how)
        self.run()

    def begin(self, connection: object = None) -> Transaction:
        """A transaction, of a connection of its own unless one is given."""
        return self.enter().transactions.begin(connection or object())

    def commit(self, tx: Transaction) -> None:
        """Commit, and everything that follows."""
        self.enter().transactions.commit(tx)
        self.run()

    def roll_back(self, tx: Transaction) -> None:
        """Roll back, and everything that follows."""
        self.enter().transactions.rollback(tx)
        self.run()

    def die(self, name: str, *bodies: bytes, text: str = "", **more: Any) -> None:
        """Messages that are sent to a queue and rejected for good."""
        messages = self.sent(name, *bodies, **more)
        taker = self.take(name)
        engine = self.enter()
        for message in messages:
            engine.consumers.reject(taker.consumer, message.id, text=text)
        self.run()
        self.close(taker, CLOSED)

    def declare(
        self,
        name: str = "q",
        address: str = "",
        *,
        routing_type: RoutingType = RoutingType.ANYCAST,
        durable: bool = True,
        selector: str = "",
        **attributes: object,
    ) -> Queue:
        """A queue with these attributes, on an address of its own name unless one is given."""
        configuration = self.enter().configuration
        home = configuration.declare(address or name, {routing_type})
        configuration.declare_queue(home, name, routing_type, durable=durable, selector=selector, requested=attributes)
        self.run()
        return self.queue(name)

    def change(self, name: str, **attributes: object) -> bool:
        """Change attributes of a queue, and everything that follows; whether anything changed."""
        changed = alter.change(self.enter()._state, self.queue(name), attributes)
        self.run()
        return changed

    def purge(self, name: str) -> int:
        """Purge a queue, and everything that follows; how many messages that was."""
        purged = self.enter().messages.purge(self.queue(name))
        self.run()
        return purged

    def delete(self, name: str) -> None:
        """Delete a queue, and everything that follows."""
        self.enter().delete_queue(self.queue(name))
        self.run()

    def retry(self, name: str = "DLQ", selection: MessageRange = EVERYTHING) -> MoveResult:
        """Make one step of moving messages back, and everything that follows."""
        step = self.enter().messages.retry(self.queue(name), selection)
        self.run()
        return step

    def queue(self, name: str) -> Queue:
        """A queue."""
        return self.engine.queue(name)

    def messages(self, name: str) -> list[Message]:
        """What lies on a queue, wherever on it."""
        return [message for message, _ in self.engine.messages.browse(self.queue(name))]

    def only(self, name: str) -> Message:
        """The one message of a queue."""
        (message,) = self.messages(name)
        return message

    def bodies(self, name: str) -> list[bytes]:
        """The bodies of the same."""
        return [body_of(message) for message in self.messages(name)]

    def places(self, name: str) -> dict[bytes, str]:
        """Where each message of a queue is."""
        return {body_of(message): place for message, place in self.engine.messages.browse(self.queue(name))}

    def check(self) -> None:
        """Check the books, from the disk and in memory."""
        check_accounts(self.broker)
        check_counters(self.broker)

    def left(self, name: str) -> dict[str, int]:
        """How many messages left a queue by which way, after the books were checked."""
        self.check()
        return {reason.word: count for reason, count in reasons(check_accounts(self.broker)[name]).items()}


def section(address: str, forwarding: str, **more: Any) -> DivertSection:
    """A section of the configuration."""
    values = {"address": address, "forwarding-address": forwarding} | {k.replace("_", "-"): v for k, v in more.items()}
    return DivertSection.model_validate(values)


def entries_with(bench: Bench, *types: str) -> list[list[str]]:
    """The record types of each journal entry that has one of these."""
    files, directory = bench.broker.files, journal_directory(bench.broker.config)
    found = []
    for name in files.list_dir(directory):
        if not name.endswith(".journal"):
            continue
        data = files.read(f"{directory}/{name}")
        result = scan(data, decode_header(data))
        records = [(RecordType(raw[3]).name, raw[2], raw[5]) for raw in raw_records(name, 1, data, result)]
        starts = sorted({at for at in _entry_starts(data, result.end)})
        for start, end in zip(starts, [*starts[1:], result.end], strict=True):
            inside = [type for type, _, offset in records if start <= offset < end]
            if any(type in inside for type in types):
                found.append(inside)
    return found


def _entry_starts(data: bytes, end: int) -> list[int]:
    starts, at = [], SEGMENT_HEADER_BYTES
    while at < end:
        starts.append(at)
        length = int.from_bytes(data[at + 4 : at + 8], "little")
        at += -(-length // 8) * 8
    return starts


def notes(message: Message) -> dict[str, str | int]:
    """What the broker wrote on a message."""
    return message.header.annotations or {}


def fill(bench: Bench, queue: str) -> list[Message]:
    """Send until the disk is full."""
    sent: list[Message] = []
    for _ in range(1000):
        try:
            sent += bench.sent(queue, b"x" * 1000)
        except DiskFull:
            bench.run()
            return sent
    raise AssertionError("the disk is never full")
