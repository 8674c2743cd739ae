"""`bartleby dead-letters rules` as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from broker.config import rules_of
from broker.management.resources import dead_letter_rules
from tests.broker.cli.harness import Operator, invoke
from tests.broker.management.harness import TestBroker, die
from tests.support.rules import sections
from tests.support.sim_broker import configured

RULES = """
[[dead-letter-rules]]
name = "again"
action = "retry"
reasons = ["max-deliveries", "rejected"]
every = "2min"

[[dead-letter-rules]]
name = "by hand"
action = "move"
origin-address = "orders.#"
min-age = "1d"
to = "parking"

[[dead-letter-rules]]
name = "rest"
action = "leave"
"""


def written(directory: Path, text: str) -> str:
    """The name of a file with this text."""
    file = directory / "rules.toml"
    file.write_text(text)
    return str(file)


def test_rules_are_shown_in_their_order(tmp_path: Path) -> None:
    result = invoke("dead-letters", "rules", "check", written(tmp_path, RULES))
    assert result.exit_code == 0
    assert [" ".join(line.split()) for line in result.stdout.splitlines()] == [
        "rule action dead letters",
        "1 again retry every 2min, at most 3 reasons = max-deliveries or rejected",
        "2 by hand move to parking origin-address = orders.#, min-age = 1d",
        "3 rest leave all",
    ]


def test_as_json_they_have_what_they_set(tmp_path: Path) -> None:
    result = invoke("dead-letters", "rules", "check", written(tmp_path, RULES), "-o", "json")
    first, _, last = json.loads(result.stdout)
    assert first == {
        "name": "again",
        "action": "retry",
        "reasons": ["max-deliveries", "rejected"],
        "every": 120_000,
    }
    assert last == {"name": "rest", "action": "leave"}


def test_problems_name_the_file_and_the_rule(tmp_path: Path) -> None:
    file = written(tmp_path, RULES + 'to = "x"\n')
    result = invoke("dead-letters", "rules", "check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f'bartleby: {file}: dead-letter-rules["rest"].to: it has no effect with leave: remove it\n'


def test_the_file_may_come_from_the_environment_and_have_none(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    result = invoke("dead-letters", "rules", "check", environment={"BARTLEBY_CONFIG": file})
    assert (result.exit_code, result.stdout) == (0, "no rules\n")


@pytest.fixture
async def rules(broker: TestBroker) -> None:
    """Rules in force, and dead letters."""
    broker.tick.enter()
    some = sections({"action": "move", "to": "parking", "user": "nobody"}, {"action": "retry", "origin-address": "a"})
    broker.engine.dead_letter_rules.use(rules_of(configured(dead_letter_rules=some)))
    await die(broker, "a", *[b"%d" % n for n in range(70)])
    await die(broker, "b", b"x")
    await broker.settled()


def table(text: str) -> list[list[str]]:
    """The cells of a table, as far as blanks separate them."""
    return [line.split() for line in text.splitlines()]


@pytest.mark.usefixtures("rules")
async def test_what_the_rules_did(broker: TestBroker, operator: Operator) -> None:
    broker.now += 60_000
    broker.tick.enter()
    await broker.settled()
    result = await operator.run("dead-letters", "rules", "list")
    assert table(result.stdout) == [
        ["rule", "action", "retried", "moved", "discarded", "refused"],
        ["move-1", "move", "0", "0", "0", "0"],
        ["retry-2", "retry", "70", "0", "0", "0"],
    ]
    assert (await operator.json("dead-letters", "rules", "list"))[1]["retried"] == 70


@pytest.mark.usefixtures("rules")
async def test_what_they_would_do(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dead_letter_rules, "LOOKED_AT_MAX", 1)  # several calls
    result = await operator.run("dead-letters", "rules", "try")
    heading, retry, none = table(result.stdout)
    assert heading == ["queue", "rule", "action", "when", "messages", "for", "example"]
    assert (retry[:5], len(retry)) == (["DLQ", "retry-2", "retry", "later", "70"], 10)
    assert none[:4] == ["DLQ", "(none)", "leave", "1"]


@pytest.mark.usefixtures("rules")
async def test_what_others_would_do(broker: TestBroker, operator: Operator, tmp_path: Path) -> None:
    broker.tick.enter()
    broker.engine.dead_letter_rules.use(())
    broker.now += 2 * 86_400_000
    file = written(tmp_path, RULES)
    arguments = ("dead-letters", "rules", "try", "--rules", file, "--queue", "DLQ")
    found = {
        (each["rule"], each["action"], each["later"]): each["messages"] for each in await operator.json(*arguments)
    }
    assert found == {("again", "retry", False): 71}
    empty = written(tmp_path, "")
    (verdict,) = await operator.json("dead-letters", "rules", "try", "--rules", empty)
    assert (verdict["rule"], verdict["messages"]) == (None, 71)
    refused = await operator.run("dead-letters", "rules", "try", "--rules", written(tmp_path, RULES + 'to = "x"'))
    assert (refused.exit_code, "has no effect with leave" in refused.stderr) == (2, True)
    assert (await operator.run("dead-letters", "rules", "try", "--queue", "none")).exit_code != 0


async def test_without_dead_letters(operator: Operator) -> None:
    result = await operator.run("dead-letters", "rules", "try")
    assert (result.exit_code, result.stdout) == (0, "no dead letters\n")
