"""Wills and ids of subscriptions are charged to the broker's memory, refused beyond their part of it, and discharged
whatever way they go.
"""

from __future__ import annotations

from random import Random
from typing import Any, Final

import pytest

from broker.engine.queues.room import SCHEDULED_BYTES
from broker.engine.queues.uncommitted import MEMORY_PART
from broker.sessions.mqtt import will as wills
from broker.sessions.mqtt.client_session import ID_BYTES
from protocols.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from protocols.amqp.performatives import Source, Target
from protocols.mqtt.codes import V5, V311
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import SESSION_EXPIRY_INTERVAL, WILL_DELAY_INTERVAL, Properties
from tests.broker.security.verbs import SMALL
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimClient, configured

MEMORY: Final = 1 << 20
POOL: Final = MEMORY // MEMORY_PART
USERS: Final = {"alice": "right", "bob": "right"}

EXPIRY_S: Final = 50
LONG_ID: Final = "x" * 2_000


def world(memory: int = MEMORY) -> SimWorld:
    """A broker with so much memory for messages."""
    config = configured(journal=SMALL)
    limited = config.model_copy(update={"broker": config.broker.model_copy(update={"global_max_size": memory})})
    return SimWorld(limited, users=USERS)


def will(nbytes: int = 100, *, delay: int = 0) -> Will:
    """A will of so many bytes."""
    return Will("will", b"x" * nbytes, 1, False, Properties([(WILL_DELAY_INTERVAL, delay)] if delay else []))


def held(sim: SimWorld) -> int:
    """What is charged for clients."""
    return sim.broker.engine.usage.clients_bytes


def login(sim: SimWorld, name: str, user: str = "alice", **more: Any) -> MqttClient:
    """A client's CONNECT, whatever the answer."""
    return sim.attempt(greeting(name, user_name=user, password=b"right", **more))


@pytest.mark.parametrize(("version", "refusal"), [(V5, 0x97), (V311, 3)])
def test_wills_have_a_limit(version: int, refusal: int) -> None:
    sim = world()
    taken = 0
    while (client := login(sim, f"c{taken}", version=version, will=will(5_000))).code == 0:
        taken += 1
    assert client.code == refusal
    assert held(sim) == taken * wills.memory_of(will(5_000)) <= POOL
    assert login(sim, "without").code == 0
    assert login(sim, "other", "bob", will=will(5_000)).code == 0, "bob holds less than his share"
    sim.restart()
    assert held(sim) == 0, "their sessions have ended, and the wills are published"


def test_a_session_whose_new_will_is_refused_keeps_its_own() -> None:
    sim = world()
    properties = [(SESSION_EXPIRY_INTERVAL, EXPIRY_S)]
    login(sim, "c", properties=properties, will=will(delay=2 * EXPIRY_S)).drop()
    number = 0
    while login(sim, f"c{number}", will=will(5_000)).code == 0:
        number += 1
    before = held(sim)
    watcher = sim.subscriber("watcher", "will", user_name="bob", password=b"right")
    assert login(sim, "c", clean=False, properties=properties, will=will(6_000)).code == 0x97
    assert held(sim) == before
    sim.advance(2 * EXPIRY_S)
    assert [len(payload) for payload in watcher.payloads()].count(100) == 1


def test_ids_of_subscriptions_have_a_limit() -> None:
    sim = world()
    client = sim.broker.connect(login="alice", passcode="right")
    taken = 0
    while not client.take("ERROR"):
        client.subscribe("/topic/t", f"{taken}{LONG_ID}")
        taken += 1
    assert held(sim) == 0, "the connection has ended"
    assert taken * 2 * len(LONG_ID) >= POOL - 2 * len(LONG_ID)


def test_names_of_links_have_a_limit() -> None:
    sim = world()
    client = AmqpSim(sim.broker, login=("alice", "right"))
    client.sender("q", name="x")
    before = held(sim)
    assert before < 1_000
    link = client.sender("q", name=LONG_ID)
    assert held(sim) - before >= 2 * len(LONG_ID)
    client.detach(link)
    assert held(sim) == before
    taken = 0
    while not client.closed:
        client.ses.new_sender(f"{taken}{LONG_ID}").send_attach(source=Source("me"), target=Target("q"))
        client.say()
        taken += 1
    assert client.closing.condition == RESOURCE_LIMIT_EXCEEDED
    assert held(sim) == 0, "the connection has ended"
    assert POOL * 9 // 10 <= taken * 2 * len(LONG_ID) <= POOL


def test_a_browser_and_what_is_refused_leave_nothing() -> None:
    sim = world()
    client = sim.broker.connect(login="alice", passcode="right")
    client.subscribe("/queue/q", LONG_ID, browser="true")
    assert held(sim) == 2 * len(LONG_ID)
    client.do("UNSUBSCRIBE", {"id": LONG_ID})
    assert held(sim) == 0
    client.subscribe("/queue/q", LONG_ID, selector="a = ")
    assert client.take("ERROR")
    assert held(sim) == 0


@pytest.mark.parametrize("lasting", [False, True])
def test_packet_identifiers_of_unfinished_messages_have_a_limit(lasting: bool) -> None:
    """Before MQTT 5 a session may hold 65,535 of them, and a client may have many sessions."""
    sim = world(1 << 18)
    most = (1 << 18) // MEMORY_PART // ID_BYTES
    taken = 0
    for number in range(most // 100 + 1):
        client = login(sim, f"c{number}", version=V311, clean=not lasting)
        client.auto = False
        for _ in range(100):
            client.publish("t", b"", qos=2)
            taken += not client.closed
    assert most - 1 <= taken <= most
    last = client
    assert last.closed
    assert held(sim) <= (1 << 18) // MEMORY_PART
    other = login(sim, "other", "bob", version=V311)
    other.publish("t", b"", qos=2)
    assert not other.closed, "bob holds less than his share"
    if lasting:
        before = held(sim)
        sim.restart()
        assert abs(held(sim) - before) <= 2 * ID_BYTES
        for number in range(most // 100 + 1):
            login(sim, f"c{number}", version=V311)
        assert held(sim) == 0


def test_what_was_stored_is_held_again_after_a_restart() -> None:
    sim = world()
    properties = [(SESSION_EXPIRY_INTERVAL, EXPIRY_S)]
    for number in range(3):
        login(sim, f"c{number}", properties=properties, will=will(5_000, delay=EXPIRY_S)).drop()
    before = held(sim)
    assert before == 3 * wills.memory_of(will(5_000, delay=EXPIRY_S))
    sim.restart()
    assert held(sim) == before
    sim.advance(2 * EXPIRY_S)
    assert held(sim) == 0


def test_times_of_delayed_messages_are_charged() -> None:
    sim = world()
    producer = sim.broker.connect(login="alice", passcode="right")
    usage = sim.broker.engine.usage
    for _ in range(10):
        producer.send("/queue/q", b"x", **{"AMQ_SCHEDULED_DELAY": "1000"})
    assert usage.scheduled_bytes == 10 * SCHEDULED_BYTES
    assert not usage.fits(MEMORY - usage.bytes - 9 * SCHEDULED_BYTES)
    sim.advance(2)
    assert usage.scheduled_bytes == 0


class Clients:
    """Clients of both protocols, which do something at random; `ids` of the subscriptions of each of STOMP."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sim = world(1 << 26)
        self.there: dict[str, MqttClient] = {}
        self.ids: dict[SimClient, dict[str, None]] = {}

    def connect(self) -> None:
        random = self.random
        left = will(random.randrange(3_000), delay=random.choice((0, 10, 100))) if random.random() < 0.7 else None
        properties = [(SESSION_EXPIRY_INTERVAL, random.choice((0, EXPIRY_S)))]
        name, clean = f"c{random.randrange(4)}", random.random() < 0.3
        user = random.choice(("alice", "bob"))
        self.there[name] = login(self.sim, name, user, clean=clean, properties=properties, will=left)

    def leave(self) -> None:
        if self.there:
            client = self.there.pop(self.random.choice(list(self.there)))
            if not client.closed:
                self.random.choice((client.drop, client.disconnect, lambda: client.disconnect(4)))()

    def stomp_connect(self) -> None:
        self.ids[self.sim.broker.connect(login=self.random.choice(("alice", "bob")), passcode="right")] = {}

    def subscribe(self) -> None:
        if self.ids:
            client, id = self.random.choice(list(self.ids)), "x" * self.random.randrange(1, 3_000)
            if id not in self.ids[client]:
                client.subscribe("/topic/t", id)
                self.ids[client][id] = None

    def unsubscribe(self) -> None:
        found = [client for client, ids in self.ids.items() if ids]
        if found:
            client = self.random.choice(found)
            id, _ = self.ids[client].popitem()
            client.do("UNSUBSCRIBE", {"id": id})

    def stomp_leave(self) -> None:
        if self.ids:
            client = self.random.choice(list(self.ids))
            del self.ids[client]
            self.random.choice((client.drop, lambda: client.do("DISCONNECT", {"receipt": "r"})))()

    def pass_time(self) -> None:
        self.sim.advance(self.random.choice((1, 20, 60)))

    def restart(self) -> None:
        if self.random.random() < 0.2:
            self.sim.restart(crash=self.random.random() < 0.5)
            self.there.clear()
            self.ids.clear()

    @property
    def expected(self) -> int:
        """What is charged for what is there."""
        sessions = self.sim.broker.accepting.mqtt_sessions._sessions.values()
        left = sum(wills.memory_of(session.will) for session in sessions)
        return left + sum(2 * len(id) for ids in self.ids.values() for id in ids)


VERBS: Final = [
    *[Clients.connect] * 6,
    *[Clients.leave] * 3,
    *[Clients.subscribe] * 2,
    Clients.stomp_connect,
    Clients.unsubscribe,
    Clients.stomp_leave,
    Clients.pass_time,
    Clients.restart,
]


@pytest.mark.parametrize("seed", range(6))
def test_all_is_discharged_in_the_end(seed: int) -> None:
    """Whatever clients do, the charges are those of what is there; once everything has ended there are none."""
    clients = Clients(seed)
    for _ in range(150):
        clients.random.choice(VERBS)(clients)
        assert held(clients.sim) == clients.expected, f"seed {seed}"
    while clients.there:
        clients.leave()
    while clients.ids:
        clients.stomp_leave()
    clients.sim.advance(200)
    assert held(clients.sim) == 0, f"seed {seed}"
    assert not clients.sim.broker.engine.client_memory._users
