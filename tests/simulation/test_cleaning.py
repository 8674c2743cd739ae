"""The power goes, or the disk fails, at every operation while the journal is being cleaned."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress

import pytest

from broker.engine.model.limits import Limits
from store.errors import JournalError
from tests.simulation.world import SCALE, check_accounts, everything, held, small
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.sim_files import Fault, SimFiles, power_cuts

STAYING = Counter({b"stays %d" % n: 1 for n in range(3)})
CONFIG = small({"match": "failed", "redelivery-delay": 3_600_000}, segment_bytes=8 << 10)

#: Rounds that a run sees: the copies of one are copied again by the next.
ROUNDS = 2


def prepared(files: SimFiles) -> tuple[SimBroker, SimClient]:
    """Messages that stay, one of them after a failed delivery."""
    broker = SimBroker(CONFIG, files=files)
    client = broker.connect()
    for body in list(STAYING)[:2]:
        client.confirmed("/queue/kept", body)
    client.confirmed("/queue/failed", list(STAYING)[2])
    client.subscribe("/queue/failed", id="f", ack="client-individual")
    (message,) = client.messages()
    client.nack(message, receipt="nack")
    assert client.take("RECEIPT")
    client.subscribe("/queue/passing", id="p", ack="client-individual")
    return broker, client


def churn(broker: SimBroker, client: SimClient) -> None:
    """Messages come and go until the journal was cleaned some times.  Ends early if the disk fails."""
    waiting = []
    while broker.engine.cleaner.rounds < ROUNDS and broker.failure is None:
        client.send("/queue/passing", b"x" * 700, persistent="true")
        waiting += client.messages()
        while len(waiting) > 1:  # the younger one is acknowledged in the next segment, if that begins now
            client.ack(waiting.pop(0))
        broker.advance(Limits().cleaning_period)


def check(broker: SimBroker) -> None:
    found = everything(broker)
    found.pop(b"x" * 700, None)
    assert found == STAYING
    failed = broker.engine.queue("failed")
    assert [(m.body, failed.delivery_count(m.id)) for _, m in failed.scheduled.values()] == [(b"stays 2", 1)]
    assert held(broker, "kept") == [b"stays 0", b"stays 1"]
    check_accounts(broker)


@pytest.mark.parametrize("disk", range(SCALE))
def test_the_power_goes_at_every_operation(disk: int) -> None:
    files = SimFiles(disk)
    broker, client = prepared(files)
    with power_cuts(files, lambda: None) as moments:
        churn(broker, client)
    assert broker.engine.cleaner.messages >= ROUNDS
    for at, (before, _) in enumerate(moments):
        left = before.fork(disk * 1_000_003 + at)
        left.crash()
        again = SimBroker(CONFIG, files=left, seed=1)
        check(again)
        check(again.restart())


@pytest.mark.parametrize("disk", range(SCALE))
def test_the_disk_fails_at_every_operation(disk: int) -> None:
    at = 0
    while True:
        at += 1
        files = SimFiles(disk * 1_000_003 + at)
        broker, client = prepared(files)
        files.plan(at, Fault.EIO)
        with suppress(JournalError):
            churn(broker, client)
        if not files.faults:
            assert broker.engine.cleaner.messages >= ROUNDS
            break
        files.crash()
        again = SimBroker(CONFIG, files=files, seed=1)
        check(again)
        check(again.restart())
