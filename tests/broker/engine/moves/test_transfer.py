"""An operator's moves: back to where a message died, or to another address; one journal entry each, in steps."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.filter import compile_filter
from broker.engine.model.errors import EngineError, InvalidName, NotFound, OntoItself, RoutingTypeMismatch
from broker.engine.model.message import Message, RoutingType
from broker.engine.moves.transfer import MessageRange, MoveResult
from broker.engine.publish.send import Send
from broker.engine.queues.diverts import Divert
from broker.sessions.stomp.format import encode_head
from store.record import RemovalReason
from tests.broker.engine.engine_harness import EVERYTHING, Bench, entries_with, fill, notes
from tests.simulation.world import check_accounts, check_counters, reasons, small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST


def moved(bench: Bench, name: str, target: str, selection: MessageRange = EVERYTHING) -> MoveResult:
    """One step, and everything that follows from it."""
    step = bench.enter().messages.move(bench.queue(name), target, selection)
    bench.run()
    return step


# -- back to where they came from --------------------------------------------------------------------------------------


def test_a_dead_letter_goes_back_as_if_it_were_new() -> None:
    bench = Bench({"match": "a", "max-delivery-attempts": 2})
    (message,) = bench.sent("a", b"1", priority=7, expiration=bench.broker.now + 60_000, user="u", origin="o")
    taker = bench.take("a")
    bench.nack(taker, message)
    bench.nack(taker, message)
    bench.close(taker, redelivery.CLOSED)
    dead = bench.only("DLQ")
    step = bench.retry()
    assert (step.moved, step.refused, step.complete) == (1, {}, True)
    back = bench.only("a")
    assert bench.bodies("DLQ") == []
    assert back.id > dead.id
    assert bench.queue("a").delivery_count(back.id) == 0
    header = back.header
    assert (header.address, header.durable, header.priority, header.routing_type) == ("a", True, 7, ANYCAST)
    assert (header.timestamp, header.user, header.origin) == (message.header.timestamp, "u", "o")
    assert header.expiration == 0, "its time to live was measured from the first sending"
    check_counters(bench.broker)
    assert bench.queue("DLQ").left[RemovalReason.MOVED] == 1
    assert reasons(check_accounts(bench.broker)["DLQ"]) == {RemovalReason.MOVED: 1}


def test_a_retried_message_has_its_last_origin_and_its_whole_history(bench: Bench) -> None:
    bench.die("a", b"1")
    dead = bench.only("DLQ")
    died = notes(dead)
    bench.retry()
    back = bench.only("a")
    assert notes(back)["_AMQ_ORIG_MESSAGE_ID"] == dead.id
    assert (notes(back)["_AMQ_ORIG_ADDRESS"], notes(back)["_AMQ_ORIG_QUEUE"]) == ("DLQ", "DLQ")
    assert "_AMQ_ORIG_ROUTING_TYPE" not in notes(back), "it has the type itself"
    history = {name: value for name, value in died.items() if name.startswith("_AMQ_DL_")}
    assert len(history) >= 10
    assert history.items() <= notes(back).items()
    bench.nack(bench.take("a"), back, requeue=False)
    again = notes(bench.only("DLQ"))
    assert (again["_AMQ_DL_COUNT"], again["_AMQ_ORIG_QUEUE"], again["_AMQ_ORIG_MESSAGE_ID"]) == (2, "a", back.id)
    assert again["_AMQ_ORIG_ROUTING_TYPE"] == ANYCAST
    assert again["_AMQ_DL_FIRST_MESSAGE_ID"] == died["_AMQ_DL_FIRST_MESSAGE_ID"]


def test_the_move_is_one_entry() -> None:
    bench = Bench(segment_bytes=1 << 20)
    bench.die("a", b"1")
    before = len(entries_with(bench, "REMOVED"))
    bench.retry()
    entry = entries_with(bench, "REMOVED")[before:]
    assert entry == [["MESSAGE", "REMOVED"]]


def test_an_expired_message_goes_back_without_its_expiration() -> None:
    bench = Bench({"match": "fresh", "expiry-delay": 5000})
    for name in ("a", "fresh"):
        bench.sent(name, b"1", expiration=bench.broker.now + 10)
    bench.broker.advance(10)
    assert bench.retry("ExpiryQueue").moved == 2
    assert (bench.only("a").header.expiration, "_AMQ_ACTUAL_EXPIRY" in notes(bench.only("a"))) == (0, False)
    assert bench.only("fresh").header.expiration == bench.broker.now + 5000, "what the address imposes"
    bench.broker.advance(5000)
    assert (bench.bodies("fresh"), bench.bodies("ExpiryQueue")) == ([], [b"1"])


def test_only_the_subscription_where_it_died_gets_it_again(bench: Bench) -> None:
    for name in ("s1", "s2"):
        bench.close(bench.take("t", MULTICAST, durable_name=name), redelivery.CLOSED)
    (message,) = bench.sent("t", b"1", routing_type=MULTICAST)
    first = bench.take("t", MULTICAST, durable_name="s1")
    bench.nack(first, message, requeue=False)
    bench.retry()
    assert (bench.bodies("s1"), bench.bodies("s2")) == ([b"1"], [b"1"])
    assert bench.only("s1").header.routing_type is MULTICAST


def test_a_queue_on_a_wildcard_address_gets_back_what_came_from_there(bench: Bench) -> None:
    bench.close(bench.take("news.#", MULTICAST, durable_name="s"), redelivery.CLOSED)
    (message,) = bench.sent("news.eu", b"1", routing_type=MULTICAST)
    taker = bench.take("news.#", MULTICAST, durable_name="s")
    bench.nack(taker, message, requeue=False)
    bench.retry()
    assert (bench.only("s").header.address, bench.bodies("DLQ")) == ("news.eu", [])
    assert bench.engine.addresses["news.eu"].size_messages == 1


def test_a_queue_that_is_gone_is_made_again_where_it_may_be() -> None:
    bench = Bench({"match": "fixed", "auto-create-queues": False})
    bench.die("a", b"1")
    bench.declare("fixed")
    bench.die("fixed", b"2")
    for name in ("a", "fixed"):
        bench.delete(name)
    step = bench.retry()
    assert (step.moved, step.refused) == (1, {"no-queue": 1})
    assert (bench.bodies("a"), bench.bodies("DLQ")) == ([b"1"], [b"2"])
    assert bench.queue("a").durable


def test_a_queue_that_is_gone_is_not_made_again_beside_others_which_would_share_with_it(bench: Bench) -> None:
    bench.declare("q1", "a")
    bench.declare("q2", "a")
    bench.declare("alone", "b")
    bench.die("a::q2", b"1")
    bench.die("b::alone", b"2")
    for name in ("q2", "alone"):
        bench.delete(name)
    step = bench.retry()
    assert (step.moved, step.refused) == (1, {"no-queue": 1})
    assert (bench.bodies("alone"), bench.bodies("DLQ"), "q2" in bench.engine.queues) == ([b"2"], [b"1"], False)


@pytest.mark.parametrize("removed", [False, True])
def test_a_divert_s_copy_does_not_go_back_to_a_queue_with_the_divert_s_name(bench: Bench, removed: bool) -> None:
    bench.declare("orders")
    bench.declare("copies")
    bench.enter().configuration.declare_divert(Divert("d", "orders", ("copies",)))
    bench.sent("orders", b"1")
    if removed:
        bench.enter().operators.remove_divert("d")
        bench.run()
    assert bench.retry("copies").refused == {"no-queue": 1}
    assert (bench.bodies("copies"), "d" in bench.engine.queues) == ([b"1"], False)


def test_a_divert_s_copy_does_not_make_a_queue_on_an_address_without_any(bench: Bench) -> None:
    bench.declare("copies")
    bench.enter().configuration.declare_divert(Divert("d", "orders", ("copies",), exclusive=True))
    bench.sent("orders", b"1")
    bench.delete("orders")
    assert bench.retry("copies").refused == {"no-queue": 1}
    assert "d" not in bench.engine.queues


def test_nor_once_the_divert_is_gone(bench: Bench) -> None:
    """Its sender said that it is for a queue, but it was on none."""
    bench.declare("copies")
    bench.enter().configuration.declare_divert(Divert("d", "orders", ("copies",), exclusive=True))
    bench.sent("orders", b"1", routing_type=ANYCAST)
    bench.delete("orders")
    bench.enter().operators.remove_divert("d")
    bench.run()
    assert bench.retry("copies").refused == {"no-queue": 1}
    assert (bench.bodies("copies"), "d" in bench.engine.queues) == ([b"1"], False)


def test_a_subscription_that_is_gone_is_not_made_again(bench: Bench) -> None:
    taker = bench.take("t", MULTICAST, durable_name="s")
    (message,) = bench.sent("t", b"1", routing_type=MULTICAST)
    bench.nack(taker, message, requeue=False)
    bench.close(taker, redelivery.CLOSED)
    bench.enter().delete_subscription("s")
    bench.run()
    assert bench.retry().refused == {"no-queue": 1}
    assert (bench.bodies("DLQ"), "s" in bench.engine.queues) == ([b"1"], False)


def test_the_routing_type_of_an_earlier_origin_is_forgotten(bench: Bench) -> None:
    """Else a subscription that is gone would be made again, as an anycast queue that nobody consumes."""
    bench.sent("a", b"1")
    taker = bench.take("t", MULTICAST, durable_name="s")
    moved(bench, "a", "t")
    (message,) = taker.taken
    assert notes(message)["_AMQ_ORIG_ROUTING_TYPE"] == ANYCAST
    bench.nack(taker, message, requeue=False)
    assert "_AMQ_ORIG_ROUTING_TYPE" not in notes(bench.only("DLQ"))
    bench.close(taker, redelivery.CLOSED)
    bench.enter().delete_subscription("s")
    bench.run()
    assert bench.retry().refused == {"no-queue": 1}
    assert (bench.bodies("DLQ"), "s" in bench.engine.queues) == ([b"1"], False)


def test_without_a_routing_type_the_name_tells(bench: Bench) -> None:
    """Its sender did not say; a queue that bears its address's name is no subscription."""
    bench.sent("a", b"0")
    bench.die("a", b"1", routing_type=None)
    assert "_AMQ_ORIG_ROUTING_TYPE" not in notes(bench.only("DLQ"))
    bench.delete("a")
    assert bench.retry().moved == 1
    assert bench.only("a").header.routing_type is None


def test_another_queue_that_took_the_name_does_not_get_it(bench: Bench) -> None:
    bench.die("a", b"1")
    bench.enter().delete_queue(bench.queue("a"))
    bench.declare("a", "b")
    assert bench.retry().refused == {"no-queue": 1}
    assert bench.bodies("a") == []


def test_a_queue_that_would_forget_it_does_not_get_it(bench: Bench) -> None:
    taker = bench.take("t", MULTICAST)
    (lasting,) = bench.sent("t", b"1", routing_type=MULTICAST)
    (passing,) = bench.sent("t", b"2", routing_type=MULTICAST, durable=False)
    bench.nack(taker, lasting, passing, requeue=False)
    step = bench.retry()
    assert (step.moved, step.refused) == (1, {"no-queue": 1})
    assert (bench.bodies("DLQ"), taker.take()) == ([b"1"], [b"1", b"2", b"2"])


def test_a_message_sent_there_has_no_origin_and_one_that_came_from_there_stays() -> None:
    bench = Bench({"match": "a", "dead-letter-address": "a.dead"})
    bench.sent("DLQ", b"sent")
    bench.die("b", b"dead")
    assert bench.retry().refused == {"no-origin": 1}
    assert bench.bodies("DLQ") == [b"sent"]
    assert moved(bench, "DLQ", "b").moved == 1
    assert moved(bench, "b", "DLQ", MessageRange(filter=compile_filter("_AMQ_DL_COUNT = 1"))).moved == 1
    assert bench.bodies("b") == [b"sent"]
    assert bench.retry("b").moved == 1, "back to where an operator took it from"
    assert sorted(bench.bodies("DLQ")) == [b"dead", b"sent"]
    check_accounts(bench.broker)


def test_a_message_that_came_from_the_same_queue_stays(bench: Bench) -> None:
    bench.die("a", b"1")
    bench.enter()
    address = bench.engine.addresses["DLQ"]
    annotations = {"_AMQ_ORIG_ADDRESS": "DLQ", "_AMQ_ORIG_QUEUE": "DLQ"}
    message = Message(bench.header("DLQ", annotations=annotations), encode_head([]), b"2")
    bench.engine.producers.publish([Send.at(address, None, ANYCAST, [message])]).check()
    bench.run()
    assert bench.retry().refused == {"onto-itself": 1}
    assert bench.bodies("DLQ") == [b"2"]


# -- to another address ------------------------------------------------------------------------------------------------


def test_move_to_an_address_that_is_made(bench: Bench) -> None:
    messages = bench.sent("a", b"1", b"2", expiration=bench.broker.now + 1000)
    step = moved(bench, "a", "b")
    assert (step.moved, step.refused, step.complete) == (2, {}, True)
    assert (bench.bodies("a"), bench.bodies("b")) == ([], [b"1", b"2"])
    assert notes(bench.messages("b")[0]) == {
        "_AMQ_ORIG_ADDRESS": "a",
        "_AMQ_ORIG_QUEUE": "a",
        "_AMQ_ORIG_MESSAGE_ID": messages[0].id,
        "_AMQ_ORIG_ROUTING_TYPE": ANYCAST,
    }
    assert reasons(check_accounts(bench.broker)["a"]) == {RemovalReason.MOVED: 2}
    bench.broker.advance(2000)
    assert bench.bodies("b") == [b"1", b"2"], "the old deadline is gone"
    assert bench.restart().bodies("b") == [b"1", b"2"]


@pytest.mark.parametrize("target", ["t", "t::s1", "s1"])
def test_move_to_a_topic_or_one_of_its_queues(bench: Bench, target: str) -> None:
    for name in ("s1", "s2"):
        bench.close(bench.take("t", MULTICAST, durable_name=name), redelivery.CLOSED)
    bench.sent("a", b"1")
    assert moved(bench, "a", target).moved == 1
    assert (bench.bodies("s1"), bench.bodies("s2")) == ([b"1"], [b"1"] if target == "t" else [])
    check_accounts(bench.broker)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("a", OntoItself),
        ("a::a", OntoItself),
        ("w.x", OntoItself),
        ("topic", NotFound),
        ("closed.b", NotFound),
        ("topic::q", RoutingTypeMismatch),
        ("b.#", InvalidName),
        ("a::b::c", InvalidName),
        ("", InvalidName),
        ("wild", InvalidName),
    ],
)
def test_a_target_that_cannot_be(target: str, error: type[EngineError]) -> None:
    fixed: list[dict[str, object]] = [{"match": name, "auto-create-addresses": False} for name in ("closed.#", "topic")]
    bench = Bench(*fixed)
    bench.enter().configuration.declare("topic", {MULTICAST})
    bench.declare("wild", "w.#", routing_type=MULTICAST)
    bench.sent("w.y", b"1", routing_type=MULTICAST)
    bench.sent("a", b"1")
    source = "wild" if target == "w.x" else "a"
    before = set(bench.engine.queues), set(bench.engine.addresses)
    with pytest.raises(error):
        bench.enter().messages.move(bench.queue(source), target, EVERYTHING)
    bench.run()
    assert bench.bodies(source) == [b"1"]
    assert (set(bench.engine.queues), set(bench.engine.addresses)) == before


def test_a_message_that_no_queue_takes_stays(bench: Bench) -> None:
    bench.declare("red", "b", selector="colour = 'red'")
    for colour in (b"red", b"blue"):
        bench.sent("a", colour, head=encode_head([(b"colour", colour)]))
    step = moved(bench, "a", "b")
    assert (step.moved, step.refused) == (1, {"no-queue": 1})
    assert (bench.bodies("a"), bench.bodies("red")) == ([b"blue"], [b"red"])


def test_a_producers_schedule_stays_and_a_redelivery_delay_does_not() -> None:
    bench = Bench({"match": "a", "redelivery-delay": 60_000})
    bench.sent("a", b"later", scheduled=bench.broker.now + 5000)
    (failed,) = bench.sent("a", b"failed")
    taker = bench.take("a")
    bench.nack(taker, failed)
    bench.close(taker, redelivery.CLOSED)
    assert bench.places("a") == {b"later": "scheduled", b"failed": "scheduled"}
    assert moved(bench, "a", "b").moved == 2
    assert bench.places("b") == {b"later": "scheduled", b"failed": "ready"}
    bench = bench.restart()
    assert bench.places("b") == {b"later": "scheduled", b"failed": "ready"}
    bench.broker.advance(5000)
    assert bench.places("b") == {b"later": "ready", b"failed": "ready"}
    bench.broker.advance(100_000)
    assert bench.places("a") == {}


def test_messages_that_are_not_durable_move_too(bench: Bench) -> None:
    bench.sent("a", b"1", durable=False)
    assert moved(bench, "a", "b").moved == 1
    check_counters(bench.broker)
    assert bench.engine.usage.messages == 1
    assert (bench.bodies("b"), bench.queue("b").stored) == ([b"1"], 0)


# -- which ones --------------------------------------------------------------------------------------------------------


def test_a_filter_chooses_by_what_the_broker_noted(bench: Bench) -> None:
    bench.die("a", b"1")
    bench.die("b", b"2")
    step = bench.retry(selection=MessageRange(filter=compile_filter("_AMQ_ORIG_ADDRESS = 'b'")))
    assert (step.moved, step.complete, bench.bodies("DLQ")) == (1, True, [b"1"])


def test_one_id(bench: Bench) -> None:
    bench.die("a", b"1", b"2")
    dead = bench.messages("DLQ")
    assert bench.retry(selection=MessageRange(ids=(dead[1].id,))).moved == 1
    assert (bench.bodies("DLQ"), bench.bodies("a")) == ([b"1"], [b"2"])
    assert bench.retry(selection=MessageRange(ids=(dead[1].id,))).refused == {"gone": 1}
    bench.take("DLQ")
    assert bench.retry(selection=MessageRange(ids=(dead[0].id,))).refused == {"delivering": 1}


def test_messages_of_consumers_are_left_to_them(bench: Bench) -> None:
    bench.die("a", b"1", b"2")
    taker = bench.take("DLQ", window=1)
    assert bench.retry().moved == 1
    assert bench.places("DLQ") == {b"1": "delivering"}
    bench.ack(taker, *taker.taken)
    assert bench.bodies("a") == [b"2"]
    check_accounts(bench.broker)


@pytest.mark.parametrize("selector", ["", "colour = 'red'"])
def test_steps_look_at_each_message_once_and_not_at_later_ones(selector: str) -> None:
    """Also while a consumer has a selector, and the queue keeps a line for each."""
    bench = Bench(engine_limits={"move_step_max": 4})
    for n in range(10):
        priority = (4, 9, 0)[n % 3]
        bench.sent("a", b"%d" % n, head=encode_head([(b"odd", b"%d" % (n % 2))]), priority=priority)
    if selector:
        bench.take("a", selector=selector)
    odd = compile_filter("odd = '1'")
    step = moved(bench, "a", "b", MessageRange(filter=odd))
    assert (step.moved, step.complete) == (2, False)
    bench.sent("a", b"11", head=encode_head([(b"odd", b"1")]))
    counts = []
    while not step.complete:
        step = moved(bench, "a", "b", MessageRange(filter=odd, after=step.last, below=step.below))
        counts.append(step.moved)
    assert counts == [2, 1]
    assert set(bench.bodies("b")) == {b"1", b"3", b"5", b"7", b"9"}
    assert set(bench.bodies("a")) == {b"0", b"2", b"4", b"6", b"8", b"11"}
    bench.check()


@pytest.mark.parametrize(("count", "complete"), [(3, True), (4, False), (5, False)])
def test_a_step_at_its_limit(count: int, complete: bool) -> None:
    bench = Bench(engine_limits={"move_step_max": 4})
    bench.sent("a", *[b"x"] * count)
    step = moved(bench, "a", "b")
    assert (step.moved, step.complete) == (min(count, 4), complete)


def test_a_message_that_dies_again_meanwhile_does_not_go_round(bench: Bench) -> None:
    bench.die("a", b"1")
    first = bench.retry()
    taker = bench.take("a")
    bench.nack(taker, *taker.taken, requeue=False)
    assert bench.bodies("DLQ") == [b"1"]
    assert bench.retry(selection=MessageRange(after=first.last, below=first.below)).moved == 0


# -- when it cannot be -------------------------------------------------------------------------------------------------


def test_without_room_on_the_disk_messages_stay() -> None:
    count = 30
    bench = Bench(running=SimBroker(small(retained=False), files=SimFiles(capacity=100 << 10)))
    for n in range(count):
        bench.sent("a", b"%03d" % n * 200)
    ballast = fill(bench, "c")
    step = moved(bench, "a", "b")
    assert bench.broker.failure is None
    assert step.moved + step.refused["disk-full"] == count
    assert len(bench.bodies("b")) == step.moved > 0
    assert len(bench.bodies("a")) == count - step.moved
    check_counters(bench.broker)
    bench.ack(bench.take("c"), *ballast)
    assert moved(bench, "a", "b").moved == count - step.moved
    again = bench.restart()
    assert (len(again.bodies("b")), again.bodies("a")) == (count, [])


def test_messages_stay_if_the_disk_has_no_room_for_their_notes() -> None:
    """A consumer's notes may be many times longer than the message (AMQP `modified`)."""
    count = 20
    config = small(segment_bytes=256 << 10, retained=False)
    bench = Bench(running=SimBroker(config, files=SimFiles(capacity=300 << 10)))
    for message in bench.sent("a", *[b"x"] * count):
        message.annotate({"x-opt-note": "n" * 30_000})
    step = moved(bench, "a", "b")
    assert bench.broker.failure is None
    assert 0 < step.moved < count
    assert step.refused == {"disk-full": count - step.moved}
    check_accounts(bench.broker)


def test_a_full_address_takes_what_comes_back() -> None:
    bench = Bench({"match": "a", "max-size-messages": 1, "address-full-policy": "FAIL"})
    bench.die("a", b"1")
    bench.sent("a", b"2")
    assert bench.retry().moved == 1
    assert sorted(bench.bodies("a")) == [b"1", b"2"]


@pytest.mark.parametrize(("limit", "taken"), [({"max-size-messages": 5}, 5), ({"max-size-bytes": 1_600}, 2)])
def test_messages_for_a_full_address_that_cannot_page_stay(limit: dict[str, object], taken: int) -> None:
    """A move takes many messages in a step: those before count too."""
    bench = Bench({"match": "b", **limit})
    bench.declare("b", last_value=True)
    bench.sent("a", *[b"%d" % number for number in range(20)], durable=False)
    step = moved(bench, "a", "b")
    assert step.moved == taken
    assert step.refused == {"address-full": 20 - taken}
    assert bench.queue("b").ready == taken


# -- away --------------------------------------------------------------------------------------------------------------


def test_removed_messages_leave_by_name_and_stay_away(bench: Bench) -> None:
    first, *_ = bench.sent("a", b"1", b"2", b"3")
    taker = bench.take("a", window=1)
    bench.sent("a", b"4", scheduled=bench.broker.now + 60_000)
    step = bench.enter().messages.discard(bench.queue("a"), EVERYTHING)
    bench.run()
    assert (step.moved, step.complete) == (3, True)
    assert taker.taken == [first], "what a consumer holds is not looked at"
    queue = bench.queue("a")
    assert (queue.counters.added, queue.left[RemovalReason.PURGED]) == (4, 3)
    assert bench.restart().bodies("a") == [b"1"]
