"""Every verb of every protocol, with every permission missing: denied everywhere, in the protocol's words.

Each verb works with its own permissions alone, and with each of them taken away it is refused and has changed nothing:
so neither a protocol nor a verb of one goes around the permissions.
"""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from broker.engine.model.permissions import Permission
from broker.security.login_policy import Policy
from tests.broker.security.verbs import (
    NAME,
    NEW,
    PASSWORD,
    QUEUE,
    TOPIC,
    VERBS,
    Denied,
    permissions,
    prepared,
    restrict,
    state,
    stomp,
)
from tests.support.amqp_client import AmqpSim
from tests.support.sim_broker import SimBroker
from tests.support.sim_gate import cheap_user


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_needs_its_permissions_and_no_others(name: str) -> None:
    verb = VERBS[name]
    broker = prepared()
    restrict(broker, permissions(*(set(Permission) - set(verb.needs))))
    verb.does(broker)
    assert not broker.reported("access.denied")


@pytest.mark.parametrize(("name", "missing"), [(name, each) for name, verb in VERBS.items() for each in verb.needs])
def test_a_verb_without_one_of_its_permissions(name: str, missing: Permission) -> None:
    verb = VERBS[name]
    broker = prepared()
    restrict(broker, permissions(missing))
    before = state(broker)
    with nullcontext() if verb.silent else pytest.raises(Denied):
        verb.does(broker)
    assert state(broker) == before, "what is denied has changed nothing"
    assert broker.reported("access.denied")


@pytest.mark.parametrize("name", [name for name, verb in VERBS.items() if not verb.silent])
def test_a_user_without_rights_does_not_learn_which_names_exist(name: str) -> None:
    """The same words whether what is named exists or not."""
    told = []
    for broker in (prepared(), SimBroker(permissions(), users={NAME: PASSWORD})):
        restrict(broker, permissions(*Permission))
        try:
            VERBS[name].does(broker)
        except Denied as denied:
            told.append(f"denied: {denied}")
        except AssertionError as other:  # as unknown as what there is not
            told.append(f"other: {other}")
    assert len(told) == 2
    assert told[0] == told[1]


def test_a_queue_on_another_address_is_not_reached_by_its_name() -> None:
    """The permission that counts is that of the address on which it is."""
    broker = prepared()
    secret = permissions().security_settings[0].model_copy(update={"match": QUEUE, "consume": ()})
    everything = permissions().security_settings[0]
    client = stomp(broker)
    client.confirmed(f"{TOPIC}::inner", b"x", **{"destination-type": "ANYCAST"})
    restrict(broker, permissions().model_copy(update={"security_settings": (everything, secret)}))
    spy = stomp(broker)
    spy.subscribe(f"{NEW}::{QUEUE}")
    [error] = spy.take("ERROR")
    assert error.headers["message"] != "permission denied"
    assert b"not on address" in error.body
    assert not spy.messages()


class LosesItsRoles(AmqpSim):
    """A client whose user loses all roles between the outcome of SASL and OPEN."""

    said = 0

    def say(self) -> None:
        """See AmqpSim."""
        super().say()
        self.said += 1
        if self.said == 2:
            self.broker.parts.tick.enter()
            self.broker.gate.change(Policy({NAME: cheap_user(PASSWORD)}))
            self.broker.engine.secure(None)
            self.broker.run()


def test_the_roles_of_a_client_are_those_of_its_open_not_of_its_login() -> None:
    broker = prepared()
    client = LosesItsRoles(broker, login=(NAME, PASSWORD))
    assert client.sasl_code == 0
    link = client.receiver(f"queue://{QUEUE}", credit=0)
    assert client.refused(link).condition == "amqp:unauthorized-access"
