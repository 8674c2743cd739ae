"""Descriptors or memory are used up for a while, from any operation of the disk on: nothing ends, all of it goes on."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.engine.model.errors import NotReadable
from store.errors import JournalError
from tests.simulation.crash_work import Oracle, Unconfirmed, Workload, config, crashing, rehearsed, restarted
from tests.simulation.world import SCALE
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import Fault, SimFiles

#: Of the operations, each so many are tried.
STRIDE = max(1, 10 // SCALE)

#: Longer than the journal waits before it tries again.
A_WHILE = 60_000


@pytest.mark.parametrize(
    ("fault", "sticky", "pages"),
    [  # each pair of values
        (Fault.EMFILE, False, False),
        (Fault.EMFILE, True, True),
        (Fault.ENOMEM, False, True),
        (Fault.ENOMEM, True, False),
    ],
)
def test_a_resource_missing_for_a_while_ends_nothing(fault: Fault, sticky: bool, pages: bool) -> None:
    settings = crashing() if pages else config()
    begun = SimFiles(1)
    SimBroker(settings, files=begun)
    hit = 0
    for at in range(1 + pages, rehearsed(settings)[0].operations - begun.operations, STRIDE):
        files, oracle = SimFiles(at), Oracle()
        broker = SimBroker(settings, files=files)
        files.plan(at, fault, sticky=sticky)
        with suppress(Unconfirmed, JournalError, NotReadable, IndexError, ValueError):
            Workload(broker, oracle).run()  # without what it waits for, it does not get far
        hit += files.faults > 0
        files.heal()
        for body in [body for body in oracle.places if body.startswith(b"short-lived")]:
            oracle.may(body, "ExpiryQueue")  # in the meantime
        for _ in range(5):
            broker.advance(A_WHILE)
        assert broker.failure is None, f"{fault} at {at}: {broker.failure}"
        client = broker.connect()
        for body in [b"after %d" % n + bytes(3_000) for n in range(4)]:  # in several segments
            client.confirmed("/queue/after", body)
            oracle.must(body, "after")
        broker.shut_down()
        restarted(files, settings, oracle)
    assert hit > 1, "there was something to fail"
