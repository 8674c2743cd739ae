"""A dead letter names its sender and when it was sent, in the headers of every protocol, also after a restart."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from protocols.mqtt.properties import USER_PROPERTY
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_world import SimWorld

USERS = {"bob": "pw", "ops": "pw"}


def from_stomp(sim: SimWorld) -> None:
    sender = sim.broker.connect(login="bob", passcode="pw", **{"client-id": "till-7"})
    sender.confirmed("/queue/a", b"x")


def from_amqp(sim: SimWorld) -> None:
    sender = AmqpSim(sim.broker, container="till-7", login=("bob", "pw"))
    sender.send(sender.sender("a", "queue"), message("x"))


def from_mqtt(sim: SimWorld) -> None:
    sim.broker.connect(login="ops", passcode="pw").confirmed("/queue/a", b"makes the address")
    sim.connect("till-7", user_name="bob", password=b"pw").publish("a", b"x", 1)


@pytest.mark.parametrize("send", [from_stomp, from_amqp, from_mqtt])
def test_a_dead_letter_names_its_sender_and_time(send: Callable[[SimWorld], None]) -> None:
    sim = SimWorld(users=USERS)
    send(sim)
    sent = sim.broker.now
    sim.advance(60)
    taker = sim.broker.connect(login="ops", passcode="pw")
    taker.subscribe("/queue/a")
    for each in taker.messages():
        taker.nack(each, requeue="false")
    sim.restart()
    expected = {"ORIG-USER": "bob", "ORIG-CLIENT": "till-7", "ORIG-TIMESTAMP": str(sent)}
    for _ in range(2):
        assert stomp_says(sim) == amqp_says(sim) == mqtt_says(sim) == expected
        sim.restart()


def told(names: dict[str, str], prefix: str) -> dict[str, str]:
    return {
        name.removeprefix(prefix).replace("_", "-"): value
        for name, value in names.items()
        if name.startswith(prefix + "ORIG")
    }


def stomp_says(sim: SimWorld) -> dict[str, str]:
    client = sim.broker.connect(login="ops", passcode="pw")
    client.subscribe("/queue/DLQ", browser="true")
    return told(client.messages()[-2].headers, "_AMQ_DL_")


def amqp_says(sim: SimWorld) -> dict[str, str]:
    client = AmqpSim(sim.broker, login=("ops", "pw"))
    client.receiver("DLQ", distribution_mode="copy")
    annotations = client.take()[-1].message.message_annotations
    return told({str(name): str(value) for name, value in annotations.items()}, "x-opt-DL-")


def mqtt_says(sim: SimWorld) -> dict[str, str]:
    client = sim.subscriber("reader", "DLQ", qos=1, user_name="ops", password=b"pw", auto=False)
    letter = client.take()[-1]
    client.drop()
    return told(dict(letter.properties.get_all(USER_PROPERTY)), "_AMQ_DL_")
