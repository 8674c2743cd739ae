"""Finding addresses and queues, and making what may be made."""

from __future__ import annotations

import pytest

from broker.engine.model.errors import AlreadyInUse, EngineError, InvalidName, NoQueue, NotFound, RoutingTypeMismatch
from broker.engine.model.message import RoutingType
from broker.engine.moves.dead_letter import ensure_queue
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from broker.engine.routing import destinations
from tests.broker.engine.engine_harness import Bench

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST
OFF = {"auto-create-queues": False, "auto-create-addresses": False}


def test_a_send_makes_the_address_and_an_anycast_one_its_queue() -> None:
    state = Bench().enter()._state
    address, queue = destinations.destination(state, "a", ANYCAST)
    assert queue is None
    assert (address.routing_types, [q.name for q in state.bindings.queues(address)]) == ({ANYCAST}, ["a"])
    assert address.auto_created
    assert destinations.destination(state, "a", ANYCAST)[0] is address


def test_an_address_that_is_anycast_gets_its_queue_also_when_the_send_states_nothing() -> None:
    state = Bench().enter()._state
    address = state.registry.create_address("a", {ANYCAST})
    destinations.destination(state, "a", None)
    assert [q.name for q in state.bindings.queues(address)] == ["a"]


def test_a_send_adds_the_routing_type_that_it_states() -> None:
    state = Bench().enter()._state
    address = state.registry.create_address("a", {MULTICAST})
    assert destinations.destination(state, "a", ANYCAST)[0] is address
    assert address.routing_types == {ANYCAST, MULTICAST}
    assert [q.routing_type for q in state.bindings.queues(address)] == [ANYCAST]


def test_a_queue_in_the_way_is_told_with_what_it_is() -> None:
    """An operator made it without saying its type; clients of queues then ask for another."""
    state = Bench().enter()._state
    state.registry.create_queue(state.registry.create_address("a", {MULTICAST}), "a", MULTICAST, durable=True)
    with pytest.raises(AlreadyInUse, match="on address a, and is MULTICAST: it cannot be ANYCAST"):
        destinations.destination(state, "a", ANYCAST)


def test_nothing_is_made_where_that_is_off() -> None:
    engine = Bench({"match": "off.#", **OFF}).enter()
    for name in ("off.a", "off.a::q"):
        with pytest.raises(NotFound, match="auto-create-addresses is off"):
            destinations.destination(engine._state, name, ANYCAST)
        with pytest.raises(NotFound, match="auto-create-addresses is off"):
            destinations.queue_to_consume(engine._state, name, None)
    engine._state.registry.create_address("off.b", {MULTICAST})
    with pytest.raises(RoutingTypeMismatch, match=r"off\.b is not ANYCAST"):
        destinations.destination(engine._state, "off.b", ANYCAST)
    engine._state.registry.create_address("off.c", {ANYCAST})
    with pytest.raises(NoQueue, match="auto-create-queues is off"):
        destinations.destination(engine._state, "off.c", ANYCAST)
    assert destinations.destination(engine._state, "off.b", MULTICAST)[1] is None
    assert set(engine.addresses) >= {"off.b", "off.c"}
    assert "off.a" not in engine.addresses


@pytest.mark.parametrize("name", ["", "a.*", "#", "a::", "::q", "a::b::c", "a" * 1025])
def test_names_that_cannot_be_sent_to(name: str) -> None:
    with pytest.raises(InvalidName):
        destinations.destination(Bench().enter()._state, name, None)


def test_full_queue_names() -> None:
    state = Bench().enter()._state
    address, queue = destinations.destination(state, "a::q", ANYCAST)
    assert queue is not None
    assert (queue.name, queue.address, queue.routing_type, queue.durable) == ("q", address, ANYCAST, True)
    assert destinations.destination(state, "a::q", None)[1] is queue
    assert destinations.queue_to_consume(state, "a::q", None) is queue
    with pytest.raises(NotFound, match="queue q is not on address b"):
        destinations.destination(state, "b::q", None)
    assert destinations.destination(state, "a::q", MULTICAST)[1] is queue, (
        "who sends to a queue by its full name means that one"
    )
    assert destinations.queue_to_consume(state, "a::q", MULTICAST) is queue, "and who reads it"
    _, other = destinations.destination(state, "a::r", None)
    assert other is not None
    assert other.routing_type is ANYCAST, "the only type that the address has"


class TestConsuming:
    """What a subscription gets: a queue, or an address on which it has a queue of its own."""

    def consume(self, types: set[RoutingType], wanted: RoutingType | None) -> Queue | Address:
        state = Bench().enter()._state
        state.registry.create_address("a", types)
        return destinations.queue_to_consume(state, "a", wanted)

    @pytest.mark.parametrize(
        ("types", "wanted", "queue"),
        [
            ({MULTICAST}, None, False),
            ({ANYCAST}, None, True),
            ({ANYCAST, MULTICAST}, None, True),
            ({ANYCAST, MULTICAST}, MULTICAST, False),
            ({MULTICAST}, ANYCAST, True),
            ({ANYCAST}, MULTICAST, False),
        ],
    )
    def test_by_type(self, types: set[RoutingType], wanted: RoutingType | None, queue: bool) -> None:
        assert isinstance(self.consume(types, wanted), Queue) is queue

    def test_a_name_that_does_not_exist_is_a_subscription_unless_a_type_is_requested(self) -> None:
        state = Bench().enter()._state
        assert isinstance(destinations.queue_to_consume(state, "x", None), Address)
        assert isinstance(destinations.queue_to_consume(state, "y", ANYCAST), Queue)

    def test_the_only_anycast_queue_whatever_its_name(self) -> None:
        state = Bench().enter()._state
        _, queue = destinations.destination(state, "a::q", ANYCAST)
        assert destinations.queue_to_consume(state, "a", ANYCAST) is queue
        destinations.destination(state, "a::r", ANYCAST)
        with pytest.raises(NotFound, match="several queues"):
            destinations.queue_to_consume(state, "a", ANYCAST)
        _, own = destinations.destination(state, "a::a", ANYCAST)
        assert destinations.queue_to_consume(state, "a", ANYCAST) is own

    def test_a_queue_by_its_own_name(self) -> None:
        state = Bench().enter()._state
        _, queue = destinations.destination(state, "a::q", ANYCAST)
        assert destinations.queue_to_consume(state, "q", None) is queue
        assert "q" not in state.addresses


def test_a_queue_s_name_is_unique_broker_wide() -> None:
    state = Bench().enter()._state
    a, b = state.registry.create_address("a", {ANYCAST}), state.registry.create_address("b", {ANYCAST})
    state.registry.create_queue(a, "q", ANYCAST, durable=True)
    with pytest.raises(AlreadyInUse, match="on address a"):
        state.registry.create_queue(b, "q", ANYCAST, durable=True)


def test_targets_follow_every_binding() -> None:
    state = Bench().enter()._state
    address = state.registry.create_address("a.b", {MULTICAST})
    assert state.bindings.targets(address) == ([], [])
    own = state.registry.create_queue(address, "own", ANYCAST, durable=True)
    wild = state.registry.create_queue(
        state.registry.create_address("a.*", {MULTICAST}), "wild", MULTICAST, durable=True
    )
    assert state.bindings.targets(address) == ([own], [wild])
    assert state.bindings.candidates(address, None, MULTICAST) == ([], [wild])
    assert state.bindings.candidates(address, own, MULTICAST) == ([own], [])
    state.registry.unbind(own)
    state.registry.unbind(wild)
    assert state.bindings.targets(address) == ([], [])
    assert state.bindings.candidates(address, own, None) == ([], []), "a deleted queue takes nothing"


def test_letter_queues_take_exactly_their_address() -> None:
    bench = Bench({"match": "it's", "dead-letter-queue-prefix": "<", "dead-letter-queue-suffix": ">"})
    state = bench.enter()._state
    target = state.registry.ensure_address("DLQ")
    for _ in range(2):
        ensure_queue(state, target, "it's", expiry=False)
        ensure_queue(state, target, "it's", expiry=True)
    found = {q.name: q.filter.text for q in state.bindings.queues(target) if q.filter}
    assert found == {"<it's>": "_AMQ_ORIG_ADDRESS = 'it''s'", "EXP.it's": "_AMQ_ORIG_ADDRESS = 'it''s'"}
    assert all(q.durable and q.auto_created for q in state.bindings.queues(target) if q.filter)


def test_a_letter_queue_whose_name_cannot_be_is_reported(bench: Bench) -> None:
    state = bench.enter()._state
    ensure_queue(state, state.registry.ensure_address("DLQ"), "x" * 1024, expiry=False)
    assert bench.broker.reported("move.queue_refused")


def test_settings_are_those_of_the_name_and_change_at_once() -> None:
    bench = Bench({"match": "a.#", "max-delivery-attempts": 3})
    state = bench.enter()._state
    address = state.registry.create_address("a.b", {ANYCAST})
    assert (address.settings.max_delivery_attempts, address.settings.dead_letter_address) == (3, "DLQ")
    address.warned = frozenset({"full"})
    other = Bench({"match": "a.b", "max-delivery-attempts": 7})
    bench.engine.configuration.change_settings(other.engine._state.registry.settings_table)
    assert address.settings.max_delivery_attempts == 7
    assert not address.warned


def test_totals_never_go_back(bench: Bench) -> None:
    bench.sent("a", b"1")
    bench.sent("b", b"1", routing_type=MULTICAST)
    engine = bench.enter()
    engine.delete_queue(bench.queue("a"))
    engine._state.registry.delete_address(engine.addresses["a"])
    state = engine._state
    assert (state.totals.added, state.totals.routed, state.totals.unrouted) == (1, 1, 1)


def test_every_refusal_has_a_code() -> None:
    codes = [error.code for error in EngineError.__subclasses__()]
    assert len(set(codes)) == len(codes)
    assert "refused" not in codes
