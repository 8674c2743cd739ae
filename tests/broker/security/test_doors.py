"""Acceptors by which not everybody may come in: in every protocol, and while roles change."""

from __future__ import annotations

import pytest

from broker.config import Config
from broker.config.acceptors import MessagingAcceptor
from broker.engine.model.access import Identity
from broker.security.login_policy import Policy
from broker.sessions.login import LoginRestriction, Peer
from protocols.mqtt.codes import V5, V311
from tests.broker.security.logins import BOB, Bench
from tests.support.amqp_client import AmqpSim
from tests.support.mqtt_client import greeting
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimClient, configured
from tests.support.sim_gate import cheap_user

CLERK = frozenset({"clerks"})


def came(
    bench: Bench, door: LoginRestriction, name: str = "bob", password: bytes = b"secret"
) -> tuple[Peer, Identity | None]:
    """Somebody who comes to a door, and what it is told."""
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    bench.gate.peers.restrict(peer, door)
    bench.gate.login(peer, name, password, bench.told.append)
    bench.hash()
    return peer, bench.told.pop()


@pytest.mark.parametrize(
    ("door", "admitted"),
    [
        (LoginRestriction(), True),
        (LoginRestriction(users=frozenset({"bob"})), True),
        (LoginRestriction(users=frozenset({"alice"})), False),
        (LoginRestriction(roles=CLERK), True),
        (LoginRestriction(roles=frozenset({"devices"})), False),
        (LoginRestriction(frozenset({"alice"}), CLERK), True),
        (LoginRestriction(frozenset({"alice"}), frozenset({"devices"})), False),
        (LoginRestriction(users=frozenset({"clerks"})), False),
    ],
)
def test_users_that_may_come_in(door: LoginRestriction, admitted: bool) -> None:
    bench = Bench(per_user=1)
    peer, told = came(bench, door)
    assert told == (Identity("bob", CLERK) if admitted else None)
    assert bench.reports == ["login.accepted" if admitted else "login.refused"]
    bench.gate.left(peer)
    assert came(bench, LoginRestriction())[1] is not None, "who was refused does not count among the user's connections"


def test_a_refusal_is_slowed_as_a_wrong_password_is() -> None:
    """Or it would tell that the password was right."""
    bench = Bench(delay=100)
    peer = Peer("1.1.1.1:1", "1.1.1.1")
    bench.gate.peers.restrict(peer, LoginRestriction(users=frozenset({"alice"})))
    bench.gate.login(peer, "bob", b"secret", bench.told.append)
    bench.hash()
    assert (bench.told, len(bench.waiting)) == ([], 1)


def test_a_user_that_loses_the_role_of_its_door_is_gone(bench: Bench) -> None:
    peer, _ = came(bench, LoginRestriction(roles=CLERK))
    assert not bench.gate.peers.gone(peer)
    bench.gate.change(Policy({"bob": cheap_user("secret", "others")}))
    assert bench.gate.peers.gone(peer)


@pytest.mark.parametrize("delay", [0, 100])
def test_the_anonymous_have_roles_too(delay: int) -> None:
    bench = Bench(delay=delay)
    bench.gate.change(Policy({"bob": BOB}, frozenset({"guests"})))
    for door, admitted in (
        (LoginRestriction(roles=frozenset({"guests"})), True),
        (LoginRestriction(roles=CLERK), False),
        (LoginRestriction(users=frozenset({"bob"})), False),
    ):
        peer = Peer("1.1.1.1:1", "1.1.1.1")
        bench.gate.peers.restrict(peer, door)
        assert (bench.gate.anonymous(peer) is not None) == admitted


def only(**allowed: object) -> Config:
    """The configuration as shipped, with doors."""
    shipped = configured()
    acceptors = {
        name: acceptor.model_copy(update=allowed) if isinstance(acceptor, MessagingAcceptor) else acceptor
        for name, acceptor in shipped.acceptors.items()
    }
    return configured(acceptors=acceptors)


def test_every_protocol_has_its_door() -> None:
    sim = SimWorld(only(allowed_users=("alice",)), users={"alice": "a", "bob": "b"})
    broker = sim.broker
    assert AmqpSim(broker, login=("alice", "a")).sasl_code == 0
    assert AmqpSim(broker, login=("bob", "b")).sasl_code == 1
    broker.connect(login="alice", passcode="a")
    refused = SimClient(broker, "1.2", broker.number())
    refused.do("CONNECT", {"accept-version": "1.2", "host": "h", "login": "bob", "passcode": "b"})
    assert refused.take("ERROR")
    for version, code in ((V5, 0x86), (V311, 4)):
        sim.connect("c", version=version, user_name="alice", password=b"a")
        client = sim.attempt(greeting("d", version=version, user_name="bob", password=b"b"))
        assert client.code == code
    assert len(broker.reported("login.refused")) == 4
    assert broker.reported("login.refused")[0]["reason"] == "may not log in at this acceptor"


def test_a_door_of_roles() -> None:
    users = {"bob": "b"}
    assert AmqpSim(SimWorld(only(allowed_roles=("amq",)), users=users).broker, login=("bob", "b")).sasl_code == 0
    assert AmqpSim(SimWorld(only(allowed_roles=("other",)), users=users).broker, login=("bob", "b")).sasl_code == 1
