"""Dead-letter and expiry addresses are no topics for filters that begin with a wildcard."""

from __future__ import annotations

import pytest

from broker.engine import MessageRange
from broker.engine.model.settings_match import SettingsTable
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL
from tests.broker.sessions.mqtt.harness import LOGIN, READERS, guarded
from tests.simulation.world import small
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker

RULES: dict[str, object] = {"match": "*.a", "dead-letter-address": "dead.letters", "expiry-address": "dead.expired"}


def killed(broker: SimBroker, queue: str, *, sends: int = 1, **login: str) -> None:
    """Messages that their consumer rejects for good."""
    client = broker.connect(**login)
    client.subscribe(f"/queue/{queue}", ack="client-individual")
    for _ in range(sends):
        client.confirmed(f"/queue/{queue}", b"poison")
    for message in client.messages():
        client.nack(message, requeue="false")
    client.drop()


@pytest.mark.parametrize("filter", ["#", "+/letters", "+/#", "+"])
def test_a_leading_wildcard_gets_no_dead_letter_and_nothing_expired(filter: str) -> None:
    world = SimWorld(small(RULES))
    reader = world.subscriber("reader", filter, qos=1)
    killed(world.broker, "x.a")
    world.connect("sender").publish("y/a", b"late", 1, properties=[(MESSAGE_EXPIRY_INTERVAL, 1)])
    reader.take()
    world.advance(5)
    assert reader.payloads() == []
    assert world.broker.engine.queue("dead.letters").message_count == 1


@pytest.mark.parametrize("filter", ["dead/letters", "dead/#", "dead/+"])
def test_a_filter_that_names_the_address_gets_them(filter: str) -> None:
    world = SimWorld(small(RULES))
    reader = world.subscriber("reader", filter, qos=1)
    killed(world.broker, "x.a")
    assert reader.payloads() == [b"poison"]


def test_over_stomp_too() -> None:
    broker = SimBroker(small(RULES))
    all, named = broker.subscriber("/topic/#"), broker.subscriber("/topic/dead.#")
    killed(broker, "x.a")
    assert [message.body for message in all.messages()] == []
    assert [message.body for message in named.messages()] == [b"poison"]


def test_the_settings_of_the_moment_say_which_these_are() -> None:
    world = SimWorld(small(RULES))
    reader = world.subscriber("reader", "#", qos=1)
    sender = world.connect("sender")
    sender.publish("other", b"1", 1)
    with world.broker.turn():
        table = SettingsTable([("#", {"dead_letter_address": "other"})], {}, syntax=world.broker.engine.syntax)
        world.broker.engine.configuration.change_settings(table)
    sender.publish("other", b"2", 1)
    sender.publish("dead/letters", b"3", 1)
    assert reader.payloads() == [b"1", b"3"]


def test_a_filtered_subscription_asks_for_the_right_to_the_origin_too() -> None:
    """The reader may read the dead-letter address, and not what lies below `secret`."""
    world = SimWorld(guarded("secret.#", rules=RULES), users=READERS)
    reader = world.connect("reader", **LOGIN)
    assert reader.subscribe("dead/#", qos=1) == [1]
    sender = world.broker.connect(login="bob", passcode="right")
    for queue in ("secret.a", "open.a"):
        sender.confirmed(f"/queue/{queue}", queue.encode(), expires=str(world.broker.now + 1_000))
    world.advance(5)
    assert reader.payloads() == [b"open.a"]
    assert world.broker.engine.queue("dead.expired").message_count == 2


def test_and_to_the_first_origin_of_what_has_died_again() -> None:
    """A secret message that expired, was sent on to an address that the reader may read, and died there."""
    rules: dict[str, object] = {"match": "*.*", "dead-letter-address": "dead.a", "expiry-address": "dead.b"}
    world = SimWorld(guarded("secret.#", rules=rules), users=READERS)
    reader = world.connect("reader", **LOGIN)
    assert reader.subscribe("dead/#", qos=1) == [1]
    broker = world.broker
    sender = broker.connect(login="bob", passcode="right")
    for queue in ("secret.a", "open.a"):
        sender.confirmed(f"/queue/{queue}", queue.encode(), expires=str(broker.now + 1_000))
    world.advance(5)
    assert reader.payloads() == [b"open.a"]
    with broker.turn():
        broker.engine.messages.move(broker.engine.queue("dead.b"), "open.b", MessageRange())
    killed(broker, "open.b", sends=0, login="bob", passcode="right")
    assert broker.engine.queue("dead.a").message_count == 2
    assert reader.payloads() == [b"open.a"]
