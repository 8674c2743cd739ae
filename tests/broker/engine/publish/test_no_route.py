"""What no queue takes and its address keeps (`send-to-dla-on-no-route`) dies in the journal like everything else."""

from __future__ import annotations

from contextlib import suppress

import pytest

from broker.engine.delivery.redelivery import CLOSED
from broker.engine.model.limits import Limits
from broker.engine.model.message import PropertyView, RoutingType
from broker.engine.model.notes import NOTIFICATIONS
from broker.engine.moves.transfer import MessageRange
from store import decode
from store.record import DeadLetterReason
from tests.broker.engine.engine_harness import Bench, notes, section
from tests.simulation.world import check_accounts, journal_directory, journal_records
from tests.support.sim_files import Crash, Fault

ANYCAST, MULTICAST = RoutingType.ANYCAST, RoutingType.MULTICAST

KEPT: dict[str, object] = {"match": "t.#", "send-to-dla-on-no-route": True}


def deaths(bench: Bench) -> list[decode.DeadLettered]:
    """The records of deaths, oldest first."""
    return [record for record in journal_records(bench.broker) if isinstance(record, decode.DeadLettered)]


def test_it_has_a_record_of_its_death() -> None:
    bench = Bench(KEPT)
    (message,) = bench.sent("t.x", b"1", routing_type=MULTICAST, user="u", origin="c")
    copy = bench.only("DLQ")
    (death,) = deaths(bench)
    assert death == decode.DeadLettered(
        queue_id=0,
        old_id=message.id,
        new_id=copy.id,
        enqueued=message.header.timestamp,
        first_failure=0,
        attempts=0,
        reason=DeadLetterReason.NO_ROUTE,
        address="t.x",
        text="no queue of address t.x took it",
        client="",
        remote="",
        user="u",
    )
    noted = notes(copy)
    assert (noted["_AMQ_ORIG_MESSAGE_ID"], noted["_AMQ_ORIG_ADDRESS"]) == (death.old_id, "t.x")
    assert "_AMQ_ORIG_QUEUE" not in noted
    assert bench.engine.addresses["t.x"].unrouted == 0
    assert [told["address"] for told in bench.broker.reported("message.no_route")] == ["t.x"]
    check_accounts(bench.broker)
    bench = bench.restart()
    assert bench.bodies("DLQ") == [b"1"]
    check_accounts(bench.broker)


def test_each_of_a_run_has_one_and_what_was_routed_has_none() -> None:
    bench = Bench(KEPT)
    bench.take("t.x", MULTICAST, durable_name="s", selector="k = 'v'")
    bench.sent("t.x", b"1", b"2", routing_type=MULTICAST)
    bench.sent("t.x", b"3", head=b"k:v\n", routing_type=MULTICAST)
    assert [death.new_id for death in deaths(bench)] == [letter.id for letter in bench.messages("DLQ")]
    assert bench.bodies("DLQ") == [b"1", b"2"]
    check_accounts(bench.broker)


def test_non_durable_messages_leave_no_record() -> None:
    bench = Bench(KEPT)
    bench.sent("t.x", b"1", routing_type=MULTICAST, durable=False)
    assert bench.bodies("DLQ") == [b"1"]
    assert deaths(bench) == []


def test_a_queue_for_it_is_made_where_the_settings_say_so() -> None:
    bench = Bench(KEPT | {"auto-create-dead-letter-resources": True})
    bench.sent("t.x", b"1", routing_type=MULTICAST)
    assert bench.bodies("DLQ.t.x") == [b"1"]


@pytest.mark.parametrize("address", ["", "t.x"])
def test_without_another_address_for_it_it_is_unroutable_and_no_death(address: str) -> None:
    bench = Bench(KEPT | {"dead-letter-address": address})
    bench.sent("t.x", b"1", routing_type=MULTICAST)
    assert (deaths(bench), bench.bodies("DLQ")) == ([], [])
    assert bench.engine.addresses["t.x"].unrouted == 1


def test_in_a_transaction_and_by_a_divert() -> None:
    bench = Bench(KEPT, diverts={"d": section("a", "t.y", routing_type="MULTICAST")})
    tx = bench.begin()
    bench.send("t.x", b"1", routing_type=MULTICAST, tx=tx)
    bench.send("a", b"2", tx=tx)
    bench.engine.transactions.commit(tx)
    bench.run()
    assert bench.bodies("a") == [b"2"]
    assert [(death.address, death.queue_id) for death in deaths(bench)] == [("t.x", 0), ("t.y", 0)]
    assert bench.bodies("DLQ") == [b"1", b"2"]
    check_accounts(bench.restart().broker)


def test_listeners_are_told_of_the_death() -> None:
    bench = Bench(KEPT)
    taker = bench.take(NOTIFICATIONS, MULTICAST, selector="_AMQ_NotifType = 'MESSAGE_DEAD_LETTERED'")
    (message,) = bench.sent("t.x", b"1", routing_type=MULTICAST)
    (note,) = [dict(PropertyView(found)) for found in taker.taken]
    assert (note["_AMQ_Address"], note["_AMQ_Message_ID"], note["_AMQ_DL_ADDRESS"]) == ("t.x", message.id, "DLQ")
    assert (note["_AMQ_DL_REASON"], note["_AMQ_DL_TEXT"]) == ("no-route", "no queue of address t.x took it")
    assert "_AMQ_RoutingName" not in note


def test_it_goes_back_to_its_address() -> None:
    bench = Bench(KEPT)
    bench.sent("t.x", b"1", routing_type=MULTICAST)
    assert bench.retry().refused == {"no-queue": 1}
    first, second = (bench.take("t.x", MULTICAST, durable_name=name) for name in "ab")
    assert bench.retry().moved == 1
    assert (first.take(), second.take(), bench.bodies("DLQ")) == ([b"1"], [b"1"], [])
    check_accounts(bench.broker)


@pytest.mark.parametrize("crash", [False, True])
def test_an_anycast_queue_is_made_for_it(crash: bool) -> None:
    bench = Bench(KEPT)
    bench.sent("t.x", b"0")
    bench.change("t.x", enabled=False)
    bench.sent("t.x", b"1")
    bench.delete("t.x")
    bench = bench.restart() if crash else bench
    assert bench.retry().moved == 1
    assert bench.bodies("t.x") == [b"1"]
    check_accounts(bench.broker)


def test_a_message_sent_to_one_queue_goes_back_to_that_one() -> None:
    bench = Bench(KEPT)
    one, other = (bench.take("t.x", MULTICAST, name=name, durable_name=name) for name in ("one", "other"))
    queue = one.consumer.queue.name
    bench.change(queue, enabled=False)
    bench.sent(f"t.x::{queue}", b"1", routing_type=MULTICAST)
    assert notes(bench.only("DLQ"))["_AMQ_ORIG_QUEUE"] == queue
    assert deaths(bench)[0].queue_id == 0, "it was never on it"
    bench.change(queue, enabled=True)
    assert bench.retry().moved == 1
    assert (one.take(), other.take()) == ([b"1"], [])
    check_accounts(bench.broker)


def test_a_queue_that_would_get_it_again_keeps_it() -> None:
    bench = Bench(KEPT | {"dead-letter-address": "t.dead"})
    taker = bench.take("t.#", MULTICAST, durable_name="dead", selector="_AMQ_DL_REASON = 'no-route'")
    name = taker.consumer.queue.name
    bench.close(taker, CLOSED)
    bench.sent("t.x", b"1", routing_type=MULTICAST)
    assert bench.bodies(name) == [b"1"]
    assert bench.retry(name).refused == {"onto-itself": 1}


def test_it_dies_again() -> None:
    bench = Bench(KEPT)
    bench.sent("t.x", b"1", routing_type=MULTICAST)
    taker = bench.take("t.x", MULTICAST, durable_name="s")
    bench.retry()
    bench.nack(taker, *taker.taken, requeue=False)
    noted = notes(bench.only("DLQ"))
    assert (noted["_AMQ_DL_COUNT"], noted["_AMQ_DL_REASON"]) == (2, "rejected")
    assert noted["_AMQ_DL_FIRST_REASON"] == "no-route"
    assert [death.reason for death in deaths(bench)] == [DeadLetterReason.NO_ROUTE, DeadLetterReason.REJECTED]
    check_accounts(bench.broker)


def test_the_journal_stays_readable_when_it_is_cleaned() -> None:
    bench = Bench(KEPT, segment_bytes=8 << 10)
    for n in range(200):
        bench.sent("t.x", b"%d" % n + b"." * 300, routing_type=MULTICAST)
        if n % 40:
            bench.enter().messages.discard(bench.queue("DLQ"), MessageRange(ids=(bench.messages("DLQ")[-1].id,)))
        bench.broker.advance(Limits().cleaning_period)
    assert "0000000001.journal" not in bench.broker.files.list_dir(journal_directory(bench.broker.config))
    bench.run()
    left = bench.bodies("DLQ")
    assert len(left) == 5
    bench = bench.restart()
    assert bench.bodies("DLQ") == left
    assert len(deaths(bench)) == 200, "retention has them"
    check_accounts(bench.broker)
    assert bench.retry().refused == {"no-queue": len(left)}


def test_a_crash_at_each_operation_of_the_disk_leaves_both_or_none() -> None:
    found = set()
    at, done = 0, False
    while not done:
        at += 1
        bench = Bench(KEPT)
        files = bench.broker.files
        begun = files.operations
        files.plan(at, Fault.CRASH)
        with suppress(Crash):
            bench.sent("t.x", b"1", routing_type=MULTICAST)
        done = files.operations - begun < at
        files.heal()
        bench = bench.restart()
        copies = [letter.id for letter in bench.messages("DLQ")] if "DLQ" in bench.engine.queues else []
        assert [death.new_id for death in deaths(bench)] == copies
        found.add(len(copies))
        check_accounts(bench.broker)
    assert found == {0, 1}
