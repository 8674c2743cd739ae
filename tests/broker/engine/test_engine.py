"""The engine's door: ticks, confirmations, subscriptions, declarations, browsing."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.engine.delivery import redelivery
from broker.engine.filter import grammar
from broker.engine.model.errors import AlreadyInUse, InvalidSelector, NoQueue, NotFound, UnknownDelivery
from broker.engine.model.message import Message, RoutingType
from broker.engine.model.names import RETAINED
from broker.engine.queues.consumer import AckMode
from store.journal import JournalLimits
from store.record import RemovalReason
from tests.broker.engine.engine_harness import Bench, Waiting
from tests.simulation.world import check_accounts

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


@pytest.mark.parametrize("options", ["", "hyphenated_props:", "convert_string_expressions:", "both"])
def test_the_first_selector_of_any_kind_builds_no_parser(options: str) -> None:
    """That takes 20 to 60 ms of CPU, in which no other client would be served: the engine has built them all."""
    grammar._parser.cache_clear()
    bench = Bench()
    built = grammar._parser.cache_info().misses
    prefix = "hyphenated_props:convert_string_expressions:" if options == "both" else options
    bench.take("a", selector=f"{prefix}first = 'of {options}'")
    assert grammar._parser.cache_info().misses == built == 4


# -- ticks and confirmations -------------------------------------------------------------------------------------------


def test_the_time_stands_still_within_a_tick(bench: Bench) -> None:
    before = bench.enter().now
    bench.broker.now += 5
    assert bench.engine.now == before
    bench.run()
    assert bench.enter().now == before + 5


def test_when_it_must_run_next(bench: Bench) -> None:
    now = bench.broker.now
    reap = bench.engine.ticks.next_due()
    assert reap is not None
    assert reap <= now + 30_000
    bench.sent("a", b"1", expiration=now + 20_000)
    assert bench.engine.ticks.next_due() == min(reap, now + 20_000)
    bench.sent("a", b"1", scheduled=now + 9000)
    assert bench.engine.ticks.next_due() == now + 9000
    taker = bench.take("a")
    bench.ack(taker, *taker.taken)
    assert bench.engine.ticks.next_due() == now + 9000


def test_nothing_ever_happens_by_itself_if_everything_is_off() -> None:
    section = Bench().broker.config.broker
    off = section.model_copy(update={"message_expiry_scan_period": -1, "address_queue_scan_period": -1})
    bench = Bench(broker=off)
    bench.sent("a", b"1", expiration=bench.broker.now + 5)
    assert bench.engine.ticks.next_due() is None
    tx = bench.begin()
    assert bench.engine.ticks.next_due() == tx.deadline


def test_a_confirmation_waits_for_all_that_was_done() -> None:
    bench = Bench(lazy_disk=True)
    bench.broker.step()
    waiting = Waiting()
    assert bench.enter().ticks.confirmation(waiting) == 0, "there is nothing to wait for"
    bench.send("a", b"1")
    first = bench.engine.ticks.confirmation(waiting)
    assert first == bench.engine.ticks.confirmation(waiting)
    bench.run()
    second = bench.enter().ticks.confirmation(waiting)
    assert second == first, "the latest that is on its way"
    bench.run()
    assert waiting.told == []
    bench.broker.step()
    assert waiting.told == [first]
    assert bench.enter().ticks.confirmation(waiting) == 0


def test_a_start_that_becomes_durable_before_the_first_tick_ends() -> None:
    """A restart writes an entry of its own, and the first client may ask while it is on its way."""
    bench = Bench(lazy_disk=True)
    bench.broker.step()
    again = Bench(running=bench.broker.restart(lazy_disk=True))
    waiting = Waiting()
    number = again.enter().ticks.confirmation(waiting)
    assert number > 0
    again.broker.write()
    again.run()
    assert waiting.told == [number]


def test_messages_that_are_durable_before_the_tick_ends_are_delivered() -> None:
    """An entry that grew large is written before its tick ends, and the disk may be quicker than that."""
    bench = Bench(lazy_disk=True)
    bench.engine.journal.limits = JournalLimits(entry_bytes=1)
    taker = bench.take("a")
    bench.send("a", b"1")
    bench.engine.journal.reserve(1)
    waiting = Waiting()
    number = bench.engine.ticks.confirmation(waiting)
    bench.broker.write()
    bench.run()
    assert taker.take() == [b"1"]
    assert waiting.told == [number]


def test_non_durable_messages_wait_for_nothing() -> None:
    bench = Bench(lazy_disk=True)
    bench.sent("a", b"1")
    bench.broker.step()
    bench.send("a", b"2", durable=False)
    assert bench.engine.ticks.confirmation(Waiting()) == 0


def test_an_acknowledgement_is_confirmed_once_it_is_on_disk() -> None:
    bench = Bench(lazy_disk=True)
    bench.sent("a", b"1")
    bench.broker.step()
    taker = bench.take("a")
    waiting = Waiting()
    engine = bench.enter()
    engine.consumers.acknowledge(taker.consumer, taker.taken[0].id)
    assert engine.ticks.confirmation(waiting)
    bench.run()
    assert waiting.told == []
    bench.broker.step()
    assert len(waiting.told) == 1
    assert bench.restart().bodies("a") == []


# -- subscribing -------------------------------------------------------------------------------------------------------


def test_a_temporary_queue_goes_with_its_last_consumer_and_says_what_became_of_its_messages(bench: Bench) -> None:
    taker = bench.take("a", MULTICAST)
    queue = taker.consumer.queue
    bench.sent("a", b"1", b"2", routing_type=MULTICAST)
    bench.close(taker, redelivery.DISCONNECTED)
    assert queue.deleted
    assert bench.engine.usage.messages == 0
    bench.close(taker, redelivery.DISCONNECTED)


# -- settling ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AckMode.INDIVIDUAL, AckMode.CUMULATIVE])
def test_absent_messages_cannot_be_settled(bench: Bench, mode: AckMode) -> None:
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a", ack_mode=mode)
    engine = bench.enter()
    tx = engine.transactions.begin(object())
    for id in (message.id + 1, 0, -1):
        with pytest.raises(UnknownDelivery):
            engine.consumers.acknowledge(taker.consumer, id)
        with pytest.raises(UnknownDelivery):
            engine.consumers.acknowledge(taker.consumer, id, tx)
        with pytest.raises(UnknownDelivery):
            engine.consumers.reject(taker.consumer, id)
        with pytest.raises(UnknownDelivery):
            engine.consumers.give_back(taker.consumer, id, redelivery.RELEASED)
    engine.consumers.acknowledge(taker.consumer, message.id)
    with pytest.raises(UnknownDelivery):
        engine.consumers.acknowledge(taker.consumer, message.id)
    bench.run()
    assert bench.bodies("a") == []
    check_accounts(bench.broker)


def test_cumulative_acknowledgements_in_any_order(bench: Bench) -> None:
    messages = bench.sent("a", *[b"%d" % n for n in range(6)])
    taker = bench.take("a", ack_mode=AckMode.CUMULATIVE)
    for at, left in ((0, 5), (3, 2), (4, 1), (5, 0)):
        bench.ack(taker, messages[at])
        assert len(bench.bodies("a")) == left
    queue = bench.queue("a")
    assert (queue.delivering, queue.left[RemovalReason.CONSUMED]) == (0, 6)


@pytest.mark.parametrize("mode", [AckMode.CUMULATIVE, AckMode.INDIVIDUAL])
@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2), (2, 1, 0)])
def test_a_run_of_acknowledgements_is_as_good_as_one_by_one(mode: AckMode, order: tuple[int, ...]) -> None:
    outcomes = []
    for together in (True, False):
        bench = Bench()
        messages = bench.sent("a", *[b"%d" % n for n in range(4)])
        taker = bench.take("a", ack_mode=mode)
        ids = [messages[n].id for n in order]
        engine = bench.enter()
        try:
            for run in [ids] if together else [[id] for id in ids]:
                engine.consumers.acknowledge_run(taker.consumer, run)
            refused = False
        except UnknownDelivery:  # cumulative, and an earlier one has covered it
            refused = True
        bench.run()
        outcomes.append((refused, bench.bodies("a")))
        check_accounts(bench.broker)
    assert outcomes[0] == outcomes[1]
    assert outcomes[0][0] == (mode is AckMode.CUMULATIVE and order == (2, 1, 0))


def test_everything_that_was_handed_over_at_once(bench: Bench) -> None:
    bench.sent("a", b"1", b"2")
    taker = bench.take("a", ack_mode=AckMode.AUTO)
    bench.enter().consumers.acknowledge_all(taker.consumer)
    bench.run()
    assert bench.bodies("a") == []
    bench.enter().consumers.acknowledge_all(taker.consumer)
    bench.run()
    assert bench.queue("a").left[RemovalReason.CONSUMED] == 2


# -- declarations ------------------------------------------------------------------------------------------------------


def test_declared_twice_is_the_same_and_otherwise_a_contradiction(bench: Bench) -> None:
    engine = bench.enter()
    address = engine.configuration.declare("a", {ANYCAST})
    assert engine.configuration.declare("a", {MULTICAST}) is address
    assert address.routing_types == {ANYCAST, MULTICAST}
    queue = engine.configuration.declare_queue(address, "q", ANYCAST, durable=True, selector="x = 'y'")
    assert engine.configuration.declare_queue(address, "q", ANYCAST, durable=True, selector="x = 'y'") is queue
    with pytest.raises(AlreadyInUse, match="q exists with durable true, not false"):
        engine.configuration.declare_queue(address, "q", ANYCAST, durable=False, selector="x = 'y'")
    with pytest.raises(AlreadyInUse, match="q exists with address a, not b"):
        engine.configuration.declare_queue(
            engine.configuration.declare("b", set()), "q", ANYCAST, durable=True, selector="x = 'y'"
        )


@pytest.mark.parametrize(("routing_type", "selector"), [(ANYCAST, ""), (ANYCAST, "x = '2'"), (MULTICAST, "x = '1'")])
def test_declared_with_another_filter_or_routing_type_it_keeps_its_messages(
    bench: Bench, routing_type: RoutingType, selector: str
) -> None:
    """As in ActiveMQ Artemis: what is there stays, what comes is judged by the new one, also after a restart."""
    bench.declare("q", "a", selector="x = '1'")
    bench.sent("a", b"1", head=b"x:1\n")
    bench.declare("q", "a", routing_type=routing_type, selector=selector)
    reported = {"queue": "q", "filter": selector, "routing_type": routing_type.name}
    assert bench.broker.reported("config.changed") == [reported]
    for again in (False, True):
        if again:
            bench = bench.restart()
            bench.declare("q", "a", routing_type=routing_type, selector=selector)
            assert bench.broker.reported("config.changed") == []
        for x in (b"1", b"2"):
            with suppress(NoQueue):
                bench.sent("a", x, head=b"x:%b\n" % x, routing_type=routing_type)
    queue = bench.queue("q")
    assert (queue.routing_type, queue.filter.text if queue.filter else "") == (routing_type, selector)
    taken = {"": [b"1", b"1", b"2", b"1", b"2"], "x = '1'": [b"1", b"1", b"1"], "x = '2'": [b"1", b"2", b"2"]}
    assert bench.bodies("q") == taken[selector]


def test_the_broker_s_own_queue_is_not_configured(bench: Bench) -> None:
    address = bench.enter()._state.registry.ensure_address("t")
    bench.engine.retained.set(address, Message.of(bench.header("t"), b"", b"x"))
    bench.run()
    with pytest.raises(AlreadyInUse, match="the broker's own"):
        bench.declare(RETAINED, RETAINED, routing_type=MULTICAST, selector="FALSE")


def test_a_routing_type_does_not_change_under_consumers(bench: Bench) -> None:
    bench.declare("q", "a")
    bench.take("a::q")
    with pytest.raises(AlreadyInUse, match="q exists with consumers and routing-type ANYCAST, not MULTICAST"):
        bench.declare("q", "a", routing_type=MULTICAST)


def test_queues_by_name(bench: Bench) -> None:
    bench.sent("a::q", b"1")
    assert bench.queue("q") is bench.queue("a::q")
    for name in ("x", "b::q", "a::x"):
        with pytest.raises(NotFound):
            bench.queue(name)


# -- browsing ----------------------------------------------------------------------------------------------------------


def test_browse_shows_every_place_and_changes_nothing(bench: Bench) -> None:
    bench.sent("a", b"held")
    bench.take("a", window=0)
    bench.sent("a", b"ready", priority=9, head=b"colour:red\n")
    bench.sent("a", b"later", scheduled=bench.broker.now + 5000)
    for _ in range(2):
        assert bench.places("a") == {b"held": "delivering", b"ready": "ready", b"later": "scheduled"}
    queue = bench.queue("a")
    assert [m.body for m, _ in bench.engine.messages.browse(queue, "colour = 'red'")] == [b"ready"]
    assert queue.counters.delivered == 1
    with pytest.raises(InvalidSelector):
        list(bench.engine.messages.browse(queue, "colour ="))
