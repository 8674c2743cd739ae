"""Room: what becomes of messages, by what is full and by the address's policy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from broker.daemon.wiring import settings_table
from broker.engine import NewQueue
from broker.engine.model.errors import AddressFull
from broker.engine.model.message import RoutingType, size_of
from broker.engine.model.settings import AddressFullPolicy, AddressSettings, as_mapping
from broker.engine.model.settings_match import SettingsTable
from broker.engine.queues.address import Address
from broker.engine.queues.paging.admit import tail_of
from broker.engine.queues.room import Admission, is_full
from tests.broker.engine.engine_harness import Bench, Producing
from tests.broker.engine.queues.parts import message
from tests.simulation.world import small
from tests.support.calls import counted_calls
from tests.support.interpreted import interpreted

ADDRESS = "a"
POLICIES = ("PAGE", "BLOCK", "FAIL", "DROP")


@pytest.mark.parametrize(
    ("limits", "count", "full"),
    [
        ({}, 1000, False),
        ({"max_size_messages": 3}, 2, False),
        ({"max_size_messages": 3}, 3, True),
        ({"max_size_messages": 0}, 0, True),
        ({"max_size_bytes": 1000}, 2, False),
        ({"max_size_bytes": 1000}, 4, True),
        ({"max_size_bytes": -1, "max_size_messages": -1}, 1000, False),
    ],
)
def test_full(limits: dict[str, int], count: int, full: bool) -> None:
    address = Address(1, "a", {RoutingType.ANYCAST}, AddressSettings(**limits))  # type: ignore[arg-type]
    messages = [message(n) for n in range(count)]
    assert is_full(address, count, size_of(messages)) is full
    address.size_messages, address.size_bytes = count, size_of(messages)
    assert is_full(address) is full


#: What is full, and what then becomes of messages under PAGE, BLOCK, FAIL and DROP, and of those that the broker moves.
TABLE = {
    "nothing": "OK OK OK OK OK",
    "the address": "PAGE BLOCK FAIL DROP PAGE",
    "the broker's memory": "PAGE BLOCK FAIL DROP PAGE",
    "the address, and a queue cannot page": "BLOCK BLOCK FAIL DROP BLOCK",
    "the disk": "BLOCK BLOCK FAIL DROP OK",
    "the pages with FAIL": "FAIL OK OK OK OK",
    "the pages with DROP": "DROP OK OK OK OK",
    "the pages with FAIL, and the disk": "FAIL BLOCK FAIL DROP OK",
    "the reject threshold": "OK FAIL OK OK OK",
}


def filled(full: str, policy: str) -> Bench:
    """A broker in which that is full, and nothing else."""
    settings: dict[str, object] = {"match": ADDRESS, "address-full-policy": policy}
    if full.startswith("the address"):
        settings["max-size-messages"] = 1
    if full.startswith("the pages"):
        settings |= {"page-limit-messages": 1, "page-full-policy": full.removeprefix("the pages with ")[:4]}
    if full == "the reject threshold":
        settings["max-size-bytes-reject-threshold"] = 1
    bench = Bench(settings)
    bench.sent(ADDRESS, b"1")
    usage = bench.engine.usage
    if full == "the broker's memory":
        usage.bytes_max = usage.bytes
    if full.endswith("the disk"):
        usage.disk.full = True
    if full.startswith("the pages"):
        tail_of(bench.engine._state, bench.queue(ADDRESS)).counted(1, 100)
    if full.endswith("cannot page"):
        bench.change(ADDRESS, non_destructive=True)
    return bench


@pytest.mark.parametrize("full", TABLE)
def test_the_table(full: str) -> None:
    *by_policy, moved = TABLE[full].split()
    for policy, expected in zip(POLICIES, by_policy, strict=True):
        bench = filled(full, policy)
        address, room = bench.engine.addresses[ADDRESS], bench.enter()._state.room
        assert room.admit(address, 0, 0).name == expected, policy
        assert room.wait(address, Producing()) is (expected == "BLOCK"), policy
        targets = bench.engine._state.bindings.targets(address)
        assert room.admit_moved(address, targets).name == moved, policy


def test_a_limit_counts_the_messages_before() -> None:
    bench = Bench({"match": ADDRESS, "max-size-messages": 3, "address-full-policy": "FAIL"})
    bench.sent(ADDRESS, b"1")
    address, room = bench.engine.addresses[ADDRESS], bench.enter()._state.room
    assert [room.admit(address, count, 0) for count in (0, 1, 2)] == [Admission.OK, Admission.OK, Admission.FAIL]
    assert room.fitting(address, [message(n) for n in range(5)]) == 2
    assert room.admit_whole(address, [message(n) for n in range(5)]) is Admission.OK, "it begins below the limit"


def stopped(bench: Bench) -> Producing:
    """A producer that the address has stopped."""
    producer = Producing()
    producer.blocked = bench.enter()._state.room.wait(bench.engine.addresses[ADDRESS], producer)
    bench.run()
    assert producer.blocked
    return producer


def use(bench: Bench, policy: str) -> None:
    """Give the address another policy while the broker runs."""
    settings = bench.engine.addresses[ADDRESS].settings
    table = SettingsTable([], as_mapping(replace(settings, address_full_policy=AddressFullPolicy[policy])))
    bench.enter().configuration.change_settings(table)
    bench.run()


@pytest.mark.parametrize("policy", ["PAGE", "FAIL", "DROP"])
def test_another_policy_lets_producers_go_on_although_memory_stays_full(policy: str) -> None:
    bench = filled("the broker's memory", "BLOCK")
    producer = stopped(bench)
    use(bench, policy)
    assert not producer.blocked


@pytest.mark.parametrize(("policy", "goes_on"), [("PAGE", False), ("FAIL", True), ("DROP", True)])
def test_another_policy_lets_producers_go_on_although_the_disk_stays_full(policy: str, goes_on: bool) -> None:
    bench = filled("the disk", "BLOCK")
    producer = stopped(bench)
    use(bench, policy)
    assert producer.blocked is not goes_on


def test_a_producer_that_waits_for_the_disk_as_well_goes_on_once_it_has_room() -> None:
    bench = filled("the disk", "BLOCK")
    producer = stopped(bench)
    assert bench.enter()._state.room.wait(None, producer)
    use(bench, "FAIL")
    assert producer.blocked
    bench.engine.usage.disk.full = False
    bench.enter()._state.room.wake_for_disk()
    bench.run()
    assert not producer.blocked


@pytest.mark.parametrize("full", ["the address", "the broker's memory"])
def test_producers_go_on_when_the_queue_that_cannot_page_becomes_one_that_can(full: str) -> None:
    bench = filled(full, "PAGE")
    bench.change(ADDRESS, non_destructive=True)
    producer = stopped(bench)
    bench.change(ADDRESS, non_destructive=False)
    assert not producer.blocked


@pytest.mark.parametrize("full", ["the address", "the broker's memory"])
def test_producers_go_on_when_the_queue_that_cannot_page_is_deleted(full: str) -> None:
    bench = filled(full, "PAGE")
    state = bench.enter()._state
    state.registry.create_queue(bench.engine.addresses[ADDRESS], "kept", RoutingType.ANYCAST, durable=True)
    bench.change("kept", non_destructive=True)
    producer = stopped(bench)
    bench.delete("kept")
    assert not producer.blocked


@pytest.mark.parametrize("limit", ["page-limit-messages", "page-limit-bytes"])
@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_messages_on_their_way_to_disk_count_towards_the_page_limits(limit: str, policy: str) -> None:
    settings = {"match": ADDRESS, "max-size-messages": 0, limit: 3, "page-full-policy": policy}
    bench = Bench(settings, lazy_disk=True)
    bench.sent(ADDRESS, b"1", b"2", b"3")
    address, room = bench.engine.addresses[ADDRESS], bench.enter()._state.room
    assert address.paged_messages == 0, "the disk has not confirmed them"
    assert room.admit(address, 0, 0).name == policy


@interpreted
def test_a_full_address_with_many_queues_is_asked_without_looking_at_them() -> None:
    settings = {"match": ADDRESS, "max-size-messages": 0, "page-limit-messages": 1000, "page-full-policy": "FAIL"}
    bench = Bench(settings, lazy_disk=True)
    operators = bench.enter().operators
    for n in range(100):
        operators.make_queue(
            NewQueue(f"s{n}", address=ADDRESS, routing_type=RoutingType.MULTICAST, durable=True, make_address=True)
        )
    bench.sent(ADDRESS, b"1", b"2", routing_type=RoutingType.MULTICAST)
    address, room = bench.engine.addresses[ADDRESS], bench.enter()._state.room
    assert room.admit(address, 0, 0) is Admission.PAGE
    with counted_calls() as calls:
        room.admit(address, 0, 0)
    assert calls.total() < 50
    bench.change("s7", non_destructive=True)
    assert room.admit(address, 0, 0) is Admission.BLOCK


@pytest.mark.parametrize("policy", ["BLOCK", "FAIL"])
def test_as_much_fits_into_a_full_address_after_a_restart_as_before_it(policy: str) -> None:
    """What was in memory is on disk then, and counts as if it were in memory."""
    bench = Bench({"match": "q", "address-full-policy": policy, "max-size-bytes": 50_000}, segment_bytes=1 << 20)
    bench.declare("q")
    state = bench.engine._state
    while state.room.admit(bench.engine.addresses["q"], 0, 0) is Admission.OK:
        bench.sent("q", bytes(1000))
    for _ in range(2):
        bench = bench.restart()
        assert bench.queue("q").paged == bench.queue("q").message_count > 30
        assert bench.engine._state.room.admit(bench.engine.addresses["q"], 0, 0) is not Admission.OK


#: More than ten messages, less than twenty.
MUCH: dict[str, object] = {"max-size-bytes": 20_000}


def wildcard(**settings: object) -> Bench:
    """Messages of two addresses wait on one queue of a wildcard address."""
    bench = Bench({"match": "a.#", "max-size-bytes": 0, **settings})
    bench.declare("q", "a.#", routing_type=RoutingType.MULTICAST)
    return bench


def test_messages_of_a_wildcard_queue_on_disk_fill_no_address() -> None:
    bench = wildcard()
    bench.sent("a.b", *[bytes(1000)] * 10, routing_type=RoutingType.MULTICAST, scheduled=bench.broker.now + 1000)
    bench.enter().configuration.change_settings(
        settings_table(small({"match": "a.#", "address-full-policy": "BLOCK"} | MUCH))
    )
    bench.run()
    assert bench.queue("q").scheduled_count == 10
    assert not is_full(bench.queue("q").address)
    for name in ("a.b", "a.c"):
        assert bench.engine._state.room.admit(bench.engine._state.room.charged(name), 0, 0) is Admission.OK
    bench.broker.advance(1000)
    assert bench.queue("q").ready == 10, "there is room for them in memory"
    assert not bench.restart().queue("q").address.warned


@pytest.mark.parametrize("limit", [{"page-limit-messages": 5}, {"page-limit-bytes": 4800}])
def test_the_page_limits_of_a_wildcard_address_hold_for_all_that_match_it(limit: dict[str, object]) -> None:
    """What its queues have on disk counts, whoever sent it; its senders do not learn how much that is."""
    bench = wildcard(**limit, **{"page-full-policy": "FAIL"})
    for n in range(5):
        bench.sent(f"a.{'bc'[n % 2]}", bytes(900), routing_type=RoutingType.MULTICAST)
    for name in ("a.b", "a.c"):
        with pytest.raises(AddressFull) as refused:
            bench.sent(name, b"", routing_type=RoutingType.MULTICAST)
        assert str(refused.value) == f"address {name} takes no messages: a wildcard address that matches it is full"
        bench.run()
    assert bench.queue("q").address.paged_messages == 5
    bench.purge("q")
    bench.sent("a.b", b"", routing_type=RoutingType.MULTICAST)


@pytest.mark.parametrize("limit", [{"page-limit-messages": 2}, {"page-limit-bytes": 1900}])
@pytest.mark.parametrize("policy", ["FAIL", "DROP"])
def test_messages_of_a_wildcard_queue_on_disk_count_for_its_own_address_only(
    limit: dict[str, object], policy: str
) -> None:
    """As in ActiveMQ Artemis, where each address has pages of its own."""
    full = {"max-size-bytes": 0, "page-full-policy": policy}
    bench = Bench({"match": "a.#", "max-size-bytes": 0}, {"match": "a.b", **full, **limit})
    bench.declare("q", "a.#", routing_type=RoutingType.MULTICAST)
    for _ in range(5):
        bench.sent("a.b", bytes(900), routing_type=RoutingType.MULTICAST)
        bench.sent("a.c", bytes(900), routing_type=RoutingType.MULTICAST)
    assert bench.queue("q").paged == 10, "neither address has anything on disk"
    bench.declare("own", "a.b", routing_type=RoutingType.MULTICAST)
    room, address = bench.engine._state.room, bench.engine.addresses["a.b"]
    for _ in range(2):
        assert room.admit(address, 0, 0) is Admission.PAGE
        bench.sent("a.b", bytes(900), routing_type=RoutingType.MULTICAST)
    assert room.admit(address, 0, 0).name == policy
    assert room.admit(bench.engine.addresses["a.c"], 0, 0) is Admission.PAGE


def both_full(own: dict[str, object], of_the_pattern: str) -> Bench:
    """Address `a.b` and the wildcard address `a.#` have reached their page limits."""
    limit = {"page-limit-messages": 1}
    bench = Bench({"match": "a.b", **limit, **own}, {"match": "a.#", **limit, "page-full-policy": of_the_pattern})
    bench.declare("q", "a.#", routing_type=RoutingType.MULTICAST)
    bench.declare("own", "a.b", routing_type=RoutingType.MULTICAST)
    bench.sent("a.b", b"1", routing_type=RoutingType.MULTICAST)
    for name in ("q", "own"):
        tail_of(bench.enter()._state, bench.queue(name)).counted(1, 100)
    return bench


@pytest.mark.parametrize(
    ("own", "of_the_pattern", "expected"),
    [("OFF", "OFF", "OK"), ("OFF", "DROP", "DROP"), ("DROP", "FAIL", "FAIL"), ("FAIL", "DROP", "FAIL")],
)
def test_an_address_that_refuses_messages_counts_before_one_that_drops_them(
    own: str, of_the_pattern: str, expected: str
) -> None:
    bench = both_full({"page-full-policy": own}, of_the_pattern)
    room, address = bench.engine._state.room, bench.engine.addresses["a.b"]
    assert room.admit(address, 0, 0).name == expected
    assert room.may_refuse(address) is (expected == "FAIL")


@pytest.mark.parametrize("page_full_policy", ["FAIL", "DROP"])
@pytest.mark.parametrize("policy", POLICIES)
def test_the_page_limits_of_a_wildcard_address_hold_whatever_the_policy_of_others(
    policy: str, page_full_policy: str
) -> None:
    bench = both_full({"address-full-policy": policy}, page_full_policy)
    room, address, producer = bench.engine._state.room, bench.engine.addresses["a.b"], Producing()
    assert room.admit(address, 0, 0).name == page_full_policy
    assert not room.wait(address, producer), "nothing would wake it"


def test_page_limits_of_nothing_let_in_what_fits_into_memory() -> None:
    bench = Bench({"match": "q", "page-limit-messages": 0, "page-full-policy": "FAIL", "max-size-messages": 2})
    bench.sent("q", b"1")
    bench.sent("q", b"2")
    with pytest.raises(AddressFull, match="0 messages of 0 bytes wait on disk"):
        bench.sent("q", b"3")


def test_page_limits_count_scheduled_messages_on_disk() -> None:
    bench = Bench({"match": "q", "page-limit-messages": 2, "page-full-policy": "FAIL", "max-size-bytes": 0})
    for _ in range(2):
        bench.sent("q", b"", scheduled=bench.broker.now + 60_000)
    with pytest.raises(AddressFull, match="2 messages"):
        bench.sent("q", b"")


def test_a_producer_that_waits_for_two_addresses_goes_on_once_both_have_room() -> None:
    full: dict[str, object] = {"address-full-policy": "BLOCK", "max-size-messages": 1}
    bench = Bench({"match": "one", **full}, {"match": "two", **full})
    producer = Producing()
    for name in ("one", "two"):
        result = bench.engine.producers.publish([bench.prepare(name, b"")], producer=producer)
        producer.blocked |= result.blocked
        bench.run()
    bench.purge("one")
    assert producer.blocked
    assert not purged(bench, "two", producer)


def purged(bench: Bench, name: str, producer: Producing) -> bool:
    """Whether the producer still waits after a queue was purged."""
    bench.purge(name)
    return producer.blocked
