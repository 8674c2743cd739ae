"""`bartleby dead-letters` as an operator runs it."""

from __future__ import annotations

import json
from pathlib import Path

from tests.broker.cli.harness import invoke

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
    assert result.stderr == f'bartleby: {file}: dead-letter-rules["rest"].to: it does nothing with leave: remove it\n'


def test_the_file_may_come_from_the_environment_and_have_none(tmp_path: Path) -> None:
    file = written(tmp_path, "")
    result = invoke("dead-letters", "rules", "check", environment={"BARTLEBY_CONFIG": file})
    assert (result.exit_code, result.stdout) == (0, "no rules\n")
