"""The ledger: each sentence about messages has one encoder, and can be read alone."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from broker.engine.model.message import Message
from broker.engine.queues import ledger
from broker.engine.queues.queue import DELIVERED, DeliveryState, Queue
from store.decode import Counts, Record, Scheduled
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import journal_records

ENGINE = Path(ledger.__file__).parents[1]

#: What encodes sentences about messages on queues.
ENCODERS = {"counts", "dead_lettered", "delivering", "dropped", "encode_copies", "encode_large", "encode_messages"}
ENCODERS |= {"expired", "message_header", "removed", "scheduled", "encode_header", "record_flags", "MessageLead"}


def encoders_in(path: Path) -> set[str]:
    """The encoders that a module calls: functions of `record`, or imported by name."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name):
                found.add(called.id)
            elif (
                isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "record"
            ):
                found.add(called.attr)
    return found & ENCODERS


def test_each_sentence_about_messages_has_one_encoder() -> None:
    calling = {path.relative_to(ENGINE).as_posix(): encoders_in(path) for path in sorted(ENGINE.rglob("*.py"))}
    assert calling.pop("queues/stored.py") == {"message_header"}
    assert {"encode_header", "removed", "counts", "scheduled"} <= calling.pop("queues/ledger.py")
    assert not {path: found for path, found in calling.items() if found}


@pytest.fixture
def bench() -> Bench:
    """Six messages on a queue, at rest."""
    made = Bench()
    made.sent("a", *[b"%d" % n for n in range(6)])
    made.enter()
    return made


def on(bench: Bench) -> tuple[Queue, list[Message]]:
    queue = bench.queue("a")
    return queue, list(queue.backlog)


def said(bench: Bench, kind: type[Record]) -> list[Record]:
    bench.run()
    return [each for each in journal_records(bench.broker) if isinstance(each, kind)]


def test_counts_are_those_of_the_queue_s_states(bench: Bench) -> None:
    queue, (never, sent, also_sent, failed, failing, first) = on(bench)
    queue.journalled = {failing.id, first.id}  # the journal has counted deliveries that are under way
    queue.states = {sent.id: DELIVERED, also_sent.id: DELIVERED, failed.id: DeliveryState(2, 9), first.id: DELIVERED}
    queue.states[failing.id] = DeliveryState(1, 9)
    bench.engine._state.ledger.counts(queue, [never, sent, also_sent, failed, failing, first])
    assert said(bench, Counts) == [
        Counts(queue.id, 0, (sent.id, also_sent.id), redelivered=True),
        Counts(queue.id, 0, (never.id,), redelivered=False),
        Counts(queue.id, 2, (failed.id, failing.id), redelivered=False),
        Counts(queue.id, 1, (first.id,), redelivered=False),
    ]


def test_nothing_is_said_of_nothing(bench: Bench) -> None:
    queue, _ = on(bench)
    before = bench.engine.journal.position
    bench.engine._state.ledger.counts(queue, [])
    bench.engine._state.ledger.scheduled(queue, {})
    assert bench.engine.journal.position == before


def test_due_times_are_said_of_many_in_several_records(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    queue, messages = on(bench)
    monkeypatch.setattr(ledger, "SCHEDULED_IDS_MAX", 2)
    ids = [message.id for message in messages]
    bench.engine._state.ledger.scheduled(queue, {1000: ids[:3], 2000: ids[3:4]})
    assert said(bench, Scheduled) == [
        Scheduled(queue.id, 1000, tuple(ids[:2])),
        Scheduled(queue.id, 1000, (ids[2],)),
        Scheduled(queue.id, 2000, (ids[3],)),
    ]
