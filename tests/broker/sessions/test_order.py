"""A queue has the messages of a producer in the order in which they were sent, durable or not, in every protocol."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

import pytest

from broker.config.addresses import AddressSection, Queue
from protocols.amqp.performatives import Header
from protocols.mqtt.codes import V5
from protocols.mqtt.encode import PublishHead
from tests.simulation.world import check_accounts, check_counters
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient
from tests.support.mqtt_world import FOR_EVER, SimWorld
from tests.support.sim_broker import configured
from tests.support.stomp_client import frame

#: The settings of the addresses, by what happens to messages.
SETTINGS: Final[dict[str, dict[str, object]]] = {
    "in memory": {"match": "a"},
    "paged": {"match": "a", "max-size-messages": 5, "address-full-policy": "PAGE"},
    "strict": {"match": "a", "delivery-count-persistence": "strict"},
    "paged, strict": {
        "match": "a",
        "max-size-messages": 5,
        "address-full-policy": "PAGE",
        "delivery-count-persistence": "strict",
    },
}


#: Sends messages in one read: the number of each, and whether it is durable.
Send = Callable[[list[tuple[int, bool]]], None]


def by_stomp(world: SimWorld) -> Send:
    client = world.broker.connect()

    def send(messages: list[tuple[int, bool]]) -> None:
        reads = [
            frame("SEND", {"destination": "a", "persistent": str(durable).lower()}, b"%d" % number)
            for number, durable in messages
        ]
        client.raw(b"".join(reads))

    return send


def by_stomp_in_transactions(world: SimWorld) -> Send:
    client = world.broker.connect()

    def send(messages: list[tuple[int, bool]]) -> None:
        client.do("BEGIN", {"transaction": "t"})
        for number, durable in messages:
            client.send("a", b"%d" % number, transaction="t", persistent=str(durable).lower())
        client.do("COMMIT", {"transaction": "t"})

    return send


def by_amqp(world: SimWorld) -> Send:
    client = AmqpSim(world.broker)
    links = [client.sender("a", name=name) for name in ("one", "other")]

    def send(messages: list[tuple[int, bool]]) -> None:
        for number, durable in messages:
            link = links[number % 2]
            link.send([message(str(number), header=Header(durable))], [number], settled=number % 3 == 0)
        client.say()

    return send


def by_mqtt(world: SimWorld) -> Send:
    client = world.connect("sender")

    def send(messages: list[tuple[int, bool]]) -> None:
        for number, durable in messages:
            head = PublishHead(V5, "a", qos=1 if durable else 0)
            client.codec.send_publish(head, [b"%d" % number], [number + 1] if durable else [])
        client.settle()

    return send


SENDERS: Final = {
    "stomp": by_stomp,
    "stomp, transactions": by_stomp_in_transactions,
    "amqp": by_amqp,
    "mqtt": by_mqtt,
}


# -- those that take: what has arrived ---------------------------------------------------------------------------------

Taker = Callable[[], list[int]]


def stomp_taker(world: SimWorld, queue: str) -> Taker:
    client = world.broker.connect()
    client.subscribe(f"a::{queue}", ack="client-individual")

    def take() -> list[int]:
        found = []
        for got in client.messages():
            found.append(int(str(body_value(got.body))))
            client.do("ACK", {"id": got.headers["ack"]})
        return found

    return take


def amqp_taker(world: SimWorld, queue: str) -> Taker:
    client = AmqpSim(world.broker)
    link = client.receiver(f"a::{queue}", credit=10_000)
    assert link.attach is not None

    def take() -> list[int]:
        found = client.take()
        client.settle(*found)
        return [int(str(body_value(each.body))) for each in found]

    return take


def mqtt_taker(client: MqttClient) -> Taker:
    return lambda: [int(body_value(payload)) for payload in client.payloads()]


def body_value(body: object) -> str:
    """Every sender's number, as every receiver gets it."""
    return body.decode() if isinstance(body, bytes) else str(body)


def world_of(settings: dict[str, object]) -> SimWorld:
    """A broker whose address `a` has a durable queue, and one that is not."""
    queues = {
        "durable": Queue.model_validate({"routing-type": "ANYCAST"}),
        "volatile": Queue.model_validate({"routing-type": "MULTICAST", "durable": False}),
    }
    return SimWorld(configured(settings, addresses={"a": AddressSection(queues=queues)}))


@pytest.mark.parametrize("kind", list(SETTINGS))
@pytest.mark.parametrize("sender", list(SENDERS))
@pytest.mark.parametrize("seed", range(3))
def test_each_queue_has_the_order_of_each_producer(sender: str, kind: str, seed: int) -> None:
    random = Random(f"{seed} {sender} {kind}")
    world = world_of(SETTINGS[kind])
    made: dict[str, tuple[Callable[[SimWorld, str], Taker], str]] = {
        "stomp, durable": (stomp_taker, "durable"),
        "amqp, volatile": (amqp_taker, "volatile"),
    }
    if seed % 2:
        made = {"amqp, durable": (amqp_taker, "durable"), "stomp, volatile": (stomp_taker, "volatile")}
    takers: dict[str, Taker] = {
        "mqtt, stored": mqtt_taker(world.subscriber("stored", "a", qos=1, expiry=FOR_EVER)),
        "mqtt, not stored": mqtt_taker(world.subscriber("passing", "a", qos=2)),
    }
    seen: dict[str, list[int]] = {name: [] for name in (*made, *takers)}
    sends = [SENDERS[sender](world), by_stomp(world)]
    world.hold_disk()
    next_number = [0, 1]  # even and odd: whose it is
    for step in range(12):
        if step == random.randrange(12) or step == 6:
            for name, (make, queue) in made.items():
                if name not in takers:
                    takers[name] = make(world, queue)
        which = random.randrange(2)
        batch = []
        for _ in range(random.randrange(1, 10)):
            batch.append((next_number[which], random.random() < 0.5))
            next_number[which] += 2
        sends[which](batch)
        if random.random() < 0.4:
            world.broker.step()
        for name, take in takers.items():
            seen[name] += take()
    world.broker.release_disk()
    for _ in range(5):
        world.write()
        for name, take in takers.items():
            seen[name] += take()
    for name, numbers in seen.items():
        for which in range(2):
            expected = list(range(which, next_number[which], 2))
            assert [each for each in numbers if each % 2 == which] == expected, (name, which)
    check_accounts(world.broker)
    check_counters(world.broker)


def test_600_alternating_sends_of_one_link() -> None:
    world = world_of(SETTINGS["in memory"])
    send, take = by_amqp(world), amqp_taker(world, "durable")
    send([(number, number % 2 == 1) for number in range(600)])
    assert take() == list(range(600))


def test_messages_that_need_no_disk_do_not_wait_for_that_of_other_queues() -> None:
    world = world_of(SETTINGS["in memory"])
    client = world.broker.connect()
    durable, volatile, other = (stomp_taker(world, "durable"), stomp_taker(world, "volatile"), world.broker.connect())
    other.subscribe("/queue/other")
    world.hold_disk()
    client.send("a", b"1", persistent="true")
    client.send("a", b"2")
    client.send("/queue/other", b"3")
    assert (durable(), volatile(), other.bodies()) == ([], [1, 2], [b"3"])
    world.write()
    assert (durable(), volatile(), other.bodies()) == ([1, 2], [], [])


def test_messages_behind_a_durable_one_go_with_its_queue() -> None:
    """Deleted, it is counted once."""
    world = world_of(SETTINGS["in memory"])
    world.hold_disk()
    client = world.broker.connect()
    client.send("/queue/gone", b"1", persistent="true")
    client.send("/queue/gone", b"2")
    engine = world.broker.engine
    assert engine.queues["gone"].message_count == 2
    engine.ticks.begin()
    engine.delete_queue(engine.queues["gone"])
    world.broker.run()
    world.write()
    check_accounts(world.broker)
    check_counters(world.broker)
