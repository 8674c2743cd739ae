"""Stories: clients of all protocols and an operator, in a broker whose ticks have hardly any budget.

Each commit, and each message for several queues, takes many ticks there, in which the others go on.  Bodies are unique,
and a naive ledger notes who has asked for what and what was confirmed; it knows nothing of ticks, entries and queues in
memory.  At any operation of the disk the power may fail (`Story.lose_power`), and the broker that recovers is compared:

    confirmed    what was confirmed, or has reached a consumer, is there once, unless something that was asked for may
                 have taken it away; what is confirmed to have been taken away is gone
    whole        of what is one operation (a commit, a message for several queues) all is there, or nothing
    prefix       with an operation of a connection there is everything that the same connection had sent before it
    order        on each queue the messages of a connection are in the order in which it sent them
    definitions  a queue that is confirmed to have been made is there, a deleted one is not, nor is what it had

and so are the books (`check_accounts`).  A story ends when nothing waits, lands or is due: then everything that was
asked for has its answer, and another broker on the same disk has what this one has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import Final

from broker.config import Config
from broker.daemon.wiring import settings_table
from broker.engine import NewQueue
from broker.engine.filter import compile_filter
from broker.engine.model.message import RoutingType
from broker.engine.queues.queue import Queue
from protocols.amqp.encode import encode
from protocols.amqp.message import AMQP_VALUE, DATA, encode_section
from protocols.amqp.performatives import (
    Declare,
    Declared,
    DeliveryState,
    Discharge,
    Header,
    Modified,
    Rejected,
    Released,
    TransactionalState,
)
from protocols.amqp.sender import Sender
from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from store.record import RemovalReason
from tests.simulation.naive_ledger import BODY, DEAD, Copy, Found, Ledger, Op, body_in
from tests.simulation.world import Account, check_accounts, check_counters, small
from tests.support.amqp_client import AmqpSim, Delivery
from tests.support.mqtt_client import Message as Arrived
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import SimFiles
from tests.support.stomp_client import ServerFrame, frame

#: Anycast queues that are there from the beginning; those that operators make and delete, or clients by sending.
LASTING: Final = ("a", "b", "slow", "strict", "paged", "full")
PASSING: Final = ("d0", "d1", "d2")

#: The address of the topic, as MQTT calls it, its queues from the beginning, and those that come and go.
TOPIC: Final = "t.x"
READERS: Final = ("r0", "r1", "ring", "red")
VISITORS: Final = ("v0", "v1", "v2", "v3")

RING: Final = 4
QUEUED_MAX: Final = 3
_DROPS: Final = ("newest", "oldest")

#: Expired messages are found within so many ms.
EXPIRY_SCAN: Final = 31_000

#: What of the engine's state is empty at rest.
_WAITING: Final = ("steps", "acknowledged", "closing", "unchecked", "dirty", "unreached", "dirty_later")
_PENDING: Final = ("held", "waiting", "landed", "fans")

#: The ways out of a queue that is at its limit.
_BY_LIMIT: Final = (RemovalReason.DROPPED, RemovalReason.DISPLACED, RemovalReason.EVICTED)


def config(random: Random) -> Config:
    """Small limits; what the topic does when it is full, and the queues of MQTT clients, differs."""
    topic: dict[str, object] = random.choice(
        [
            {},
            {},
            {"address-full-policy": "PAGE", "max-size-messages": 4, "max-read-page-messages": 2},
            {"address-full-policy": "DROP", "max-size-messages": 12},
            {"address-full-policy": "FAIL", "max-size-messages": 12},
        ]
    )
    made = small(
        {"match": TOPIC, **topic},
        {"match": "slow", "max-delivery-attempts": 2, "redelivery-delay": 40},
        {"match": "strict", "delivery-count-persistence": "strict"},
        {"match": "paged", "address-full-policy": "PAGE", "max-size-messages": 2, "max-read-page-messages": 2},
        {"match": "full", "address-full-policy": "BLOCK", "max-size-messages": 3},
        segment_bytes=256 << 10,
    )
    still = {"address_queue_scan_period": -1}
    limits = {"queued_messages_max": random.choice((-1, QUEUED_MAX)), "queued_messages_drop": random.choice(_DROPS)}
    acceptors = {**made.acceptors, "mqtt": made.acceptors["mqtt"].model_copy(update=limits)}
    return made.model_copy(update={"broker": made.broker.model_copy(update=still), "acceptors": acceptors})


def other_settings(made: Config) -> Config:
    """The same with other settings for some of the queues."""
    topic = [each for each in made.address_settings if each.match == TOPIC]
    changed = small(
        {"match": "slow", "max-delivery-attempts": 3, "redelivery-delay": 5},
        {"match": "a", "delivery-count-persistence": "strict"},
        {"match": "b", "address-full-policy": "PAGE", "max-size-messages": 2},
        {"match": "full", "address-full-policy": "BLOCK", "max-size-messages": 6},
        segment_bytes=256 << 10,
    )
    return made.model_copy(update={"address_settings": (*changed.address_settings, *topic)})


class StoryBroker(SimBroker):
    """A broker whose ticks end, and whose disk works, only when the story says so."""

    manual = False

    def run(self) -> None:
        if not self.manual:
            super().run()


class Actor:
    """The base of those who do something."""

    def __init__(self, story: Story, name: str) -> None:
        self.story = story
        self.name = name
        self.random = story.random
        self.ledger = story.ledger

    def act(self) -> None:
        """Do something."""
        raise NotImplementedError

    def look(self) -> None:
        """Note what the broker has answered."""
        raise NotImplementedError

    @property
    def waits(self) -> str:
        """What it still waits for, for the error; empty: nothing."""
        raise NotImplementedError


@dataclass(eq=False, slots=True)
class Held:
    """A delivery that is still to be acknowledged."""

    frame: ServerFrame
    copy: Copy


class Stomp(Actor):
    """A STOMP client that does everything."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.lives = 0
        self.connect()

    def connect(self) -> None:
        self.lives += 1
        self.lane = f"{self.name}.{self.lives}"
        self.client = SimClient(self.story.broker, "1.2", self.story.broker.number())
        self.story.broker.attached(self.client)
        self.out: list[bytes] = []
        self.pending: dict[str, Op | None] = {}
        self.open: dict[str, Op] = {}
        self.held: list[Held] = []
        self.subscribed: dict[str, str] = {}
        self.last: dict[str, int] = {}
        self.unanswered: list[Op] = []
        self.say("CONNECT", {"accept-version": "1.2", "host": "/"})

    def say(self, command: str, headers: dict[str, str], body: bytes = b"", op: Op | None = None) -> None:
        """Send a frame with the others of this tick, or by itself; maybe with a receipt."""
        if op is not None:
            self.unanswered.append(op)
        if command != "CONNECT" and (command == "COMMIT" or self.random.random() < 0.7):
            self.ledger.number += 1
            headers = {**headers, "receipt": str(self.ledger.number)}
            self.pending[headers["receipt"]] = op
        self.out.append(frame(command, headers, body))
        if self.random.random() < 0.6:
            self.flush()

    def flush(self) -> None:
        data, self.out = b"".join(self.out), []
        if data and not self.client.closed:
            self.client.raw(data)

    def act(self) -> None:
        if self.client.closed:
            self.connect()
        kinds = self.story.kinds
        kind = self.random.choices(list(kinds), list(kinds.values()))[0]
        getattr(self, f"do_{kind}")()

    def end_of_turn(self) -> None:
        self.flush()

    def do_send(self) -> None:
        name = self.random.choice((*LASTING, *PASSING, "news"))
        durable = self.random.random() < 0.85
        op = self.ledger.op(self.lane)
        if name == "news":
            self.topic(op, durable=durable)
        else:
            self.queue(op, name, durable=durable)

    def do_topic(self) -> None:
        self.topic(self.ledger.op(self.lane), durable=self.random.random() < 0.9)

    def queue(self, op: Op, name: str, tx: str = "", *, durable: bool = True) -> None:
        body = self.story.body()
        copy = self.ledger.copy(op, body, name, durable=durable)
        headers = {"destination": f"/queue/{name}", "persistent": str(durable).lower()}
        self._send(op, headers, body, [copy], tx)

    def topic(self, op: Op, tx: str = "", *, durable: bool = True) -> None:
        body, colour = self.story.body(), self.random.choice(("red", "blue"))
        copies = self.story.copies(op, body, colour, durable=durable, synchronous=not tx)
        headers = {"destination": f"/topic/{TOPIC}", "persistent": str(durable).lower(), "colour": colour}
        self._send(op, headers, body, copies, tx)

    def _send(self, op: Op, headers: dict[str, str], body: bytes, copies: list[Copy], tx: str) -> None:
        if self.random.random() < 0.1:
            headers["expires"] = str(self.story.broker.now + self.random.randrange(1, 60))
        elif tx or self.random.random() < 0.3:
            headers["expires"] = str(self.story.broker.now + 10_000_000 + op.at)  # a header of its own
        if tx:
            headers["transaction"] = tx
        self.say("SEND", headers, body, None if tx else op)

    def do_subscribe(self) -> None:
        if len(self.subscribed) > 3:
            return
        name = self.random.choice((*LASTING, *PASSING, *READERS, *VISITORS))
        if name in VISITORS and name not in self.story.broker.engine.queues:
            return
        self.ledger.number += 1
        id = f"s{self.ledger.number}"
        topic = name in READERS or name in VISITORS
        destination = f"/topic/{TOPIC}::{name}" if topic else f"/queue/{name}"
        self.subscribed[id] = name
        self.story.consumers[name] += 1
        window = self.random.choice(("-1", "1000", "-1"))
        headers = {"destination": destination, "id": id, "ack": "client-individual", "consumer-window-size": window}
        self.say("SUBSCRIBE", headers)

    def do_unsubscribe(self) -> None:
        if self.subscribed:
            id = self.random.choice(list(self.subscribed))
            del self.subscribed[id]
            for held in [held for held in self.held if held.frame.headers["subscription"] == id]:
                held.copy.delivered = False  # a clean close
                self.held.remove(held)
            self.say("UNSUBSCRIBE", {"id": id})

    def do_ack(self) -> None:
        self.settle(self.ledger.op(self.lane, asked=False), "ack")

    def do_nack(self) -> None:
        self.settle(self.ledger.op(self.lane, asked=False), self.random.choice(("nack", "dead")))

    def settle(self, op: Op, how: str, tx: str = "") -> None:
        if not self.held:
            return
        held = self.held.pop(self.random.randrange(len(self.held)))
        headers = {"id": held.frame.headers["ack"]}
        self._takes(op, held.copy, how)
        if how == "dead":
            headers["requeue"] = "false"
        if tx:
            headers["transaction"] = tx
        else:
            self.ledger.ask(op)
        self.say("ACK" if how == "ack" else "NACK", headers, b"", None if tx else op)

    def _takes(self, op: Op, copy: Copy, how: str) -> None:
        if how != "nack":
            op.takes.append((copy, how == "dead"))

    def do_forward(self) -> None:
        """What was received is sent on, and then acknowledged."""
        if self.held:
            self.queue(self.ledger.op(self.lane), self.random.choice((*LASTING, *PASSING)))
            self.do_ack()

    def do_begin(self) -> None:
        if len(self.open) < 2:
            self.ledger.number += 1
            name = f"t{self.ledger.number}"
            self.open[name] = op = self.ledger.op(self.lane, asked=False)
            self.say("BEGIN", {"transaction": name})
            for _ in range(self.random.randrange(2, 14)):
                if self.random.random() < 0.3:
                    self.settle(op, self.random.choice(("ack", "ack", "nack", "dead")), name)
                elif self.random.random() < 0.25:
                    self.topic(op, name)
                else:
                    self.queue(op, self.random.choice((*LASTING, *PASSING)), name)

    def do_commit(self) -> None:
        if self.open:
            name, op = self.open.popitem()
            self.ledger.ask(op)
            self.say("COMMIT", {"transaction": name}, b"", op)

    def do_abort(self) -> None:
        if self.open and self.random.random() < 0.3:
            name, _ = self.open.popitem()
            self.say("ABORT", {"transaction": name})

    def do_leave(self) -> None:
        if self.random.random() < 0.3:
            self.client.abort()

    def look(self) -> None:
        for each in self.client.take("RECEIPT"):
            receipt = each.headers["receipt-id"]
            first = next(iter(self.pending))
            assert first == receipt, f"{self.lane}: receipt {receipt} came before {first}"
            op = self.pending.pop(receipt)
            if op is not None:
                while self.unanswered:
                    before = self.unanswered.pop(0)
                    before.confirmed = True
                    if before is op:
                        break
        for each in self.client.take("MESSAGE"):
            self._receive(each)
        for each in self.client.take("ERROR"):
            self.story.errors.append(each.headers.get("message", ""))

    def _receive(self, each: ServerFrame) -> None:
        queue = self.subscribed.get(each.headers["subscription"])
        if queue is None:
            return
        known = self.ledger.copies.get((each.body, queue))
        again = known is not None and known.seen
        copy = self.story.received(each.body, queue, again=each.headers["redelivered"] == "true")
        if not again and self.story.consumers[queue] == 1:  # another one may have had it, and given it back
            key = f"{each.headers['subscription']} {copy.op.lane} {copy.durable}"
            order = copy.op.at * 1_000 + copy.op.sends.index(copy)
            assert self.last.get(key, -1) < order, f"{copy.body!r} came to {queue} behind later ones of {copy.op.lane}"
            self.last[key] = order
        self.held.append(Held(each, copy))

    @property
    def waits(self) -> str:
        return "" if self.client.closed or not self.pending else f"{self.lane} waits for {self.pending}"


class Amqp(Actor):
    """An AMQP client with transactions."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.client = AmqpSim(story.broker, name)
        self.senders = {queue: self.client.sender(queue, "queue") for queue in ("a", "b", "full")}
        self.coordinator = self.client.coordinator()
        self.receiver = self.client.receiver("a", "queue", credit=5)
        story.consumers["a"] += 1
        self.held: list[tuple[Delivery, Copy]] = []
        self.declaring = False
        self.declared: list[tuple[bytes, Op]] = []
        self.pending: dict[int, Op | None] = {}
        self.settled: dict[int, Op] = {}

    def _post(self, link: Sender, payload: bytes, op: Op | None, tx: bytes | None = None) -> bool:
        if link.room < 1:
            return False
        self.ledger.number += 1
        key = self.ledger.number
        if tx is None:
            self.pending[key] = op
        state = None if tx is None else TransactionalState(tx)
        link.send([payload], [key], state=state)
        self.client.say()
        return True

    def act(self) -> None:
        if self.client.closed:
            return
        kind = self.random.choice(("send", "send", "settle", "settle", "declare", "fill", "discharge", "credit"))
        getattr(self, f"do_{kind}")()

    def do_send(self) -> None:
        queue = self.random.choice(list(self.senders))
        link = self.senders[queue]
        if link.room < 1:
            return
        op = self.ledger.op(f"{self.name} {queue}")
        body, durable = self.story.body(), self.random.random() < 0.85
        self.ledger.copy(op, body, queue, durable=durable)
        self._post(link, payload(body, durable=durable), op)

    def do_settle(self) -> None:
        if not self.held:
            return
        delivery, copy = self.held.pop(self.random.randrange(len(self.held)))
        op = self.ledger.op(f"{self.name} settles", asked=False)
        how: DeliveryState | None = self.random.choice((None, None, None, Released(), Modified(True), Rejected()))
        if how is None or isinstance(how, Rejected):
            op.takes.append((copy, how is not None))
        copy.delivered = isinstance(how, Modified)
        self.ledger.ask(op)
        settled = self.random.random() < 0.5
        if not settled:
            self.settled[delivery.id] = op
        self.client.settle(delivery, state=how, settled=settled)

    def do_declare(self) -> None:
        if not self.declaring and len(self.declared) < 2:
            self.declaring = self._post(self.coordinator, encode_section(AMQP_VALUE, Declare()), None)

    def do_fill(self) -> None:
        for tx, op in self.declared:
            for _ in range(self.random.randrange(6)):
                if self.held and self.random.random() < 0.4:
                    delivery, copy = self.held.pop()
                    op.takes.append((copy, False))
                    self.client.settle(delivery, settled=self.random.random() < 0.5, tx=tx)
                    continue
                queue = self.random.choice(("a", "b"))
                body = self.story.body()
                if self._post(self.senders[queue], payload(body, durable=True), op, tx):
                    self.ledger.copy(op, body, queue)

    def do_discharge(self) -> None:
        if self.declared and self.coordinator.room:
            tx, op = self.declared.pop(0)
            fail = self.random.random() < 0.2
            if not fail:
                self.ledger.ask(op)
            self._post(self.coordinator, encode_section(AMQP_VALUE, Discharge(tx, fail)), None if fail else op)

    def do_credit(self) -> None:
        self.receiver.send_credit(5)
        self.client.say()

    def look(self) -> None:
        self.client.say()
        outcomes, self.client.outcomes = self.client.outcomes, []
        for outcome in outcomes:
            if not isinstance(outcome.context, int) or outcome.context not in self.pending:
                continue
            op = self.pending.pop(outcome.context, None)
            if isinstance(outcome.state, Declared):
                self.declaring = False
                self.declared.append((outcome.state.txn_id, self.ledger.op(f"{self.name} tx", asked=False)))
            elif op is not None and isinstance(outcome.state, Rejected):
                op.refused = True
                self.story.errors.append(str(outcome.state.error))
            elif op is not None:
                op.confirmed = True
        for id in self.client.confirmed & self.settled.keys():
            self.settled.pop(id).confirmed = True
        for delivery in self.client.take():
            found = BODY.search(delivery.payload)
            assert found is not None
            header = delivery.message.header
            again = bool(header.delivery_count)
            self.held.append((delivery, self.story.received(found[0], "a", again=again, counts=True)))

    @property
    def waits(self) -> str:
        pending = [op for op in self.pending.values()]
        return "" if self.client.closed or not pending else f"{self.name} waits for {pending}"


def payload(body: bytes, *, durable: bool) -> bytes:
    """A message of AMQP."""
    return encode(Header(durable)) + encode_section(DATA, body)


class Publisher(Actor):
    """An MQTT client that publishes with QoS 1 and 2."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.client = session(story.broker, name)
        self.pending: dict[int, tuple[Op, bytes, int]] = {}
        self.to_release: list[int] = []

    def act(self) -> None:
        if self.client.closed:
            return
        if self.to_release and self.random.random() < 0.5:
            self.client.ack(PacketType.PUBREL, self.to_release.pop(0))
            return
        if len(self.pending) > 20:
            return
        qos = self.random.choice((1, 2))
        op = self.ledger.op(f"{self.name}")
        body = self.story.body()
        self.story.copies(op, body, "")
        number = self.client.number()
        self.pending[number] = (op, body, qos)
        self.client.publish(TOPIC.replace(".", "/"), body, qos, packet_id=number)

    def look(self) -> None:
        for number, reason in [*self.client.replies(PacketType.PUBACK), *self.client.replies(PacketType.PUBREC)]:
            op, _, qos = self.pending.pop(number)
            op.confirmed, op.refused = reason < 0x80, reason >= 0x80
            if qos == 2 and reason < 0x80:
                self.to_release.append(number)

    @property
    def waits(self) -> str:
        return "" if self.client.closed or not self.pending else f"{self.name} waits for {self.pending}"

    def come_back(self, broker: SimBroker) -> None:
        """Send again what was not confirmed, to the broker after this one: each message of QoS 2 is there once."""
        if self.client.closed:
            return
        again = session(broker, self.name)
        for number, (_, body, qos) in self.pending.items():
            again.publish(TOPIC.replace(".", "/"), body, qos, packet_id=number, dup=True)
        broker.run()
        twice = {body: qos for _, body, qos in self.pending.values()}
        counts = Counter(
            (body_in(m), name)
            for name, q in broker.engine.queues.items()
            if name not in DEAD
            for m, _ in broker.engine.messages.browse(q)
        )
        for (body, name), count in counts.items():
            assert count == 1 or twice.get(body) == 1, f"{body!r} is on {name} {count} times"


class Subscriber(Actor):
    """An MQTT client with a session, which has all messages of the topic."""

    def __init__(self, story: Story, name: str, qos: int) -> None:
        super().__init__(story, name)
        self.client = session(story.broker, name)
        self.client.subscribe("t/#", qos=qos)
        [self.queue] = [queue for queue in story.broker.engine.queues if queue.startswith(f"{name}.")]
        self.qos = qos
        self.held: list[tuple[Arrived, Copy]] = []
        self.received: dict[int, Op] = {}
        self.to_complete: list[int] = []
        self.released: set[bytes] = set()

    def act(self) -> None:
        if self.client.closed:
            return
        if self.random.random() < 0.04:
            self.client.drop()
            self.client = session(self.story.broker, self.name, check=False)
            self.held.clear()
            self.to_complete.clear()
            self.received.clear()
        elif self.to_complete and self.random.random() < 0.5:
            self.client.ack(PacketType.PUBCOMP, self.to_complete.pop(0))
        elif self.held:
            message, copy = self.held.pop(0)
            op = self.ledger.op(f"{self.name} takes", asked=False)
            op.takes.append((copy, False))
            self.ledger.ask(op)
            if message.qos == 2:
                self.received[message.packet_id] = op
            self.client.ack(PacketType.PUBACK if message.qos == 1 else PacketType.PUBREC, message.packet_id)

    def look(self) -> None:
        self.client.settle()
        for number, _ in self.client.replies(PacketType.PUBREL):
            op = self.received.pop(number, None)
            if op is not None:
                op.confirmed = True
                self.released.add(op.takes[0][0].body)
            self.to_complete.append(number)
        arrived, self.client.arrived = self.client.arrived, []
        for message in arrived:
            copy = self.story.received(message.payload, self.queue, again=message.dup)
            assert message.payload not in self.released, f"{message.payload!r} was released, and comes again"
            if message.qos:
                self.held.append((message, copy))

    @property
    def waits(self) -> str:
        return "" if self.client.closed or not self.received else f"{self.name} waits for {self.received}"

    def come_back(self, broker: SimBroker) -> None:
        """Of what was received with QoS 2 each message comes again, or is to be released."""
        again = session(broker, self.name)
        broker.run()
        bodies = {message.payload for message in again.take()}
        numbers = {number for number, _ in again.replies(PacketType.PUBREL)}
        for number, op in self.received.items():
            body = op.takes[0][0].body
            assert (body in bodies) != (number in numbers), f"{self.name} {number}: {body!r}, {bodies}, {numbers}"
        assert not bodies & self.released


class Away(Subscriber):
    """One that has gone away, and does not come back."""

    def __init__(self, story: Story, name: str, qos: int) -> None:
        super().__init__(story, name, qos)
        self.client.drop()

    def act(self) -> None:
        pass

    def look(self) -> None:
        pass


def session(broker: SimBroker, name: str, *, check: bool = True) -> MqttClient:
    """An MQTT client with a session that lasts."""
    client = MqttClient(auto=False).over(SimCarrier(broker))
    client.connect(greeting(name, clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)]))
    assert client.code == 0 or not check
    return client


class Confirming:
    """Waits for what an operator did."""

    transport = None

    def __init__(self, op: Op, pending: list[Confirming]) -> None:
        self.op = op
        self.number = 0
        self.pending = pending
        pending.append(self)

    def durable(self, number: int) -> None:
        if number >= self.number and self in self.pending:
            self.pending.remove(self)
            self.op.confirmed = True


class Operator(Actor):
    """Makes and deletes queues, changes settings, purges, pauses."""

    def __init__(self, story: Story, name: str) -> None:
        super().__init__(story, name)
        self.pending: list[Confirming] = []
        self.tables = [settings_table(story.config), settings_table(other_settings(story.config))]

    def act(self) -> None:
        kinds = self.story.operations
        getattr(self, f"do_{self.random.choices(list(kinds), list(kinds.values()))[0]}")()

    def _confirm(self, op: Op) -> None:
        waiter = Confirming(op, self.pending)
        waiter.number = self.story.broker.engine.ticks.confirmation(waiter)
        if not waiter.number:
            waiter.durable(0)

    def do_make(self) -> None:
        broker = self.story.broker
        engine = broker.enter()
        name = self.random.choice((*PASSING, *VISITORS))
        if name in engine.queues:
            return
        op = self.ledger.op("operator")
        if name in PASSING:
            queue = engine.operators.make_queue(NewQueue(name, routing_type=RoutingType.ANYCAST, make_address=True))
        else:
            queue = self.story.make_reader(name, self.random.choice(("", "", "red", "ring")))
        op.creates = queue.id
        self._confirm(op)

    def do_delete(self) -> None:
        engine = self.story.broker.enter()
        name = self.random.choice((*PASSING, *VISITORS))
        queue = engine.queues.get(name)
        if queue is not None and queue.durable:
            op = self.ledger.op("operator")
            op.deletes = queue.id
            for copy in self.ledger.copies.values():
                if copy.queue == name and copy.op.asked:
                    if copy.op.confirmed and not any(before.deletes for before in copy.leaving):
                        op.deleted.append(copy)
                    copy.leaving.append(op)
                elif copy.queue == name and name in VISITORS:
                    copy.certain = False
            engine.operators.delete_queue(queue, with_messages=True)
            self._confirm(op)

    def do_settings(self) -> None:
        self.tables.reverse()
        self.story.broker.enter().configuration.change_settings(self.tables[0])

    def do_pause(self) -> None:
        engine = self.story.broker.enter()
        name = self.random.choice(LASTING)
        if name in engine.queues:
            queue = engine.queue(name)
            engine.operators.pause(queue, paused=not queue.paused)

    def do_purge(self) -> None:
        engine = self.story.broker.enter()
        name = self.random.choice((*LASTING, *PASSING, *READERS))
        queue = engine.queues.get(name)
        if queue is not None:
            op = self.ledger.op("operator")
            for copy in self.ledger.copies.values():
                if copy.queue == name:
                    copy.leaving.append(op)
            engine.messages.purge(queue)
            self._confirm(op)

    def look(self) -> None:
        pass

    @property
    def waits(self) -> str:
        return f"the operator waits for {[each.op for each in self.pending]}" if self.pending else ""


#: What STOMP clients do, and operators, by how often.
COMMITS: Final = {
    "send": 8,
    "topic": 1,
    "subscribe": 3,
    "unsubscribe": 1,
    "ack": 8,
    "nack": 3,
    "forward": 4,
    "begin": 3,
    "commit": 4,
    "abort": 1,
    "leave": 1,
}
FANS: Final = COMMITS | {"send": 2, "topic": 9, "begin": 1, "forward": 2}

KINDS: Final = {"commits": COMMITS, "fans": FANS}


class Story:
    """One story, from its seed."""

    def __init__(self, seed: int, kinds: dict[str, int], *, turns: int = 60, losses: float = 0.1) -> None:
        self.seed = seed
        self.kinds = kinds
        self.turns = turns
        self.losses = losses
        self.random = random = Random(seed)
        self.checking = Random(seed + 1)
        self.ledger = Ledger()
        self.errors: list[str] = []
        self.consumers: Counter[str] = Counter()  # how many each queue has had
        self.points = 0
        self.wrong: Exception | None = None
        self.held_ticks = 0
        self.overtaken = 0
        self.limited = 0
        self.config = config(random)
        self.operations = {"make": 4, "delete": 2, "settings": random.choice((0, 1)), "pause": 1, "purge": 1}
        self.files = SimFiles(seed)
        self.broker = broker = StoryBroker(self.config, files=self.files, seed=seed)
        engine = broker.enter()
        for name in LASTING:
            engine.operators.make_queue(NewQueue(name, routing_type=RoutingType.ANYCAST, make_address=True))
        self.filters: dict[str, str] = {}
        self.topic: dict[str, Queue] = {}
        for name in READERS:
            self.make_reader(name, name)
        broker.run()
        self.limit = self.config.acceptors["mqtt"].queued_messages_max  # type: ignore[union-attr]
        self.drops = any(
            each.match == TOPIC and str(each.given("address_full_policy")) in ("DROP", "FAIL")
            for each in self.config.address_settings
        )
        self.actors: list[Actor] = [Subscriber(self, "sub1", 1), Subscriber(self, "sub2", 2), Away(self, "sub3", 1)]
        for actor in self.actors:
            assert isinstance(actor, Subscriber)
            self.filters[actor.queue] = "limited" if self.limit >= 0 else ""
            self.topic[actor.queue] = broker.engine.queue(actor.queue)
        self.actors += [Publisher(self, "pub"), Amqp(self, "amqp"), Operator(self, "operator")]
        self.actors += [Stomp(self, f"stomp{n}") for n in range(4)]
        broker.run()
        steps = broker.engine._state.steps
        budget = random.choice((24, 60, 120))
        steps.budget, steps.budget_min, steps.deliveries_min = budget, budget // 2, budget // 2
        steps.together_max = random.choice((1, 1, 2, 4))

    # -- what actors need ------------------------------------------------------------------------------------------

    def body(self) -> bytes:
        self.ledger.number += 1
        return b"<%d>" % self.ledger.number

    def make_reader(self, name: str, kind: str) -> Queue:
        """Make a queue of the topic."""
        asked = {"ring_size": RING} if kind == "ring" else {}
        filter = compile_filter("colour = 'red'") if kind == "red" else None
        wanted = NewQueue(
            name, address=TOPIC, routing_type=RoutingType.MULTICAST, filter=filter, requested=asked, make_address=True
        )
        queue = self.broker.enter().operators.make_queue(wanted)
        self.filters[name], self.topic[name] = kind, queue
        return queue

    def copies(self, op: Op, body: bytes, colour: str, *, durable: bool = True, synchronous: bool = True) -> list[Copy]:
        """A message for each queue of the topic."""
        found = []
        for name, kind in (dict.fromkeys(VISITORS, "") | self.filters).items():
            queue = self.broker.engine.queues.get(name)
            takes = kind != "red" or colour == "red"
            certain = synchronous and takes and queue is not None and queue.durable and kind not in ("ring", "limited")
            certain = certain and not self.drops
            if (takes and queue is not None) or not synchronous or name in VISITORS:  # which clients may make again
                found.append(self.ledger.copy(op, body, name, durable=durable, certain=certain))
        return found

    def received(self, body: bytes, queue: str, *, again: bool, counts: bool = False) -> Copy:
        """A message has reached a consumer."""
        copy = self.ledger.copies.get((body, queue))
        assert copy is not None, f"{body!r} came from {queue}"
        assert copy.op.asked, f"{body!r} came from {queue} before its commit"
        assert again or counts or not copy.delivered, f"{body!r} came from {queue} again, and does not say so"
        for op in copy.leaving:
            assert not (op.confirmed and op.takes), f"{body!r} came from {queue} after {op}"
        copy.seen = copy.delivered = True
        copy.certain &= queue != "slow"  # its delivery may fail, and it may die of that
        return copy

    # -- the story -------------------------------------------------------------------------------------------------

    def play(self) -> None:
        """All of it."""
        self.broker.manual = True
        self.files.before_step = self.lose_power
        for _ in range(self.turns):
            for actor in self.actors:
                if self.random.random() < 0.5:
                    for _ in range(self.random.randrange(1, 4)):
                        actor.act()
                if isinstance(actor, Stomp):
                    actor.end_of_turn()
            self.turn()
        self.rest()
        for actor in self.actors:
            if isinstance(actor, (Stomp, Amqp)):
                actor.client.abort()  # what it holds, in transactions too, returns
        self.rest()
        self.broker.now += EXPIRY_SCAN
        self.rest()
        self.files.before_step = None
        self.compare()

    def turn(self) -> None:
        broker = self.broker
        broker.tick.enter()
        broker.tick.end()
        journal = broker.engine.journal
        self.held_ticks += journal.held
        durable = journal.durable
        if self.random.random() < 0.7:
            broker.write()
        self._raise()
        self.overtaken += journal.held and journal.durable > durable
        if self.random.random() < 0.3:
            broker.now += self.random.randrange(1, 30)
        for actor in self.actors:
            actor.look()

    def _raise(self) -> None:
        if self.wrong is not None:
            raise self.wrong

    def rest(self) -> None:
        """Go on until nothing waits, lands or is due."""
        broker, quiet = self.broker, 0
        for _ in range(20_000):
            broker.tick.enter()
            broker.tick.end()
            broker.write()
            self._raise()
            for actor in self.actors:
                actor.look()
            due = broker.engine.ticks.next_due()
            if broker.engine.ticks.has_more or self._waits():
                quiet = 0
            elif due is not None and due - broker.now < 1_000:
                broker.now = max(broker.now, due)
                quiet = 0
            else:
                quiet += 1
            if quiet > 3:
                break
        else:
            raise AssertionError(f"it does not come to rest: {self._waits()} {due} {broker.failure}")
        waits = [actor.waits for actor in self.actors if actor.waits]
        assert not waits, waits

    def _waits(self) -> list[str]:
        state = self.broker.engine._state
        found = [name for name in _WAITING if getattr(state, name)]
        found += [name for name in _PENDING if getattr(state.pending, name)]
        return found + ["disk"] * bool(state.journal.pending_bytes) + ["work"] * state.pending.work.waits

    def lose_power(self) -> None:
        """Before an operation of the disk: compare what a copy of it has after a power loss."""
        if self.checking.random() >= self.losses:
            return
        self.points += 1
        disk = self.files.fork(self.checking.getrandbits(30))
        disk.crash()
        try:
            self._return_to(self.check(disk))
        except Exception as wrong:  # else the writer takes it for a failure of the disk
            self.wrong = self.wrong or wrong

    def check(self, disk: SimFiles) -> SimBroker:
        """Compare the broker that recovers from a disk."""
        broker = SimBroker(self.config, files=disk, seed=self.seed + 1, now=self.broker.now)
        self.ledger.check(Found(broker))
        self._check_order(broker)
        check_accounts(broker)
        check_counters(broker)
        return broker

    def _check_order(self, broker: SimBroker) -> None:
        for name, queue in broker.engine.queues.items():
            if name in DEAD:
                continue
            last: dict[str, int] = {}
            for message, _ in sorted(broker.engine.messages.browse(queue), key=lambda each: each[0].id):
                copy = self.ledger.copies[body_in(message), name]
                order = copy.op.at * 1_000 + copy.op.sends.index(copy)
                assert last.get(copy.op.lane, -1) < order, f"{copy.body!r} is behind later ones on {name}"
                last[copy.op.lane] = order

    def _check_limits(self, books: dict[str, Account]) -> None:
        """Queues with a limit that nobody has consumed have the first messages that came, or the last."""
        ring = ("ring", RING, False) if not self.consumers["ring"] else None
        away = [actor.queue for actor in self.actors if isinstance(actor, Away)]
        newest = self.config.acceptors["mqtt"].queued_messages_drop == "newest"  # type: ignore[union-attr]
        for name, most, first in filter(None, [ring, *((queue, self.limit, newest) for queue in away)]):
            queue = self.broker.engine.queue(name)
            if most < 0 or _unlimited(queue):
                continue
            self.limited += queue.counters.added > most
            assert queue.message_count == min(queue.counters.added, most), name
            account = books[name]
            kept, gone = account.present, account.left.keys()
            if kept and gone:
                assert max(kept) < min(gone) if first else max(gone) < min(kept), (
                    f"{name}: {kept} stay, {gone} are gone"
                )

    def compare(self) -> None:
        """At rest: another broker on the same disk has what this one has."""
        check_counters(self.broker)
        self._check_limits(check_accounts(self.broker))
        disk = self.files.fork(self.seed)
        disk.crash(0.0)
        other = SimBroker(self.config, files=disk, seed=self.seed + 1, now=self.broker.now)
        late = {
            body_in(message)
            for queue in self.broker.engine.queues.values()
            for message, _ in self.broker.engine.messages.browse(queue)
            if 0 < message.header.expiration <= self.broker.now
        }  # with a consumer
        theirs, ours = contents(other, late), contents(self.broker, late)
        different = {name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)}
        for name in different:
            here, there = set(ours.get(name, ())), set(theirs.get(name, ()))
            raise AssertionError(f"{name} has also {here - there}, and after a restart {there - here}")
        disk = self.files.fork(self.seed)
        disk.crash()
        self._return_to(self.check(disk))

    def _return_to(self, broker: SimBroker) -> None:
        """Let the clients with sessions return to the next broker."""
        for actor in self.actors:
            if isinstance(actor, (Publisher, Subscriber)):
                actor.come_back(broker)


def _unlimited(queue: Queue) -> bool:
    """Whether messages have left a queue in another way than by its limit."""
    return any(count for reason, count in enumerate(queue.left) if reason not in _BY_LIMIT)


def contents(broker: SimBroker, without: set[bytes]) -> dict[str, list[tuple[bytes, int, int]]]:
    """What will survive: each queue's durable messages, their ids and failed deliveries."""
    return {
        name: sorted(
            (body_in(message), message.id, queue.delivery_count(message.id))
            for message, _ in broker.engine.messages.browse(queue)
            if message.segment and body_in(message) not in without
        )
        for name, queue in broker.engine.queues.items()
        if queue.durable
    }
