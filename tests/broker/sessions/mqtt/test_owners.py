"""Sessions belong to the users who made them: other users neither read nor end them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from broker.config import Config, SecuritySetting
from broker.engine.model.permissions import Permission
from broker.security.policy import policy
from protocols.mqtt.codes import V5, V31, V311, PacketType
from protocols.mqtt.packets import Will
from protocols.mqtt.properties import WILL_DELAY_INTERVAL, Properties
from tests.broker.security.verbs import permissions, restrict
from tests.broker.sessions.mqtt.harness import queues
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimWorld
from tests.support.sim_gate import cheap_user

P = PacketType
USERS = {"alice": "right", "bob": "wrong"}
ALICE: dict[str, Any] = {"user_name": "alice", "password": b"right"}
BOB: dict[str, Any] = {"user_name": "bob", "password": b"wrong"}
KEPT: dict[str, Any] = {"clean": False, "expiry": 100}
VERSIONS = pytest.mark.parametrize("version", [V5, V311, V31])


def world(config: Config | None = None) -> SimWorld:
    """Two users who may do everything, but nothing to what belongs to the other."""
    return SimWorld(config or permissions(Permission.MANAGE_SESSIONS), users=USERS)


def privileged(sim: SimWorld, user: str) -> None:
    """Let one user have the sessions of others."""
    everything = {each.value: ["amq"] for each in Permission} | {"manageSessions": ["boss"]}
    entry = SecuritySetting.model_validate({"match": "#", **everything})
    changed = permissions().model_copy(update={"security_settings": (entry,)})
    with sim.broker.turn():
        sim.broker.gate.change(
            policy(changed, {n: cheap_user(p, "amq", *["boss"] * (n == user)) for n, p in USERS.items()})
        )
    restrict(sim.broker, changed)


def refused(client: MqttClient, version: int = V5) -> bool:
    """Whether a client was told that it may not have this client identifier."""
    return client.code == (0x85 if version == V5 else 2) and client.closed


def attempt(sim: SimWorld, login: Mapping[str, Any], version: int = V5, *, clean: bool = True) -> MqttClient:
    return sim.attempt(greeting("c", version=version, clean=clean, **login))


@VERSIONS
@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("here", [True, False])
def test_another_user_gets_no_session(version: int, clean: bool, here: bool) -> None:
    """Nor does it end one: alice has her messages, and her connection."""
    sim = world()
    alice = sim.subscriber("c", "a", qos=1, **KEPT, **ALICE)
    if not here:
        alice.drop()
    sim.connect("p", **BOB).publish("a", b"secret", 1)
    assert refused(attempt(sim, BOB, version, clean=clean), version)
    [told] = sim.broker.reported("session.refused")
    assert (told["client"], told["user"], told["owner"]) == ("c", "bob", "alice")
    if here:
        assert not alice.closed
    else:
        alice = sim.connect("c", **KEPT, **ALICE)
        assert alice.present
    assert alice.payloads() == [b"secret"]


@VERSIONS
def test_another_user_does_not_end_a_connection_without_a_session(version: int) -> None:
    sim = world()
    alice = sim.connect("c", version=version, **ALICE)
    assert refused(attempt(sim, BOB, version), version)
    assert not alice.closed
    alice.drop()
    assert sim.connect("c", version=version, **BOB).code == 0, "the session has ended with its connection"


def test_messages_in_flight_are_not_sent_to_another_user() -> None:
    sim = world()
    alice = sim.subscriber("c", "one", "two", qos=2, auto=False, **KEPT, **ALICE)
    for qos, topic in ((1, "one"), (2, "two")):
        sim.connect("p", **BOB).publish(topic, topic.encode(), qos)
    assert [m.payload for m in alice.take()] == [b"one", b"two"]
    alice.drop()
    bob = attempt(sim, BOB, clean=False)
    assert refused(bob)
    assert bob.take() == []
    again = sim.connect("c", **KEPT, **ALICE)
    assert [(m.payload, m.dup) for m in again.take()] == [(b"one", True), (b"two", True)]


@pytest.mark.parametrize("crash", [True, False])
def test_owners_are_known_after_a_restart(crash: bool) -> None:
    sim = world()
    sim.subscriber("c", "a", qos=1, **KEPT, **ALICE).drop()
    sim.restart(crash=crash)
    assert refused(attempt(sim, BOB))
    assert sim.connect("c", **KEPT, **ALICE).present


def test_one_user_may_connect_twice() -> None:
    sim = world()
    first = sim.subscriber("c", "a", qos=1, **KEPT, **ALICE)
    second = sim.connect("c", **KEPT, **ALICE)
    first.settle()
    assert (first.goodbye_code, second.present) == (0x8E, True)
    assert not sim.connect("c", **ALICE).present


def test_a_will_is_published_for_its_user_alone() -> None:
    """Bob can neither publish alice's will at once nor keep it from being published."""
    sim = world()
    will = Will("gone", b"bye", 1, properties=Properties([(WILL_DELAY_INTERVAL, 10)]))
    sim.connect("c", will=will, **KEPT, **ALICE).drop()
    watcher = sim.subscriber("w", "gone", qos=1, **BOB)
    assert refused(attempt(sim, BOB))
    assert watcher.take() == []
    sim.advance(11)
    assert watcher.payloads() == [b"bye"]


# -- the permission ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_manage_sessions_takes_a_session_over(clean: bool) -> None:
    sim = world()
    alice = sim.subscriber("c", "a", qos=1, auto=False, **KEPT, **ALICE)
    privileged(sim, "bob")
    sim.connect("p", **ALICE).publish("a", b"x", 1)
    bob = sim.connect("c", clean=clean, expiry=100, **BOB)
    assert bob.present is not clean
    assert bob.payloads() == ([] if clean else [b"x"])
    [told] = sim.broker.reported("session.taken_over")
    assert (told["client"], told["user"], told["owner"]) == ("c", "bob", "alice")
    alice.settle()
    assert alice.goodbye_code == 0x8E
    bob.drop()
    sim.restart()
    privileged(sim, "")
    assert refused(attempt(sim, ALICE)), "it is bob's from now on"
    assert sim.connect("c", **KEPT, **BOB).present


def test_queues_are_handed_over_with_their_session() -> None:
    """Bob subscribes again, and his quota counts them, also after a restart."""
    sim = world()
    sim.subscriber("c", "a", "b/#", qos=1, **KEPT, **ALICE).drop()
    privileged(sim, "bob")
    sim.connect("c", **KEPT, **BOB).drop()
    for _ in range(2):
        quotas = sim.broker.engine.quotas
        assert (quotas.made_by("alice"), quotas.made_by("bob")) == (0, 2)
        assert {queue.creator for queue in queues(sim).values()} == {"bob"}
        sim.restart()
    assert sim.connect("c", **KEPT, **BOB).subscribe("a", "b/#", qos=1) == [1, 1]


# -- anonymous clients -------------------------------------------------------------------------------------------------


def with_anonymous(config: Config) -> Config:
    """The same for anonymous clients too, in the role amq."""
    security = config.security.model_copy(update={"anonymous": True, "anonymous_roles": ("amq",)})
    return config.model_copy(update={"security": security})


def test_anonymous_clients_are_one_user() -> None:
    sim = world(with_anonymous(permissions(Permission.MANAGE_SESSIONS)))
    sim.subscriber("c", "a", qos=1, **KEPT).drop()
    sim.subscriber("d", "a", qos=1, **KEPT, **ALICE).drop()
    assert refused(attempt(sim, ALICE))
    assert refused(sim.attempt(greeting("d")))
    assert sim.connect("c", **KEPT).present
    assert sim.connect("d", **KEPT, **ALICE).present


def test_sessions_of_a_time_without_users_belong_to_the_first_user_who_asks() -> None:
    """Nobody else can: anonymous clients may not log in any more."""
    sim = SimWorld(permissions(Permission.MANAGE_SESSIONS))
    sim.subscriber("c", "a", qos=1, **KEPT).drop()
    sim.connect("p").publish("a", b"x", 1)
    sim.broker.users = USERS
    sim.restart()
    bob = sim.connect("c", **KEPT, **BOB)
    assert bob.present
    assert bob.payloads() == [b"x"]
    bob.drop()
    assert refused(attempt(sim, ALICE))
    sim.restart()
    assert refused(attempt(sim, ALICE)), "the owner is stored"
    assert not sim.broker.reported("session.taken_over")


# -- rights that have gone ---------------------------------------------------------------------------------------------


def sent_to_alice(sim: SimWorld, *, here: bool) -> MqttClient:
    """She has been sent one message with QoS 1 and one with QoS 2, and has not answered."""
    alice = sim.subscriber("c", "one", "two", qos=2, auto=False, **KEPT, **ALICE)
    for qos, topic in ((1, "one"), (2, "two")):
        sim.connect("p", **BOB).publish(topic, topic.encode(), qos)
    assert alice.payloads() == [b"one", b"two"]
    if not here:
        alice.drop()
    return alice


@pytest.mark.parametrize("restart", [None, True, False])
@pytest.mark.parametrize("when", ["here", "away", "stopped"])
def test_messages_in_flight_go_back_to_their_queue_with_the_right_to_consume(when: str, restart: bool | None) -> None:
    """Alice gets none of them while she may not, and each of them once when she may again."""
    granted, revoked = permissions(Permission.MANAGE_SESSIONS), permissions(Permission.CONSUME)
    sim = world(granted)
    alice = sent_to_alice(sim, here=when == "here")
    if when == "stopped":
        sim.broker.config = revoked
        sim.restart()
    else:
        restrict(sim.broker, revoked)
    alice.settle()
    assert alice.closed
    assert {name: queue.ready for name, queue in queues(sim).items()} == {"c.one": 1, "c.two": 1}
    if restart is not None:
        sim.broker.config = revoked
        sim.restart(crash=restart)
    alice = sim.connect("c", auto=False, **KEPT, **ALICE)
    assert alice.present
    assert alice.take() == []
    assert alice.replies(P.PUBREL) == [(2, 0)], "she may have this one, and takes no other for it"
    alice.ack(P.PUBCOMP, 2)
    alice.drop()
    restrict(sim.broker, granted)
    if restart is not None:
        sim.broker.config = granted
        sim.restart(crash=restart)
    alice = sim.connect("c", **KEPT, **ALICE)
    assert [(m.payload, m.dup) for m in alice.take()] == [(b"one", False), (b"two", False)]
    alice.drop()
    sim.restart()
    assert sim.connect("c", **KEPT, **ALICE).take() == []


def only(sim: SimWorld, *names: str) -> None:
    """Let there be these users only, as after a reload of the users file."""
    sim.broker.users = {name: USERS[name] for name in names}
    with sim.broker.turn():
        sim.broker.gate.change(policy(sim.broker.config, {n: cheap_user(USERS[n], "amq") for n in names}))
        sim.broker.engine.secure(None)


def waiting(sim: SimWorld) -> dict[str, int]:
    """How many messages wait, by queue."""
    return {name: queue.ready for name, queue in queues(sim).items()}


def test_messages_in_flight_of_a_removed_user_go_back() -> None:
    """A reload of the users takes the right too."""
    sim = world()
    sent_to_alice(sim, here=False)
    only(sim, "bob")
    assert waiting(sim) == {"c.one": 1, "c.two": 1}


@pytest.mark.parametrize("restart", [None, True, False])
@pytest.mark.parametrize("when", ["here", "away", "stopped"])
def test_the_session_of_a_removed_user_takes_no_more_messages(when: str, restart: bool | None) -> None:
    """What it has stays, and once there is that user again it takes messages again, connected or not."""
    sim = world()
    alice = sent_to_alice(sim, here=when == "here")
    if when == "stopped":
        sim.broker.users = {"bob": USERS["bob"]}
        sim.restart()
    else:
        only(sim, "bob")
    alice.settle()
    assert alice.closed
    if restart is not None:
        sim.restart(crash=restart)
    sim.connect("p", **BOB).publish("one", b"for nobody", 1)
    sim.broker.connect(login="bob", passcode=USERS["bob"]).confirmed("/topic/two", b"for nobody")
    assert waiting(sim) == {"c.one": 1, "c.two": 1}
    only(sim, "alice", "bob")
    sim.connect("p", **BOB).publish("one", b"again", 1)
    assert waiting(sim) == {"c.one": 2, "c.two": 1}
    alice = sim.connect("c", **KEPT, **ALICE)
    assert alice.present
    assert sorted(alice.payloads()) == [b"again", b"one", b"two"]
    sim.connect("p", **BOB).publish("two", b"here", 1)
    assert alice.payloads() == [b"here"]


def test_a_right_that_is_revoked_counts_from_the_next_message_on() -> None:
    """Also when the user is removed afterwards."""
    sim = world()
    sent_to_alice(sim, here=False)
    restrict(sim.broker, permissions(Permission.CONSUME))
    for removed in (False, True):
        if removed:
            only(sim, "bob")
        sim.connect("p", **BOB).publish("one", b"secret", 1)
        assert waiting(sim) == {"c.one": 1, "c.two": 1}


def test_a_session_that_is_taken_over_takes_messages_again() -> None:
    sim = world()
    sent_to_alice(sim, here=False)
    only(sim, "bob")
    privileged(sim, "bob")
    bob = sim.connect("c", auto=False, **KEPT, **BOB)
    assert sorted(bob.payloads()) == [b"one", b"two"]
    sim.connect("p", **BOB).publish("one", b"new", 1)
    assert bob.payloads() == [b"new"]


def test_messages_that_one_member_may_no_longer_have_go_to_the_next() -> None:
    sim = world()
    alice = sim.subscriber("c", "$share/g/a", qos=2, auto=False, **KEPT, **ALICE)
    sim.connect("p", **BOB).publish("a", b"x", 2)
    assert alice.payloads() == [b"x"]
    bob = sim.subscriber("d", "$share/g/a", qos=2, **KEPT, **BOB)
    everything = {each.value: ["amq"] for each in Permission} | {"consume": ["boss"]}
    entry = SecuritySetting.model_validate({"match": "#", **everything})
    changed = permissions().model_copy(update={"security_settings": (entry,)})
    with sim.broker.turn():
        users = {"alice": cheap_user("right", "amq"), "bob": cheap_user("wrong", "amq", "boss")}
        sim.broker.gate.change(policy(changed, users))
    restrict(sim.broker, changed)
    alice.settle()
    assert alice.closed
    assert bob.payloads() == [b"x"]


def test_messages_of_a_deleted_queue_are_not_resent() -> None:
    sim = world()
    sent_to_alice(sim, here=False)
    with sim.broker.turn():
        for name in ("c.one", "c.two"):
            sim.broker.engine.operators.delete_queue(queues(sim)[name], with_messages=True)
    alice = sim.connect("c", auto=False, **KEPT, **ALICE)
    assert alice.take() == []
    assert alice.replies(P.PUBREL) == [(2, 0)]
