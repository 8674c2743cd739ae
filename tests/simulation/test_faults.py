"""An exception at the N-th thing that the engine does within a verb, for every N: an entry is whole, or it never is.

The fault is planted where all of them meet: in what adds a record to the open entry, before and after it has, and at
the calls of the engine in between.  The process ends; on the disk it leaves behind every message is on one queue.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType
from typing import Any, Protocol

import pytest

from broker.engine.moves.transfer import MessageRange
from store.journal import Journal
from tests.simulation.world import everything, small
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker, SimClient

BODIES = [b"a", b"b", b"c"]


class Fault(Exception):
    """What nobody expected."""


class TraceFunction(Protocol):
    """See sys.settrace."""

    def __call__(self, frame: FrameType, event: str, argument: object, /) -> TraceFunction | None: ...


@contextmanager
def record_fault(at: int, *, after: bool) -> Iterator[list[int]]:
    """Fail where the record number `at` is added to the open entry, before or `after` it is; how many were."""
    seen = [0]

    def failing(original: Callable[..., None]) -> Callable[..., None]:
        def add(*args: object) -> None:
            seen[0] += 1
            if after:
                original(*args)
            if seen[0] == at:
                raise Fault
            if not after:
                original(*args)

        return add

    with pytest.MonkeyPatch.context() as patch:
        for name in ("add", "add_messages", "add_mixed", "add_copies", "add_large"):
            patch.setattr(Journal, name, failing(getattr(Journal, name)))
        yield seen


@cache
def _belongs(code: CodeType, module: str) -> bool:
    """Whether a function is the engine's or the journal's; no half generator, and not what the writer calls."""
    return (module.startswith("broker.engine.") or module == "store.journal") and code.co_name not in (
        "<genexpr>",
        "durable",
    )


@contextmanager
def call_fault(at: int) -> Iterator[list[int]]:
    """Fail at the call number `at` of a function of the engine's or the journal's, apart from the simulation's own."""
    seen = [0]
    asked: list[FrameType] = []  # what the simulation asks, outermost first: calls within do not count

    def trace(frame: FrameType, event: str, argument: object) -> TraceFunction | None:
        code = frame.f_code
        if code.co_name in ("next_due", "confirms"):
            asked.append(frame)
            frame.f_trace_lines = False
            return answered
        if not asked and _belongs(code, frame.f_globals.get("__name__", "")):
            seen[0] += 1
            if seen[0] == at:
                sys.settrace(None)
                raise Fault
        return None

    def answered(frame: FrameType, event: str, argument: object) -> TraceFunction:
        if event == "return":
            assert asked.pop() is frame
        return answered

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield seen
    finally:
        sys.settrace(before)


def reject(broker: SimBroker, client: SimClient) -> None:
    """Three dead letters, in one read of the socket."""
    for message in client.messages():
        client.nack(message, requeue="false")


def expire(broker: SimBroker, client: SimClient) -> None:
    """Three messages whose time is over."""
    broker.advance(60_000)


def retry(broker: SimBroker, client: SimClient) -> None:
    """An operator moves three messages."""
    tick = broker.parts.tick
    tick.enter()
    try:
        broker.engine.messages.move(broker.engine.queue("idle"), "elsewhere", MessageRange())
    except Fault as error:
        tick.failed(None, error)  # as the HTTP acceptor does
    broker.run()


def commit(broker: SimBroker, client: SimClient) -> None:
    """A transaction that consumes, and sends elsewhere as often."""
    client.do("BEGIN", {"transaction": "t"})
    for message in client.messages():
        client.ack(message, transaction="t")
        client.send("/queue/elsewhere", message.body, persistent="true", transaction="t")
    client.do("COMMIT", {"transaction": "t"})


def disconnect(broker: SimBroker, client: SimClient) -> None:
    """Deliveries come back, and have failed too often."""
    client.drop()


VERBS: list[Callable[[SimBroker, SimClient], None]] = [reject, expire, retry, commit, disconnect]


def loaded(verb: Callable[[SimBroker, SimClient], None]) -> tuple[SimBroker, SimClient]:
    """Three durable messages where the verb finds them."""
    broker = SimBroker(
        small({"match": "work", "max-delivery-attempts": 1}),
        tolerant=True,
    )
    client = broker.connect()
    queue = "idle" if verb in (expire, retry) else "work"
    expires = {"expires": str(broker.now + 30_000)} if verb is expire else {}
    for body in BODIES:
        client.confirmed(f"/queue/{queue}", body, **expires)
    if queue == "work":
        client.subscribe("/queue/work")
    return broker, client


def check(verb: Callable[[SimBroker, SimClient], None], fault: Callable[[int], Any]) -> int:
    """Let it fail at 1, 2, 3 ... until it does not; after each restart every message is there once."""
    read: set[tuple[int, tuple[tuple[str, bytes], ...]]] = set()  # most faults leave a disk that another one left
    for at in range(1, 5_000):
        broker, client = loaded(verb)
        failed = False
        with fault(at) as seen:
            try:
                verb(broker, client)
            except Fault:
                failed = True
        if seen[0] < at:
            return at
        if failed:  # the process is over; what a forgetful part of it might still do must not reach the disk
            assert broker.parts.journal.abandoned, f"fault {at} of {verb.__name__} let the journal go on"
            broker.parts.tick.end()
            broker.parts.journal.commit()
            broker.step()
        else:  # it cost a connection, or less: the broker goes on, and what it held is back
            broker.run()
            assert everything(broker) == Counter(BODIES), f"fault {at} of {verb.__name__}"
        broker.files.crash()
        left = (broker.now, tuple((path, broker.files.read(path)) for path in broker.files.paths()))
        if left not in read:
            read.add(left)
            again = broker.restart()
            assert everything(again) == Counter(BODIES), f"fault {at} of {verb.__name__}, {failed=}"
    raise AssertionError("it never ends")


@interpreted
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("after", [False, True])
def test_a_verb_that_fails_at_its_nth_record(verb: Callable[[SimBroker, SimClient], None], after: bool) -> None:
    assert check(verb, lambda at: record_fault(at, after=after)) > 3


@interpreted
@pytest.mark.slow
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_that_fails_at_its_nth_call(verb: Callable[[SimBroker, SimClient], None]) -> None:
    assert check(verb, call_fault) > 50
