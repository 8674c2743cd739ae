"""`bartleby dead-letters groups` and `bartleby message trail` against a running broker."""

from __future__ import annotations

from broker.engine import MessageRange
from tests.broker.cli.harness import Operator
from tests.broker.management.harness import TestBroker, die

HOUR_MS = 3_600_000


async def test_groups_are_shown_with_their_ages(broker: TestBroker, operator: Operator) -> None:
    await die(broker, "a", b"1", b"2")
    broker.now += HOUR_MS
    await die(broker, "b\x1b[31m", b"3")
    broker.now += 5_000
    lines = (await operator.run("dead-letters", "groups", "--by", "origin,reason,hour")).stdout.splitlines()
    assert [line.split() for line in lines] == [
        ["origin", "reason", "hour", "messages", "oldest", "newest"],
        ["a", "rejected", "2023-11-14", "22:00", "2", "1h", "0m", "1h", "0m"],
        ["b\\x1b[31m", "rejected", "2023-11-14", "23:00", "1", "5s", "5s"],
    ]
    assert (await operator.json("dead-letters", "groups", "--queue", "DLQ"))["total"]["messages"] == 3


async def test_groups_of_nothing_and_by_nothing(broker: TestBroker, operator: Operator) -> None:
    assert (await operator.run("dead-letters", "groups")).stdout == "no dead letters\n"
    refused = await operator.run("dead-letters", "groups", "--by", "age")
    assert refused.exit_code == 2
    assert (
        "by one or more of queue, reason, origin, first-origin, words, link, remote-address, remote-broker, hour"
        in refused.stderr
    )


async def test_a_trail_is_told_in_sentences(broker: TestBroker, operator: Operator) -> None:
    await die(broker, "a", b"1")
    [dead] = broker.held("DLQ")
    result = await operator.run("message", "trail", str(dead.id))
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["time", "message", "queue", "what", "happened", "where"]
    assert lines[1].startswith("2023-11-14 22:13:20.000")
    assert ["stored on a, " in lines[1], "died after 1 delivery: rejected" in lines[3]] == [True, True]
    assert (lines[-1], result.stderr) == (f"it is on DLQ as {dead.id}", "")
    broker.tick.enter()
    broker.engine.messages.discard(broker.queue("DLQ"), MessageRange())
    await broker.settled()
    assert (await operator.run("message", "trail", str(dead.id))).stdout.endswith(
        "it is on no queue any more: purged\n"
    )
    assert (await operator.json("message", "trail", str(dead.id)))["ended"] == "purged"


async def test_a_trail_of_a_message_that_is_not_known(broker: TestBroker, operator: Operator) -> None:
    result = await operator.run("message", "trail", "4711")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "there never was a message 4711: ids count from 1, and this broker's have come to 0" in result.stderr
