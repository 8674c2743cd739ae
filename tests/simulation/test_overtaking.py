"""A long commit holds its journal entry open for many ticks; others' entries go before it, whenever the power fails."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.simulation.world import check_accounts, check_counters, everything, held, small
from tests.support import amqp_client
from tests.support.bodies import body_of
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_database import SimDatabase
from tests.support.sim_files import Fault, SimFiles
from tests.support.stomp_client import frame

#: Messages that the transaction sends, and deliveries that it acknowledges, returns and rejects.
SENDS = 40
SETTLED = 6

#: Messages that another client can acknowledge.
OTHERS = 60

_CONFIG = small(
    {"match": "old", "max-delivery-attempts": 2},
    {"match": "full", "address-full-policy": "BLOCK", "max-size-messages": 2},
    segment_bytes=256 << 10,
)


def _before() -> Counter[bytes]:
    return Counter(b"old %d" % n for n in range(3 * SETTLED))


def _after() -> Counter[bytes]:
    sends = [b"tx %d" % n for n in range(SENDS)]
    return Counter(sends + [b"old %d" % n for n in range(SETTLED, 3 * SETTLED)])


class Work:
    """A commit, and others who send and acknowledge meanwhile; it knows what was confirmed."""

    def __init__(self, files: SimFiles, seed: int, shared: SimDatabase | None = None) -> None:
        self.random = Random(seed)
        self.confirmed: set[str] = set()
        self.effects: dict[str, tuple[str, bytes]] = {}
        self.committed = False
        self.numbers = 0
        self.overtaken = 0
        self.rarely = ("nack",) if seed % 2 else ()  # later acknowledgements from that queue wait
        self.broker = broker = SimBroker(_CONFIG, files=files, seed=seed, shared=shared)
        self.client, self.other, self.third = broker.connect(), broker.connect(), broker.connect()
        self.brief, self.plain = broker.connect(), broker.connect()
        for n in range(3 * SETTLED):
            self.client.send("/queue/old", b"old %d" % n, persistent="true")
        for n in range(OTHERS):
            self.client.send("/queue/others", b"other %d" % n, persistent="true")
        self.client.send("/queue/there", b"first", persistent="true")
        self.other.subscribe("/queue/others")
        self.acks = self.other.messages()
        self._prepare()
        self.other.frames.clear()
        steps = broker.engine._state.steps
        steps.budget, steps.budget_min, steps.deliveries_min, steps.together_max = 60, 30, 30, 1

    def _prepare(self) -> None:
        client = self.client
        client.subscribe("/queue/old")
        taken = client.messages()
        client.do("BEGIN", {"transaction": "t"})
        for n in range(SENDS):
            expires = str(self.broker.now + 10_000_000 + n)
            client.send(f"/queue/to{n % 3}", b"tx %d" % n, persistent="true", transaction="t", expires=expires)
        for n, message in enumerate(taken):
            if n < SETTLED:
                client.ack(message, transaction="t")
            elif n < 2 * SETTLED:
                client.nack(message, transaction="t")
            else:
                client.nack(message, transaction="t", requeue="false")
        client.take("MESSAGE")

    def run(self, ticks: int = 1_000) -> None:
        """Commit; others do something in each tick, at most so many."""
        _say(self.client, "COMMIT", {"transaction": "t", "receipt": "commit"})
        for _ in range(ticks):
            if self.committed or self.broker.failure is not None:
                break
            for _ in range(self.random.randrange(3)):
                self._something()
            self._turn()

    def _turn(self) -> None:
        broker = self.broker
        broker.tick.enter()
        broker.tick.end()
        if self.random.random() < 0.7:
            broker.write()
        heard = [*self.other.take("RECEIPT"), *self.third.take("RECEIPT"), *self.client.take("RECEIPT")]
        heard += [*self.brief.take("RECEIPT"), *self.plain.take("RECEIPT")]
        for each in heard:
            self.confirmed.add(each.headers["receipt-id"])
            self.overtaken += broker.engine.journal.held
        self.committed = "commit" in self.confirmed

    def _something(self) -> None:
        kind = self.random.choice(("there", "there", "to0", "new", "ack", "ack", "ack", "volatile", "tx", *self.rarely))
        self.numbers += 1
        receipt = f"r{self.numbers}"
        body = f"{kind} {self.numbers}".encode()
        if kind == "volatile":
            _say(self.other, "SEND", {"destination": "/queue/there"}, b"volatile")
        elif kind == "ack":
            if self.acks:
                message = self.acks.pop(0)
                self.effects[receipt] = ("gone", message.body)
                _say(self.other, "ACK", {"id": message.headers["ack"], "receipt": receipt})
        elif kind == "tx":
            self.effects[receipt] = ("there", b"brief %d" % self.numbers)
            _say(self.brief, "BEGIN", {"transaction": receipt})
            headers = {"destination": "/queue/there", "persistent": "true", "transaction": receipt}
            _say(self.brief, "SEND", headers, b"brief %d" % self.numbers)
            _say(self.brief, "COMMIT", {"transaction": receipt, "receipt": receipt})
        elif kind == "nack":
            if self.acks:
                _say(self.other, "NACK", {"id": self.acks.pop(0).headers["ack"]})
        else:
            name = f"new{self.numbers}" if kind == "new" else kind
            self.effects[receipt] = (name, body)
            sender = {"new": self.third, "there": self.plain}.get(kind, self.other)
            _say(sender, "SEND", {"destination": f"/queue/{name}", "persistent": "true", "receipt": receipt}, body)

    def check(self, broker: SimBroker) -> None:
        """Check a broker that has recovered from what was on disk."""
        found = everything(broker)
        ours = Counter({body: n for body, n in found.items() if body.startswith((b"tx", b"old"))})
        assert ours in ((_after(),) if self.committed else (_before(), _after())), ours
        assert len(held(broker, "DLQ")) == (SETTLED if ours == _after() else 0)
        for receipt, (queue, body) in self.effects.items():
            if receipt in self.confirmed and queue == "gone":
                assert not found[body], (receipt, body)
            elif receipt in self.confirmed:
                assert body in held(broker, queue), (receipt, queue, body)
        for body in [b"first", *[message.body for message in self.acks]]:
            assert found[body] == 1, body
        for queue in ("to0", "there"):
            if queue in broker.engine.queues:
                _check_order(broker, queue)
        check_accounts(broker)
        check_counters(broker)


def _say(client: SimClient, command: str, headers: dict[str, str], body: bytes = b"") -> None:
    """Send a frame in the tick that is open, which goes on."""
    lines = [command, *[f"{name}:{value}" for name, value in headers.items()]]
    data = "\n".join(lines).encode() + b"\n\n" + body + b"\0"
    client._tell(lambda: client.session.receive_data(data))
    client.broker.tick.touch(client)


def _check_order(broker: SimBroker, queue: str) -> None:
    ids = [message.id for message, _ in broker.engine.messages.browse(broker.engine.queue(queue))]
    assert ids == sorted(ids)


@pytest.mark.parametrize("seed", range(4))
def test_messages_confirmed_meanwhile_are_there_and_the_commit_is_done_or_not(seed: int) -> None:
    files = SimFiles(seed)
    work = Work(files, seed)
    points = 0

    def lose_power() -> None:
        nonlocal points
        points += 1
        if points % 2:
            return
        disk = files.fork(seed * 1_000 + points)
        disk.crash()
        work.check(SimBroker(_CONFIG, files=disk, seed=1))

    files.before_step = lose_power
    work.run()
    files.before_step = None
    assert work.committed
    assert work.overtaken > 3 or work.rarely
    assert points > 9
    work.broker.run()
    for queue in ("to0", "there"):
        _check_order(work.broker, queue)
    points = 1
    lose_power()


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC, Fault.SHORT])
def test_a_disk_that_fails_meanwhile_has_what_was_confirmed(fault: Fault) -> None:
    for operation in range(1, 40, 8):
        files = SimFiles(operation)
        work = Work(files, operation)
        files.plan(operation, fault, sticky=True)
        work.run(200)
        files.heal()
        files.crash()
        work.check(SimBroker(_CONFIG, files=files, seed=1))


@pytest.mark.parametrize("ticks", [0, 4, 9, 20, 40])
def test_another_broker_takes_over_in_the_middle(ticks: int) -> None:
    shared = SimDatabase(ticks)
    work = Work(SimFiles(ticks), ticks, shared)
    work.run(ticks)
    work.check(SimBroker(_CONFIG, files=SimFiles(ticks + 1), seed=ticks + 1, shared=shared))


def _large(n: int) -> bytes:
    return b"%d" % n + b"x" * 1_000


def test_paged_messages_are_read_where_they_are() -> None:
    """The place of the commit's records is not known until nothing can overtake them any more."""
    paging = {"match": "a", "address-full-policy": "PAGE", "max-size-bytes": 4_000, "max-read-page-bytes": 2_000}
    broker = SimBroker(small(paging, segment_bytes=256 << 10))
    client, other = broker.connect(), broker.connect()
    for n in range(8):
        client.send("/queue/a", _large(n), persistent="true")
    client.do("BEGIN", {"transaction": "t"})
    for n in range(8, 40):
        client.send("/queue/a", _large(n), persistent="true", transaction="t", expires=str(broker.now + 10_000_000 + n))
    steps = broker.engine._state.steps
    steps.budget, steps.budget_min, steps.deliveries_min, steps.together_max = 100, 50, 50, 2
    _say(client, "COMMIT", {"transaction": "t", "receipt": "commit"})
    sent = 40
    while not client.take("RECEIPT"):
        headers = {"destination": "/queue/a", "persistent": "true", "receipt": str(sent)}
        _say(other, "SEND", headers, _large(sent))
        sent += 1
        broker.tick.enter()
        broker.tick.end()
        broker.write()
    broker.run()
    assert sent > 45
    queue = broker.engine.queue("a")
    assert queue.tail is not None
    assert sum(len(each) for each in queue.tail.levels), "most of it is on disk only"
    steps.budget = 1 << 30
    browsed = sorted(body_of(message) for message, _ in broker.engine.messages.browse(queue))
    assert browsed == sorted(_large(n) for n in range(sent))
    assert sorted(held(broker.restart(), "a")) == browsed


def _begun(work: Work) -> None:
    """The commit is under way, and holds its entry."""
    _say(work.client, "COMMIT", {"transaction": "t", "receipt": "commit"})
    while not work.broker.engine.journal.held:
        work._turn()


def _confirmed_meanwhile(work: Work, client: SimClient, receipt: str) -> bool:
    """Whether it is confirmed before the commit has ended."""
    for _ in range(5):
        work.broker.tick.enter()
        work.broker.tick.end()
        work.broker.write()
        assert work.broker.engine.journal.held
        if any(each.headers["receipt-id"] == receipt for each in client.take("RECEIPT")):
            return True
    return False


@pytest.mark.parametrize("returns", [False, True])
def test_a_duplicate_of_what_is_in_the_held_entry_waits_for_it(returns: bool) -> None:
    """A client that has lost its connection sends again, over this one or that: the very use of duplicate ids."""
    work = Work(SimFiles(1), 1)
    _begun(work)
    sent = {"destination": "/queue/there", "persistent": "true", "_AMQ_DUPL_ID": "x"}
    _say(work.third, "SEND", {**sent, "receipt": "first"}, b"once")
    assert not _confirmed_meanwhile(work, work.third, "first")
    work.third.abort()
    again = work.other
    if returns:
        again = SimClient(work.broker, "1.2", work.broker.number())
        _say(again, "CONNECT", {"accept-version": "1.2", "host": "/"})
    _say(again, "SEND", {**sent, "receipt": "again"}, b"once")
    assert not _confirmed_meanwhile(work, again, "again")


def test_a_subscription_to_a_queue_that_is_in_the_held_entry_waits_for_it() -> None:
    work = Work(SimFiles(1), 1)
    _begun(work)
    made = {"destination": "/queue/made", "id": "1"}
    _say(work.third, "SUBSCRIBE", {**made, "receipt": "first"})
    assert not _confirmed_meanwhile(work, work.third, "first")
    _say(work.brief, "SUBSCRIBE", {**made, "receipt": "second"})
    assert not _confirmed_meanwhile(work, work.brief, "second")


def test_one_that_logs_in_meanwhile_waits_and_others_do_not() -> None:
    work = Work(SimFiles(1), 1)
    _begun(work)
    sent = {"destination": "/queue/there", "persistent": "true", "receipt": "r"}
    new = SimClient(work.broker, "1.2", work.broker.number())
    _say(new, "CONNECT", {"accept-version": "1.2", "host": "/"})
    _say(new, "SEND", sent, b"new")
    _say(work.brief, "SEND", sent, b"old")
    assert _confirmed_meanwhile(work, work.brief, "r")
    assert not _confirmed_meanwhile(work, new, "r")


def test_one_whose_call_wakes_another_waits_for_what_it_has_recorded() -> None:
    """The rejected message leaves room for a blocked sender of AMQP, which is served within the same call."""
    work = Work(SimFiles(1), 1)
    sender = amqp_client.AmqpSim(work.broker)
    sender.send(sender.sender("full", "queue"), amqp_client.message("1"), amqp_client.message("2"))
    work.brief.subscribe("/queue/full")
    first, *_ = work.brief.messages()
    assert work.broker.engine.addresses["full"].blocked
    _begun(work)
    work.broker.engine._state.steps.ensure(1_000)  # else the sender continues in a later tick
    _say(work.brief, "NACK", {"id": first.headers["ack"], "requeue": "false", "receipt": "r"})
    assert not work.broker.engine.addresses["full"].blocked
    assert not _confirmed_meanwhile(work, work.brief, "r")


@pytest.mark.parametrize("how", ["unsubscribe", "downgrade"])
def test_a_qos_2_message_that_is_received_meanwhile_stays_or_is_to_be_released(how: str) -> None:
    """Its removal must not go before the note that its packet identifier is to be released."""
    work = Work(SimFiles(1), 1)
    clients = [MqttClient(auto=False), MqttClient(auto=False)]
    for name, client in zip(("subscriber", "publisher"), clients, strict=True):
        client.over(SimCarrier(work.broker))
        client.connect(greeting(name, clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)]))
    subscriber, publisher = clients
    subscriber.subscribe("there/#", qos=2)
    number = publisher.publish("there/x", b"once", 2)
    publisher.ack(PacketType.PUBREL, number)
    [message] = subscriber.take()
    if how == "unsubscribe":
        subscriber.unsubscribe("there/#")
    else:
        subscriber.subscribe("there/#", qos=0)
    _begun(work)
    work.broker.run = lambda: None  # type: ignore[method-assign]
    subscriber.ack(PacketType.PUBREC, message.packet_id)
    for _ in range(4):
        work._turn()
    assert work.broker.engine.journal.held
    work.broker.files.crash()
    again = MqttClient(auto=False)
    again.over(SimCarrier(SimBroker(_CONFIG, files=work.broker.files, seed=2)))
    again.connect(greeting("subscriber", clean=False, properties=[(SESSION_EXPIRY_INTERVAL, FOR_EVER)]))
    assert again.take() or again.replies(PacketType.PUBREL)


@pytest.mark.parametrize("first", [{"_AMQ_DUPL_ID": "x"}, {"destination": "/queue/made"}])
def test_sends_of_a_connection_stay_behind_those_in_the_held_entry(first: dict[str, str]) -> None:
    """After a crash before its end there is no later message of a producer without the earlier one."""
    work = Work(SimFiles(1), 1)
    _begun(work)
    sent = {"destination": "/queue/there", "persistent": "true"}
    _say(work.third, "SEND", {**sent, **first}, b"earlier")
    _say(work.third, "SEND", {**sent, "receipt": "r"}, b"later")
    assert not _confirmed_meanwhile(work, work.third, "r")
    work.broker.files.crash()
    found = everything(SimBroker(_CONFIG, files=work.broker.files, seed=2))
    assert (found[b"earlier"], found[b"later"]) == (0, 0)


@pytest.mark.parametrize("then", ["COMMIT", "ABORT", "UNSUBSCRIBE"])
def test_a_message_sent_on_and_then_acknowledged_in_one_read_is_not_lost(then: str) -> None:
    """What comes behind the acknowledgement has it settled within the read, when it is not known yet who waits."""
    work = Work(SimFiles(1), 1)
    named = {"id": "more", "transaction": "empty"}
    _say(work.other, "BEGIN", named)
    _say(work.other, "SUBSCRIBE", {**named, "destination": "/queue/there"})
    work._turn()
    _begun(work)
    message = work.acks.pop(0)
    sent = frame("SEND", {"destination": "/queue/made", "persistent": "true"}, b"sent on")
    read = sent + frame("ACK", {"id": message.headers["ack"]}) + frame(then, named)
    work.other._tell(lambda: work.other.session.receive_data(read))
    work.broker.tick.touch(work.other)
    for _ in range(3):
        work._turn()
    assert work.broker.engine.journal.held
    work.broker.files.crash()
    found = everything(SimBroker(_CONFIG, files=work.broker.files, seed=2))
    assert (found[b"sent on"], found[message.body]) == (0, 1)


def test_a_qos_2_message_that_is_sent_meanwhile_is_stored_once() -> None:
    """It is stored in one entry with its packet identifier, else the client would send it again after a crash."""
    work = Work(SimFiles(1), 1)
    clients = [MqttClient(auto=False), MqttClient(auto=False)]
    lasting = [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]
    for name, client in zip(("subscriber", "publisher"), clients, strict=True):
        client.over(SimCarrier(work.broker))
        client.connect(greeting(name, clean=False, properties=lasting))
    subscriber, publisher = clients
    subscriber.subscribe("there/#", qos=2)
    _begun(work)
    work.broker.run = lambda: None  # type: ignore[method-assign]
    number = publisher.publish("there/x", b"once", 2)
    for _ in range(4):
        work._turn()
    assert work.broker.engine.journal.held
    work.broker.files.crash()
    broker = SimBroker(_CONFIG, files=work.broker.files, seed=2)
    again = MqttClient(auto=False)
    again.over(SimCarrier(broker))
    again.connect(greeting("publisher", clean=False, properties=lasting))
    again.publish("there/x", b"once", 2, packet_id=number, dup=True)
    broker.run()
    assert everything(broker)[b"once"] == 1
