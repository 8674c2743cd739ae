"""`bartleby journal replay` against a running broker: what left its queue comes back, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.cli.failure import Failure
from broker.cli.remote import Remote
from broker.cli.replay import BATCH_MESSAGES
from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import NOW, TestBroker, die, taken
from tests.support.bodies import body_of

REPLAY = ("journal", "replay")


def held(broker: TestBroker, name: str) -> list[bytes]:
    return [body_of(message) for message in broker.held(name)]


@pytest.fixture
async def consumed(broker: TestBroker) -> None:
    """Three messages of a were consumed, one a second; one of b was rejected; one is still on a."""
    for number, colour in enumerate((b"red", b"blue", b"green")):
        broker.now = NOW + 1_000 * number
        await broker.sent("a", [colour], headers=[(b"colour", colour)])
        await taken(broker, "a")
    await die(broker, "b", b"bad")
    await broker.sent("a", [b"there"])
    broker.now = NOW + 10_000


def replayed(answer: dict[str, Any]) -> tuple[int, int, int, int]:
    return answer["replayed"], answer["repeated"], answer["unfit"], answer["missing"]


@pytest.mark.usefixtures("consumed")
async def test_what_was_consumed_comes_back_and_says_where_it_comes_from(
    broker: TestBroker, operator: Operator
) -> None:
    result = await operator.run(*REPLAY)
    assert result.exit_code == 0, result.output
    assert "3 messages came back" in result.stdout
    assert held(broker, "a") == [b"there", b"red", b"blue", b"green"]
    _, red, *_ = broker.held("a")
    notes = red.header.annotations
    assert notes is not None
    assert (notes["_AMQ_ORIG_ADDRESS"], notes["_AMQ_ORIG_QUEUE"]) == ("a", "a")
    assert int(notes["_AMQ_ORIG_MESSAGE_ID"]) < red.id
    assert (notes["_AMQ_REPLAY"], notes["_AMQ_REPLAY_TIME"]) == ("replay", NOW + 10_000)
    assert red.header.user == "sender"


@pytest.mark.usefixtures("consumed")
async def test_a_replay_that_is_repeated_brings_nothing_twice_and_another_name_does(
    broker: TestBroker, operator: Operator
) -> None:
    assert replayed(await operator.json(*REPLAY)) == (3, 0, 0, 0)
    assert replayed(await operator.json(*REPLAY)) == (0, 3, 0, 0)
    assert len(await taken(broker, "a")) == 4
    answer = await operator.json(*REPLAY)
    assert replayed(answer) == (1, 6, 0, 0), "there; the three and their copies came back before"
    assert replayed(await operator.json(*REPLAY, "--name", "more", "--id", "9999")) == (0, 0, 0, 0)
    assert (await operator.json(*REPLAY, "--name", "more", "--filter", "colour = 'red'"))["replayed"] == 2


@pytest.mark.parametrize(
    ("options", "bodies"),
    [
        (("--from", "2023-11-14T22:13:21Z"), [b"blue", b"green"]),
        (("--from", "2023-11-14T22:13:21", "--to", "2023-11-14T22:13:22"), [b"blue"]),
        (("--to", "2023-11-15T00:13:21+02:00"), [b"red"]),
        (("--from", "1h"), []),
        (("--filter", "colour LIKE '%e%n'"), [b"green"]),
        (("--queue", "b"), []),
        (("--address", "b", "--reason", "dead-lettered"), [b"bad"]),
        (("--reason", "dead-lettered", "--reason", "consumed"), [b"red", b"blue", b"green", b"bad"]),
        (("--reason", "purged"), []),
    ],
)
@pytest.mark.usefixtures("consumed")
async def test_what_is_chosen(
    broker: TestBroker, operator: Operator, options: tuple[str, ...], bodies: list[bytes]
) -> None:
    answer = await operator.json(*REPLAY, *options, "--to-address", "again")
    assert answer["replayed"] == len(bodies)
    assert (held(broker, "again") if bodies else []) == bodies


@pytest.mark.usefixtures("consumed")
async def test_a_dry_run_only_counts(broker: TestBroker, operator: Operator) -> None:
    result = await operator.run(*REPLAY, "--dry-run", "--reason", "consumed", "--reason", "dead-lettered")
    assert result.exit_code == 0
    rows = [line.split() for line in result.stdout.splitlines()]
    assert ["a", "consumed", "3"] in rows
    assert ["b", "dead-lettered", "1"] in rows
    assert rows[-1] == ["4", "messages", "would", "come", "back"]
    assert held(broker, "a") == [b"there"]


@pytest.mark.usefixtures("consumed")
async def test_a_replay_that_breaks_off_goes_on_when_it_is_repeated(
    broker: TestBroker, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker is gone after its first answer, and the answer with it: the second run finds out from the journal."""
    send = Remote.send
    calls: list[bytes] = []

    def once(remote: Remote, path: str, body: bytes, **parameters: str | int) -> Any:
        answer = send(remote, path, body, **parameters)
        calls.append(body)
        if len(calls) == 2:
            raise Failure(3, "gone")
        return answer

    many = [b"%d" % n for n in range(BATCH_MESSAGES)]
    await broker.sent("c", many)
    await taken(broker, "c")
    monkeypatch.setattr(Remote, "send", once)
    result = await operator.run(*REPLAY)
    assert result.exit_code == 3
    assert f"{BATCH_MESSAGES:,} messages were brought back, then:" in result.stderr
    assert replayed(await operator.json(*REPLAY)) == (0, BATCH_MESSAGES + 3, 0, 0)
    assert held(broker, "a") == [b"there", b"red", b"blue", b"green"]
    assert held(broker, "c") == many


@pytest.mark.usefixtures("consumed")
async def test_a_full_disk_stops_it_and_says_how_to_go_on(broker: TestBroker, operator: Operator) -> None:
    broker.engine.usage.disk.full = True
    result = await operator.run(*REPLAY)
    assert result.exit_code == 5
    assert "of the disk is used" in result.stderr
    assert "repeat the command" in result.stderr
    broker.engine.usage.disk.full = False
    assert replayed(await operator.json(*REPLAY)) == (3, 0, 0, 0)


@pytest.mark.usefixtures("consumed")
async def test_a_queue_that_is_gone_is_made_again(broker: TestBroker, operator: Operator) -> None:
    broker.tick.enter()
    broker.engine.delete_queue(broker.engine.queue("a"))
    await broker.settled()
    assert replayed(await operator.json(*REPLAY)) == (3, 0, 0, 0)
    assert held(broker, "a") == [b"red", b"blue", b"green"]


@pytest.mark.usefixtures("consumed")
async def test_messages_without_their_segment_are_told(broker: TestBroker, operator: Operator) -> None:
    await broker.sent("a", [b"early"])
    for _ in range(5):  # a segment has 1 MiB
        await broker.sent("filler", [bytes(300_000)])
    for name in ("filler", "DLQ", "a"):
        await taken(broker, name)
    result = await operator.run(*REPLAY, "--queue", "a")
    assert result.exit_code == 5
    assert "no longer on disk" in result.stderr


def test_a_journal_that_is_not_there_is_6(tmp_path: Path) -> None:
    result = invoke(*REPLAY, "/nowhere", "--data", str(tmp_path))
    assert (result.exit_code, "No such file or directory" in result.stderr) == (6, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--from", "yesterday"), "'yesterday' is not a time"),
        (("--from", "9" * 5_000 + "d"), "is not a time"),
        (("--from", "5min", "--to", "12:00:61"), "is not a time"),
        (("--reason", "eaten"), "reason eaten: give one of consumed, expired"),
        (("--reason", "dropped"), "reason dropped"),
        (("--filter", "a ="), "filter: "),
        (("--id", "0"), "--id"),
    ],
)
def test_mistakes(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    result = invoke(*REPLAY, *options, "--data", str(tmp_path))
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.usefixtures("consumed")
async def test_a_target_that_does_not_exist(broker: TestBroker, operator: Operator) -> None:
    result = await operator.run(*REPLAY, "--to-address", "a::no such::queue")
    assert result.exit_code == 5
    assert held(broker, "a") == [b"there"]
