"""Finding addresses and queues, and making what may be made."""

from __future__ import annotations

import pytest

from broker.engine.model.errors import AlreadyInUse, EngineError, InvalidName, NoQueue, NotFound, RoutingTypeMismatch
from broker.engine.model.message import RoutingType
from broker.engine.moves.dead_letter_queues import ensure_queue
from broker.engine.queues.address import Address
from broker.engine.queues.queue import Queue
from tests.broker.engine.bench import Bench

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST
OFF = {"auto-create-queues": False, "auto-create-addresses": False}


@pytest.mark.parametrize(
    ("wanted", "types", "queues"),
    [
        (ANYCAST, frozenset({ANYCAST}), ["a"]),
    ],
)
def test_a_send_makes_the_address_and_an_anycast_one_its_queue(
    wanted: RoutingType | None, types: frozenset[RoutingType], queues: list[str]
) -> None:
    router = Bench().enter().router
    address, queue = router.destination("a", wanted)
    assert queue is None
    assert (address.routing_types, [q.name for q in address.queues]) == (types, queues)
    assert address.auto_created
    assert router.destination("a", wanted)[0] is address


def test_an_address_that_is_anycast_gets_its_queue_also_when_the_send_states_nothing() -> None:
    router = Bench().enter().router
    address = router.create_address("a", {ANYCAST})
    router.destination("a", None)
    assert [q.name for q in address.queues] == ["a"]


def test_a_send_adds_the_routing_type_that_it_states() -> None:
    router = Bench().enter().router
    address = router.create_address("a", {MULTICAST})
    assert router.destination("a", ANYCAST)[0] is address
    assert address.routing_types == {ANYCAST, MULTICAST}
    assert [q.routing_type for q in address.queues] == [ANYCAST]


def test_a_queue_in_the_way_is_told_with_what_it_is() -> None:
    """An operator made it without saying its type; clients of queues then ask for another."""
    router = Bench().enter().router
    router.create_queue(router.create_address("a", {MULTICAST}), "a", MULTICAST, durable=True)
    with pytest.raises(AlreadyInUse, match="on address a, and is MULTICAST: it cannot be ANYCAST"):
        router.destination("a", ANYCAST)


def test_nothing_is_made_where_that_is_off() -> None:
    engine = Bench({"match": "off.#", **OFF}).enter()
    for name in ("off.a", "off.a::q"):
        with pytest.raises(NotFound, match="auto-create-addresses is off"):
            engine.router.destination(name, ANYCAST)
        with pytest.raises(NotFound, match="auto-create-addresses is off"):
            engine.router.queue_to_consume(name, None)
    engine.router.create_address("off.b", {MULTICAST})
    with pytest.raises(RoutingTypeMismatch, match=r"off\.b is not ANYCAST"):
        engine.router.destination("off.b", ANYCAST)
    engine.router.create_address("off.c", {ANYCAST})
    with pytest.raises(NoQueue, match="auto-create-queues is off"):
        engine.router.destination("off.c", ANYCAST)
    assert engine.router.destination("off.b", MULTICAST)[1] is None
    assert set(engine.router.addresses) >= {"off.b", "off.c"}
    assert "off.a" not in engine.router.addresses


@pytest.mark.parametrize("name", ["", "a.*", "#", "a::", "::q", "a::b::c", "a" * 1025])
def test_names_that_cannot_be_sent_to(name: str) -> None:
    with pytest.raises(InvalidName):
        Bench().enter().router.destination(name, None)


def test_full_queue_names() -> None:
    router = Bench().enter().router
    address, queue = router.destination("a::q", ANYCAST)
    assert queue is not None
    assert (queue.name, queue.address, queue.routing_type, queue.durable) == ("q", address, ANYCAST, True)
    assert router.destination("a::q", None)[1] is queue
    assert router.queue_to_consume("a::q", None) is queue
    with pytest.raises(NotFound, match="queue q is not on address b"):
        router.destination("b::q", None)
    assert router.destination("a::q", MULTICAST)[1] is queue, "who sends to a queue by its full name means that one"
    assert router.queue_to_consume("a::q", MULTICAST) is queue, "and who reads it"
    _, other = router.destination("a::r", None)
    assert other is not None
    assert other.routing_type is ANYCAST, "the only type that the address has"


class TestConsuming:
    """What a subscription gets: a queue, or an address on which it has a queue of its own."""

    def consume(self, types: set[RoutingType], wanted: RoutingType | None) -> Queue | Address:
        router = Bench().enter().router
        router.create_address("a", types)
        return router.queue_to_consume("a", wanted)

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

    def test_what_does_not_exist_is_a_subscription_unless_something_else_is_asked(self) -> None:
        router = Bench().enter().router
        assert isinstance(router.queue_to_consume("x", None), Address)
        assert isinstance(router.queue_to_consume("y", ANYCAST), Queue)

    def test_the_only_anycast_queue_whatever_its_name(self) -> None:
        router = Bench().enter().router
        _, queue = router.destination("a::q", ANYCAST)
        assert router.queue_to_consume("a", ANYCAST) is queue
        router.destination("a::r", ANYCAST)
        with pytest.raises(NotFound, match="several queues"):
            router.queue_to_consume("a", ANYCAST)
        _, own = router.destination("a::a", ANYCAST)
        assert router.queue_to_consume("a", ANYCAST) is own

    def test_a_queue_by_its_own_name(self) -> None:
        router = Bench().enter().router
        _, queue = router.destination("a::q", ANYCAST)
        assert router.queue_to_consume("q", None) is queue
        assert "q" not in router.addresses


def test_a_queue_s_name_is_unique_broker_wide() -> None:
    router = Bench().enter().router
    a, b = router.create_address("a", {ANYCAST}), router.create_address("b", {ANYCAST})
    router.create_queue(a, "q", ANYCAST, durable=True)
    with pytest.raises(AlreadyInUse, match="on address a"):
        router.create_queue(b, "q", ANYCAST, durable=True)


def test_targets_follow_every_binding() -> None:
    router = Bench().enter().router
    address = router.create_address("a.b", {MULTICAST})
    assert router.bindings.targets(address) == ([], [])
    own = router.create_queue(address, "own", ANYCAST, durable=True)
    wild = router.create_queue(router.create_address("a.*", {MULTICAST}), "wild", MULTICAST, durable=True)
    assert router.bindings.targets(address) == ([own], [wild])
    assert router.candidates(address, None, MULTICAST) == ([], [wild])
    assert router.candidates(address, own, MULTICAST) == ([own], [])
    router.unbind(own)
    router.unbind(wild)
    assert router.bindings.targets(address) == ([], [])
    assert router.candidates(address, own, None) == ([], []), "a deleted queue takes nothing"


def test_letter_queues_take_exactly_their_address() -> None:
    bench = Bench({"match": "it's", "dead-letter-queue-prefix": "<", "dead-letter-queue-suffix": ">"})
    router = bench.enter().router
    target = router.ensure_address("DLQ")
    for _ in range(2):
        ensure_queue(router, target, "it's", expiry=False)
        ensure_queue(router, target, "it's", expiry=True)
    found = {q.name: q.filter.text for q in target.queues if q.filter}
    assert found == {"<it's>": "_AMQ_ORIG_ADDRESS = 'it''s'", "EXP.it's": "_AMQ_ORIG_ADDRESS = 'it''s'"}
    assert all(q.durable and q.auto_created for q in target.queues if q.filter)


def test_a_letter_queue_whose_name_cannot_be_is_reported() -> None:
    bench = Bench()
    router = bench.enter().router
    ensure_queue(router, router.ensure_address("DLQ"), "x" * 1024, expiry=False)
    assert bench.broker.reported("move.queue_refused")


def test_settings_are_those_of_the_name_and_change_at_once() -> None:
    bench = Bench({"match": "a.#", "max-delivery-attempts": 3})
    router = bench.enter().router
    address = router.create_address("a.b", {ANYCAST})
    assert (address.settings.max_delivery_attempts, address.settings.dead_letter_address) == (3, "DLQ")
    address.warned = frozenset({"full"})
    other = Bench({"match": "a.b", "max-delivery-attempts": 7})
    router.change_settings(other.engine.router._settings)
    assert address.settings.max_delivery_attempts == 7
    assert not address.warned


def test_totals_never_go_back() -> None:
    bench = Bench()
    bench.sent("a", b"1")
    bench.sent("b", b"1", routing_type=MULTICAST)
    engine = bench.enter()
    engine.delete_queue(bench.queue("a"))
    engine.router.delete_address(engine.router.addresses["a"])
    router = engine.router
    assert (router.retired.added, router.retired_routed, engine.core.unrouted) == (1, 1, 1)


def test_every_refusal_has_a_code() -> None:
    codes = [error.code for error in EngineError.__subclasses__()]
    assert len(set(codes)) == len(codes)
    assert "refused" not in codes
