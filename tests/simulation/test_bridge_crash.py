"""An MQTT bridge whose connection breaks and whose brokers crash, at random: every message is counted.

QoS 1: what was confirmed arrives at least once.  QoS 2: exactly once, and what was not confirmed at most once.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from broker.sessions.links.model import State
from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.broker.sessions.links.bridges import client
from tests.simulation.world import SCALE, held
from tests.support.mqtt_world import FOR_EVER, small
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

STEPS = 60


class Pair:
    """Two brokers, the bridge of the first, and what was published at either."""

    def __init__(self, qos: int, seed: int) -> None:
        self.qos = qos
        self.random = Random(seed)
        routes = {
            "out": {"topic": "out/#", "direction": "out", "qos": qos},
            "in": {"topic": "in/#", "direction": "in", "qos": qos},
            "both": {"topic": "both/#", "direction": "both", "qos": qos, "remote-prefix": "a/"},
        }
        self.config = small(linked(url="mqtt://b:1883", mqtt=routes, window=self.random.choice((2, 7, 1_000))))
        self.a = SimBroker(self.config, seed=seed)
        self.b = SimBroker(small(configured()), seed=seed)
        self.links = SimLinks(self.a, {"b": self.b})
        self.confirmed: dict[bytes, str] = {}  # the topics of messages
        self.number = 0
        for broker, filters in ((self.a, ("in/#", "both/#")), (self.b, ("out/#", "a/both/#"))):
            properties = [(SESSION_EXPIRY_INTERVAL, FOR_EVER)]
            client(broker, "collector", *filters, qos=2, clean=False, properties=properties).drop()
        self.links.run()

    def publish(self) -> None:
        """Some messages at one of the brokers; those that it confirms count."""
        broker, topics = self.random.choice(((self.a, ("out/x", "both/x")), (self.b, ("in/x", "a/both/x"))))
        sender = client(broker, "sender")
        sent = {}
        for _ in range(self.random.randint(1, 5)):
            self.number += 1
            body = b"%d" % self.number
            topic = self.random.choice(topics)
            sent[sender.publish(topic, body, self.qos)] = body, topic
        answer = PacketType.PUBACK if self.qos == 1 else PacketType.PUBREC
        self.confirmed.update([sent[packet_id] for packet_id, _ in sender.replies(answer)])
        sender.drop()

    def carry(self) -> None:
        """Some of what is on its way arrives."""
        wire = self.links.wires.get("b")
        if wire is not None and not wire.holding:
            wire.carry()
        self.a.run()
        self.b.run()

    def cut(self) -> None:
        """The connection breaks, and what was on its way is lost."""
        if "b" in self.links.wires:
            self.links.cut()

    def hold(self) -> None:
        """A disk does nothing from now on: what is published is not durable."""
        self.random.choice((self.a, self.b)).hold_disk()

    def catch_up(self) -> None:
        """The disks do what they have been given."""
        self.a.release_disk()
        self.b.release_disk()
        self.links.advance(1_000)

    def crash_here(self) -> None:
        """This broker dies and comes back."""
        for wire in list(self.links.wires.values()):
            wire.peer.abort()
        self.b.run()
        self.a = self.a.restart()
        self.links = SimLinks(self.a, {"b": self.b})

    def crash_there(self) -> None:
        """The other one does."""
        self.b.files.crash()
        for wire in list(self.links.wires.values()):
            wire.peer.closed = True  # the dead broker is told nothing
            wire.cut()
        self.b = SimBroker(self.b.config, files=self.b.files, seed=self.b.seed + 1, now=self.b.now)
        self.links.others["b"] = self.b

    def settle(self) -> dict[str, Counter[bytes]]:
        """All that has arrived in the end, at each of them."""
        self.catch_up()
        for _ in range(3):
            self.links.advance(35_000)
        assert self.links.link().status is State.RUNNING
        assert [held(self.a, f"link.b.{name}") for name in ("out", "both")] == [[], []]
        at_a = Counter(held(self.a, "collector.in.#") + held(self.a, "collector.both.#"))
        return {"a": at_a, "b": Counter(held(self.b, "collector.out.#") + held(self.b, "collector.a.both.#"))}


#: Where a message on each topic has to arrive: where it is published, if anywhere there, comes first.
TARGETS = {"out/x": "b", "both/x": "ab", "in/x": "a", "a/both/x": "ba"}


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("seed", range(8 * SCALE))
def test_whatever_breaks(qos: int, seed: int) -> None:
    pair = Pair(qos, seed)
    steps = [pair.publish] * 8 + [pair.carry] * 6 + [pair.cut] * 2 + [pair.hold, pair.catch_up]
    steps += [pair.crash_here, pair.crash_there]
    for _ in range(STEPS):
        pair.random.choice(steps)()
    found = pair.settle()
    assert pair.confirmed, "some were published"
    for body, topic in pair.confirmed.items():
        for at in TARGETS[topic]:
            assert found[at][body] == 1 or (qos == 1 and found[at][body] > 1), (body, topic, at)
    if qos == 2:
        assert max(max(arrived.values()) for arrived in found.values()) == 1, "none is doubled"
