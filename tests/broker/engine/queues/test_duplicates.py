"""Duplicate detection: refusing, remembering, forgetting, transactions, restarts, the journal's space."""

from __future__ import annotations

from hashlib import sha256
from random import Random
from typing import Any

import pytest

from broker.config.diverts import DivertSection
from broker.engine.delivery.transaction import Transaction
from broker.engine.model.errors import DuplicateMessage
from broker.engine.model.message import Message, RoutingType
from broker.engine.publish.send import Send
from broker.engine.queues import duplicates
from broker.engine.routing import destinations
from store.decode import DuplicateId
from store.record import RecordType
from tests.broker.engine.engine_harness import Bench
from tests.simulation.world import journal_directory, typed_records
from tests.support.interpreted import interpreted
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


def test_messages_that_were_not_accepted_are_not_remembered() -> None:
    bench = Bench({"match": "a", "max-size-messages": 0, "address-full-policy": "DROP"})
    bench.sent("a", b"1", head=head("x"))
    assert ids(bench, "a") == 0


def test_a_transaction_with_a_duplicate_fails_as_a_whole(bench: Bench) -> None:
    bench.sent("a", b"1", head=head("x"))
    engine = bench.enter()
    tx = engine.transactions.begin(object())
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
    tx = engine.transactions.begin(object())
    bench.send("a", b"1", head=head("x"), tx=tx)
    bench.send("a", b"2", head=head("x"), tx=tx)
    with pytest.raises(DuplicateMessage):
        engine.transactions.commit(tx)


def test_a_committed_transaction_is_remembered(bench: Bench) -> None:
    engine = bench.enter()
    tx = engine.transactions.begin(object())
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


@pytest.mark.parametrize("size", [duplicates.ID_BYTES_MAX, duplicates.ID_BYTES_MAX + 1, 10_000])
def test_long_ids_are_remembered_by_their_digest(bench: Bench, size: int) -> None:
    bench.sent("a", b"1", head=head("x" * size))
    bench.sent("a", b"2", head=head("x" * size))
    bench.sent("a", b"3", head=head("x" * (size - 1) + "y"))
    assert bench.bodies("a") == [b"1", b"3"]
    seen = bench.engine._state.duplicates._seen[bench.engine.addresses["a"].id]
    assert max(map(len, seen.ids)) <= duplicates.ID_BYTES_MAX


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


# -- link ids ----------------------------------------------------------------------------------------------------------


def link_id(number: int, broker: int = 0) -> bytes:
    """The link id of a message of some broker."""
    return broker.to_bytes(16) + number.to_bytes(8) + bytes(8)


def passed_on(
    bench: Bench,
    name: str,
    *numbers: int,
    broker: int = 0,
    user: str = "link",
    head: bytes = b"",
    tx: Transaction | None = None,
    **more: Any,
) -> None:
    """Messages that came over a link; their bodies are their numbers."""
    engine = bench.enter()
    address, queue = destinations.destination(engine._state, name, RoutingType.ANYCAST)
    header = bench.header(address.name, routing_type=RoutingType.ANYCAST, user=user, **more)
    messages = [Message(header, head, b"%d" % number) for number in numbers]
    send = Send.at(address, queue, RoutingType.ANYCAST, messages)
    send.link_ids = {message: link_id(number, broker) for message, number in zip(messages, numbers, strict=True)}
    if tx is None:
        engine.producers.publish([send]).check()
        bench.run()
    else:
        tx.send([send], messages)


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("size", [0, 20])
def test_a_message_of_a_link_is_taken_in_once(restart: bool, size: int) -> None:
    """Whatever id-cache-size says: that is for clients."""
    bench = Bench({"match": "a", "id-cache-size": size})
    passed_on(bench, "a", 1, 2)
    bench = bench.restart() if restart else bench
    passed_on(bench, "a", 2, 3, 3)
    passed_on(bench, "b", 2)
    assert bench.bodies("a") == [b"1", b"2", b"3"]
    assert bench.bodies("b") == [b"2"]
    found = [each.id for each in _records(bench.broker, RecordType.DUPLICATE_ID) if isinstance(each, DuplicateId)]
    assert len(found) == len(set(found)) + 1 == 4  # 2 is on two addresses
    assert {id[: len(duplicates.LINK) + 32] for id in found} == {duplicates.LINK + link_id(n) for n in (1, 2, 3)}


def test_a_user_cannot_use_up_the_link_ids_of_another(bench: Bench) -> None:
    passed_on(bench, "a", 1, user="eve")
    passed_on(bench, "a", 1, user="link")
    passed_on(bench, "a", 1, user="link")
    assert bench.bodies("a") == [b"1", b"1"]


def test_a_client_cannot_use_up_link_ids(bench: Bench) -> None:
    """Nor can one that knows how they are remembered: what looks like one is remembered as its digest."""
    message = Message(bench.header("a"), head("link:1"), b"")
    assert duplicates.id_of(message) == sha256(b"link:1").digest()
    bench.sent("a", b"client", head=head("link:1"))
    bench.sent("a", b"again", head=head("link:1"))
    passed_on(bench, "a", 1)
    assert bench.bodies("a") == [b"client", b"1"]


@interpreted
def test_clients_and_links_do_not_push_out_each_other_s_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "LINK_IDS_MAX", 3)
    bench = Bench({"match": "a", "id-cache-size": 2})
    for number in range(5):
        bench.sent("a", b"c", head=head(str(number)))
        passed_on(bench, "a", number)
    assert ids(bench, "a") == 5
    for each in (bench, bench := bench.restart()):
        before = len(bench.bodies("a"))
        passed_on(each, "a", 2, 3, 4)
        for number in (3, 4):
            each.sent("a", b"c", head=head(str(number)))
        assert len(each.bodies("a")) == before
    passed_on(bench, "a", 1)
    assert bench.bodies("a")[-1] == b"1"


def test_an_address_remembers_so_many_link_ids(bench: Bench) -> None:
    limit = duplicates.LINK_IDS_MAX
    for first in range(0, limit, 1_000):
        passed_on(bench, "a", *range(first, first + 1_000))
    passed_on(bench, "a", 0)  # the oldest, and still known
    assert bench.queue("a").message_count == limit
    passed_on(bench, "a", limit)
    assert ids(bench, "a") == limit
    passed_on(bench, "a", 1)
    assert bench.queue("a").message_count == limit + 1
    passed_on(bench, "a", 0)
    assert bench.queue("a").message_count == limit + 2, "the oldest was forgotten for the youngest"


@interpreted
@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize(
    ("sender", "others"),
    [({"broker": 1}, [{"broker": 2}, {"broker": 1, "user": "other"}]), ({"priority": 0}, [{"priority": 9}])],
)
def test_brokers_users_and_priorities_do_not_push_out_each_other_s_ids(
    monkeypatch: pytest.MonkeyPatch, restart: bool, sender: dict[str, Any], others: list[dict[str, Any]]
) -> None:
    """One that is away for long, and will send again, while others go on; what is more urgent goes first."""
    monkeypatch.setattr(duplicates, "LINK_IDS_MAX", 3)
    bench = Bench({"match": "a"})
    passed_on(bench, "a", 1, 2, 3, **sender)
    for other in others:
        passed_on(bench, "a", *range(20), **other)
    if restart:
        bench = bench.restart()
    assert ids(bench, "a") == 3 + 3 * len(others)
    before = bench.queue("a").message_count
    passed_on(bench, "a", 1, 2, 3, **sender)
    assert bench.queue("a").message_count == before


@pytest.mark.parametrize("restart", [False, True])
def test_an_address_remembers_the_ids_of_so_many_brokers(restart: bool) -> None:
    """The one is forgotten that has sent nothing for the longest time."""
    bench = Bench({"match": "a"})
    limit = duplicates.LINK_SENDERS_MAX
    for broker in range(limit):
        passed_on(bench, "a", 1, broker=broker)
    passed_on(bench, "a", 2, broker=0)
    bench = bench.restart() if restart else bench
    assert ids(bench, "a") == limit + 1
    passed_on(bench, "a", 1, broker=limit)
    assert ids(bench, "a") == limit + 1, "broker 1 is forgotten"
    before = bench.queue("a").message_count
    passed_on(bench, "a", 1, 2, broker=0)
    passed_on(bench, "a", 1, broker=limit)
    assert bench.queue("a").message_count == before
    passed_on(bench, "a", 1, broker=1)
    assert bench.queue("a").message_count == before + 1


@interpreted
@pytest.mark.parametrize("restart", [False, True])
def test_an_address_remembers_so_many_link_ids_of_all_brokers(monkeypatch: pytest.MonkeyPatch, restart: bool) -> None:
    """The broker that has sent nothing for the longest time loses its oldest."""
    monkeypatch.setattr(duplicates, "LINK_IDS_ADDRESS_MAX", 10)
    bench = Bench({"match": "a"})
    for broker in (1, 2, 3):
        passed_on(bench, "a", 1, 2, 3, 4, broker=broker)
    bench = bench.restart() if restart else bench
    assert ids(bench, "a") == 10
    before = bench.queue("a").message_count
    for broker in (3, 2, 1):
        passed_on(bench, "a", 3, 4, broker=broker)
    assert bench.queue("a").message_count == before
    passed_on(bench, "a", 1, 2, broker=1)
    assert bench.queue("a").message_count == before + 2
    assert ids(bench, "a") == 10


def test_in_a_transaction_what_is_known_is_left_out_and_the_rest_is_taken(bench: Bench) -> None:
    """A broker that sends again must not be held up by what came the first time."""
    passed_on(bench, "a", 1)
    tx = bench.begin()
    passed_on(bench, "a", 1, 2, tx=tx)
    passed_on(bench, "a", 2, 3, tx=tx)
    bench.commit(tx)
    assert bench.bodies("a") == [b"1", b"2", b"3"]


def test_a_client_s_id_does_not_count_on_a_message_of_a_link(bench: Bench) -> None:
    """It did where its client is connected."""
    bench.sent("a", b"1", head=head("x"))
    passed_on(bench, "a", 2, head=head("x"))
    assert bench.bodies("a") == [b"1", b"2"]


def test_the_ids_go_with_the_address(bench: Bench) -> None:
    for _ in range(2):
        bench.sent("a", b"1", head=head("x"))
        passed_on(bench, "a", 2)
        assert bench.bodies("a") == [b"1", b"2"]
        engine = bench.enter()
        engine.delete_temporary(engine.addresses["a"])
        bench.run()
        assert not engine._state.duplicates._places
        bench = bench.restart()


@pytest.mark.parametrize("links", [False, True])
def test_remembered_ids_are_copied_forward_so_that_their_segments_can_go(links: bool) -> None:
    """Ids are remembered while their messages are long gone, and much other traffic passes."""
    bench = Bench({"match": "a", "id-cache-size": 100})

    def send(number: int) -> None:
        if links:
            passed_on(bench, "a", number)
        else:
            bench.sent("a", b"%d" % number, head=head(str(number)))

    taker = bench.take("a")
    for number in range(50):
        send(number)
    bench.ack(taker, *taker.taken)
    first = bench.engine.journal.segment
    other = bench.take("b")
    for _ in range(60):
        bench.sent("b", *[b"x" * 1024] * 16)
        bench.ack(other, *other.taken)
        other.taken.clear()
        bench.broker.advance(1_000)
    assert min(bench.engine.journal.space.segments) > first
    bench = bench.restart()
    assert ids(bench, "a") == 50
    for number in range(51):
        send(number)
    assert bench.bodies("a") == [b"50"]


def test_a_message_of_a_link_that_is_diverted_comes_once() -> None:
    """As in a chain of brokers, where an address stands for a queue of the next one."""
    away = DivertSection.model_validate({"address": "a", "forwarding-address": "out", "exclusive": True})
    bench = Bench(diverts={"away": away})
    bench.sent("out", b"0")
    for _ in range(2):
        passed_on(bench, "a", 1, 2)
        bench = bench.restart()
    assert bench.bodies("out") == [b"0", b"1", b"2"]


@interpreted
@pytest.mark.parametrize("seed", range(4))
def test_remembered_ids_are_those_of_a_list(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients and links of two users, on two addresses, in any order, over restarts and copying forward."""
    monkeypatch.setattr(duplicates, "LINK_IDS_MAX", 4)
    print("seed", seed)
    random = Random(seed)
    bench = Bench({"match": "a", "id-cache-size": 3}, {"match": "b", "id-cache-size": 3})
    remembered: dict[tuple[str, str], list[tuple[str, int]]] = {}
    expected: dict[str, list[bytes]] = {"a": [], "b": []}
    for _ in range(150):
        name, who, number = random.choice("ab"), random.choice(["client", "link", "other"]), random.randrange(8)
        if who == "client":
            bench.sent(name, b"%d" % number, head=head(str(number)))
        else:
            passed_on(bench, name, number, user=who)
        cache = remembered.setdefault((name, who), [])
        if (who, number) not in cache:
            expected[name].append(b"%d" % number)
            cache.append((who, number))
            del cache[: -(3 if who == "client" else 4)]
        if random.random() < 0.1:
            bench = bench.restart(crash=random.random() < 0.5)
        if random.random() < 0.1:
            duplicates_room = bench.enter()._state.duplicates
            for segment in [each for each in duplicates_room._places if each != bench.engine.journal.segment]:
                assert not duplicates_room.copy_forward(segment)
            bench.run()
    for name, bodies in expected.items():
        assert bench.bodies(name) == bodies


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


def test_ids_count_as_used_memory_until_they_are_forgotten(bench: Bench) -> None:
    usage = bench.engine.usage
    each = duplicates.ID_OVERHEAD_BYTES + 2
    for number in range(10, 20):
        bench.sent(f"a{number % 2}", b"x", head=head(str(number)))
    assert usage.ids_bytes == 10 * each
    usage.bytes_max = usage.bytes + 10 * each
    assert usage.memory_full
    usage.bytes_max = -1
    bench = bench.restart()
    assert bench.engine.usage.ids_bytes == 10 * each
    for name in ("a0", "a1"):
        bench.purge(name)
        bench.engine._state.duplicates.forget(bench.engine.addresses[name])
    assert bench.engine.usage.ids_bytes == 0


def test_all_addresses_together_remember_as_many_as_fit_into_their_part_of_memory(bench: Bench) -> None:
    """The oldest are forgotten of the address where none came for the longest time."""
    each = duplicates.ID_OVERHEAD_BYTES + 64
    most = 10 * each
    bench.engine.usage.bytes_max = duplicates.IDS_MEMORY_PART * most
    for name in ("a", "b", "c"):
        for number in range(4):
            bench.sent(name, b"x", head=head(f"{name}{number:063}"), durable=False)
    assert bench.engine.usage.ids_bytes == most
    assert [ids(bench, name) for name in ("a", "b", "c")] == [2, 4, 4]
    bench.sent("a", b"again", head=head(f"a{3:063}"), durable=False)
    bench.sent("a", b"forgotten", head=head(f"a{0:063}"), durable=False)
    assert [ids(bench, name) for name in ("a", "b", "c")] == [3, 3, 4]
    assert bench.bodies("a")[4:] == [b"forgotten"]


def test_link_ids_count_as_used_memory_until_they_are_forgotten(bench: Bench) -> None:
    """A sender that says it is a broker made a million of them, and no memory was counted."""
    usage = bench.engine.usage
    passed_on(bench, "a", 1, 2, 3)
    passed_on(bench, "b", 1, 2, 2, broker=1)
    each = usage.link_ids_bytes // 5
    assert each > duplicates.ID_OVERHEAD_BYTES
    assert (usage.link_ids_bytes, usage.ids_bytes) == (5 * each, 0)
    usage.bytes_max = usage.bytes + 5 * each
    assert usage.memory_full
    usage.bytes_max = -1
    bench = bench.restart()
    assert bench.engine.usage.link_ids_bytes == 5 * each
    for name in ("a", "b"):
        bench.purge(name)
        bench.engine._state.duplicates.forget(bench.engine.addresses[name])
    assert bench.engine.usage.link_ids_bytes == 0
    assert not bench.engine._state.duplicates._link_counts


@pytest.mark.parametrize("restart", [False, True])
def test_the_largest_holder_of_link_ids_loses_some_if_they_take_too_much_memory(bench: Bench, restart: bool) -> None:
    passed_on(bench, "a", 1, 2, 3, user="modest")
    each = bench.engine.usage.link_ids_bytes // 3
    bench.engine.usage.bytes_max = duplicates.IDS_MEMORY_PART * 10 * each
    for number in range(40):
        passed_on(bench, f"b{number % 4}", number, user="greedy", broker=number)
    assert bench.engine.usage.link_ids_bytes == 10 * each
    if restart:
        bench = bench.restart()
        assert bench.engine.usage.link_ids_bytes <= 43 * each
        bench.engine.usage.bytes_max = duplicates.IDS_MEMORY_PART * 10 * each
        passed_on(bench, "b0", 100, user="greedy", broker=100)
        assert bench.engine.usage.link_ids_bytes == 10 * each
    assert ids(bench, "a") == 3
    assert sum(ids(bench, f"b{n}") for n in range(4)) == 7
    before = bench.queue("b3").message_count
    if not restart:
        passed_on(bench, "b3", 39, user="greedy", broker=39)
        assert bench.queue("b3").message_count == before, "the youngest are known"
    passed_on(bench, "b3", 3, user="greedy", broker=3)
    assert bench.queue("b3").message_count == before + 1, "the oldest are forgotten"
