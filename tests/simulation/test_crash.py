"""The power goes, or the disk fails or is full, at every single operation of a mixed workload (see crash_work)."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from functools import cache
from typing import Final

import pytest

from broker.engine.moves.transfer import MessageRange
from tests.simulation.crash_work import config, fail_at, moments, rehearsed, restarted
from tests.simulation.world import SCALE, check_accounts, everything, held
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import Crash, Fault, SimFiles, power_cuts

#: Each operation is tried with so many disks that lose different things.
DISKS: Final = 2 * SCALE


@cache
def operations(fault: Fault, *, retained: bool = True) -> list[int]:
    """The disk operations of the workload that such a fault can hit."""
    files, oracle = rehearsed(config(retained=retained))
    assert Counter(place for places in oracle.places.values() for place in places) == {
        "orders": 9,
        "DLQ": 1,
        "again": 3,
        "attic": 1,
        "strict": 1,
        "gone": 9,
    }
    return files.hit_by(fault)


@pytest.mark.parametrize("disk", range(DISKS))
def test_crash_at_every_operation(disk: int) -> None:
    for at, (before, oracle) in enumerate(moments(config())):
        files = before.fork(disk * 1_000_003 + at)
        files.crash()
        broker = restarted(files, config(), oracle)
        client = broker.connect()
        client.confirmed("/queue/orders", b"after")
        oracle.must(b"after", "orders")
        restarted_again = broker.restart()
        oracle.check(restarted_again)


def test_crash_at_every_operation_of_small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is long work elsewhere is so here for two messages."""
    monkeypatch.setattr(SimBroker, "small_steps", True)
    for at, (before, oracle) in enumerate(moments(config())):
        files = before.fork(at)
        files.crash()
        oracle.check(restarted(files, config(), oracle))


@pytest.mark.parametrize("disk", range(DISKS))
def test_crash_in_the_middle_of_a_retry(disk: int) -> None:
    """Many at once: whatever part of them reaches the disk, each message is on one queue and not on two or none."""
    bodies = [b"%d" % n * 40 for n in range(40)]
    files = SimFiles(disk)
    broker = SimBroker(config(), files=files)
    client = broker.connect()
    for body in bodies:
        client.send("/queue/orders", body, persistent="true")
    client.subscribe("/queue/orders", id="o", ack="client-individual")
    for message in client.messages():
        client.nack(message, requeue="false")
    client.drop()
    with power_cuts(files, lambda: None) as cuts:
        broker.enter().messages.retry(broker.engine.queue("DLQ"), MessageRange())
        broker.run()
    partly = 0
    for at, (before, _) in enumerate(cuts):
        left = before.fork(disk * 1_000_003 + at)
        left.crash()
        again = SimBroker(config(), files=left, seed=1)
        check_accounts(again)
        assert everything(again) == Counter(bodies)
        partly += 0 < len(held(again, "orders")) < len(bodies)
    assert partly, "the power went while some were done"


@pytest.mark.parametrize(
    ("fault", "sticky", "retained"),
    [  # each pair of values
        (Fault.EIO, False, False),
        (Fault.EIO, True, True),
        (Fault.ENOSPC, False, True),
        (Fault.ENOSPC, True, False),
    ],
)
def test_a_disk_that_fails_at_every_operation(fault: Fault, sticky: bool, retained: bool) -> None:
    fail_at(operations(fault, retained=retained), config(retained=retained), fault, sticky=sticky)


def test_crash_within_the_recovery_of_a_crash() -> None:
    step = max(1, 5 // SCALE)
    for at, (before, oracle) in enumerate(moments(config())[::step]):
        for again in range(1, 30, 3):
            files = before.fork(at * 31 + again)
            files.crash()
            files.plan(again, Fault.CRASH)
            with suppress(Crash):
                SimBroker(config(), files=files)
            files.crash()
            restarted(files, config(), oracle)
