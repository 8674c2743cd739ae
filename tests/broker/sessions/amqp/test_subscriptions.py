"""Subscriptions over AMQP: durable, shared, global, found again, unsubscribed; nodes of a peer's own."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.amqp.events import Detached
from protocols.amqp.performatives import Properties, Rejected, Source, Target
from protocols.amqp.types import Described, Symbol
from tests.broker.sessions.amqp.harness import started
from tests.simulation.world import held
from tests.support.amqp_client import AmqpSim, message
from tests.support.sim_broker import SimBroker

DURABLE: dict[str, Any] = {"durable": 2, "expiry_policy": "never"}


def publish(client: AmqpSim, *bodies: str) -> None:
    client.send(client.sender("news", "topic"), *[message(body) for body in bodies])


def names(broker: SimBroker) -> set[str]:
    return set(broker.engine.queues) - {"DLQ", "ExpiryQueue"}


def test_a_topic_gives_each_its_own(broker: SimBroker, client: AmqpSim) -> None:
    links = [client.receiver("news", "topic") for _ in range(2)]
    publish(client, "1")
    assert client.bodies() == ["1", "1"]
    for link in links:
        client.detach(link)
    assert names(broker) == set()


def test_a_durable_one_stays_and_is_found_by_container_and_name(broker: SimBroker, client: AmqpSim) -> None:
    link = client.receiver("news", "topic", name="sub", **DURABLE)
    assert names(broker) == {"sim.sub"}
    client.detach(link, closed=False)
    publish(client, "1")
    broker = broker.restart()
    client = AmqpSim(broker)
    link = client.receiver("news", "topic", name="sub", **DURABLE)
    assert client.bodies() == ["1"]
    client.detach(link)
    assert names(broker) == set(), "closing it unsubscribes"


def lookup(client: AmqpSim) -> Any:
    return client.receiver(None, name="sub", source=None, credit=0)


def test_it_is_looked_up_without_a_source_and_closed(broker: SimBroker, client: AmqpSim) -> None:
    client.detach(client.receiver("news", "topic", name="sub", **DURABLE), closed=False)
    link = lookup(client)
    source = client.answer(link).source
    assert isinstance(source, Source)
    assert (source.address, source.durable) == ("news", 2)
    client.detach(link)
    assert names(broker) == set()
    assert client.refused(lookup(client)).condition == "amqp:not-found"


def test_the_answer_to_a_lookup_is_the_source_that_it_has(broker: SimBroker, client: AmqpSim) -> None:
    """As in ActiveMQ Artemis: a client that takes the subscription up learns what it gets."""
    filters = {
        "mine": Described(Symbol("apache.org:selector-filter:string"), "a = 'b'"),
        "own": Described(Symbol("apache.org:no-local-filter:list"), []),
    }
    client.detach(client.receiver("news", "topic", name="sub", filter=filters, **DURABLE), closed=False)
    client = AmqpSim(broker.restart())
    source = client.answer(lookup(client)).source
    assert source == Source(
        "news",
        2,
        "never",
        distribution_mode="copy",
        filter={
            "jms-selector": Described(0x0000_468C_0000_0004, "a = 'b'"),
            "no-local": Described(0x0000_468C_0000_0003, []),
        },
        capabilities=("topic",),
    )


def test_the_answer_to_a_lookup_of_a_shared_one(client: AmqpSim) -> None:
    client.detach(client.receiver("news", "topic", "shared", "global", name="sub", **DURABLE), closed=False)
    asked = {"desired_capabilities": ("topic", "shared", "global", "unknown")}
    source = client.answer(client.receiver(None, name="sub", source=None, credit=0, **asked)).source
    assert source == Source("news", 2, "never", distribution_mode="copy", capabilities=("topic", "shared", "global"))


def test_one_that_is_consumed_cannot_be_deleted(broker: SimBroker, client: AmqpSim) -> None:
    """JMS: an error from `unsubscribe` while there is an active consumer; nothing happens to either."""
    consumer = client.receiver("news", "topic", name="sub", **DURABLE)
    other = AmqpSim(broker)  # of the same container
    assert other.refused(lookup(other)).condition == "amqp:resource-locked"
    assert client.refused(lookup(client)).condition == "amqp:resource-locked"
    publish(client, "1")
    assert client.bodies() == ["1"]
    client.detach(consumer, closed=False)
    other.detach(lookup(other))
    assert names(broker) == set()


def test_one_that_is_consumed_by_now_cannot_be_deleted(broker: SimBroker, client: AmqpSim) -> None:
    client.detach(client.receiver("news", "topic", name="sub", **DURABLE), closed=False)
    link = lookup(client)
    AmqpSim(broker).receiver("news", "topic", name="sub", **DURABLE)
    client.detach(link)
    assert client.refused(link).condition == "amqp:resource-locked"
    assert names(broker) == {"sim.sub"}


def test_a_shared_one_that_others_consume_stays_without_an_error(broker: SimBroker, client: AmqpSim) -> None:
    one = client.receiver("news", "topic", "shared", name="sub", **DURABLE)
    client.receiver("news", "topic", "shared", name="sub|2", **DURABLE)
    client.detach(one)
    [end] = [event for event in client.of(Detached) if event.link is one]
    assert end.error is None
    assert names(broker) == {"sim.sub"}


@pytest.mark.parametrize(
    ("capabilities", "durable", "queue", "stays"),
    [
        (("topic", "shared"), True, "sim.sub", True),
        (("topic", "shared"), False, "sim.sub:shared-volatile", False),
        (("topic", "shared", "global"), True, "sub:global", True),
        (("topic", "shared", "global"), False, "sub:shared-volatile:global", False),
    ],
)
def test_shared_ones(
    broker: SimBroker, client: AmqpSim, capabilities: tuple[str, ...], durable: bool, queue: str, stays: bool
) -> None:
    more = DURABLE if durable else {}
    links = [client.receiver("news", *capabilities, name=name, **more) for name in ("sub", "sub|2")]
    assert names(broker) == {queue}
    publish(client, "1", "2")
    assert sorted(str(d.body) for d in client.arrived) == ["1", "2"]
    assert {d.link for d in client.take()} == set(links)
    client.detach(links[0])
    assert names(broker) == {queue}
    client.detach(links[1], closed=False)
    assert names(broker) == ({queue} if stays else set())


@pytest.mark.parametrize("first", [(), ("shared",)])
def test_the_only_consumer_of_a_subscription_shares_it_with_nobody(client: AmqpSim, first: tuple[str, ...]) -> None:
    """JMS 2.0, 8.3.3: else each of them would get half of the messages."""
    client.receiver("news", "topic", *first, name="sub", **DURABLE)
    other = () if first else ("shared",)
    link = client.receiver("news", "topic", *other, name="sub|2" if other else "sub", **DURABLE)
    assert client.refused(link).condition == "amqp:resource-locked"
    publish(client, "1", "2")
    assert client.bodies() == ["1", "2"]


def test_a_queue_wins_over_its_capability_only_if_it_can() -> None:
    _, client = started({"match": "q", "auto-create-addresses": False})
    assert client.refused(client.receiver("q", "queue")).condition == "amqp:not-found"
    assert client.refused(client.sender("q", "queue")).condition == "amqp:not-found"


def test_a_name_with_a_queue(client: AmqpSim) -> None:
    client.send(client.sender("a::b", "queue"), message("1"))
    client.receiver("a::b")
    assert client.bodies() == ["1"]


@pytest.mark.parametrize("role", ["source", "target"])
@pytest.mark.parametrize("topic", [True, False])
def test_a_node_of_ones_own_lives_as_long_as_its_link(
    broker: SimBroker, client: AmqpSim, role: str, topic: bool
) -> None:
    capability = "temporary-topic" if topic else "temporary-queue"
    if role == "target":
        link: Any = client.sender(None, target=Target(dynamic=True, capabilities=(capability,)))
        terminus: Any = client.answer(link).target
    else:
        link = client.receiver(None, capability, dynamic=True)
        terminus = client.answer(link).source
    address = terminus.address
    assert address in broker.engine.addresses
    other = AmqpSim(broker)
    if role == "target":
        client.receiver(address)
        client.send(link, message("1"))
        assert client.bodies() == ["1"]
    else:
        other.send(other.sender(address), message("1"))
        assert client.bodies() == ["1"]
    client.detach(link)
    assert address not in broker.engine.addresses
    gone, _ = AmqpSim(broker), None
    gone.sender(None, target=Target(dynamic=True))
    made = set(broker.engine.addresses)
    gone.drop()
    assert len(made) - len(broker.engine.addresses) == 1


@pytest.mark.parametrize("capability", ["temporary-queue", "temporary-topic"])
def test_a_reply_to_one_who_is_gone_makes_no_queue(broker: SimBroker, client: AmqpSim, capability: str) -> None:
    asking = AmqpSim(broker)
    address = asking.own_address(capability)
    link = client.sender(address, capability)
    client.send(link, message("in time"))
    assert asking.bodies() == ["in time"]
    relay = client.sender(None, name="relay")
    asking.drop()
    assert client.refused(link).condition == "amqp:resource-deleted"
    [outcome] = client.send(relay, message("too late", properties=Properties(to=address)))
    assert isinstance(outcome.state, Rejected)
    assert client.refused(client.sender(address, capability)).condition == "amqp:not-found"
    assert address not in broker.engine.addresses


@pytest.mark.parametrize("capability", ["temporary-queue", "temporary-topic"])
@pytest.mark.parametrize("how", ["queue", "topic", "browser", "full name"])
def test_a_temporary_destination_is_its_connections_own(
    broker: SimBroker, client: AmqpSim, capability: str, how: str
) -> None:
    """As JMS has it; others may send to it."""
    address = client.own_address(capability)
    name = f"{address}::{address}" if how == "full name" else address
    more: dict[str, Any] = {"distribution_mode": "copy"} if how == "browser" else {}
    other = AmqpSim(broker)  # of the same container
    refused = other.refused(other.receiver(name, *([how] if how in ("queue", "topic") else []), name="x", **more))
    assert refused.condition == "amqp:resource-locked"
    mine = client.receiver(address, capability, name="mine")
    other.send(other.sender(address), message("1"))
    assert client.bodies() == ["1"] * (2 if capability == "temporary-topic" else 1)
    client.detach(mine)


def test_a_dynamic_node_that_is_not_temporary_is_for_all(broker: SimBroker, client: AmqpSim) -> None:
    target = client.answer(link := client.sender(None, target=Target(dynamic=True))).target
    assert isinstance(target, Target)
    other = AmqpSim(broker)
    other.receiver(target.address)
    client.send(link, message("1"))
    assert other.bodies() == ["1"]


def test_no_local() -> None:
    broker, client = started()
    flt = {"no-local": Described(Symbol("apache.org:no-local-filter:list"), [])}
    client.receiver("news", "topic", filter=flt)
    publish(client, "mine")
    other = AmqpSim(broker, container="other")
    publish(other, "theirs")
    assert client.bodies() == ["theirs"]


@pytest.mark.parametrize("how", ["topic", "queue", "lookup"])
def test_a_queue_that_has_the_name_of_a_subscription_is_none(broker: SimBroker, client: AmqpSim, how: str) -> None:
    client.send(client.sender("sim.sub", "queue"), message("kept"))
    if how == "lookup":
        assert client.refused(lookup(client)).condition == "amqp:not-found"
    elif how == "topic":
        refusal = client.refused(client.receiver("news", "topic", name="sub", **DURABLE))
        assert refusal.condition == "amqp:resource-locked"
        assert refusal.description == "sim.sub is the name of a queue, not of a subscription: choose another name"
    else:
        client.detach(client.receiver("other", "queue", name="sub", **DURABLE))
    assert len(held(broker.restart(), "sim.sub")) == 1
