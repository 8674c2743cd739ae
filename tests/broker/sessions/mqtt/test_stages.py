"""What happens while a session with many subscriptions returns, leaves or ends, in steps: all of it, in each stage."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Final

import pytest

from broker.sessions.mqtt.client_session import ENDS_TOGETHER, STAGES, ClientSession, Stage
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL
from tests.broker.security.verbs import restrict
from tests.broker.sessions.mqtt.harness import carrier, guarded, queues
from tests.support.mqtt_client import MqttClient, greeting, wish
from tests.support.mqtt_world import SimWorld

FILTERS: Final = ENDS_TOGETHER + 4
EXPIRY_S: Final = 100

#: Ticks of a stage before something happens: some subscriptions have had their turn, others have not.
TICKS: Final = FILTERS // 2

#: The subscriptions whose queues are deleted, or which the client may not read any more: the first and the last.
ENDS: Final = (1, FILTERS - 1)


class Crash(Exception):
    """The broker's power is lost."""


class Scene:
    """A client with a subscription of each QoS in turn, and what happens in a certain stage of its session."""

    def __init__(self) -> None:
        self.sim = SimWorld(guarded())
        self.clients: list[MqttClient] = []
        self.watcher = self.sim.subscriber("watcher", "will", qos=1, clean=False, expiry=1_000)
        self.producer = self.sim.connect("producer")

    def reconnect(self) -> None:
        """Connect the others again."""
        self.clients.clear()
        self.watcher = self.sim.connect("watcher", clean=False, expiry=1_000)
        self.producer = self.sim.connect("producer")

    @property
    def session(self) -> ClientSession | None:
        return self.sim.broker.accepting.mqtt_sessions.get("c")

    def connect(self, *, clean: bool = False, auto: bool = True) -> MqttClient:
        will = Will("will", b"gone", 1)
        client = self.sim.connect("c", clean=clean, expiry=EXPIRY_S, will=will, auto=auto)
        self.clients.append(client)
        return client

    def publish(self, payload: bytes) -> None:
        """Publish a durable message on each topic; the broker has got them when it works next."""
        codec = self.producer.codec
        for number in range(FILTERS):
            codec.send_publish(PublishHead(codec.version, f"t/{number}", qos=1), [payload], [number + 1])
        self.send(self.producer)

    def send(self, client: MqttClient) -> None:
        """Let the broker have what a client has prepared, in the tick that begins."""
        link, data = carrier(client), client.codec.data_to_send()
        link._tell(lambda: link.session.receive_data(data))
        self.sim.broker.tick.touch(link)

    def arrive(self, *, clean: bool) -> None:
        """Another connection of the client sends CONNECT."""
        client = self.sim.stranger()
        client.codec.send(greeting("c", clean=clean, properties=[(SESSION_EXPIRY_INTERVAL, EXPIRY_S)]))
        self.send(client)
        self.clients.append(client)

    def lose(self) -> None:
        """The client's connection is lost."""
        carrier(self.clients[-1]).abort()

    def delete(self) -> None:
        """An operator deletes queues of subscriptions."""
        for number in ENDS:
            queue = queues(self.sim).get(f"c.t.{number}")
            if queue is not None:
                self.sim.broker.engine.delete_queue(queue)

    def forbid(self) -> None:
        """The user may not read some of the topics any more."""
        restrict(self.sim.broker, guarded(*[f"t.{number}" for number in ENDS]))

    def pass_time(self) -> None:
        self.sim.broker.now += 2_000 * EXPIRY_S

    def crash(self) -> None:
        self.sim.broker.write()
        raise Crash

    def during(self, stage: Stage, begin: Callable[[], object], meanwhile: Callable[[], None]) -> None:
        """Begin a stage, and do something in the middle of it."""
        broker, ticks = self.sim.broker, 0
        steps = broker.engine._state.steps
        usual = steps.budget, steps.budget_min
        steps.budget = steps.budget_min = 1  # a step in each tick

        def ticked() -> None:
            nonlocal ticks
            ticks += self.session is not None and self.session.stage is stage
            if ticks == TICKS:
                broker.after_tick = lambda: None
                broker.tick.enter()
                meanwhile()

        broker.after_tick = ticked
        try:
            begin()
            broker.run()
        except Crash:
            self.sim.restart()
        else:
            steps.budget, steps.budget_min = usual
            broker.run()
        assert ticks == TICKS, f"it never was so long in {stage}"

    def received(self) -> Counter[tuple[str, bytes]]:
        """What all connections of the client have got, by topic and payload."""
        found: Counter[tuple[str, bytes]] = Counter()
        for client in self.clients:
            found.update((each.topic, each.payload) for each in client.take())
        return found


def returns(scene: Scene) -> None:
    client = scene.sim.stranger()
    scene.clients.append(client)
    properties = [(SESSION_EXPIRY_INTERVAL, EXPIRY_S)]
    client.connect(greeting("c", clean=False, properties=properties, will=Will("will", b"gone", 1)))


def leaves(scene: Scene) -> None:
    scene.clients[-1].drop()


def ends(scene: Scene) -> None:
    scene.clients[-1].disconnect(4, [(SESSION_EXPIRY_INTERVAL, 0)])


def arrive_twice(scene: Scene) -> None:
    scene.arrive(clean=False)
    scene.arrive(clean=False)


BEGINNINGS: Final = {Stage.RETURNING: returns, Stage.LEAVING: leaves, Stage.ENDING: ends}

EVENTS: Final[dict[str, Callable[[Scene], None]]] = {
    "nothing": lambda scene: None,
    "CONNECT": lambda scene: scene.arrive(clean=False),
    "clean start": lambda scene: scene.arrive(clean=True),
    "two CONNECTs": arrive_twice,
    "connection lost": Scene.lose,
    "message": lambda scene: scene.publish(b"meanwhile"),
    "queue deleted": Scene.delete,
    "permission lost": Scene.forbid,
    "time": Scene.pass_time,
    "restart": Scene.crash,
}

#: What ends the session before the client comes back, beside the stage ENDING.
ENDING_EVENTS: Final = {(Stage.RETURNING, "clean start"), (Stage.LEAVING, "clean start"), (Stage.LEAVING, "time")}

#: How often the will is published in the end: once for each connection that was lost or taken over.
WILLS: Final = {
    (Stage.RETURNING, "nothing"): 0,
    (Stage.RETURNING, "message"): 0,
    (Stage.RETURNING, "queue deleted"): 0,
    (Stage.RETURNING, "permission lost"): 0,
    (Stage.RETURNING, "time"): 0,
}


@pytest.mark.parametrize(("stage", "event"), list(product(BEGINNINGS, EVENTS)))
def test_events_at_each_stage(stage: Stage, event: str) -> None:
    scene = Scene()
    first = scene.connect(auto=False)
    first.subscribe(*[wish(f"t/{number}", number % 3) for number in range(FILTERS)])
    if stage is Stage.RETURNING:
        first.disconnect()
    scene.publish(b"before")
    scene.sim.broker.run()
    scene.during(stage, lambda: BEGINNINGS[stage](scene), lambda: EVENTS[event](scene))
    got = scene.received()
    if event == "restart":
        scene.reconnect()
    wills = len(scene.watcher.payloads())
    last = scene.connect(auto=True)
    assert scene.session is not None
    assert scene.session.stage is Stage.CONNECTED
    assert not scene.sim.broker.engine.ticks.is_working
    survives = stage is not Stage.ENDING and (stage, event) not in ENDING_EVENTS
    assert len(scene.session.subscriptions) == (FILTERS if survives else 0)
    assert len([name for name in queues(scene.sim) if name.startswith("c.")]) == (FILTERS if survives else 0)
    got += scene.received()
    durable = [number for number in range(FILTERS) if number % 3]
    gone = {"queue deleted": ENDS, "permission lost": ENDS}.get(event, ())
    if survives:
        for number in durable:
            if number not in gone:
                assert got[f"t/{number}", b"before"] >= 1, number
                if event == "message":
                    assert got[f"t/{number}", b"meanwhile"] >= 1, number
                if number % 3 == 2:
                    assert got[f"t/{number}", b"before"] == 1 + (stage is Stage.LEAVING), "first sent, then again"
    assert wills == WILLS.get((stage, event), 1)
    scene.publish(b"after")
    scene.sim.broker.run()
    after = {topic for topic, payload in scene.received() if payload == b"after"}
    idle = {f"t/{number}" for number in ENDS} if event == "permission lost" else set()
    assert after == ({f"t/{number}" for number in range(FILTERS)} - idle if survives else set())
    assert not last.closed


def test_the_table_has_a_way_out_of_each_stage() -> None:
    """From each stage but the last one the session can end, and become connected again unless it does."""
    for stage in Stage:
        found = {stage}
        while more := {after for (before, _), after in STAGES.items() if before in found} - found:
            found |= more
        assert Stage.ENDED in found
        assert Stage.CONNECTED in found or stage in (Stage.ENDING, Stage.ENDED)
