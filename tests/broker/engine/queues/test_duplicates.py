"""Duplicate detection: refusing, remembering, forgetting, transactions, restarts, the journal's space."""

from __future__ import annotations

import pytest

from broker.engine.model.errors import DuplicateMessage
from broker.engine.model.message import Message, RoutingType
from broker.engine.queues import duplicates
from store.record import RecordType
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import journal_directory, typed_records
from tests.support.sim_broker import SimBroker


def head(id: str) -> bytes:
    """Headers with a duplicate id."""
    return f"_AMQ_DUPL_ID:{id}\n".encode()


def ids(bench: Bench, name: str) -> int:
    """How many ids an address remembers."""
    return bench.engine._state.duplicates.count(bench.engine.addresses[name])


def test_a_second_message_with_the_same_id_is_refused(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    bench.sent("a", b"2", head=head("x"))
    bench.sent("a", b"3", head=head("y"))
    bench.sent("a", b"4")
    assert bench.bodies("a") == [b"1", b"3", b"4"]
    assert bench.engine._state.duplicates.refused == 1
    assert bench.broker.reported("message.duplicate") == [{"address": "a", "messages": 1}]


def test_two_in_one_run(bench: Bench) -> None:
    bench.sent("a", b"1", b"2", b"3", head=head("x"))
    assert bench.bodies("a") == [b"1"]
    assert bench.engine._state.duplicates.refused == 2


def test_each_address_remembers_for_itself(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    bench.sent("b", b"1", head=head("x"))
    assert bench.bodies("b") == [b"1"]


@pytest.mark.parametrize("restart", [False, True])
def test_only_so_many_ids_are_remembered(restart: bool) -> None:
    bench = Bench({"match": "a", "id-cache-size": 2})
    for id in ("x", "y", "z"):
        bench.sent("a", id.encode(), head=head(id))
    assert ids(bench, "a") == 2
    if restart:
        bench = bench.restart()
        assert ids(bench, "a") == 2
    bench.sent("a", b"again", head=head("y"))
    bench.sent("a", b"again", head=head("z"))
    assert b"again" not in bench.bodies("a")
    bench.sent("a", b"again", head=head("x"))  # the oldest is forgotten
    assert bench.bodies("a")[-1] == b"again"


def test_zero_remembers_none() -> None:
    bench = Bench({"match": "a", "id-cache-size": 0})
    bench.sent("a", b"1", head=head("x"))
    bench.sent("a", b"2", head=head("x"))
    assert bench.bodies("a") == [b"1", b"2"]


def test_an_id_of_a_durable_message_survives_a_crash_that_of_another_does_not(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    bench.sent("a", b"2", head=head("y"), durable=False)
    bench = bench.restart()
    bench.sent("a", b"3", head=head("x"))
    bench.sent("a", b"4", head=head("y"))
    assert bench.bodies("a") == [b"1", b"4"]


def test_an_id_outlives_its_message(bench: Bench) -> None:
    taker = bench.take("a")
    bench.sent("a", b"1", head=head("x"))
    bench.ack(taker, *taker.taken)
    bench = bench.restart()
    bench.sent("a", b"2", head=head("x"))
    assert bench.bodies("a") == []


def test_what_was_not_accepted_is_not_remembered() -> None:
    bench = Bench({"match": "a", "max-size-messages": 0, "address-full-policy": "DROP"})
    bench.sent("a", b"1", head=head("x"))
    assert ids(bench, "a") == 0


def test_a_transaction_with_a_duplicate_fails_as_a_whole(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    engine = bench.enter()
    tx = engine.transactions.begin()
    bench.send("a", b"2", head=head("y"), tx=tx)
    bench.send("a", b"3", head=head("x"), tx=tx)
    with pytest.raises(DuplicateMessage, match="accepted on address a before"):
        engine.transactions.commit(tx)
    engine.transactions.rollback(tx)
    bench.run()
    assert bench.bodies("a") == [b"1"]
    bench.sent("a", b"4", head=head("y"))
    assert bench.bodies("a") == [b"1", b"4"]


def test_a_transaction_with_the_same_id_twice_fails(bench: Bench) -> None:
    engine = bench.enter()
    tx = engine.transactions.begin()
    bench.send("a", b"1", head=head("x"), tx=tx)
    bench.send("a", b"2", head=head("x"), tx=tx)
    with pytest.raises(DuplicateMessage):
        engine.transactions.commit(tx)


def test_a_committed_transaction_is_remembered(bench: Bench) -> None:
    engine = bench.enter()
    tx = engine.transactions.begin()
    bench.send("a", b"1", head=head("x"), tx=tx)
    engine.transactions.commit(tx)
    bench.run()
    bench = bench.restart()
    bench.sent("a", b"2", head=head("x"))
    assert bench.bodies("a") == [b"1"]


def test_dead_letters_are_not_asked_for_their_id() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 1})
    bench.sent("DLQ", b"0", head=head("x"))
    taker = bench.take("a")
    bench.sent("a", b"1", head=head("x"))
    bench.nack(taker, *taker.taken)
    assert bench.bodies("DLQ") == [b"0", b"1"]


def test_the_ids_go_with_the_address(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    engine = bench.enter()
    engine.delete_temporary(engine.addresses["a"])
    bench.run()
    bench = bench.restart()
    bench.sent("a", b"2", head=head("x"))
    assert bench.bodies("a") == [b"2"]


@pytest.mark.parametrize("size", [duplicates.ID_BYTES_MAX, duplicates.ID_BYTES_MAX + 1, 10_000])
def test_long_ids_are_remembered_by_their_digest(bench: Bench, size: int) -> None:
    bench.sent("a", b"1", head=head("x" * size))
    bench.sent("a", b"2", head=head("x" * size))
    bench.sent("a", b"3", head=head("x" * (size - 1) + "y"))
    assert bench.bodies("a") == [b"1", b"3"]
    seen = bench.engine._state.duplicates._seen[bench.engine.addresses["a"].id]
    assert max(map(len, seen.ids)) <= duplicates.ID_BYTES_MAX


def test_remembered_ids_are_copied_forward_so_that_their_segments_can_go() -> None:
    """Ids are remembered while their messages are long gone, and much other traffic passes."""
    bench = Bench({"match": "a", "id-cache-size": 100})
    taker = bench.take("a")
    for number in range(50):
        bench.sent("a", b"%d" % number, head=head(str(number)))
    bench.ack(taker, *taker.taken)
    first = bench.engine.journal.segment
    other = bench.take("b")
    for _ in range(60):
        bench.sent("b", *[b"x" * 1024] * 16)
        bench.ack(other, *other.taken)
        other.taken.clear()
        bench.broker.advance(1_000)
    space = bench.engine.journal.space
    assert min(space.segments) > first
    bench = bench.restart()
    assert ids(bench, "a") == 50
    bench.sent("a", b"again", head=head("7"))
    assert bench.bodies("a") == []


def test_the_order_of_ids_survives_copying() -> None:
    bench = Bench({"match": "a", "id-cache-size": 3})
    for id in ("1", "2"):
        bench.sent("a", id.encode(), head=head(id))
    duplicates_room = bench.enter()._state.duplicates
    assert not duplicates_room.copy_forward(bench.engine.journal.segment)
    bench.run()
    bench.sent("a", b"3", head=head("3"))
    bench.sent("a", b"4", head=head("4"))
    bench = bench.restart()
    seen = bench.engine._state.duplicates._seen[bench.engine.addresses["a"].id]
    assert list(seen.ids) == [b"2", b"3", b"4"]


def test_no_record_without_an_id() -> None:
    broker = SimBroker()
    client = broker.connect()
    client.send("/queue/a", b"1", persistent="true")
    assert not _records(broker, RecordType.DUPLICATE_ID)
    client.send("/queue/a", b"1", persistent="true", _AMQ_DUPL_ID="x")
    assert len(_records(broker, RecordType.DUPLICATE_ID)) == 1


def _records(broker: SimBroker, type: RecordType) -> list[object]:
    directory = journal_directory(broker.config)
    return [found for kind, found in typed_records(broker.files, directory) if kind == type]


def test_the_search_for_ids_spans_a_run(bench: Bench) -> None:
    header = bench.header("a", routing_type=RoutingType.ANYCAST)
    assert not duplicates.may_have_ids([Message(header, b"a:b\n", b"")])
    assert duplicates.may_have_ids([Message(header, b"a:b\n", b""), Message(header, head("x"), b"")])
