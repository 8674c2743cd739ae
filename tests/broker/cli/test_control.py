"""`bartleby queue pause|resume|set` and `bartleby address pause|resume` against a running broker."""

from __future__ import annotations

from tests.broker.cli.harness import Operator
from tests.broker.management.harness import TestBroker


async def test_pause_and_resume(broker: TestBroker, operator: Operator) -> None:
    broker.send("orders", [b"1"])
    for arguments, said in (
        (("queue", "pause", "orders"), "queue orders is paused\n"),
        (("address", "pause", "orders"), "address orders is paused\n"),
        (
            ("queue", "resume", "orders"),
            "queue orders stays paused with its address: bartleby address resume orders\n",
        ),
        (("address", "resume", "orders"), "address orders is resumed\n"),
    ):
        result = await operator.run(*arguments)
        assert (result.exit_code, result.stdout) == (0, said)
    assert (await operator.json("queue", "pause", "orders"))["paused"] is True
    assert broker.engine.queue("orders").stopped
    assert "1, 1 of them paused" in (await operator.run("status")).stdout
    result = await operator.run("address", "pause", "nothing")
    assert (result.exit_code, result.stderr) == (1, "bartleby: address nothing does not exist\n")


async def test_set(broker: TestBroker, operator: Operator) -> None:
    broker.send("orders", [b"1"])
    result = await operator.run("queue", "set", "orders", "ring-size=5", "exclusive=true", "last-value-key=k")
    assert (result.exit_code, result.stdout) == (
        0,
        "queue orders has ring-size=5, exclusive=true, last-value-key=k\n",
    )
    assert broker.engine.queue("orders").attributes.ring_size == 5
    assert (await operator.json("queue", "set", "orders", "last-value-key="))["attributes"]["last-value-key"] == ""
    for wrong, said in (
        ("ring-size", "give ATTRIBUTE=VALUE"),
        ("ring-size=0", "ring-size must not be 0"),
        ("ring-size=5 ring-size=6", "ring-size is given more than once"),
        ("ring-size=5s", "ring-size must be a whole number"),
        ("delay-before-dispatch=5m", 'must be milliseconds as a whole number, or a text with a unit: "500ms", "30s"'),
        ("delay-before-dispatch=100d", "delay-before-dispatch must be at most 2147483647"),
    ):
        result = await operator.run("queue", "set", "orders", *wrong.split())
        assert result.exit_code == 2
        assert said in result.stderr
    for said, meant in (("5s", 5_000), ("250", 250), ("2h", 7_200_000), ("-1", -1)):
        answer = await operator.json("queue", "set", "orders", f"delay-before-dispatch={said}")
        assert answer["attributes"]["delay-before-dispatch"] == meant
    shown = await operator.run("queue", "show", "orders")
    assert "attribute ring-size" in shown.stdout


async def test_set_asks_before_messages_are_removed(broker: TestBroker, operator: Operator) -> None:
    await broker.sent("orders", [b"1"])
    result = await operator.run("queue", "set", "orders", "purge-on-no-consumers=true")
    assert (result.exit_code, "remove 1 message for good?" in result.stderr) == (2, True)
    assert broker.engine.queue("orders").message_count == 1
    result = await operator.run("queue", "set", "orders", "purge-on-no-consumers=true", "--yes")
    assert (result.exit_code, broker.engine.queue("orders").message_count) == (0, 0)
    result = await operator.run("queue", "set", "orders", "purge-on-no-consumers=true")
    assert result.exit_code == 0, "there is nothing to remove"
