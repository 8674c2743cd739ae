"""Large bodies on a disk that fails, fills or loses power at any of its operations.

The same work is done again and again, and each time the next operation goes wrong.  After a restart on what is left:
what was confirmed is there, with its very bytes; what was confirmed as consumed is not; and no file is left behind.
"""

from __future__ import annotations

import contextlib

import pytest

from store.bodies import SUFFIX
from store.errors import JournalError
from store.inspect import verify
from tests.broker.sessions.large import body, config
from tests.support.bodies import body_of
from tests.support.sim_broker import SimBroker
from tests.support.sim_database import FAULTS, SimDatabase
from tests.support.sim_files import Crash, Fault, SimFiles

CONFIG = config({"match": "q", "max-delivery-attempts": 1})

KEPT, MOVED, USED, LATE = body(3000), body(4000), body(5000), body(6000)


class Told:
    """What the broker confirmed."""

    def __init__(self) -> None:
        self.sent: set[bytes] = set()
        self.acked: set[bytes] = set()
        self.consumed: set[bytes] = set()


def work(broker: SimBroker, told: Told) -> None:
    """Sends, one of them in a transaction, a dead letter, a message consumed, an upload that is broken off."""
    client = broker.connect()

    def receipt(name: str) -> bool:
        return any(frame.headers["receipt-id"] == name for frame in client.take("RECEIPT"))

    for data in (MOVED, USED):
        client.send("/queue/q", data, persistent="true", receipt="s")
        if receipt("s"):
            told.sent.add(data)
    client.do("BEGIN", {"transaction": "t"})
    client.send("/queue/q", KEPT, persistent="true", transaction="t")
    client.do("COMMIT", {"transaction": "t", "receipt": "t"})
    if receipt("t"):
        told.sent.add(KEPT)
    client.subscribe("/queue/q")
    for message in client.messages():
        assert message.body in (KEPT, MOVED, USED), "nobody gets another body than was sent"
        if message.body == MOVED:
            client.nack(message)
        elif message.body == USED:
            told.acked.add(USED)
            client.ack(message, receipt="u")
            if receipt("u"):
                told.consumed.add(USED)
    late = broker.connect()
    late.raw(b"SEND\ndestination:/queue/q\npersistent:true\ncontent-length:6000\n\n" + LATE[:4000])
    late.drop()


def found(broker: SimBroker) -> list[bytes]:
    """The bodies of all messages."""
    return [
        body_of(message)
        for name in ("q", "DLQ")
        if name in broker.engine.queues
        for message, _ in broker.engine.messages.browse(broker.engine.queue(name))
    ]


def check(files: SimFiles, told: Told) -> None:
    """The next start finds what it should."""
    broker = SimBroker(CONFIG, files=files)
    there = found(broker)
    assert len(there) == len(set(there)), "nothing is there twice"
    assert set(there) <= {KEPT, MOVED, USED}
    assert told.sent - told.acked <= set(there)
    assert not told.consumed & set(there)
    assert len([path for path in files.paths() if path.endswith(SUFFIX)]) == len(there)
    broker.shut_down()
    assert verify(files, broker.parts.log.directory).ok


def operations(fault: Fault) -> list[int]:
    """The disk operations of the workload, from 1, that such a fault can hit; and one behind all of them."""
    files = SimFiles()
    broker = SimBroker(CONFIG, files=files)
    begun = files.operations
    work(broker, Told())
    return [*(at - begun for at in files.hit_by(fault) if at > begun), files.operations - begun + 1]


@pytest.mark.parametrize("fault", list(Fault))
def test_faults_everywhere(fault: Fault) -> None:
    *hit, behind = operations(fault)
    assert hit
    assert behind > 30, "there are operations to fail"
    for at in [*hit, behind]:
        files, told = SimFiles(at), Told()
        broker = SimBroker(CONFIG, files=files)
        files.plan(at, fault)
        with contextlib.suppress(Crash, JournalError, OSError):
            work(broker, told)
        assert files.faults == (at < behind)
        files.heal()
        passing = fault in (Fault.ENOSPC, Fault.EMFILE, Fault.ENFILE, Fault.ENOMEM)
        assert broker.failure is None or not passing, f"{fault} ends nothing: {broker.failure}"
        if passing and at < behind:
            broker.shut_down()
        else:
            files.crash()
        check(files, told)


@pytest.mark.parametrize("faults", [*([fault] for fault in FAULTS), ["after", "", "lost"]], ids="-".join)
def test_faults_of_a_database_everywhere(faults: list[str]) -> None:
    """Another broker takes over on a disk of its own, and then the first one again."""
    at = 1  # the first change is the claim
    while True:
        at += 1
        shared, told, mine = SimDatabase(at), Told(), SimFiles(at)
        broker = SimBroker(CONFIG, files=mine, shared=shared)
        shared.plan(at, *faults)
        with contextlib.suppress(JournalError, OSError):
            work(broker, told)
        done = shared.changes < at
        shared.reachable = True
        shared.plan(0)
        mine.crash()
        for files in (SimFiles(at), mine):
            again = SimBroker(CONFIG, files=files, shared=shared, seed=at)
            there = found(again)
            assert len(there) == len(set(there)), "nothing is there twice"
            assert told.sent - told.acked <= set(there) <= {KEPT, MOVED, USED}
            assert not told.consumed & set(there)
            assert len([path for path in files.paths() if path.endswith(SUFFIX)]) == len(there)
            assert len(shared.tables.bodies) == len({id for id, _ in shared.tables.chunks}) == len(there)
        if done:
            break
    assert at > 10, "there were changes to fail"
