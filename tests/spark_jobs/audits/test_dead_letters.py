"""The dead-letter audit against the oracle, and on a broker's journal with a story."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import pytest

from broker.engine.moves.transfer import MessageRange
from spark_jobs.audits import dead_letters as audit
from spark_jobs.audits.dead_letters import dead_letters
from spark_jobs.audits.expiry import expiry
from spark_jobs.audits.ledger import LedgerOptions, ledger
from spark_jobs.audits.options import Options
from spark_jobs.audits.poison import KEY_CHARACTERS_MAX
from spark_jobs.audits.reading import NoSuchAddress
from spark_jobs.audits.trace import trace
from spark_jobs.journal.snapshot import Snapshot, take
from spark_jobs.results import ExitStatus, Figure, Result, Verdict
from store import decode
from tests.simulation.world import journal_directory, small
from tests.spark_jobs.audits.journals import SMALL_SEGMENT_BYTES, dump
from tests.spark_jobs.audits.results import counted, ms, nearest_rank, rows
from tests.support import books as oracle
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEATHS = audit.DEATHS


@pytest.mark.usefixtures("scattered")
def test_it_is_what_the_oracle_finds(spark: SparkSession, generated: Path) -> None:
    lines = oracle.read(generated / "journal")
    deaths = oracle.deaths(lines)
    result = dead_letters(spark, take([str(generated)]), Options(top=1000, fail_over=len(deaths)))
    assert (result.audit, result.status, result.coverage.damage) == ("dlq", ExitStatus.OK, ())
    outcomes = Counter(death.outcome for death in deaths)
    replay_outcomes = Counter(death.replay_outcome for death in deaths if death.replay_outcome)
    assert min(outcomes["waiting"], outcomes["moved"], outcomes["killed"], outcomes["consumed"]) > 0
    assert result.summary == {
        "dead letters and killed": len(deaths),
        "killed": outcomes["killed"],
        "still waiting": outcomes["waiting"],
        "brought back": outcomes["moved"],
        "brought back and consumed": replay_outcomes["consumed"],
        "brought back and died again": replay_outcomes["dead-lettered"] + replay_outcomes["killed"],
        "with unknown outcome": 0,
        **oldest(deaths, lines[-1].time),
    }
    assert counted(result, "outcomes", "outcome", DEATHS) == outcomes
    assert counted(result, "replay-outcomes", "replay_outcome", DEATHS) == replay_outcomes
    assert counted(result, "reasons", "reason", DEATHS) == Counter(death.reason for death in deaths)
    assert counted(result, "senders", "user", DEATHS) == Counter(death.record.user or None for death in deaths)
    assert counted(result, "consumers", "client", DEATHS) == Counter(death.record.client or None for death in deaths)
    assert counted(result, "attempts", "deliveries", DEATHS) == Counter(death.record.attempts for death in deaths)
    same_places(result, deaths)
    same_times(result, deaths)
    waiting = sorted((death.line.time, death.record.new_id) for death in deaths if death.outcome == "waiting")
    assert [(ms(row["died"]), row["message"]) for row in rows(result, "oldest")] == waiting
    last = lines[-1].time
    assert [row["age (s)"] for row in rows(result, "oldest")] == [(last - time) / 1000 for time, _ in waiting]


def oldest(deaths: list[oracle.Death], end: int) -> dict[str, Figure]:
    """Since when the oldest waits."""
    since = min(death.line.time for death in deaths if death.outcome == "waiting")
    said = datetime.fromtimestamp(since / 1000, UTC)
    return {"oldest waiting since": said, "oldest waiting for (s)": (end - since) // 1000}


def same_places(result: Any, deaths: list[oracle.Death]) -> None:
    """A row for each address and queue."""
    places: dict[tuple[str, str], list[oracle.Death]] = {}
    for death in deaths:
        places.setdefault((death.record.address, death.queue), []).append(death)
    found = {(row["address"], row["queue"]): row for row in rows(result, "places")}
    assert found.keys() == places.keys()
    for place, dead in places.items():
        row, attempts = found[place], [death.record.attempts for death in dead]
        assert row[DEATHS] == len(dead)
        for column, outcome in (("killed", "killed"), ("waiting", "waiting"), ("brought back", "moved")):
            assert row[column] == sum(death.outcome == outcome for death in dead)
        assert (row["attempts min"], row["attempts max"]) == (min(attempts), max(attempts))
        assert row["attempts mean"] == pytest.approx(fmean(attempts), abs=0.01)
        assert ms(row["first death"]) == min(death.line.time for death in dead)
        assert ms(row["last death"]) == max(death.line.time for death in dead)


def same_times(result: Any, deaths: list[oracle.Death]) -> None:
    """Hours, and the time from the first failure to death."""
    hours = Counter((death.line.time // 3_600_000 * 3_600_000, death.reason) for death in deaths)
    found = {
        (ms(row["hour"]), reason): row[reason]
        for row in rows(result, "hours")
        for reason in row
        if reason in audit.REASONS and row[reason]
    }
    assert found == hours
    took: dict[str, list[int]] = {}
    for death in deaths:
        if death.record.first_failure:
            took.setdefault(death.record.address, []).append(death.line.time - death.record.first_failure)
    bands = Counter(
        max(word for low, word in enumerate_bands() if value >= low) for each in took.values() for value in each
    )
    words = [word for _, word in audit.DURATIONS]
    assert counted(result, "durations", "time to death", DEATHS) == {words[n]: count for n, count in bands.items()}
    for row in rows(result, "durations-by-address"):
        own = took[row["address"]]
        assert row[DEATHS] == len(own)
        assert (row["min (s)"], row["max (s)"]) == (min(own) / 1000, max(own) / 1000)
        assert (row["median (s)"], row["p95 (s)"]) == (nearest_rank(own, 0.5), nearest_rank(own, 0.95))


def enumerate_bands() -> list[tuple[int, int]]:
    """Lower bounds of the bands, and their numbers."""
    return [(low, number) for number, (low, _) in enumerate(audit.DURATIONS)]


def test_a_story(spark: SparkSession, lived: Path) -> None:
    """Who is brought back and dies again is poison; so is what has the same body, key or group."""
    result = dead_letters(spark, take([str(lived)]), Options(fail_over=8))
    assert (result.status, result.exceeded) == (ExitStatus.EXCEEDED, True)
    assert result.summary == {
        "dead letters and killed": 9,
        "killed": 1,
        "still waiting": 5,
        "brought back": 3,
        "brought back and consumed": 1,
        "brought back and died again": 1,
        "with unknown outcome": 0,
        "oldest waiting since": datetime(2026, 5, 28, 20, 26, 40, tzinfo=UTC),
        "oldest waiting for (s)": 3640,
    }
    assert counted(result, "replay-outcomes", "replay_outcome", DEATHS) == {
        "consumed": 1,
        "dead-lettered": 1,
        "waiting": 1,
    }
    poison = {(row["key"], row["value"]): (row["deaths"], row["messages"]) for row in rows(result, "poison")}
    lines = oracle.read(lived / "journal")
    first = next(id for id, story in oracle.stories(lines).items() if story.message and story.message.body == b"poison")
    assert poison.pop(("same message", str(first))) == (2, 1)
    assert poison.pop(("correlation id", "p0")) == (3, 2)
    assert poison.pop(("group", "g")) == (4, 3)
    (((key, _), numbers),) = poison.items()
    assert (key, numbers) == ("body", (4, 3))
    assert "died again" in result.problems[0]


def test_only_some_addresses_and_times(spark: SparkSession, lived: Path) -> None:
    lines = oracle.read(lived / "journal")
    deaths = oracle.deaths(lines)
    since = min(death.line.time for death in deaths if death.record.address == "lost")
    options = Options(addresses=("lost", "events.#"), from_time=since, top=1)
    result = dead_letters(spark, take([str(lived)]), options)
    assert result.summary["dead letters and killed"] == 2
    (row,) = rows(result, "places")
    assert row["address"] == "events"
    assert (
        next(s.note for s in result.sections if s.name == "places")
        == "Without a queue: the message was unroutable. 1 more is not shown."
    )


@pytest.mark.parametrize("which", [dead_letters, expiry])
def test_an_address_that_does_not_exist_is_not_taken_for_one_without_deaths(
    spark: SparkSession, lived: Path, which: Callable[[SparkSession, Snapshot, Options], Result]
) -> None:
    with pytest.raises(NoSuchAddress, match="--address lots: no address in the journal matches; similar ones: lost"):
        which(spark, take([str(lived)]), Options(addresses=("lots",)))


def test_messages_that_no_queue_took_died_too(spark: SparkSession, tmp_path: Path) -> None:
    """Of three that nobody subscribed to one waits, one is consumed from the dead letters, one is brought back."""
    broker = SimBroker(small({"match": "news", "send-to-dla-on-no-route": True}), users={"press": "x"})
    client = broker.connect(login="press", passcode="x", **{"client-id": "desk"})
    for n in range(3):
        client.confirmed("/topic/news", b"%d" % n)
    client.subscribe("DLQ", id="d", ack="client-individual")
    client.ack(client.messages()[1])
    client.do("UNSUBSCRIBE", {"id": "d"})
    client.subscribe("/topic/news", id="n", ack="client-individual", **{"durable-subscription-name": "reader"})
    first, last = (letter for letter, _ in broker.engine.messages.browse(broker.engine.queue("DLQ")))
    broker.parts.tick.enter()
    assert broker.engine.messages.retry(broker.engine.queue("DLQ"), MessageRange(ids=(last.id,))).moved == 1
    broker.run()
    client.drop()
    broker.shut_down()
    dump(broker.files, journal_directory(broker.config), tmp_path / "journal")
    journal = take([str(tmp_path)])
    result = dead_letters(spark, journal, Options())
    (place,) = rows(result, "places")
    assert (place["address"], place["queue"], place[DEATHS]) == ("news", None, 3)
    assert counted(result, "reasons", "reason", DEATHS) == {"no-route": 3}
    assert counted(result, "senders", "user", DEATHS) == {"press": 3}
    assert counted(result, "attempts", "deliveries", DEATHS) == {0: 3}
    assert counted(result, "outcomes", "outcome", DEATHS) == {"waiting": 1, "consumed": 1, "moved": 1}
    assert counted(result, "replay-outcomes", "replay_outcome", DEATHS) == {"waiting": 1}
    assert [row["message"] for row in rows(result, "oldest")] == [first.id]
    balanced = ledger(spark, journal, LedgerOptions())
    assert (balanced.verdict, balanced.problems) == (Verdict.BALANCED, ())
    old = (last.header.annotations or {})["_AMQ_ORIG_MESSAGE_ID"]
    life = rows(trace(journal, int(old), Options()), "life")
    assert [(row["queue"], row["what happened"].split(",")[0]) for row in life][:4] == [
        ("DLQ", "stored on DLQ"),
        ("", f"died after 0 deliveries: no-route (no queue of address news took it); lives on as {last.id}"),
        ("desk.reader", "stored on news"),
        ("DLQ", "left: moved"),
    ]


def test_messages_that_died_on_a_link_have_its_name_and_the_place_there(spark: SparkSession, tmp_path: Path) -> None:
    routes = {"orders": {"queue": "orders.out", "address": "orders"}}
    here = SimBroker(linked(sections={"journal": small().journal}, send=routes))
    there = SimBroker(configured({"match": "orders", "max-size-bytes": 1, "address-full-policy": "FAIL"}))
    links = SimLinks(here, {"b": there})
    client = here.connect()
    for n in range(3):
        client.confirmed("/queue/orders.out", b"%d" % n)
    links.run()
    client.drop()
    here.shut_down()
    dump(here.files, journal_directory(here.config), tmp_path / "journal")
    result = dead_letters(spark, take([str(tmp_path)]), Options())
    place = {"link": "b", "remote broker": there.config.broker.name, "remote address": "orders"}
    (row,) = rows(result, "links")
    assert row[DEATHS] == 2
    assert [{name: each[name] for name in place} for each in [row, *rows(result, "oldest")]] == [place] * 3
    assert counted(result, "reasons", "reason", DEATHS) == {"queue-full": 2}


def test_messages_that_died_or_expired_on_a_non_durable_queue_are_counted_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two subscribers, one of them durable: each dead letter of a message is in the audit, with its queue."""
    broker = SimBroker(small({"match": "news"}), users={"press": "x"})
    client = broker.connect(login="press", passcode="x", **{"client-id": "desk"})
    client.subscribe("/topic/news", id="n", ack="client-individual", **{"prefetch-count": "1"})
    client.subscribe("/topic/news", id="d", ack="client-individual", **{"durable-subscription-name": "reader"})
    (passing,) = {queue.name for queue in broker.engine.queues.values() if not queue.durable}
    client.confirmed("/topic/news", b"1")
    for message in client.messages():
        client.nack(message, requeue="false")
    client.do("UNSUBSCRIBE", {"id": "d"})
    client.confirmed("/topic/news", b"2")  # the subscriber that stays holds it, and has no room for more
    client.confirmed("/topic/news", b"3", expires=str(broker.now + 1000))
    broker.advance(60_000)
    client.drop()
    broker.shut_down()
    dump(broker.files, journal_directory(broker.config), tmp_path / "journal")
    journal = take([str(tmp_path)])
    result = dead_letters(spark, journal, Options())
    places = {(row["address"], row["queue"], row[DEATHS], row["waiting"]) for row in rows(result, "places")}
    assert places == {("news", passing, 1, 1), ("news", "desk.reader", 1, 1)}
    expired = {(row["queue"], row["expired"]) for row in rows(expiry(spark, journal, Options()), "places")}
    assert expired == {(passing, 1), ("desk.reader", 1)}
    balanced = ledger(spark, journal, LedgerOptions())
    assert (balanced.verdict, balanced.problems) == (Verdict.BALANCED, ())


def test_killed_messages_of_which_only_a_copy_is_there_have_contents_too(spark: SparkSession, tmp_path: Path) -> None:
    """They were copied forward before they died, and their oldest segments are gone."""
    lost: dict[str, object] = {"match": "lost", "dead-letter-address": ""}
    broker = SimBroker(small(lost, segment_bytes=SMALL_SEGMENT_BYTES, retained=False))
    sender, worker = broker.connect(), broker.connect()
    worker.subscribe("/queue/lost", id="l")
    worker.subscribe("/queue/busy", id="b", ack="auto")
    for _ in range(2):
        sender.confirmed("/queue/lost", b"lost", **{"correlation-id": "c"})
    dying = worker.messages()
    for _ in range(100):
        sender.confirmed("/queue/busy", bytes(500))
        worker.messages()
        broker.advance(100)
    for message in dying:
        worker.nack(message, requeue="false")
    broker.run()
    dump(broker.files, journal_directory(broker.config), tmp_path / "journal")
    records = [line.record for line in oracle.read(tmp_path / "journal")]
    killed = {record.old_id for record in records if isinstance(record, decode.DeadLettered)}
    assert len(killed) == 2
    assert not killed & {record.id for record in records if isinstance(record, decode.Message)}
    found = rows(dead_letters(spark, take([str(tmp_path)]), Options()), "poison")
    assert {(row["key"], row["deaths"]) for row in found} == {("body", 2), ("correlation id", 2)}


def test_long_keys_are_told_apart_by_what_is_not_shown(spark: SparkSession, tmp_path: Path) -> None:
    """Keys are compared in full, and shown by their beginning."""
    broker = SimBroker(small({"match": "news", "send-to-dla-on-no-route": True}), users={"press": "x"})
    client = broker.connect(login="press", passcode="x")
    start = "x" * KEY_CHARACTERS_MAX
    for n, end in enumerate(("one", "two", "two", "three")):
        client.confirmed("/topic/news", b"%d" % n, **{"correlation-id": start + end})
    client.drop()
    broker.shut_down()
    dump(broker.files, journal_directory(broker.config), tmp_path / "journal")
    result = dead_letters(spark, take([str(tmp_path)]), Options())
    assert [(row["key"], row["value"], row["deaths"]) for row in rows(result, "poison")] == [
        ("correlation id", start, 2)
    ]


def test_dead_letters_whose_message_is_not_there_are_counted(spark: SparkSession, lived: Path) -> None:
    """The range begins between the message and the record of its death, which a position can do."""
    lines = oracle.read(lived / "journal")
    death = oracle.deaths(lines)[0]
    message = next(line for line in lines if getattr(line.record, "id", 0) == death.record.new_id)
    assert message.position < death.line.position
    bounds = Options(from_position=death.line.position, to_position=death.line.position + 2)
    result = dead_letters(spark, take([str(lived)]), bounds)
    assert (result.summary["dead letters and killed"], result.summary["with unknown outcome"]) == (1, 1)
    assert counted(result, "outcomes", "outcome", DEATHS) == {"unknown": 1}


def test_nobody_died(spark: SparkSession, lived: Path) -> None:
    result = dead_letters(spark, take([str(lived)]), Options(to_position=3))
    assert result.summary["dead letters and killed"] == 0
    assert all(section.table.num_rows == 0 for section in result.sections)
    assert all(section.chart is None for section in result.sections)
