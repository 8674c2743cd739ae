"""Clients that do anything at all: whatever they send costs them, and nobody else (promise P6).

One simulated broker has innocent clients, who go on between the others' doings.  The others are culprits: what they
send is sensible packets in any order, with packet ids of their own choice, and bytes changed here and there; they come
under the same few client identifiers, take over from each other, leave in the middle, come back to what they have left.
The broker is restarted now and then.  The seed is printed.
"""

from __future__ import annotations

from random import Random

from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.encode import PublishHead, encode, encode_ack
from protocols.mqtt.packets import Ack, Disconnect, Pingreq, Subscribe, Unsubscribe, Will
from protocols.mqtt.properties import (
    MESSAGE_EXPIRY_INTERVAL,
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY_INTERVAL,
    SUBSCRIPTION_IDENTIFIER,
    TOPIC_ALIAS,
    USER_PROPERTY,
    WILL_DELAY_INTERVAL,
    Properties,
)
from tests.support.mqtt_client import MqttClient, Pairs, greeting, topic_filter, wish
from tests.support.mqtt_world import FOR_EVER, SimWorld

P = PacketType
TOPICS = ("a", "a/b", "a/b/c", "b", "", "$x", "a/", "größe", "w")
FILTERS = ("a", "a/+", "a/#", "#", "+/b", "$share/g/a/#", "$share/h/#", "$SYS/#", "b", "w")
NAMES = ("x", "y", "z")

#: What culprits do, one thing after the other; the broker is restarted every 60 of them.
TURNS = 150
ACKS = (P.PUBACK, P.PUBREC, P.PUBREL, P.PUBCOMP)


class Culprit:
    """One connection that makes up what it sends."""

    def __init__(self, chance: Random, client: MqttClient) -> None:
        self.chance = chance
        self.client = client
        self.version = chance.choice((V31, V311, V5))

    def hello(self) -> bytes:
        """A CONNECT, with a session that stays or not, with a will or without."""
        chance = self.chance
        pairs: Pairs = []
        if self.version == V5:
            pairs = [
                (SESSION_EXPIRY_INTERVAL, chance.choice((0, 5, FOR_EVER))),
                (RECEIVE_MAXIMUM, chance.randint(1, 9)),
            ]
        will = None
        if chance.random() < 0.4:
            told = Properties([(WILL_DELAY_INTERVAL, chance.randint(0, 9))]) if self.version == V5 else Properties()
            will = Will(chance.choice(TOPICS[:4]), b"will", chance.randint(0, 2), chance.random() < 0.3, told)
        name, clean = chance.choice(NAMES), chance.random() < 0.3
        connect = greeting(name, version=self.version, clean=clean, will=will, keep_alive=60, properties=pairs)
        return encode(connect, self.version)

    def packet(self) -> bytes:
        """Anything that a client might send."""
        chance = self.chance
        id = chance.randint(1, 12)
        kind = chance.randrange(12)
        if kind < 5:
            return self.publish(id)
        if kind < 8:
            five = self.version == V5 and chance.random() < 0.3
            return encode_ack(Ack(chance.choice(ACKS), [id], 0x80 if five else 0), self.version)
        if kind == 8:
            told = [(SUBSCRIPTION_IDENTIFIER, chance.randint(1, 99))] if self.version == V5 else []
            request = [wish(chance.choice(FILTERS), chance.randint(0, 2)) for _ in range(chance.randint(1, 3))]
            return encode(Subscribe(id, request, Properties(told)), self.version)
        if kind == 9:
            return encode(Unsubscribe(id, [topic_filter(chance.choice(FILTERS))]), self.version)
        if kind == 10 and chance.random() < 0.2:
            return encode(Disconnect(), self.version)
        return encode(Pingreq(), self.version)

    def publish(self, id: int) -> bytes:
        """A PUBLISH, retained or not, expiring or not, with an alias or not."""
        chance = self.chance
        pairs: Pairs = []
        if self.version == V5 and chance.random() < 0.3:
            pairs = chance.sample(
                [(MESSAGE_EXPIRY_INTERVAL, chance.randint(0, 5)), (USER_PROPERTY, ("k", "v")), (TOPIC_ALIAS, id)], 2
            )
        qos = chance.randint(0, 2)
        head = PublishHead(
            self.version,
            chance.choice(TOPICS),
            qos=qos,
            retain=chance.random() < 0.2,
            dup=qos > 0 and chance.random() < 0.3,
            properties=Properties(pairs).raw,
        )
        out: list[bytes] = []
        payloads = [bytes(chance.randint(0, 40)) for _ in range(chance.choice((1, 1, 5)))]
        head.encode(out, payloads, [id + at for at in range(len(payloads))] if qos else [])
        return b"".join(out)

    def act(self) -> None:
        """Send something, in pieces, maybe damaged; maybe leave."""
        chance, client = self.chance, self.client
        raw = bytearray(b"".join(self.packet() for _ in range(chance.randint(1, 6))))
        if chance.random() < 0.15:
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        at = 0
        while at < len(raw) and not client.closed:
            size = chance.randint(1, 60)
            client.link.raw(bytes(raw[at : at + size]))
            client.hear(client.link.poll)
            at += size
        if chance.random() < 0.1:
            client.drop()


class Innocents:
    """A publisher and a subscriber with a session that stays; what they do must not be touched."""

    def __init__(self, sim: SimWorld) -> None:
        self._sim = sim
        self.sent: list[bytes] = []
        self.arrived: list[bytes] = []
        self.come()
        self.subscriber.subscribe("innocent/+", qos=2)

    def come(self) -> None:
        """Connect, also after a restart."""
        self.subscriber = self._sim.connect("innocent-s", clean=False, expiry=FOR_EVER)
        self.publisher = self._sim.connect("innocent-p", clean=False, expiry=FOR_EVER)

    def go_on(self) -> None:
        """Two more messages; whatever was sent has arrived, once and in order of its QoS."""
        for qos in (1, 2):
            body = b"%d" % len(self.sent)
            self.publisher.publish("innocent/t", body, qos)
            self.sent.append(body)
        self.publisher.answers.clear()
        self.arrived += self.subscriber.payloads()
        assert self.arrived == self.sent
        assert not self.subscriber.closed
        assert not self.publisher.closed


def test_culprits_cost_nobody_else_anything() -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    chance = Random(seed)
    sim = SimWorld()
    innocents = Innocents(sim)
    culprits: list[Culprit] = []
    for tick in range(1, TURNS + 1):
        culprits = [one for one in culprits if not one.client.closed]
        if len(culprits) < 3:
            culprit = Culprit(chance, _mute(sim))
            culprits.append(culprit)
            culprit.client.link.raw(culprit.hello())
        chance.choice(culprits).act()
        assert sim.broker.failure is None
        if tick % 10 == 0:
            sim.advance(chance.choice((0, 1, 10)))
            innocents.go_on()
        if tick % 60 == 0:
            sim.restart(crash=chance.random() < 0.5)
            culprits.clear()
            innocents.come()
            innocents.go_on()
    innocents.go_on()


def _mute(sim: SimWorld) -> MqttClient:
    """A client that reads nothing of what it is told."""
    client = sim.stranger()
    client.link.heard = lambda data: None  # type: ignore[method-assign]
    return client
