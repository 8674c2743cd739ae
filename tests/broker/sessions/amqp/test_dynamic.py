"""Dynamic nodes: the answer says what they are, wrong wishes are refused, and a link that is detached leaves them."""

from __future__ import annotations

from typing import Any

import pytest

from broker.sessions.amqp.dynamic import LEFT_MAX
from protocols.amqp.performatives import (
    DeleteOnClose,
    DeleteOnNoLinks,
    DeleteOnNoLinksOrMessages,
    DeleteOnNoMessages,
    Source,
    Target,
)
from protocols.amqp.types import Array, Described, Symbol, UInt, ULong
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

ROLES = ["source", "target"]
CLOSED = Described(ULong(0x2B), [])


def dynamic(client: AmqpSim, role: str, *capabilities: str, name: str = "", **fields: Any) -> Any:
    """A link to a node of its own."""
    if role == "source":
        return client.receiver(None, name=name, source=Source(dynamic=True, capabilities=capabilities, **fields))
    return client.sender(None, name=name, target=Target(dynamic=True, capabilities=capabilities, **fields))


def answered(client: AmqpSim, link: Any) -> Any:
    attach = client.answer(link)
    return attach.target if isinstance(attach.target, Target) and attach.target.dynamic else attach.source


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "policy", [DeleteOnClose(), DeleteOnNoLinks(), DeleteOnNoMessages(), DeleteOnNoLinksOrMessages(), None]
)
def test_the_answer_says_how_long_a_node_lives(broker: SimBroker, client: AmqpSim, role: str, policy: object) -> None:
    """3.5.3: the answer holds the actual properties; what is not granted is not there."""
    wanted = {"x-vendor": 1} if policy is None else {"lifetime-policy": policy, "x-vendor": 1}
    link = dynamic(client, role, dynamic_node_properties=wanted)
    terminus = answered(client, link)
    assert terminus.dynamic_node_properties == {
        "lifetime-policy": CLOSED,
        "supported-dist-modes": Array("symbol", [Symbol("move"), Symbol("copy")]),
    }
    client.detach(link)
    assert terminus.address not in broker.engine.addresses


@pytest.mark.parametrize("role", ROLES)
def test_a_topic_of_ones_own_gives_copies(client: AmqpSim, role: str) -> None:
    link = dynamic(client, role, "temporary-topic")
    modes = answered(client, link).dynamic_node_properties["supported-dist-modes"]
    assert list(modes.items) == ["copy"]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(
    "wanted",
    [
        {"lifetime-policy": UInt(7)},
        {"lifetime-policy": None},
        {"lifetime-policy": "delete-on-close"},
        {"lifetime-policy": Described(ULong(0x2B), {})},
        {"lifetime-policy": Described(ULong(0x24), [])},
        {"lifetime-policy": Described(Symbol("vendor:policy:list"), [])},
        {"supported-dist-modes": "move"},
        {"supported-dist-modes": Symbol("other")},
        {"supported-dist-modes": Array("symbol", [Symbol("move"), Symbol("other")])},
        {"supported-dist-modes": Array("string", ["move"])},
    ],
)
def test_wrong_properties_are_refused(broker: SimBroker, client: AmqpSim, role: str, wanted: dict[str, object]) -> None:
    before = set(broker.engine.addresses)
    link = dynamic(client, role, dynamic_node_properties=wanted)
    error = client.refused(link)
    assert error.condition == "amqp:invalid-field"
    assert next(iter(wanted)) in (error.description or "")
    assert set(broker.engine.addresses) == before


def test_properties_of_a_node_that_is_not_dynamic_are_not_answered(client: AmqpSim) -> None:
    """Qpid's clients send them with the node's name; nothing is granted by them."""
    wanted: dict[str, object] = {"lifetime-policy": DeleteOnNoLinks()}
    source = client.answer(client.receiver("q", source=Source("q", dynamic_node_properties=wanted))).source
    assert isinstance(source, Source)
    assert source.dynamic_node_properties is None
    target = client.answer(client.sender("q", target=Target("q", dynamic_node_properties=wanted))).target
    assert isinstance(target, Target)
    assert target.dynamic_node_properties is None


@pytest.mark.parametrize(
    ("wanted", "granted"),
    [
        ({"durable": 0, "expiry_policy": "never", "timeout": 60}, ("link-detach", 0, None)),
        ({"durable": 0, "distribution_mode": "move"}, ("link-detach", 0, "move")),
        ({"durable": 0, "distribution_mode": "copy"}, ("link-detach", 0, "copy")),
        ({"durable": 0, "distribution_mode": "vendor:other"}, ("link-detach", 0, "move")),
    ],
)
def test_the_source_is_answered_as_it_is(
    client: AmqpSim, wanted: dict[str, Any], granted: tuple[str, int, str | None]
) -> None:
    capabilities = ("queue", "vendor-capability")
    outcomes = ("amqp:accepted:list", "vendor:outcome:list")
    source = client.answer(client.receiver("q", *capabilities, outcomes=outcomes, **wanted)).source
    assert isinstance(source, Source)
    assert (source.expiry_policy, source.timeout, source.distribution_mode) == granted
    assert source.capabilities == ("queue",)
    assert source.outcomes == ("amqp:accepted:list",)


def test_the_target_is_answered_as_it_is(client: AmqpSim) -> None:
    wanted = Target("q", durable=2, expiry_policy="never", timeout=60, capabilities=("queue", "vendor-capability"))
    target = client.answer(client.sender("q", target=wanted)).target
    assert target == Target("q", expiry_policy="link-detach", capabilities=("queue",))


# -- detached, not closed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("expiry", ["session-end", "connection-close", "never"])
@pytest.mark.parametrize("again", [True, False])
def test_a_link_that_is_detached_leaves_its_node(
    broker: SimBroker, client: AmqpSim, role: str, expiry: str, again: bool
) -> None:
    """... and what is in it, for a link of its name; after that the node goes with that link."""
    link = dynamic(client, role, name="mine", expiry_policy=expiry)
    terminus = answered(client, link)
    assert terminus.expiry_policy == ("session-end" if expiry == "session-end" else "connection-close")
    client.detach(link, closed=False)
    assert terminus.address in broker.engine.addresses
    other = AmqpSim(broker, container="other")
    [outcome] = other.send(other.sender(terminus.address), message("kept"))
    assert type(outcome.state).__name__ == "Accepted"
    named: Any = {"dynamic": again, "address": terminus.address}
    if role == "source":
        link = client.receiver(None, name="mine", source=Source(**named))
        assert client.bodies() == ["kept"]
    else:
        link = client.sender(None, name="mine", target=Target(**named))
    client.detach(link)
    assert terminus.address not in broker.engine.addresses


@pytest.mark.parametrize("role", ROLES)
def test_link_detach_leaves_nothing(broker: SimBroker, client: AmqpSim, role: str) -> None:
    link = dynamic(client, role, expiry_policy="link-detach")
    terminus = answered(client, link)
    assert terminus.expiry_policy == "link-detach"
    client.detach(link, closed=False)
    assert terminus.address not in broker.engine.addresses


@pytest.mark.parametrize("detached", [True, False])
@pytest.mark.parametrize(("expiry", "stays"), [("session-end", False), ("connection-close", True)])
def test_how_long_a_node_waits(broker: SimBroker, client: AmqpSim, detached: bool, expiry: str, stays: bool) -> None:
    link = dynamic(client, "source", expiry_policy=expiry)
    address = answered(client, link).address
    if detached:
        client.detach(link, closed=False)
    client.ses.send_end()
    client.say()
    assert (address in broker.engine.addresses) == stays
    client.drop()
    assert address not in broker.engine.addresses


def test_a_link_of_another_name_does_not_take_a_node_up(broker: SimBroker, client: AmqpSim) -> None:
    link = dynamic(client, "source", name="mine")
    address = answered(client, link).address
    client.detach(link, closed=False)
    client.detach(client.receiver(address, name="other"))
    assert address in broker.engine.addresses


def test_so_many_nodes_are_left_and_the_oldest_goes(broker: SimBroker, client: AmqpSim) -> None:
    addresses = []
    for number in range(LEFT_MAX + 1):
        link = dynamic(client, "source", name=f"mine {number}")
        addresses.append(answered(client, link).address)
        client.detach(link, closed=False)
    there = [address in broker.engine.addresses for address in addresses]
    assert there == [False] + [True] * LEFT_MAX
    client.drop()
    assert not any(address in broker.engine.addresses for address in addresses)


def test_a_node_whose_queue_was_deleted_is_not_left(broker: SimBroker, client: AmqpSim) -> None:
    link = dynamic(client, "source")
    address = answered(client, link).address
    with broker.turn():
        broker.engine.delete_queue(broker.engine.queue(address))
    assert client.refused(link).condition == "amqp:resource-deleted"
    assert address not in broker.engine.addresses
