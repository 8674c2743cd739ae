"""MQTT clients with sessions that last do everything they may, in any order, over crashes and restarts.

They subscribe, alone and shared, change the QoS, unsubscribe, answer when they like, come and go, take over from
themselves.  What each is owed is noted, and in the end, when all have come back and answered everything:

- a subscription of QoS 1 or 2 has got every message since it was made, a shared one as a whole; one that was lowered to
  QoS 0 has got those before;
- what was received with QoS 2 was received once, of a shared subscription by one client;
- a packet id of QoS 2 stood for one message until that was released, and every one was;
- nothing is on a queue, nothing is in flight, and the journal's accounts agree.

Each delivery tells by its subscription identifier which filter it is for.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from random import Random
from typing import Final

import pytest

from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import RECEIVE_MAXIMUM, SESSION_EXPIRY_INTERVAL, SUBSCRIPTION_IDENTIFIER
from tests.simulation.world import SCALE, check_accounts, check_counters, small
from tests.support.mqtt_client import MqttClient, greeting, wish
from tests.support.mqtt_world import FOR_EVER, SimCarrier
from tests.support.sim_broker import SimBroker

P = PacketType

#: What clients do in one run, one thing after the other.
STEPS: Final = 150

TOPICS: Final = ("t/0", "t/1", "t/2")

#: Topic filters and the topics that they match.
FILTERS: Final = {
    "t/0": TOPICS[:1],
    "t/1": TOPICS[1:2],
    "t/+": TOPICS,
    "#": TOPICS,
    "$share/g/t/0": TOPICS[:1],
    "$share/g/t/+": TOPICS,
    "$share/h/t/+": TOPICS,
}
_NAMED: Final = dict(enumerate(FILTERS, 1))


class Client:
    """One client, over all its connections.

    `since`: how many messages there were when it subscribed, by filter; `before`: that, and how many there were when
    the filter got QoS 0.  `once`: what all clients received with QoS 2, by the client's name or that of the share.
    """

    def __init__(self, name: str, once: Counter[tuple[str, str, bytes]]) -> None:
        self.name = name
        self.once = once
        self.wire: MqttClient | None = None
        self.qos: dict[str, int] = {}
        self.since: dict[str, int] = {}
        self.got: dict[str, Counter[bytes]] = defaultdict(Counter)
        self.before: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.owed: dict[int, bytes] = {}  # what is received with QoS 2 and not released, by packet id

    @property
    def here(self) -> bool:
        return self.wire is not None and not self.wire.closed

    def connect(self, broker: SimBroker, receive_maximum: int) -> None:
        """Come, or come again."""
        wire = MqttClient(auto=False)
        wire.over(SimCarrier(broker))
        pairs = [(SESSION_EXPIRY_INTERVAL, FOR_EVER), (RECEIVE_MAXIMUM, receive_maximum)]
        wire.connect(greeting(self.name, clean=False, properties=pairs))
        assert wire.present or not self.qos, f"the session of {self.name} is gone"
        if self.wire is not None:
            self.wire.settle()
            assert self.wire.closed
        self.wire = wire

    def answer(self) -> bool:
        """Take one packet; whether there was one."""
        wire = self.wire
        assert wire is not None
        wire.settle()
        if wire.answers:
            [packet_id] = wire.answers.pop(0).packet_ids
            self.owed.pop(packet_id, None)
            wire.ack(P.PUBCOMP, packet_id)
            return True
        if not wire.arrived:
            return False
        message = wire.arrived.pop(0)
        [identifier] = message.properties.get_all(SUBSCRIPTION_IDENTIFIER)
        filter = _NAMED[identifier]
        if self.owed.get(message.packet_id, message.payload) != message.payload:
            raise AssertionError(f"{self.name} would take packet {message.packet_id} for another one")
        if message.qos < 2 or message.packet_id not in self.owed:
            self.got[filter][message.payload] += 1
            if message.qos == 2:
                self.owed[message.packet_id] = message.payload
                self.once["" if filter.startswith("$share") else self.name, filter, message.payload] += 1
        if message.qos:
            wire.ack(P.PUBACK if message.qos == 1 else P.PUBREC, message.packet_id)
        return True


class Run:
    """A broker and its clients, from one seed."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.broker = SimBroker(small(segment_bytes=16 << 10), seed=seed)
        self.once: Counter[tuple[str, str, bytes]] = Counter()
        self.clients = [Client(f"c{number}", self.once) for number in range(3)]
        self.sent: list[tuple[str, bytes]] = []
        self.shared_since: dict[str, int] = {}
        self.publisher: MqttClient | None = None

    def step(self) -> None:
        """One client does one thing."""
        client = self.chance.choice(self.clients)
        if not client.here:
            if self.chance.random() < 0.6:
                client.connect(self.broker, self.chance.choice((1, 2, 3, 10)))
            return
        doings = {
            self.come_again: 4,
            self.leave: 8,
            self.subscribe: 13,
            self.unsubscribe: 6,
            self.restart: 3,
            self.publish: 26,
            self.answer: 40,
        }
        [do] = self.chance.choices(list(doings), list(doings.values()))
        do(client)

    def come_again(self, client: Client) -> None:
        client.connect(self.broker, self.chance.choice((1, 2, 3, 10)))

    def leave(self, client: Client) -> None:
        assert client.wire is not None
        if self.chance.random() < 0.3:
            client.wire.disconnect()
        else:
            client.wire.drop()

    def subscribe(self, client: Client) -> None:
        assert client.wire is not None
        filter, qos = self.chance.choice(list(FILTERS)), self.chance.choice((0, 1, 1, 2, 2))
        identifier = list(FILTERS).index(filter) + 1
        assert client.wire.subscribe(wish(filter, qos), identifier=identifier) == [qos]
        if not qos or not client.qos.get(filter):
            if client.qos.get(filter):
                client.before[filter].append((client.since[filter], len(self.sent)))
            client.since[filter] = len(self.sent)
        client.qos[filter] = qos
        self.look_at_share(filter)

    def unsubscribe(self, client: Client) -> None:
        if client.qos:
            assert client.wire is not None
            filter = self.chance.choice(list(client.qos))
            assert client.wire.unsubscribe(filter) == [0]
            del client.qos[filter], client.since[filter]
            client.before.pop(filter, None)
            self.look_at_share(filter)

    def look_at_share(self, filter: str) -> None:
        """Since when a shared subscription is owed everything: a member of QoS 0 may lose it."""
        members = [client.qos[filter] for client in self.clients if filter in client.qos]
        if not filter.startswith("$share") or not members or 0 in members:
            self.shared_since.pop(filter, None)
        else:
            self.shared_since.setdefault(filter, len(self.sent))

    def restart(self, client: Client) -> None:
        self.broker = self.broker.restart(crash=self.chance.random() < 0.6)
        self.publisher = None
        for one in self.clients:
            one.wire = None

    def publish(self, client: Client) -> None:
        if self.publisher is None:
            self.publisher = MqttClient()
            self.publisher.over(SimCarrier(self.broker)).connect(greeting("publisher"))
        for _ in range(self.chance.choice((1, 1, 4))):
            topic, payload = self.chance.choice(TOPICS), b"%d" % len(self.sent)
            self.publisher.publish(topic, payload, self.chance.choice((1, 2)))
            self.sent.append((topic, payload))

    def answer(self, client: Client) -> bool:
        """Take some packets; whether there were any."""
        return any([client.answer() for _ in range(self.chance.choice((1, 2, 5)))])

    def finish(self) -> None:
        """All come back and answer everything."""
        for client in self.clients:
            client.connect(self.broker, 10)
        while any([self.answer(client) for client in self.clients]):
            pass
        assert max(self.once.values(), default=0) <= 1, "received with QoS 2 more than once"
        for client in self.clients:
            assert client.owed == {}, client.name
            for filter, qos in client.qos.items():
                owed = [*client.before[filter], *([(client.since[filter], len(self.sent))] if qos else [])]
                for since, until in [] if filter.startswith("$share") else owed:
                    assert self.missing(filter, since, until, [client]) == [], (client.name, filter)
        for filter, since in self.shared_since.items():
            assert self.missing(filter, since, len(self.sent), self.clients) == [], filter
        for session in self.broker.engine.sessions.all():
            assert not any([list(session.current()), session.released, session.received]), session.name
        assert not any(queue.message_count for queue in self.broker.engine.queues.values())
        check_counters(self.broker)
        check_accounts(self.broker)

    def missing(self, filter: str, since: int, until: int, clients: list[Client]) -> list[bytes]:
        """What none of these has got of what matches."""
        owed = [payload for topic, payload in self.sent[since:until] if topic in FILTERS[filter]]
        return [payload for payload in owed if not any(client.got[filter][payload] for client in clients)]


@pytest.mark.parametrize("seed", range(20 * SCALE))
def test_whatever_clients_do(seed: int) -> None:
    run = Run(seed)
    for _ in range(STEPS):
        run.step()
    run.finish()
    assert run.broker.failure is None
