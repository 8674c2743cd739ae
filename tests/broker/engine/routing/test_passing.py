"""What is sent to nobody, and what is refused, leaves nothing behind; how many addresses there may be."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.config.diverts import DivertSection
from broker.engine.model.errors import EngineError, NoQueue, TooManyAddresses
from broker.engine.model.message import RoutingType
from broker.engine.routing import destinations
from broker.engine.routing.destinations import PASSING_MAX
from store import decode
from tests.broker.engine.engine_harness import Bench, Taker, section
from tests.simulation.world import journal_records, small

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def names(bench: Bench) -> set[str]:
    """The addresses that are there beside those of the configuration."""
    return set(bench.engine.addresses) - {"DLQ", "ExpiryQueue"}


@pytest.mark.parametrize("durable", [False, True])
def test_a_send_without_a_binding_makes_no_address(bench: Bench, durable: bool) -> None:
    for n in range(3 * PASSING_MAX):
        bench.sent(f"t.{n}", b"x", routing_type=MULTICAST, durable=durable)
    assert names(bench) == set()
    assert bench.engine._state.totals.unrouted == 3 * PASSING_MAX
    records = journal_records(bench.broker)
    assert sum(record.count for record in records if isinstance(record, decode.Dropped)) == durable * 3 * PASSING_MAX
    assert not [record for record in records if isinstance(record, decode.Definition) and "t.0" in str(record)]
    assert names(bench.restart()) == set()


def test_a_binding_makes_it_real(bench: Bench) -> None:
    bench.sent("t.a", b"0", routing_type=MULTICAST)
    taker = bench.take("t.#", MULTICAST)
    bench.sent("t.a", b"1", routing_type=MULTICAST)
    bench.sent("u", b"2", routing_type=MULTICAST)
    assert taker.take() == [b"1"]
    assert names(bench) == {"t.#", "t.a"}


def test_a_subscription_to_the_very_name_gets_what_comes_next(bench: Bench) -> None:
    bench.sent("t", b"0", routing_type=MULTICAST)
    taker = bench.take("t", MULTICAST)
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert taker.take() == [b"1"]


def test_a_divert_that_is_made_later_takes(bench: Bench) -> None:
    bench.sent("t", b"0", routing_type=MULTICAST)
    bench.sent("b", b"0")
    bench.enter()._state.registry.add_divert(section("t", "b").divert("d"))
    bench.run()
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.bodies("b") == [b"0", b"1"]


def test_a_divert_to_nobody_makes_no_address() -> None:
    sections: dict[str, DivertSection] = {"d": section("a", "audit")}
    bench = Bench(diverts=sections)
    bench.sent("a", b"1")
    assert names(bench) == {"a"}


def test_retroactive_addresses_are_made() -> None:
    bench = Bench({"match": "t", "retroactive-message-count": 10})
    bench.sent("t", b"1", routing_type=MULTICAST)
    assert bench.take("t", MULTICAST).take() == [b"1"]


@pytest.mark.parametrize(
    "refused",
    [
        lambda bench: bench.send("off", b"1"),
        lambda bench: bench.send("off::q", b"1"),
        lambda bench: bench.send("taken", b"1"),
        lambda bench: bench.attach(Taker(), "off"),
        lambda bench: bench.attach(Taker(), "off::q"),
        lambda bench: bench.attach(Taker(), "new", MULTICAST, durable_name="held", selector="x = 1"),
        lambda bench: bench.attach(Taker(), "full", MULTICAST),
    ],
    ids=["send", "send qualified", "name taken", "consume", "consume qualified", "other attributes", "no consumers"],
)
def test_nothing_remains_of_what_was_refused(refused: Callable[[Bench], object]) -> None:
    bench = Bench({"match": "off", "auto-create-queues": False}, {"match": "full", "default-max-consumers": 0})
    state = bench.enter()._state
    state.registry.create_queue(state.registry.create_address("other", {MULTICAST}), "taken", MULTICAST, durable=True)
    bench.take("t", MULTICAST, durable_name="held")
    before = (names(bench), set(state.queues))
    with pytest.raises(EngineError):
        refused(bench)
    bench.run()
    assert (names(bench), set(state.queues)) == before
    assert names(bench.restart()) == before[0]


def test_a_routing_type_that_was_refused_its_queue_is_not_added() -> None:
    bench = Bench({"match": "t", "auto-create-queues": False})
    address = bench.enter()._state.registry.create_address("t", {MULTICAST})
    with pytest.raises(NoQueue):
        bench.send("t", b"1")
    bench.run()
    assert address.routing_types == {MULTICAST}
    assert bench.restart().engine.addresses["t"].routing_types == {MULTICAST}


def test_the_limit(bench: Bench) -> None:
    state = bench.enter()._state
    state.limits.addresses_max = len(state.addresses) + 1
    bench.sent("a", b"1")
    for refused in (lambda: bench.send("b", b"1"), lambda: bench.attach(Taker(), "t", MULTICAST)):
        with pytest.raises(TooManyAddresses, match=r"address \w cannot be made: there are \d+ addresses"):
            refused()
    bench.sent("t", b"1", routing_type=MULTICAST)  # makes none
    bench.sent("a", b"2")
    assert bench.bodies("a") == [b"1", b"2"]
    bench.enter().delete_queue(bench.queue("a"))
    state.registry.delete_address(state.addresses["a"])
    bench.sent("b", b"1")
    assert bench.bodies("b") == [b"1"]


def test_dead_letters_need_no_room() -> None:
    bench = Bench({"match": "a", "dead-letter-address": "morgue", "max-delivery-attempts": 1})
    bench.sent("a", b"1")
    bench.enter()._state.limits.addresses_max = 0
    taker = bench.take("a")
    bench.nack(taker, *taker.taken)
    assert bench.bodies("morgue") == [b"1"]


def test_a_journal_with_more_starts(bench: Bench) -> None:
    for name in "abc":
        bench.sent(name, b"1")
    limits = small().limits.model_copy(update={"addresses_max": 1})
    bench.broker.config = bench.broker.config.model_copy(update={"limits": limits})
    bench = bench.restart()
    assert names(bench) == {"a", "b", "c"}
    bench.sent("a", b"2")
    with pytest.raises(TooManyAddresses):
        bench.send("d", b"1")


def test_an_address_with_an_attached_sender_is_made_and_goes_after_it() -> None:
    class Attached:
        def destination_lost(self) -> None:
            """Never."""

    bench = Bench()
    state = bench.enter()._state
    address, _ = destinations.destination(state, "t", MULTICAST, attached=True)
    sender = Attached()
    state.registry.attach_sender(address, sender)
    bench.run()
    bench.broker.advance(120_000)
    assert names(bench) == {"t"}
    state.registry.detach_sender(address, sender)
    bench.broker.advance(120_000)
    assert names(bench) == set()
