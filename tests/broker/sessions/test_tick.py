"""The end of a tick: everybody who is owed bytes gets them, and what fails costs its connection, its call, or all."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import pytest

from broker.engine.delivery import dispatch, redelivery
from broker.engine.filter import grammar, values
from broker.engine.model import annotation, names
from broker.engine.moves import dead_letter, move
from broker.engine.queues import arrival, bodies, registry, removal, stored
from broker.engine.queues.state import NO_WAY_BACK
from broker.sessions.stomp.delivery import Subscription
from broker.sessions.tick import APOLOGY
from store import journal
from tests.simulation.world import everything, held, small
from tests.support.amqp_client import AmqpSim
from tests.support.interpreted import interpreted
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import frame

BODIES = [b"1", b"2", b"3"]


class Bug(RuntimeError):
    """What nobody expected."""


def fail(*args: object, **named: object) -> NoReturn:
    raise Bug("planted")


def loaded() -> tuple[SimBroker, SimClient]:
    """A broker with three durable messages on a queue, and a client of it."""
    broker = SimBroker(small(), tolerant=True)
    client = broker.connect(client_id="sender")
    for body in BODIES:
        client.confirmed("/queue/q", body)
    return broker, client


def check_lost(broker: SimBroker, victim: SimClient, other: SimClient) -> None:
    """The victim is gone, which the log tells; what it held is with another, and the broker goes on."""
    assert victim.closed
    fault, *_ = broker.reported("connection.failed")  # another one if its goodbye fails too
    assert fault["remote"] == victim.remote
    assert fault["error"] == "Bug: planted"
    assert "in fail" in str(fault["traceback"])
    other.subscribe("/queue/q")
    got = other.messages()
    assert sorted(message.body for message in got) == BODIES
    for message in got:
        other.ack(message)
    other.confirmed("/queue/q", b"after")
    assert other.bodies() == [b"after"]
    assert not [c for q in broker.engine.queues.values() for c in q.consumers if c.sink.transport is victim]


@interpreted
@pytest.mark.parametrize("way", ["receive_data", "flushed", "data_to_send", "connection_lost", "durable"])
def test_a_session_that_fails_costs_its_connection(way: str) -> None:
    broker, other = loaded()
    victim = broker.subscriber("/queue/q")
    assert len(victim.messages()) == 3
    setattr(victim.session, way, fail)
    if way == "connection_lost":
        victim.drop()
    else:
        victim.send("/queue/other", b"x", persistent="true", receipt="r")
    check_lost(broker, victim, other)


@interpreted
def test_connections_lost_together_join_one_work_and_each_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop tells of thousands in one go: what each does then comes on top of a tick's budget."""
    broker, other = loaded()
    lost = [broker.connect() for _ in range(100)]
    victim = broker.subscriber("/queue/q")
    victim.messages()
    monkeypatch.setattr(victim.session, "connection_lost", fail)
    entered, enter = Counter[str](), broker.tick.enter

    def counting() -> None:
        entered["enter"] += 1
        enter()

    monkeypatch.setattr(broker.tick, "enter", counting)
    for client in (*lost[:50], victim, *lost[50:]):
        client.abort()
    assert entered["enter"] == 1, "the others only join the first"
    assert len(broker.engine._state.steps) == 1
    broker.run()
    assert all(client.session.lost for client in lost)  # type: ignore[attr-defined]  # of STOMP
    check_lost(broker, victim, other)


@interpreted
def test_a_session_that_fails_when_it_is_handed_messages_costs_its_connection() -> None:
    broker, other = loaded()
    victim = broker.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subscription, "deliver", fail)
        victim.subscribe("/queue/q")
    check_lost(broker, victim, other)
    assert all(message.headers["redelivered"] == "true" for message in victim.messages())


@interpreted
def test_its_client_hears_why() -> None:
    broker, _ = loaded()
    victim = broker.connect()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Subscription, "deliver", fail)
        victim.subscribe("/queue/q")
    [error] = victim.take("ERROR")
    assert error.headers["message"] == "internal error"
    assert APOLOGY.encode() in error.body
    amqp = AmqpSim(broker)
    amqp.session.receive_data = fail  # type: ignore[method-assign]
    amqp.raw(b"x")
    assert amqp.closed


@interpreted
def test_a_consumer_that_fails_when_its_queue_is_deleted() -> None:
    broker, other = loaded()
    victim = broker.subscriber("/queue/q")
    with pytest.MonkeyPatch.context() as patch, broker.turn():
        patch.setattr(Subscription, "consumer_closed", fail)
        broker.engine.delete_queue(broker.engine.queue("q"))
    assert victim.closed
    assert [fault["remote"] for fault in broker.reported("connection.failed")] == [victim.remote]
    other.confirmed("/queue/q", b"after")


@interpreted
def test_a_producer_that_fails_when_it_may_go_on() -> None:
    broker = SimBroker(small({"match": "full", "max-size-messages": 1, "address-full-policy": "BLOCK"}), tolerant=True)
    consumer, victim, other = broker.connect(), broker.connect(), broker.connect()
    for producer in (victim, other):
        producer.send("/queue/full", b"x", persistent="true")
        producer.send("/queue/full", b"x", persistent="true")
    assert (victim.reading, other.reading) == (False, False)
    victim.session.sends.unblock = fail  # type: ignore[attr-defined]
    consumer.subscribe("/queue/full", ack="auto")
    assert (victim.closed, other.reading) == (True, True)
    assert [fault["remote"] for fault in broker.reported("connection.failed")] == [victim.remote]


@interpreted
def test_a_session_that_cannot_even_say_so_is_cut_off() -> None:
    broker, other = loaded()
    victim = broker.subscriber("/queue/q")
    for name in ("receive_data", "fail", "connection_lost"):
        setattr(victim.session, name, fail)
    victim.raw(b"x")
    assert victim.closed
    other.subscribe("/queue/q")
    assert sorted(other.bodies()) == BODIES


def test_an_alarm_that_fails_costs_nothing_else() -> None:
    broker, other = loaded()
    with broker.turn():
        broker.engine.alarms.at("planted", broker.now, fail)
    assert [fault["error"] for fault in broker.reported("broker.error")] == ["Bug: planted"]
    other.confirmed("/queue/q", b"after")


def check_ended(broker: SimBroker, before: Counter[bytes]) -> SimBroker:
    """Nothing is written any more, whatever is still called; after a restart all is as it was."""
    assert broker.parts.journal.abandoned
    broker.parts.tick.end()
    broker.step()
    broker.parts.journal.close()
    again = broker.restart()
    assert everything(again) == before
    return again


@interpreted
@pytest.mark.parametrize(("room", "name"), [(dispatch, "_serve"), (removal, "remove")])
def test_a_fault_of_the_engine_ends_the_process(monkeypatch: pytest.MonkeyPatch, room: Any, name: str) -> None:
    broker, client = loaded()
    before = everything(broker)
    client.subscribe("/queue/q", ack="client")
    [*_, last] = client.messages()
    with monkeypatch.context() as planted:
        planted.setattr(room, name, fail)
        with pytest.raises(Bug):
            client.ack(last)
    check_ended(broker, before)


@interpreted
@pytest.mark.parametrize(
    ("room", "name"), [(move, "annotate"), (move, "remove"), (dead_letter, "send_to_dla"), (removal, "_forget")]
)
def test_a_verb_that_is_interrupted_ends_the_process(monkeypatch: pytest.MonkeyPatch, room: Any, name: str) -> None:
    """A rejected message is neither on both queues after a restart, nor on none."""
    broker, client = loaded()
    before = everything(broker)
    client.subscribe("/queue/q")
    [first, *_] = client.messages()
    with monkeypatch.context() as planted:
        planted.setattr(room, name, fail)
        with pytest.raises(Bug):
            client.nack(first, requeue="false")
    again = check_ended(broker, before)
    assert held(again, "DLQ") == []


@interpreted
def test_a_verb_that_has_changed_nothing_costs_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    from broker.engine.delivery import subscribe

    broker, other = loaded()
    victim = broker.connect()
    monkeypatch.setattr(subscribe, "find", fail)
    victim.subscribe("/queue/q")
    monkeypatch.undo()
    check_lost(broker, victim, other)


def ended_by_a_fault_in(module: ModuleType) -> str:
    """What a fault in a function of this module ends, once a verb has changed something: its call, or the process."""
    broker = SimBroker(small(), tolerant=True)

    def call() -> None:
        raise RuntimeError("planted")

    broker.enter()._state.mark = NO_WAY_BACK
    try:
        FunctionType(call.__code__, vars(module))()
    except RuntimeError as fault:
        with suppress(RuntimeError):
            broker.tick.failed(None, fault)
    return "process" if broker.parts.journal.abandoned else "call"


@pytest.mark.parametrize("module", [grammar, values, names, annotation, bodies, stored])
def test_a_fault_in_code_that_only_reads_ends_its_call(module: ModuleType) -> None:
    """The mark stands in the module, or in its package, and moves with it."""
    assert ended_by_a_fault_in(module) == "call"


@pytest.mark.parametrize("module", [removal, dead_letter, redelivery, arrival, registry, journal])
def test_a_fault_in_all_other_code_of_the_engine_ends_the_process(module: ModuleType) -> None:
    assert ended_by_a_fault_in(module) == "process"


@interpreted
def test_an_exception_that_is_no_error_ends_the_process() -> None:
    broker, _ = loaded()
    victim = broker.connect()

    def interrupt(*args: object) -> NoReturn:
        raise KeyboardInterrupt

    setattr(victim.session, "receive_data", interrupt)  # noqa: B010
    with pytest.raises(KeyboardInterrupt):
        victim.raw(b"x")
    assert broker.parts.journal.abandoned


# From here on in a compiled build too, where the calls of a traceback are those of C.


def test_a_verb_whose_report_fails_in_its_middle_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker(small({"match": "full", "max-size-messages": 1, "address-full-policy": "DROP"}), tolerant=True)
    client = broker.connect()
    client.confirmed("/queue/full", b"1")
    before = everything(broker)
    monkeypatch.setattr(broker.engine._state.room, "_report", fail)
    with pytest.raises(Bug):
        client.send("/queue/full", b"2", persistent="true")
    check_ended(broker, before)


def test_a_session_whose_outlet_fails_behind_a_verb_costs_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SimBroker(small({"match": "full", "max-size-messages": 1, "address-full-policy": "BLOCK"}), tolerant=True)
    victim, other = broker.connect(), broker.connect()
    monkeypatch.setattr(victim, "pause_reading", fail)
    victim.raw(2 * frame("SEND", {"destination": "/queue/full", "persistent": "true"}, b"x"))
    victim.raw(frame("SEND", {"destination": "/queue/full", "persistent": "true"}, b"x"))
    assert victim.closed
    assert [fault["error"] for fault in broker.reported("connection.failed")] == ["Bug: planted"]
    assert not broker.parts.journal.abandoned
    other.confirmed("/queue/other", b"after")
