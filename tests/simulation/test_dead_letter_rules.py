"""Rules for dead letters while the power goes: nothing is lost or doubled, and no message takes a trip too many."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Final

import pytest

from broker.config import Config
from broker.engine.model.message import Message
from store.record import RemovalReason
from tests.simulation.random_work import PAGING
from tests.simulation.world import SCALE, check_accounts, check_counters, everything, held, reasons, small
from tests.support.bodies import body_of
from tests.support.rules import sections
from tests.support.sim_broker import START, SimBroker
from tests.support.sim_files import SimFiles, power_cuts

TRIPS: Final = 2


def config(*settings: dict[str, object]) -> Config:
    """What died on `orders` comes back twice and is parked; what expired is discarded after a while."""
    rules = sections(
        {"action": "discard", "reasons": ["expired"], "min-age": 300},
        {"action": "retry", "reasons": ["rejected"], "origin-queue": "orders", "every": 100, "at-most": TRIPS},
        {"action": "move", "to": "parking", "reasons": ["rejected"]},
    )
    return small(*settings, segment_bytes=16 << 10, dead_letter_rules=rules)


def messages(broker: SimBroker) -> list[Message]:
    """Everything that lies anywhere."""
    queues = broker.engine.queues.values()
    return [message for queue in queues for message, _ in broker.engine.messages.browse(queue)]


def check(broker: SimBroker, sent: set[bytes]) -> None:
    """What was confirmed is there once, but for what was discarded; no rule did more than it may."""
    found = everything(broker)
    assert set(found.values()) <= {1}
    missing = sent - found.keys()
    assert all(body.startswith(b"late") for body in missing), missing
    for message in messages(broker):
        assert int((message.header.annotations or {}).get("_AMQ_DL_RETRIES", 0)) <= TRIPS
    check_accounts(broker)
    check_counters(broker)


def refuse(broker: SimBroker) -> int:
    """A consumer of `orders` refuses whatever there is for good."""
    client = broker.connect()
    client.subscribe("/queue/orders", id="o", ack="client-individual")
    refused = 0
    while found := client.messages():
        for message in found:
            client.nack(message, requeue="false")
        refused += len(found)
    client.drop()
    return refused


def to_the_end(broker: SimBroker, sent: set[bytes]) -> None:
    """All go their way: what is refused is parked after its trips, what expired first is gone."""
    for _ in range(TRIPS + 2):
        broker.advance(1000)
        refuse(broker)
    parked = held(broker, "parking")
    assert {body for body in sent if not body.startswith(b"late")} <= set(parked) <= sent
    assert everything(broker) == Counter(parked)


def work(broker: SimBroker, sent: set[bytes]) -> None:
    """Messages that expire and that are refused, until each has come to its end."""
    client = broker.connect()
    for number in range(4):
        for body, more in ((b"late %d" % number, {"expires": str(broker.now + 50)}), (b"bad %d" % number, {})):
            client.send("/queue/orders", body, persistent="true", receipt="r", **more)
            assert client.take("RECEIPT")
            sent.add(body)
    broker.advance(50)
    for _ in range(TRIPS + 1):
        refuse(broker)
        broker.advance(100)
    broker.advance(1000)


@pytest.mark.parametrize("disk", range(SCALE))
def test_the_power_goes_at_every_operation(disk: int) -> None:
    running = SimFiles(disk)
    confirmed: set[bytes] = set()
    with power_cuts(running, confirmed.copy) as moments:
        work(SimBroker(config(), files=running), confirmed)
    assert len(moments) > 40, "the power goes in the middle of it"
    for at, (before, sent) in enumerate(moments):
        files = before.fork(disk * 1_000_003 + at)
        files.crash()
        again = SimBroker(config(), files=files, seed=1, now=START + 10_000)
        sent |= {body_of(message) for message in messages(again)}  # the one that was under way
        check(again, sent)
        to_the_end(again, sent)

    sent = set()
    broker = SimBroker(config())
    work(broker, sent)
    to_the_end(broker, sent)
    left = check_accounts(broker)
    assert reasons(left["ExpiryQueue"]) == {RemovalReason.DISCARDED: 4}
    assert reasons(left["DLQ"]) == {RemovalReason.MOVED: 4 * (TRIPS + 1)}


@pytest.mark.parametrize("seed", range(10 * SCALE))
def test_any_order_of_events(seed: int) -> None:
    """Sends, refusals, consumers of dead letters, time, paging and restarts in any order."""
    random = Random(seed)
    paging = ({"match": "DLQ", **PAGING},) if seed % 2 else ()
    broker = SimBroker(config(*paging), seed=seed)
    sent: set[bytes] = set()
    done: Counter[str] = Counter()
    for number in range(120):
        step = random.choices(("send", "late", "refuse", "hold", "advance", "restart"), (6, 2, 3, 1, 6, 0.7))[0]
        done[step] += 1
        if step in ("send", "late"):
            body = b"%s %d" % (step.encode(), number)
            client = broker.connect()
            more = {"expires": str(broker.now + 50)} if step == "late" else {}
            client.confirmed("/queue/orders", body, **more)
            client.drop()
            sent.add(body)
        elif step == "refuse":
            refuse(broker)
        elif step == "hold":
            client = broker.connect()
            client.subscribe("/queue/DLQ", id="d", ack="client-individual")
            broker.advance(random.randrange(400))
            client.drop()
        elif step == "advance":
            broker.advance(random.randrange(250))
        else:
            check(broker, sent)
            broker = broker.restart(crash=random.random() < 0.7)
            check(broker, sent)
    broker.advance(20_000)
    check(broker, sent)
    to_the_end(broker, sent)
