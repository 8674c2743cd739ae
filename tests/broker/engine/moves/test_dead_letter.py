"""Dead letters and expiry: where they go, what they carry, and that they never go round in circles."""

from __future__ import annotations

import pytest

from broker.engine.delivery import redelivery
from broker.engine.model.message import RoutingType
from store import decode
from store.record import DeadLetterReason, RemovalReason
from tests.broker.engine.engine_harness import Bench, Taker, fill, notes
from tests.simulation.world import check_accounts, check_counters, journal_records, reasons, small
from tests.support.sim_broker import SimBroker
from tests.support.sim_files import SimFiles

ONCE = {"match": "a", "max-delivery-attempts": 1}


def die(bench: Bench, address: str = "a", **more: object) -> Taker:
    (message,) = bench.sent(address, b"1", **more)
    taker = bench.take(address, client_id="clerk", remote="10.0.0.1:5")
    bench.nack(taker, message)
    return taker


@pytest.mark.parametrize("text", ["", "torn"])
def test_a_rejection_says_by_whom_and_why(text: str) -> None:
    bench = Bench(ONCE)
    (message,) = bench.sent("a", b"1")
    taker = bench.take("a", client_id="clerk", remote="10.0.0.1:5")
    state = bench.enter()._state
    redelivery.reject(state, bench.queue("a"), [message], text, taker.consumer)
    bench.run()
    by = "rejected by clerk at 10.0.0.1:5"
    assert notes(bench.only("DLQ"))["_AMQ_DL_TEXT"] == (f"{by}: {text}" if text else by)


def test_the_headers_of_a_dead_letter() -> None:
    bench = Bench(ONCE)
    expiration = bench.broker.now + 10_000
    die(bench, user="u", priority=7, expiration=expiration, head=b"colour:red\n")
    letter = bench.only("DLQ")
    found = notes(letter)
    text = found.pop("_AMQ_DL_TEXT")
    assert text == "delivered 1 time without success, last by clerk at 10.0.0.1:5: rejected by the consumer"
    assert found == {
        "_AMQ_ORIG_ADDRESS": "a",
        "_AMQ_ORIG_QUEUE": "a",
        "_AMQ_ORIG_MESSAGE_ID": found["_AMQ_DL_FIRST_MESSAGE_ID"],
        "_AMQ_ORIG_ROUTING_TYPE": 1,
        "_AMQ_DL_REASON": "max-deliveries",
        "_AMQ_DL_TIME": bench.broker.now,
        "_AMQ_DL_ATTEMPTS": 1,
        "_AMQ_DL_COUNT": 1,
        "_AMQ_DL_CLIENT": "clerk",
        "_AMQ_DL_CLIENT_ADDRESS": "10.0.0.1:5",
        "_AMQ_DL_ORIG_EXPIRATION": expiration,
        "_AMQ_DL_ORIG_TIMESTAMP": bench.broker.now,
        "_AMQ_DL_ORIG_USER": "u",
        "_AMQ_DL_FIRST_ADDRESS": "a",
        "_AMQ_DL_FIRST_QUEUE": "a",
        "_AMQ_DL_FIRST_MESSAGE_ID": found["_AMQ_ORIG_MESSAGE_ID"],
        "_AMQ_DL_FIRST_REASON": "max-deliveries",
        "_AMQ_DL_FIRST_TIME": bench.broker.now,
    }
    assert (letter.header.priority, letter.header.user, letter.head) == (7, "u", b"colour:red\n")
    assert (letter.header.expiration, letter.header.durable, letter.header.routing_type) == (0, True, None)
    assert bench.queue("DLQ").delivery_count(letter.id) == 0


def test_the_journal_records_a_death() -> None:
    bench = Bench({**ONCE, "max-delivery-attempts": 2})
    (message,) = bench.sent("a", b"1", user="u")
    taker = bench.take("a", client_id="clerk", remote="10.0.0.1:5")
    first = bench.broker.now
    bench.nack(taker, message)
    bench.broker.advance(50)
    bench.nack(taker, message)
    (death,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.DeadLettered)]
    letter = bench.only("DLQ")
    assert (death.queue_id, death.old_id, death.new_id) == (bench.queue("a").id, message.id, letter.id)
    assert (death.enqueued, death.first_failure, death.attempts) == (message.header.timestamp, first, 2)
    assert (death.reason, death.address, death.user) == (DeadLetterReason.MAX_DELIVERIES, "a", "u")
    assert (death.client, death.remote) == ("clerk", "10.0.0.1:5")


def test_an_expired_message_and_the_journal_record_its_expiry(bench: Bench) -> None:
    expiration = bench.broker.now + 1000
    (message,) = bench.sent("a", b"1", expiration=expiration, expiry_source=1)
    bench.broker.advance(1000)
    (expiry,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.Expired)]
    copy = bench.only("ExpiryQueue")
    found = notes(copy)
    assert (found["_AMQ_ACTUAL_EXPIRY"], found["_AMQ_DL_REASON"]) == (bench.broker.now, "expired")
    assert "_AMQ_DL_CLIENT" not in found
    assert (expiry.old_id, expiry.new_id, expiry.expiration, expiry.source) == (message.id, copy.id, expiration, 1)
    assert (expiry.consumers, expiry.attempts, expiry.address) == (0, 0, "a")


def test_a_death_on_a_non_durable_queue_has_a_record_if_its_dead_letter_is_durable() -> None:
    """The queue is in no journal: the record names none, and nothing left it; the dead letter says where it was."""
    bench = Bench({"match": "t", "max-delivery-attempts": 2})
    taker = bench.take("t", RoutingType.MULTICAST, client_id="clerk")
    (message,) = bench.sent("t", b"1", routing_type=RoutingType.MULTICAST, user="u")
    first = bench.broker.now
    bench.nack(taker, message)
    bench.broker.advance(50)
    bench.nack(taker, message)
    letter = bench.only("DLQ")
    (death,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.DeadLettered)]
    bench.enter().consumers.pause(taker.consumer)
    assert (death.queue_id, death.old_id, death.new_id) == (0, message.id, letter.id)
    assert (death.first_failure, death.attempts, death.client, death.user) == (first, 2, "clerk", "u")
    bench.sent("t", b"2", routing_type=RoutingType.MULTICAST, expiration=bench.broker.now + 1000)
    bench.broker.advance(1000)
    copy = bench.only("ExpiryQueue")
    (expiry,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.Expired)]
    assert (expiry.queue_id, expiry.new_id, expiry.address) == (0, copy.id, "t")
    check_accounts(bench.broker)
    bench = bench.restart()
    assert (bench.bodies("DLQ"), bench.bodies("ExpiryQueue")) == ([b"1"], [b"2"])
    check_accounts(bench.broker)


@pytest.mark.parametrize(("durable", "address"), [(False, "DLQ"), (True, "")])
def test_a_death_on_a_non_durable_queue_without_a_durable_dead_letter_has_no_record(
    durable: bool, address: str
) -> None:
    bench = Bench({"match": "t", "max-delivery-attempts": 1, "dead-letter-address": address})
    taker = bench.take("t", RoutingType.MULTICAST)
    (message,) = bench.sent("t", b"1", routing_type=RoutingType.MULTICAST, durable=durable)
    bench.nack(taker, message)
    assert bench.bodies("DLQ") == ([b"1"] if address else [])
    assert not [r for r in journal_records(bench.broker) if isinstance(r, decode.DeadLettered)]


def test_without_a_dead_letter_address_it_is_killed_by_name() -> None:
    bench = Bench({**ONCE, "dead-letter-address": ""})
    die(bench)
    assert bench.bodies("a") == bench.bodies("DLQ") == []
    (told,) = bench.broker.reported("message.killed")
    assert (told["queue"], told["reason"], told["attempts"]) == ("a", "max-deliveries", 1)
    assert bench.queue("a").left[RemovalReason.KILLED] == 1
    assert reasons(check_accounts(bench.broker)["a"]) == {RemovalReason.KILLED: 1}
    (death,) = [r for r in journal_records(bench.broker) if isinstance(r, decode.DeadLettered)]
    assert death.new_id == 0


def test_without_an_expiry_address_it_is_removed_by_name() -> None:
    bench = Bench({"match": "a", "expiry-address": ""})
    bench.sent("a", b"1", b"2", expiration=bench.broker.now + 10)
    bench.broker.advance(10)
    assert bench.bodies("a") == []
    assert reasons(check_accounts(bench.broker)["a"]) == {RemovalReason.EXPIRED: 2}
    assert len(bench.broker.reported("message.expired_unkept")) == 1, "a warning an address, not one a message"


def test_a_dead_letter_queue_never_dead_letters_onto_itself() -> None:
    bench = Bench(ONCE, {"match": "DLQ", "max-delivery-attempts": 2})
    die(bench)
    taker = bench.take("DLQ")
    for _ in range(5):
        bench.nack(taker, taker.taken[-1])
    bench.nack(taker, taker.taken[-1], requeue=False)
    assert taker.take() == [b"1"] * 6, "a consumer that wants no redelivery gets none"
    assert bench.take("DLQ").take() == [b"1"], "another may take it"
    found = notes(bench.only("DLQ"))
    assert (found["_AMQ_ORIG_ADDRESS"], found["_AMQ_DL_COUNT"]) == ("a", 1)
    assert bench.engine.usage.messages == 1


def test_a_letter_does_not_breed_on_a_wildcard_queue_that_sees_the_dead_letter_address() -> None:
    """A queue on `#` gets the dead letters too; what fails there again stays, instead of dying once more."""
    bench = Bench(ONCE, {"match": "DLQ", "max-delivery-attempts": 1})
    bench.declare("all", "*", routing_type=RoutingType.MULTICAST)
    taker = bench.take("*::all", None)
    bench.sent("b", b"1", routing_type=None)
    for _ in range(6):
        bench.broker.advance(60_000)
        for message in list(taker.consumer.unacked.values()):
            bench.nack(taker, message, requeue=False)
    assert bench.bodies("DLQ") == [b"1"]
    assert bench.engine.usage.messages <= 2
    check_counters(bench.broker)


@pytest.mark.parametrize("expiry_delay", [None, 1000])
def test_an_expired_copy_does_not_go_round_in_circles(expiry_delay: int | None) -> None:
    bench = Bench({"match": "ExpiryQueue", "expiry-delay": -1 if expiry_delay is None else expiry_delay})
    bench.declare("all", "*", routing_type=RoutingType.MULTICAST)
    bench.sent("b", b"1", routing_type=None, expiration=bench.broker.now + 10)
    bench.broker.advance(1000)
    assert bench.engine.usage.messages == 1
    bench.broker.advance(100_000)
    assert bench.engine.usage.messages == (1 if expiry_delay is None else 0)
    check_accounts(bench.broker)


def test_the_dead_letter_address_is_the_queue_s_the_expiry_address_the_message_s() -> None:
    bench = Bench(
        {"match": "news.#", "dead-letter-address": "D1", "expiry-address": "E1", "max-delivery-attempts": 1},
        {"match": "news.eu", "dead-letter-address": "D2", "expiry-address": "E2"},
    )
    bench.declare("all", "news.*", routing_type=RoutingType.MULTICAST)
    (message,) = bench.sent("news.eu", b"dead", routing_type=None)
    taker = bench.take("news.*::all", None)
    bench.nack(taker, message)
    bench.sent("news.eu", b"late", routing_type=None, expiration=bench.broker.now - 1)
    assert bench.bodies("D1") == [b"dead"]
    assert bench.bodies("E2") == [b"late"]


def test_at_most_so_many_expire_in_one_tick_and_the_rest_in_the_next() -> None:
    bench = Bench(segment_bytes=1 << 20)
    for _ in range(5):
        bench.sent("a", *[b"x"] * 1000, durable=False, expiration=bench.broker.now + 10)
    bench.broker.advance(10)
    assert bench.bodies("a") == []
    assert len(bench.bodies("ExpiryQueue")) == 5000
    assert bench.queue("a").left[RemovalReason.EXPIRED] == 5000


def test_expired_in_the_middle_of_the_line(bench: Bench) -> None:
    bench.sent("a", b"1")
    bench.sent("a", b"2", expiration=bench.broker.now + 10)
    bench.sent("a", b"3")
    bench.broker.advance(10)
    assert bench.take("a").take() == [b"1", b"3"]
    assert bench.queue("a").expiring == 0


@pytest.mark.parametrize("nbytes", [112, 260, 593])
def test_on_a_full_disk_dead_letters_stay_and_consumers_go_on(nbytes: int) -> None:
    """Not a byte too many is used for what is noted of a death."""
    config = small({"match": "a", "dead-letter-address": "D"}, retained=False)
    bench = Bench(running=SimBroker(config, files=SimFiles(capacity=160 << 10)))
    bench.sent("a", *[b"x" * nbytes] * 100)
    bench.sent("keep", b"1")
    sent = 100 + len(fill(bench, "a"))
    taker = bench.take("a")
    while not bench.broker.reported("move.disk_full"):
        bench.nack(taker, taker.taken.pop(0), requeue=False)
    for _ in range(10):
        bench.ack(taker, taker.taken.pop(0))
    assert bench.broker.failure is None
    left, dead = len(bench.bodies("a")), len(bench.bodies("D"))
    assert left + dead == sent - 10
    assert dead > 0
    bench.broker.files.capacity = None
    again = bench.restart()
    assert (len(again.bodies("a")), len(again.bodies("D"))) == (left, dead)


def test_on_a_full_disk_expired_messages_go_in_order_as_far_as_there_is_room() -> None:
    """A large one that finds no room is not overtaken: small ones behind it would use up what it waits for."""
    config = small({"match": "a", "expiry-address": "E"}, retained=False)
    bench = Bench(running=SimBroker(config, files=SimFiles(capacity=160 << 10)))
    bench.sent("keep", b"1")
    due = bench.broker.now + 5_000
    bodies = [b"first", b"large" * 5_000, *[b"small"] * 20]
    bench.sent("a", *bodies, expiration=due)
    fill(bench, "keep")
    bench.broker.advance(6_000)
    assert bench.broker.failure is None
    assert bench.broker.reported("move.disk_full")
    assert (bench.bodies("E"), bench.bodies("a")) == (bodies[:1], bodies[1:])
    bench.broker.files.capacity = None
    bench.broker.advance(60_000)
    assert bench.bodies("E") == bodies
    assert bench.restart().bodies("E") == bodies
