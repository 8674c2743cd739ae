"""Auto-delete, by the rules of ActiveMQ Artemis."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from broker.engine.queues.address import Address
from broker.engine.queues.steps import BUDGET_MIN
from broker.engine.routing import destinations
from broker.engine.routing.reaper import LOOKED_AT_MAX, scan
from tests.broker.engine.engine_harness import Bench, Taker

ON: dict[str, object] = {"match": "a", "auto-delete-queues": True, "auto-delete-addresses": True}
PERIOD = 30_000


def used(*settings: dict[str, object]) -> Bench:
    """A queue that somebody consumed and left."""
    bench = Bench(*settings)
    bench.close(bench.take("a"), redelivery.CLOSED)
    return bench


def there(bench: Bench) -> tuple[bool, bool]:
    return "a" in bench.engine.queues, "a" in bench.engine.addresses


def test_two_scans_for_the_queue_and_then_two_for_its_address() -> None:
    bench = used(ON)
    seen = []
    for _ in range(5):
        bench.broker.advance(PERIOD)
        seen.append(there(bench))
    assert seen == [(True, True), (False, True), (False, False), (False, False), (False, False)]
    assert bench.broker.reported("queue.auto_deleted")
    assert there(bench.restart()) == (False, False)


def test_a_mark_is_wiped_off_by_use() -> None:
    bench = used(ON)
    for _ in range(5):
        bench.broker.advance(PERIOD)
        bench.close(bench.take("a"), redelivery.CLOSED)
    assert there(bench) == (True, True)


@pytest.mark.parametrize(
    "settings", [{"match": "a"}, {**ON, "auto-delete-queues": False}, {**ON, "auto-delete-queues-delay": 10 * PERIOD}]
)
def test_kept(settings: dict[str, object]) -> None:
    bench = used(settings)
    bench.broker.advance(6 * PERIOD)
    assert there(bench) == (True, True)


def test_the_delay_counts_from_the_last_consumer() -> None:
    bench = used({**ON, "auto-delete-queues-delay": 10 * PERIOD})
    bench.broker.advance(12 * PERIOD)
    assert there(bench)[0] is False


def test_messages_keep_a_queue_unless_they_may_be_lost() -> None:
    for count, kept in ((0, True), (1, False), (-1, False)):
        bench = used({**ON, "auto-delete-queues-message-count": count})
        bench.sent("a", b"1")
        bench.broker.advance(5 * PERIOD)
        assert there(bench)[0] is kept


def test_a_consumer_keeps_a_queue() -> None:
    bench = Bench(ON)
    bench.take("a")
    bench.broker.advance(5 * PERIOD)
    assert there(bench) == (True, True)


def test_never_used_resources_stay_unless_the_settings_do_not_ask() -> None:
    for skip in (False, True):
        settings = {"auto-delete-queues-skip-usage-check": skip, "auto-delete-addresses-skip-usage-check": skip}
        bench = Bench({**ON, **settings})
        engine = bench.enter()
        destinations.destination(engine._state, "a", RoutingType.ANYCAST)
        bench.run()
        bench.broker.advance(6 * PERIOD)
        assert there(bench) == (not skip, not skip)


def test_an_address_that_never_had_a_queue() -> None:
    for skip in (False, True):
        bench = Bench({**ON, "auto-delete-addresses-skip-usage-check": skip})
        bench.enter()._state.registry.create_address("a", {RoutingType.MULTICAST}, auto_created=True)
        bench.run()
        bench.broker.advance(6 * PERIOD)
        assert there(bench) == (False, not skip)


def everything(bench: Bench) -> Taker:
    """A subscription to all addresses."""
    return bench.take("#", RoutingType.MULTICAST, durable_name="c.all")


def test_an_address_that_only_a_wildcard_queue_reads_goes_when_nothing_comes(bench: Bench) -> None:
    taker = everything(bench)
    bench.sent("t", b"1", routing_type=RoutingType.MULTICAST)
    bench.broker.advance(6 * PERIOD)
    assert "t" in bench.engine.addresses, "its message is on a queue"
    bench.ack(taker, *taker.taken)
    for _ in range(4):
        bench.sent("t", b"2", routing_type=RoutingType.MULTICAST, durable=False)
        bench.ack(taker, taker.taken[-1])
        bench.broker.advance(PERIOD)
        assert "t" in bench.engine.addresses, "it is in use"
    bench.broker.advance(2 * PERIOD)
    assert "t" not in bench.engine.addresses
    assert "t" not in bench.restart().engine.addresses


def test_an_address_that_remembers_duplicate_ids_stays(bench: Bench) -> None:
    taker = everything(bench)
    bench.sent("t", b"1", routing_type=RoutingType.MULTICAST, head=b"_AMQ_DUPL_ID:1\n")
    bench.ack(taker, *taker.taken)
    bench.broker.advance(6 * PERIOD)
    bench.sent("t", b"1", routing_type=RoutingType.MULTICAST, head=b"_AMQ_DUPL_ID:1\n")
    assert bench.engine._state.duplicates.refused == 1


def test_those_of_an_older_journal_go(bench: Bench) -> None:
    for n in range(3 * LOOKED_AT_MAX):
        bench.enter()._state.registry.create_address(f"t.{n}", {RoutingType.MULTICAST}, auto_created=True)
    bench.run()
    bench = bench.restart()
    assert len(bench.engine._state.registry.unused) == 3 * LOOKED_AT_MAX
    bench.broker.advance(3 * PERIOD)
    assert not [name for name in bench.engine.addresses if name.startswith("t.")]
    assert not bench.engine._state.registry.unused


def test_a_scan_takes_as_many_ticks_as_it_needs(bench: Bench) -> None:
    for n in range(3 * LOOKED_AT_MAX):
        bench.enter()._state.registry.create_address(f"t.{n}", {RoutingType.MULTICAST}, auto_created=True)
    steps = 0
    for _ in scan(bench.engine._state):
        steps += 1
    assert steps == 3


def test_a_scan_ends_its_tick_once_the_budget_is_used_up(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """What patterns match an address of 128 words may take milliseconds to find out."""
    for n in range(40):
        bench.enter()._state.registry.create_address(f"t.{n}", {RoutingType.MULTICAST}, auto_created=True)
    bench.run()
    state, asked = bench.engine._state, list[int]()
    match = state.bindings.patterns

    def slow(address: Address) -> tuple[Address, ...]:
        asked.append(state.steps.left)
        state.steps.spend(BUDGET_MIN // 4)
        return match(address)

    monkeypatch.setattr(type(state.bindings), "patterns", lambda _, address: slow(address))
    ticks = 0
    state.steps.ensure(BUDGET_MIN)
    for _ in scan(state):
        ticks += 1
        state.steps.refill()
        state.steps.spend(state.steps.left - BUDGET_MIN)
    assert len(asked) >= 40
    assert min(asked) > 0
    assert ticks >= 5


def test_the_delay_of_an_address() -> None:
    bench = used({**ON, "auto-delete-addresses-delay": 10 * PERIOD})
    bench.broker.advance(9 * PERIOD)
    assert there(bench) == (False, True)
    bench.broker.advance(6 * PERIOD)
    assert there(bench) == (False, False)


def test_the_configuration_s_own_stay() -> None:
    bench = Bench({**ON, "match": "DLQ", "auto-delete-queues-skip-usage-check": True})
    bench.close(bench.take("DLQ"), redelivery.CLOSED)
    bench.broker.advance(6 * PERIOD)
    assert "DLQ" in bench.engine.queues
    assert "DLQ" in bench.engine.addresses


def test_durable_subscriptions_stay() -> None:
    bench = Bench(ON)
    bench.close(bench.take("a", RoutingType.MULTICAST, durable_name="c.d"), redelivery.CLOSED)
    bench.broker.advance(6 * PERIOD)
    assert "c.d" in bench.engine.queues
