"""The power goes, or the disk fails, at every operation while MQTT clients publish and receive with QoS 1 and 2.

A publisher and a subscriber speak to the broker through the codec, a packet at a time, so that every step of the four
exchanges is on its way at some operation.  Both know of a connection that ended what a client has to know, and go on
with the next broker.  In the end: of what was published each message has arrived, those of QoS 2 once, first arrivals
in their order; the sessions have nothing in flight; nothing is on a queue; and the journal's accounts agree.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from copy import copy
from functools import cache
from typing import Final, Self

import pytest

from broker.config import Config
from protocols.mqtt.codes import V5, V311, PacketType, ReasonCode
from protocols.mqtt.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL
from store.errors import JournalError
from tests.simulation.world import SCALE, check_accounts, held, small
from tests.support.links import Lost
from tests.support.mqtt_client import MqttClient, Pairs, greeting
from tests.support.mqtt_world import FOR_EVER, SimCarrier
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import Crash, Fault, SimFiles, power_cuts

P = PacketType

#: Each operation is tried with so many disks that lose different things.
DISKS: Final = SCALE

#: What is published, by topic and QoS, each in its order.
MESSAGES: Final = [(f"a/{qos}", b"%d of QoS %d" % (n, qos), qos) for n in range(6) for qos in (1, 2)]

#: Messages that a client has under way at once.
WINDOW: Final = 3


def config() -> Config:
    return small(segment_bytes=4 << 10)


class Ended(Exception):
    """The connection is over: the broker has hung up, or its disk is gone."""


class Peer:
    """A client as it is without a connection: what it must remember (4.1)."""

    def __init__(self, client_id: str, version: int, properties: Pairs = ()) -> None:
        self.client_id = client_id
        self.version = version
        self.properties = properties
        self.client: MqttClient

    def copy(self) -> Self:
        """As it is now, without its connection."""
        other = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, deque | dict | list | set):
                setattr(other, name, value.copy())
        return other

    def connect(self, broker: SimBroker) -> bool:
        """Come back; whether the broker has kept the session.  Raises Ended."""
        self.client = client = MqttClient(auto=False)
        client.over(SimCarrier(broker))
        pairs = [(SESSION_EXPIRY_INTERVAL, FOR_EVER), *self.properties] if self.version == V5 else ()
        client.connect(greeting(self.client_id, version=self.version, clean=False, properties=pairs))
        self.alive()
        assert client.code == 0
        return client.present

    def alive(self) -> None:
        """Raises Ended."""
        if self.client.closed or self.client.connack is None:
            raise Ended

    def ack(self, type: PacketType, packet_id: int) -> None:
        self.client.ack(type, packet_id)
        self.alive()


class Publisher(Peer):
    """Sends the messages, some at once."""

    def __init__(self, version: int) -> None:
        super().__init__("publisher", version)
        self.waiting = deque(enumerate(MESSAGES, 1))
        self.unanswered: dict[int, tuple[str, bytes, int]] = {}
        self.released: list[int] = []

    def begin(self, broker: SimBroker) -> None:
        """Everything that has no answer goes out again [MQTT-4.4.0-1]."""
        present = self.connect(broker)
        assert present or not self.released, "a PUBREC came, and the session is gone"
        for packet_id, message in list(self.unanswered.items()):
            self.publish(packet_id, message, dup=True)
        for packet_id in self.released:
            self.ack(P.PUBREL, packet_id)

    def publish(self, packet_id: int, message: tuple[str, bytes, int], *, dup: bool = False) -> None:
        topic, payload, qos = message
        self.unanswered[packet_id] = message
        self.client.publish(topic, payload, qos, dup=dup, packet_id=packet_id)
        self.alive()

    def step(self) -> bool:
        """Answer what has come, or else publish; whether there was something to do."""
        client = self.client
        client.settle()
        if client.answers:
            answer = client.answers.pop(0)
            [packet_id] = answer.packet_ids
            if answer.type is P.PUBCOMP:  # 0x92: the one before it was lost on the way
                assert answer.reason_code in (0, ReasonCode.PACKET_IDENTIFIER_NOT_FOUND)
                self.released.remove(packet_id)
                return True
            assert answer.reason_code == 0, answer
            message = self.unanswered.pop(packet_id)
            assert answer.type is (P.PUBACK if message[2] == 1 else P.PUBREC)
            if answer.type is P.PUBREC:
                self.released.append(packet_id)
                self.ack(P.PUBREL, packet_id)
            return True
        if self.waiting and len(self.unanswered) + len(self.released) < WINDOW:
            packet_id, message = self.waiting.popleft()
            self.publish(packet_id, message)
            return True
        self.alive()
        return False


class Subscriber(Peer):
    """Receives, and knows what of QoS 2 it has and has not released."""

    def __init__(self, version: int) -> None:
        super().__init__("subscriber", version, [(RECEIVE_MAXIMUM, WINDOW)])
        self.subscribed = False
        self.owed: set[int] = set()
        self.arrived: list[tuple[str, bytes]] = []

    def begin(self, broker: SimBroker) -> None:
        present = self.connect(broker)
        assert present or not self.subscribed, "SUBACK came, and the session is gone"
        if not self.subscribed:
            assert self.client.subscribe("a/1", "a/2", qos=2) == [2, 2]
            self.alive()
            self.subscribed = True

    def step(self) -> bool:
        """Answer one packet; whether there was one."""
        client = self.client
        client.settle()
        if client.answers:
            answer = client.answers.pop(0)
            assert (answer.type, answer.reason_code) == (P.PUBREL, 0)
            self.owed.discard(answer.packet_ids[0])
            self.ack(P.PUBCOMP, answer.packet_ids[0])
            return True
        if client.arrived:
            message = client.arrived.pop(0)
            assert message.topic == f"a/{message.qos}"
            if message.qos == 1 or message.packet_id not in self.owed:
                self.arrived.append((message.topic, message.payload))
            if message.qos == 2:
                self.owed.add(message.packet_id)
            self.ack(P.PUBACK if message.qos == 1 else P.PUBREC, message.packet_id)
            return True
        self.alive()
        return False


class Pair:
    """Both clients, over as many brokers as it takes."""

    def __init__(self, version: int) -> None:
        self.publisher = Publisher(version)
        self.subscriber = Subscriber(version)

    def copy(self) -> Pair:
        """As they are now, without their connections."""
        other = copy(self)
        other.publisher, other.subscriber = self.publisher.copy(), self.subscriber.copy()
        return other

    def go(self, files: SimFiles, seed: int) -> SimBroker | None:
        """Start a broker, and go on with it to the end: the broker then, or None if it did not live so long."""
        with suppress(Crash, JournalError, Ended, Lost):
            broker = SimBroker(config(), files=files, seed=seed)
            self.subscriber.begin(broker)
            self.publisher.begin(broker)
            while self.subscriber.step() or self.publisher.step():
                pass
            if broker.confirms:
                return broker
        return None

    def check(self, broker: SimBroker) -> None:
        """Nothing is lost, nothing of QoS 2 came twice, nothing is left."""
        for topic in ("a/1", "a/2"):
            arrived = [payload for at, payload in self.subscriber.arrived if at == topic]
            firsts = list(dict.fromkeys(arrived))
            assert firsts == [payload for at, payload, _ in MESSAGES if at == topic]
            assert topic == "a/1" or arrived == firsts, "a message of QoS 2 came twice"
        assert not self.subscriber.owed
        assert not self.publisher.unanswered
        assert not self.publisher.released
        for session in broker.engine.sessions.all():
            assert not any([list(session.current()), session.released, session.received]), session.name
        assert held(broker, "subscriber.a.1") == held(broker, "subscriber.a.2") == []


@cache
def operations(version: int, fault: Fault) -> list[int]:
    """The disk operations that it takes without faults, and that such a fault can hit."""
    files = SimFiles(1)
    pair = Pair(version)
    broker = pair.go(files, 0)
    assert broker is not None
    hit = files.hit_by(fault)
    pair.check(broker)
    check_accounts(broker)
    return hit


@pytest.mark.parametrize("disk", range(DISKS))
@pytest.mark.parametrize("version", [V311, V5])
def test_crash_at_every_operation(version: int, disk: int) -> None:
    """Every second time the next broker loses power too, somewhere on its way."""
    running, first = SimFiles(disk), Pair(version)
    with power_cuts(running, first.copy) as moments:
        assert first.go(running, 0) is not None
    for at, (before, pair) in enumerate(moments):
        files = before.fork(disk * 1_000_003 + at)
        files.crash()
        if at % 2:
            files.plan(files.random.randint(1, len(moments)), Fault.CRASH)
        broker = pair.go(files, 1)
        if broker is None:
            files.crash()
            broker = pair.go(files, 2)
        assert broker is not None
        pair.check(broker)
        if at % 8 == 0:
            check_accounts(broker)


@pytest.mark.parametrize("fault", [Fault.EIO, Fault.ENOSPC])
def test_a_disk_that_fails_at_every_operation(fault: Fault) -> None:
    for at in operations(V5, fault)[::3]:
        files = SimFiles(at)
        pair = Pair(V5)
        files.plan(at, fault, sticky=True)
        assert pair.go(files, 0) is None
        files.heal()
        files.crash()
        broker = pair.go(files, 1)
        assert broker is not None
        pair.check(broker)
