"""What becomes of a client's messages when something ends, for every kind of subscription: the table, from outside.

A client that may have two messages in flight has two subscriptions of one kind: a message of the first is in flight
with QoS 1, one of the second with QoS 2, and another one is parked behind it.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from broker.engine import IN_FLIGHT_OUTCOMES, Ending, SubscriptionKind
from broker.engine.model.permissions import Permission
from protocols.mqtt.codes import PacketType
from protocols.mqtt.properties import RECEIVE_MAXIMUM
from store.record import RemovalReason
from tests.broker.security.verbs import permissions, restrict
from tests.support.bodies import body_of
from tests.support.mqtt_client import MqttClient, greeting, publishes
from tests.support.mqtt_world import SimWorld

P = PacketType
LASTING: Any = {"clean": False, "expiry": 100}
TOPICS = ("x/1", "x/2")
BODIES = (b"sent once", b"sent twice", b"parked")
FILTERS = {"own": "{}", "borrowed": "{}", "shared": "$share/g/{}"}

#: What is expected of the messages with QoS 1, with QoS 2 and of the parked one.  "stays": it is the client's; "ready":
#: on its queue, for anyone; "consumed": counted so; "gone": with its queue.
EXPECTED = """
    own       unsubscribed      stays  stays     gone
    own       revoked           ready  ready     ready
    own       queue deleted     gone   gone      gone
    own       disconnected      stays  stays     stays
    own       connection lost   stays  stays     stays
    own       taken over        stays  stays     stays
    own       restarted         stays  stays     ready
    own       session ended     gone   gone      gone
    borrowed  unsubscribed      ready  ready     ready
    borrowed  revoked           ready  ready     ready
    borrowed  queue deleted     gone   gone      gone
    borrowed  disconnected      ready  ready     ready
    borrowed  connection lost   ready  ready     ready
    borrowed  taken over        ready  ready     ready
    borrowed  restarted         ready  ready     ready
    borrowed  session ended     ready  ready     ready
    shared    unsubscribed      stays  stays     ready
    shared    revoked           ready  ready     ready
    shared    queue deleted     gone   gone      gone
    shared    disconnected      ready  stays     ready
    shared    connection lost   ready  stays     ready
    shared    taken over        ready  stays     ready
    shared    restarted         ready  stays     ready
    shared    session ended     ready  consumed  ready
"""


def expected() -> dict[tuple[str, str], list[str]]:
    """The expectations by kind and ending."""
    rows = [line.split() for line in EXPECTED.splitlines() if line]
    return {(kind, " ".join(words[:-3])): words[-3:] for kind, *words in rows}


def prepared(kind: str) -> tuple[SimWorld, MqttClient]:
    """The client, with its messages.  A shared subscription has an absent member, too."""
    sim = SimWorld(permissions())
    filters = [FILTERS[kind].format(topic) for topic in TOPICS]
    if kind == "borrowed":
        stomp = sim.broker.connect()
        for number, topic in enumerate(TOPICS):
            stomp.do("SUBSCRIBE", {"destination": f"/queue/{topic.replace('/', '.')}", "id": str(number)})
            stomp.do("UNSUBSCRIBE", {"id": str(number)})
    if kind == "shared":
        sim.subscriber("d", *filters, qos=2, **LASTING).drop()
    client = sim.connect("c", auto=False, properties=[(RECEIVE_MAXIMUM, 2)], **LASTING)
    assert client.subscribe(*filters, qos=2) == [2, 2]
    sender = sim.connect("sender")
    sender.publish("x/1", b"sent once", 1)
    sender.raw(publishes([("x/2", b"sent twice")], 2) + publishes([("x/2", b"parked")], 1))
    assert [(m.payload, m.qos) for m in client.take()] == [(b"sent once", 1), (b"sent twice", 2)]
    assert places(sim) == ["stays"] * 3
    return sim, client


def places(sim: SimWorld) -> list[str]:
    """Where each of the messages is."""
    found = dict.fromkeys(BODIES, "gone")
    for queue in sim.broker.engine.queues.values():
        if queue.address.name.startswith("x."):
            if queue.left[RemovalReason.CONSUMED]:
                found[BODIES[TOPICS.index(queue.address.name.replace(".", "/"))]] = "consumed"
            for message, where in sim.broker.engine.messages.browse(queue):
                found[body_of(message)] = "ready" if where == "ready" else "stays"
    return list(found.values())


def end(sim: SimWorld, client: MqttClient, kind: str, ending: str) -> None:
    """Let it end."""
    match ending:
        case "unsubscribed":
            client.unsubscribe(*[FILTERS[kind].format(topic) for topic in TOPICS])
        case "revoked":
            restrict(sim.broker, permissions(Permission.CONSUME))
        case "queue deleted":
            with sim.broker.turn():
                for queue in [each for each in sim.broker.engine.queues.values() if each.address.name[:2] == "x."]:
                    sim.broker.engine.operators.delete_queue(queue, with_messages=True)
        case "disconnected":
            client.disconnect()
        case "connection lost":
            client.drop()
        case "taken over":
            sim.hold_disk()  # until it is written, the new connection gets nothing
            sim.attempt(greeting("c", clean=False, properties=[(RECEIVE_MAXIMUM, 2)]))
        case "restarted":
            sim.restart()
        case "session ended":
            sim.hold_disk()
            sim.attempt(greeting("c"))
        case _:
            raise AssertionError(ending)


@pytest.mark.parametrize(("kind", "ending"), expected())
def test_the_table(kind: str, ending: str) -> None:
    sim, client = prepared(kind)
    end(sim, client, kind, ending)
    assert places(sim) == expected()[kind, ending]


def test_the_table_has_a_row_for_everything() -> None:
    every = [(kind.value, ending.value) for kind, ending in product(SubscriptionKind, Ending)]
    assert list(expected()) == every
    assert [(kind.value, ending.value) for kind, ending in IN_FLIGHT_OUTCOMES] == every


def test_the_page_has_the_table() -> None:
    """docs/mqtt.md, row by row."""
    page = (Path(__file__).parents[4] / "docs" / "mqtt.md").read_text()
    for ending in Ending:
        cells = [", ".join(each.value for each in IN_FLIGHT_OUTCOMES[kind, ending]) for kind in SubscriptionKind]
        assert f"| {ending.value} | {' | '.join(cells)} |\n" in page, ending
