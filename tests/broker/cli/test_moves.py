"""`bartleby queue retry` and `bartleby queue move` against a running broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.cli.remote import Remote
from broker.engine.model.limits import Limits
from broker.engine.model.message import PropertyView
from broker.engine.queues.consumer import LinkTarget
from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import TestBroker, die


@pytest.mark.usefixtures("dead_letters")
async def test_a_table_of_dead_letters_says_why(operator: Operator) -> None:
    lines = (await operator.run("queue", "browse", "DLQ")).stdout.splitlines()
    assert lines[0].split()[-2:] == ["body", "why"]
    assert [line[lines[0].index("why") :].strip() != "" for line in lines[1:]] == [True, True, True, False]


@pytest.fixture
async def dead_letters(broker: TestBroker) -> None:
    """Two dead letters from a, one from b, and one message that was sent to DLQ itself."""
    await die(broker, "a", b"1", b"2")
    await die(broker, "b", b"3")
    await broker.sent("DLQ", [b"4"])


@pytest.mark.usefixtures("dead_letters")
async def test_retry_says_what_went_back_and_what_stays(broker: TestBroker, operator: Operator) -> None:
    result = await operator.run("queue", "retry", "DLQ")
    assert result.exit_code == 5
    assert result.stdout == "3 messages moved\n"
    assert (
        result.stderr
        == "bartleby: 1 message stays (no-origin): their origin is unknown: they were sent to this queue\n"
    )
    assert [broker.engine.queue(name).message_count for name in ("a", "b", "DLQ")] == [2, 1, 1]


@pytest.mark.usefixtures("dead_letters")
async def test_retry_of_those_that_a_filter_fits(broker: TestBroker, operator: Operator) -> None:
    done = await operator.json("queue", "retry", "DLQ", "--filter", "_AMQ_ORIG_ADDRESS = 'b'")
    assert (done["queue"], done["state"], done["moved"], done["refused"]) == ("DLQ", "completed", 1, {})
    assert [broker.engine.queue(name).message_count for name in ("a", "b", "DLQ")] == [0, 1, 3]


@pytest.mark.parametrize(
    ("chosen", "count"),
    [
        (["--link", "oslo"], 2),
        (["--link", ""], 1),
        (["--remote-address", "orders"], 2),
        (["--remote-broker", "b"], 1),
        (["--link", "oslo", "--remote-broker", "b"], 0),
        (["--remote-address", "orders", "--remote-broker", "b", "--reason", "rejected"], 1),
    ],
)
async def test_retry_of_those_that_died_on_a_link(
    broker: TestBroker, operator: Operator, chosen: list[str], count: int
) -> None:
    """As `dead-letters groups --by link,remote-address,remote-broker` shows them."""
    await die(broker, "a", b"1", link=LinkTarget("oslo", "orders", "a"))
    await die(broker, "a", b"2", link=LinkTarget("oslo", "invoices", "a"))
    await die(broker, "a", b"3", link=LinkTarget("rome", "orders", "b"))
    await die(broker, "a", b"4")
    assert (await operator.json("queue", "retry", "DLQ", *chosen, "--dry-run"))["moved"] == count
    assert (await operator.json("queue", "move", "DLQ", "parked", *chosen))["moved"] == count
    refused = await operator.run("queue", "purge", "DLQ", *chosen, "--id", "1", "--yes")
    assert refused.exit_code == 2
    assert "--id names messages: give no --filter, " in refused.stderr
    assert chosen[0] in refused.stderr


@pytest.mark.usefixtures("dead_letters")
async def test_retry_of_one_by_the_id_that_browse_shows(broker: TestBroker, operator: Operator) -> None:
    shown = await operator.json("queue", "browse", "DLQ")
    id = str(shown["messages"][1]["id"])
    assert (await operator.run("queue", "retry", "DLQ", "--id", id)).stdout == "1 message moved\n"
    assert [message.body for message in broker.held("a")] == [b"2"]
    again = await operator.run("queue", "retry", "DLQ", "--id", id)
    assert (again.exit_code, again.stdout) == (5, "0 messages moved\n")
    assert again.stderr.startswith("bartleby: 1 message stays (gone): they were named")


@pytest.mark.usefixtures("dead_letters")
async def test_retry_of_a_work_queue_asks(broker: TestBroker, operator: Operator) -> None:
    await operator.run("queue", "retry", "DLQ")
    refused = await operator.run("queue", "retry", "a")
    assert refused.exit_code == 2
    assert "queue a is not on a dead-letter or expiry address" in refused.stderr
    assert "its 2 messages" in refused.stderr
    assert "there is no terminal to ask on, so give --yes" in refused.stderr
    assert [broker.engine.queue(name).message_count for name in ("a", "DLQ")] == [2, 1]
    assert (await operator.run("queue", "retry", "a", "--yes")).stdout == "2 messages moved\n"
    assert [broker.engine.queue(name).message_count for name in ("a", "DLQ")] == [0, 3]


@pytest.mark.usefixtures("dead_letters")
async def test_move_to_another_address(broker: TestBroker, operator: Operator) -> None:
    result = await operator.run("queue", "move", "DLQ", "repair/today")
    assert (result.exit_code, result.stdout) == (0, "4 messages moved\n")
    assert broker.engine.queue("repair/today").message_count == 4


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=1)])
@pytest.mark.usefixtures("dead_letters")
async def test_a_long_queue_takes_several_steps(operator: Operator) -> None:
    result = await operator.run("queue", "retry", "DLQ", "-o", "json")
    assert result.exit_code == 5
    task = json.loads(result.stdout)
    assert (task["moved"], task["refused"], task["state"]) == (3, {"no-origin": 1}, "completed")


@pytest.mark.usefixtures("dead_letters")
async def test_those_of_a_group(broker: TestBroker, operator: Operator) -> None:
    dry = await operator.run("queue", "retry", "DLQ", "--origin", "a", "--reason", "rejected", "--dry-run")
    assert (dry.exit_code, dry.stdout) == (0, "2 messages would be moved\n")
    assert broker.engine.queue("DLQ").message_count == 4
    done = await operator.json("queue", "retry", "DLQ", "--origin", "a", "--reason", "rejected")
    assert (done["group"], done["targets"]) == ({"origin": "a", "reason": "rejected"}, {"a": 2})


@pytest.mark.usefixtures("dead_letters")
async def test_a_reason_that_there_is_not(operator: Operator) -> None:
    slip = await operator.run("queue", "retry", "DLQ", "--reason", "rejectd", "--dry-run")
    assert slip.exit_code == 2
    assert "no such reason: give one of max-deliveries, rejected, expired, " in slip.stderr
    of_none = await operator.run("queue", "purge", "DLQ", "--reason", "", "--dry-run")
    assert of_none.stdout == "1 message would be removed\n", "what did not die"


@pytest.mark.usefixtures("dead_letters")
async def test_messages_are_mended_on_the_way(broker: TestBroker, operator: Operator, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"mended")
    edits = ("--set", "currency=EUR", "--unset", "legacy", "--body", str(tmp_path / "body"))
    assert (await operator.run("queue", "retry", "DLQ", "--origin", "b", *edits)).exit_code == 0
    [message] = broker.held("b")
    assert (message.body, PropertyView(message)["currency"]) == (b"mended", "EUR")


@pytest.mark.usefixtures("dead_letters")
async def test_a_task_is_listed_steered_and_waited_for(broker: TestBroker, operator: Operator) -> None:
    started = await operator.run("queue", "retry", "DLQ", "--rate", "1", "--detach")
    number = latest(broker)
    assert (started.exit_code, started.stdout) == (0, f"task {number} is running: 1 message moved\n")
    listed = (await operator.run("task", "list")).stdout.splitlines()
    assert listed[1].split()[:4] == [str(number), "retry", "DLQ", "running"]
    for verb, state in (("pause", "paused"), ("resume", "running"), ("pause", "paused")):
        said = await operator.run("task", verb, str(number))
        assert said.stdout == f"task {number} is {state}: 1 message moved\n"
    waited = await operator.run("task", "wait", str(number))
    assert (waited.exit_code, waited.stdout) == (5, "1 message moved\n")
    assert waited.stderr == f"bartleby: task {number} is paused\n"
    shown = (await operator.run("task", "show", str(number))).stdout
    assert "to a      1\n" in shown
    assert "rate      1 message a second\n" in shown
    assert (await operator.run("task", "cancel", str(number))).exit_code == 0
    again = await operator.run("task", "resume", str(number))
    assert (again.exit_code, again.stderr) == (1, f"bartleby: task {number} is cancelled: it cannot resume\n")


def latest(broker: TestBroker) -> int:
    """The number of the task that was started last."""
    return broker.engine.tasks.all()[0].id


async def test_a_task_whose_queue_is_deleted_has_an_outcome(broker: TestBroker, operator: Operator) -> None:
    """One that was made by sending is deleted by itself once it is empty."""
    await broker.sent("orders", [b"1"])
    assert (await operator.run("queue", "purge", "orders", "--yes", "--detach")).exit_code == 0
    assert (await operator.run("queue", "delete", "orders")).exit_code == 0
    number = str(broker.engine.tasks.all()[0].id)
    done = await operator.run("task", "wait", number)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "1 message removed\n", "")


@pytest.mark.usefixtures("dead_letters")
async def test_ctrl_c_ends_the_following_only(
    broker: TestBroker, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(remote: Remote, path: str, **parameters: object) -> object:
        raise KeyboardInterrupt

    monkeypatch.setattr(Remote, "get", interrupted)
    result = await operator.run("queue", "retry", "DLQ", "--rate", "1", "--yes")
    number = latest(broker)
    assert result.exit_code == 5
    assert result.stderr == f"bartleby: task {number} continues: bartleby task wait {number}, or cancel {number}\n"


@pytest.mark.usefixtures("dead_letters")
async def test_a_broker_that_goes_meanwhile(
    broker: TestBroker, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Remote.get

    def elsewhere(remote: Remote, path: str, **parameters: str) -> object:
        return get(Remote("http://127.0.0.1:1", ""), path, **parameters)

    monkeypatch.setattr(Remote, "get", elsewhere)
    result = await operator.run("queue", "retry", "DLQ", "--rate", "1", "--yes")
    assert result.exit_code == 3
    assert result.stderr.startswith(
        f"task {latest(broker)}: 1 message moved so far; it continues when the broker does\n"
    )


@pytest.mark.usefixtures("dead_letters")
async def test_messages_with_consumers_are_told(broker: TestBroker, operator: Operator) -> None:
    consumer = broker.read("DLQ", window=0)
    await broker.settled()
    result = await operator.run("queue", "move", "DLQ", "repair")
    assert (result.exit_code, result.stdout) == (5, "3 messages moved\n")
    assert "1 message stays: a consumer holds it" in result.stderr
    (held,) = consumer.unacked
    one = await operator.run("queue", "move", "DLQ", "repair", "--id", str(held))
    assert one.exit_code == 5
    assert "1 message stays (delivering): they were named by id, but consumers hold them" in one.stderr


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["move", "DLQ", "DLQ"], 2, "onto itself"),
        (["move", "DLQ", "a.*"], 2, "wildcard"),
        (["move", "none", "a"], 1, "queue none does not exist"),
        (["retry", "DLQ", "--filter", "a ="], 2, "selector"),
        (["retry", "DLQ", "--id", "1", "--filter", "a = 1"], 2, "--filter"),
        (["retry", "DLQ", "--id", "1", "--words", "x"], 2, "--words"),
        (["retry", "DLQ", "--id", "0"], 2, "--id"),
        (["retry", "DLQ", "--rate", "0"], 2, "--rate"),
        (["retry", "DLQ", "--set", "x"], 2, "NAME=VALUE"),
        (["retry", "DLQ", "--set", "_AMQ_DL_REASON=x"], 2, "the broker's own"),
        (["move", "DLQ"], 2, "TARGET"),
    ],
)
@pytest.mark.usefixtures("dead_letters")
async def test_what_cannot_be(
    broker: TestBroker, operator: Operator, arguments: list[str], status: int, said: str
) -> None:
    result = await operator.run("queue", *arguments)
    assert (result.exit_code, result.stdout) == (status, "")
    assert said in result.stderr
    assert broker.engine.queue("DLQ").message_count == 4


def test_without_a_broker(tmp_path: Path) -> None:
    assert invoke("queue", "retry", "DLQ", "--data", str(tmp_path)).exit_code == 3
