"""Who may read what over MQTT: temporary destinations of others, filters that cover what is forbidden."""

from __future__ import annotations

from typing import Any

import pytest

from broker.engine.model.access import Identity
from protocols.mqtt.codes import V5, V311
from tests.broker.security.verbs import restrict
from tests.broker.sessions.mqtt.harness import LOGIN, READERS, guarded
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import Connecting, SimCarrier, SimWorld
from tests.support.sim_broker import configured


class OtherAcceptor(Connecting):
    """Clients of a second acceptor, which does not filter subscriptions."""

    def __init__(self, sim: SimWorld) -> None:
        self._sim = sim

    def stranger(self) -> MqttClient:
        """Return a client that has sent nothing."""
        return MqttClient().over(SimCarrier(self._sim.broker, "plain"))


def world(*secret: str, filtered: bool = True) -> SimWorld:
    config = guarded(*secret, filtered=filtered)
    plain = config.acceptors["mqtt"].model_copy(update={"filter_subscriptions": False})
    return SimWorld(config.model_copy(update={"acceptors": {**config.acceptors, "plain": plain}}), users=READERS)


@pytest.mark.parametrize(("version", "refusal"), [(V311, 0x80), (V5, 0x83)])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_the_temporary_destination_of_another_connection(version: int, refusal: int, kind: str) -> None:
    sim = SimWorld(configured())
    sim.broker.subscriber(f"/temp-{kind}/mine")
    (name,) = [name for name in sim.broker.engine.addresses if name.startswith("temporary-")]
    client = sim.connect("c", version=version)
    assert client.subscribe(name) == [refusal]
    if kind == "queue":  # a topic has none that could be named
        assert client.subscribe(f"{name}::{name}") == [refusal]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscription_by_full_name_is_idle_while_the_client_may_not_read_the_queue(qos: int, restart: bool) -> None:
    """It does not become one to the topic of that name, on which the client would wait for ever."""
    sim = world("jobs")
    restrict(sim.broker, guarded())
    sim.broker.connect(login="alice", passcode="right").confirmed("/queue/jobs", b"1")
    again: dict[str, Any] = {"clean": False, "expiry": 100, **LOGIN}
    client = sim.subscriber("c", "jobs::jobs", qos=qos, **again)
    assert client.payloads() == [b"1"]
    restrict(sim.broker, guarded("jobs"))
    client.drop()
    if restart:
        sim.restart()
    sim.broker.connect(login="alice", passcode="right").confirmed("/queue/jobs", b"2")
    sim.connect("c", **again).drop()
    assert not any(name.startswith("c.") for name in sim.broker.engine.queues), "it has no queue of its own"
    restrict(sim.broker, guarded())
    assert sim.connect("c", **again).payloads() == [b"2"]


@pytest.mark.parametrize(("version", "refusal"), [(V311, 0x80), (V5, 0x87)])
def test_a_filter_that_covers_what_is_forbidden_is_refused(version: int, refusal: int) -> None:
    sim = world("secret.#", filtered=False)
    client = sim.connect("c", version=version, **LOGIN)
    assert client.subscribe("#", "+/a", "open/#") == [refusal, refusal, 0]


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("version", [V311, V5])
def test_or_granted_without_that(version: int, qos: int) -> None:
    sim = world("secret.#")
    client = sim.connect("c", version=version, **LOGIN)
    assert client.subscribe("#", qos=qos) == [qos]
    producer = sim.connect("p", **LOGIN)
    for topic in ("secret/a", "open/a", "secret", "open", "$share/x"):
        producer.publish(topic, topic.encode(), qos)
    assert client.payloads() == [b"open/a", b"open"]


def test_a_topic_and_a_shared_subscription_are_refused_all_the_same() -> None:
    sim = world("secret.#")
    client = sim.connect("c", **LOGIN)
    assert client.subscribe("secret/a", "$share/g/#", "$share/g/open/#") == [0x87, 0x87, 0]


def test_retained_messages_that_may_not_be_read() -> None:
    sim = world("secret.#")
    producer = sim.connect("p", **LOGIN)
    for topic in ("secret/a", "open/a"):
        producer.publish(topic, topic.encode(), 1, retain=True)
    client = sim.subscriber("c", "+/a", qos=1, **LOGIN)
    assert client.payloads() == [b"open/a"]


def test_permissions_that_change_count_from_the_next_message_on() -> None:
    sim = world("secret.#")
    client, producer = sim.connect("c", **LOGIN), sim.connect("p", **LOGIN)
    client.subscribe("#", qos=1)
    restrict(sim.broker, guarded("open.#"))
    for topic in ("secret/a", "open/a"):
        producer.publish(topic, topic.encode(), 1)
    assert client.payloads() == [b"secret/a"]
    assert not client.closed


def test_a_session_that_lasts_over_absence_and_restart() -> None:
    sim = world("secret.#")
    again: dict[str, Any] = {"clean": False, "expiry": 100, **LOGIN}
    sim.subscriber("c", "#", qos=1, **again).drop()
    for crash in (False, True):
        producer = sim.connect("p", **LOGIN)
        for topic in ("secret/a", "open/a"):
            producer.publish(topic, topic.encode(), 1)
        if crash:
            sim.restart()
            producer = sim.connect("p", **LOGIN)
            producer.publish("secret/b", b"secret/b", 1)
            producer.publish("open/b", b"open/b", 1)
    client = sim.connect("c", **again)
    assert client.present
    assert client.payloads() == [b"open/a", b"open/a", b"open/b"]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("crash", [False, True])
def test_a_filtered_session_stays_so_where_such_filters_are_refused(crash: bool, qos: int) -> None:
    """Connected through an acceptor without `filter-subscriptions`, it goes on to get what it may read."""
    sim = world("secret.#")
    plain = OtherAcceptor(sim)
    again: dict[str, Any] = {"clean": False, "expiry": 100, **LOGIN}
    sim.subscriber("c", "#", qos=qos, **again).drop()
    client: MqttClient | None = None
    expected: list[bytes] = []
    for count, step in enumerate(("away", "there", "left", "still away", "restarted", "there again", "left again")):
        if step in ("there", "there again"):
            client = plain.connect("c", **again)
        elif step == "restarted":
            sim.restart(crash=crash)
        elif client is not None:
            client.drop()
        producer = sim.connect("p", **LOGIN)
        for topic in ("secret/a", "open/a"):
            producer.publish(topic, b"%s%d" % (topic.encode(), count), 1)
        expected.append(b"open/a%d" % count)
        if step in ("there", "there again") and client is not None:
            assert client.payloads() == expected
            expected.clear()
    assert sim.connect("c", **again).payloads() == expected


@pytest.mark.parametrize("roles", [["amq"], []])
def test_the_roles_of_a_token_hold_over_a_restart(roles: list[str]) -> None:
    """Nobody can look them up; also when they permit nothing any more, what is secret is not kept for the client."""
    sim = world("secret.#")
    again: dict[str, Any] = {"clean": False, "expiry": 100, **LOGIN}
    client = sim.subscriber("c", "#", qos=1, **again)
    session = sim.broker.accepting.mqtt_sessions.get("c")
    assert session is not None
    token = Identity("alice", frozenset(roles), lasting=True)
    session.client.access = sim.broker.engine.security.access(token, "c")
    sim.broker.accepting.mqtt_sessions.note(session)
    client.drop()
    sim.restart()
    producer = sim.connect("p", **LOGIN)
    for topic in ("secret/a", "open/a"):
        producer.publish(topic, topic.encode(), 1)
    assert sim.connect("c", **again).payloads() == [b"open/a"] * len(roles)


def test_another_user_gets_nothing_of_what_the_first_one_may_read() -> None:
    sim = world("secret.#")
    sim.subscriber("c", "#", qos=1, clean=False, expiry=100, **LOGIN).drop()
    sim.connect("p", **LOGIN).publish("open/a", b"x", 1)
    other = sim.connect("c", clean=False, expiry=100, user_name="bob", password=b"right")
    assert other.payloads() == []
    assert sim.broker.reported("mqtt.subscription_idle")
    other.drop()
    assert sim.connect("c", clean=False, expiry=100, **LOGIN).payloads() == [b"x"]


def test_queues_of_another_user_are_not_filtered_by_a_subscribe_that_is_refused() -> None:
    """Alice's durable subscription has the name of the queue that Bob's session would have."""
    sim = world()
    alice = sim.broker.connect(login="alice", passcode="right", **{"client-id": "c"})
    alice.subscribe("/topic/#", **{"durable-subscription-name": "#"})
    alice.drop()
    restrict(sim.broker, guarded("secret.#"))
    bob = sim.connect("c", user_name="bob", password=b"right")
    assert bob.subscribe("#", qos=1) == [0x83]
    sim.connect("p", **LOGIN).publish("secret/a", b"x", 1)
    assert sim.broker.engine.queue("c.#").message_count == 1


def test_the_reader_stays_the_user_who_made_the_queue_over_a_restart() -> None:
    """Also while the session is another user's, who may read more: the first may get it back."""
    sim = world("secret.#")
    sim.subscriber("c", "#", qos=1, clean=False, expiry=100, **LOGIN).drop()
    other: dict[str, Any] = {"clean": False, "expiry": 100, "user_name": "bob", "password": b"right"}
    sim.connect("c", **other).drop()
    for restart in (False, True):
        if restart:
            sim.restart()
        restrict(sim.broker, guarded())  # Bob, and Alice after her next login
        sim.broker.engine.security.roles_of = lambda user: frozenset() if user == "alice" else frozenset(["amq"])
        sim.connect("p", user_name="bob", password=b"right").publish("secret/a", b"x", 1)
        assert sim.broker.engine.queue("c.#").message_count == 0


def test_a_filtered_queue_is_not_handed_over_by_a_restart() -> None:
    """Bob has taken the session where filters are refused: it may hold what only Alice may read."""
    sim = world("secret.#")
    sim.subscriber("c", "#", qos=1, clean=False, expiry=100, **LOGIN).drop()
    bob: dict[str, Any] = {"clean": False, "expiry": 100, "user_name": "bob", "password": b"right"}
    OtherAcceptor(sim).connect("c", **bob).drop()
    sim.connect("p", **LOGIN).publish("open/a", b"x", 1)
    sim.restart()
    assert sim.connect("c", **bob).payloads() == []


@pytest.mark.parametrize("present", [True, False])
def test_a_filtered_session_returns_without_the_right_to_delete_its_queue(present: bool) -> None:
    """Whoever may read a part of what its filter matches may know of its own queue, whatever else it may do."""
    config = guarded("secret.#")
    rows = tuple(row.model_copy(update={"deleteDurableQueue": ()}) for row in config.security_settings)
    sim = SimWorld(config.model_copy(update={"security_settings": rows}), users=READERS)
    again: dict[str, Any] = {"clean": False, "expiry": 100, **LOGIN}
    client = sim.subscriber("c", "#", qos=1, **again)
    if not present:
        client.drop()
    sim.restart()
    sim.connect("p", **LOGIN).publish("open/a", b"x", 1)
    assert sim.connect("c", **again).payloads() == [b"x"]
