"""Browsers show a queue in its order while others consume from it, in every protocol."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.engine.model.message import Message, PropertyView
from broker.engine.operators import messages
from broker.engine.queues.cursors import MATCH_COST
from broker.engine.queues.steps import BUDGET, BUDGET_MIN, STEP
from protocols.amqp.types import Described, Symbol
from tests.simulation.world import small
from tests.support.amqp_client import AmqpSim
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import refusing
from tests.support.stomp_client import frame

PAGED = {"match": "a", "max-size-messages": 3, "max-read-page-messages": 2, "address-full-policy": "PAGE"}


def by_stomp(broker: SimBroker) -> list[bytes]:
    client = broker.subscriber("/queue/a", browser="true")
    return client.bodies()[:-1]


def by_amqp(broker: SimBroker) -> list[bytes]:
    client = AmqpSim(broker)
    client.receiver("a", distribution_mode="copy")
    return [str(body).encode() for body in client.bodies()]


def by_operator(broker: SimBroker) -> list[bytes]:
    queue = broker.engine.queue("a")
    return [bytes(m.body) for m, place in broker.engine.messages.browse(queue) if place != "scheduled"]  # type: ignore[arg-type]


@pytest.mark.parametrize("look", [by_stomp, by_amqp, by_operator])
@pytest.mark.parametrize("paged", [False, True])
def test_messages_of_consumers_stand_in_their_place(look: object, paged: bool) -> None:
    assert callable(look)
    broker = SimBroker(small(PAGED) if paged else small())
    sender = broker.connect()
    for n in range(8):
        sender.confirmed("/queue/a", b"%d" % n)
    sender.confirmed("/queue/a", b"later", AMQ_SCHEDULED_DELAY="1000000")
    sender.confirmed("/queue/a", b"urgent", priority="9")
    first, second = broker.connect(), broker.connect()
    first.subscribe("/queue/a", selector="priority IS NULL OR TRUE", consumer_window_size="800")
    second.subscribe("/queue/a", consumer_window_size="0")
    order = [b"urgent", *(b"%d" % n for n in range(8))]
    assert broker.engine.queue("a").delivering
    assert look(broker) == order
    second.drop()
    assert look(broker) == order, "what came back stands where it was"
    first.nack(first.messages()[-1])
    assert look(broker) == order


@pytest.mark.parametrize("seed", range(5))
def test_random_consumers(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    broker = SimBroker(small(PAGED))
    sender = broker.connect()
    clients = []
    left = []
    for n in range(60):
        priority = random.choice("444449")
        sender.confirmed("/queue/a", b"%d" % n, priority=priority)
        left.append((-int(priority), n))
        if random.random() < 0.2:
            client = broker.subscriber("/queue/a", consumer_window_size=random.choice(["0", "700"]))
            clients.append(client)
        for client in clients:
            for message in client.messages():
                match random.choice(["ack", "nack", "keep", "keep"]):
                    case "ack":
                        client.ack(message)
                        left.remove((-int(message.headers["priority"]), int(message.body)))
                    case "nack":
                        client.nack(message)
    expected = [b"%d" % n for _, n in sorted(left)]
    for look in (by_stomp, by_amqp, by_operator):
        assert look(broker) == expected


def test_over_stomp_nothing_follows_a_browser_that_could_not_be_shown_everything() -> None:
    broker = SimBroker(small(PAGED))
    client = broker.connect()
    for n in range(8):
        client.confirmed("/queue/a", b"%d" % n)
    with refusing(broker.files, errno.EMFILE):
        client.raw(
            frame("SEND", {"destination": "/queue/b", "receipt": "before"}, b"x")
            + frame("SUBSCRIBE", {"destination": "/queue/a", "id": "1", "browser": "true", "receipt": "half"})
            + frame("SUBSCRIBE", {"destination": "/queue/b", "id": "2", "receipt": "behind"})
        )
    client.messages()
    said = [(each.command, each.headers.get("receipt-id")) for each in client.frames]
    assert said == [("RECEIPT", "before"), ("ERROR", "half")]
    assert client.closed
    assert not broker.engine.queue("b").consumers


@interpreted
@pytest.mark.parametrize("protocol", ["stomp", "amqp"])
def test_browsers_whose_selectors_match_nothing_share_the_budget_of_a_tick(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = SimBroker(small())
    sender = broker.connect()
    for n in range(400):
        sender.send("/queue/a", b"%d" % n)
    browsers = 20
    looked = 0
    in_tick: list[int] = []

    class Counting(PropertyView):
        def __init__(self, message: Message) -> None:
            nonlocal looked
            looked += 1
            super().__init__(message)

    monkeypatch.setattr(messages, "PropertyView", Counting)
    end = broker.engine.ticks.end

    def ended() -> None:
        nonlocal looked
        end()
        in_tick.append(looked)
        looked = 0

    monkeypatch.setattr(broker.engine.ticks, "end", ended)
    if protocol == "stomp":
        client = broker.connect()
        headers = {"destination": "/queue/a", "browser": "true", "selector": "a = 1"}
        client.raw(b"".join([frame("SUBSCRIBE", headers | {"id": f"{n}"}) for n in range(browsers)]))
        ends = [message.headers["browser"] for message in client.messages()]
        assert ends == ["end"] * browsers
    else:
        peer = AmqpSim(broker)
        wanted = {Symbol("s"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")}
        for n in range(browsers):
            link = peer.receiver("a", distribution_mode="copy", name=f"{n}", credit=0, filter=wanted)
            link.send_credit(10, drain=True)
        peer.say()
        assert peer.bodies() == []
    assert sum(in_tick) == 400 * browsers
    assert max(in_tick) <= (BUDGET + BUDGET_MIN + STEP) // MATCH_COST
    assert len([count for count in in_tick if count]) > 2
