"""docs/monitoring.md asks for metrics that there are, with labels and codes that they have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from broker.log import CODES
from tests.broker.management.harness import Client, TestBroker
from tests.broker.management.samples import scrape

PAGE: Final = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text("utf-8")

#: What Prometheus itself knows of a target.
OF_PROMETHEUS: Final = {"up": {"job"}}

_METRIC: Final = re.compile(r"\b(broker_\w+|up)\b(?:\{([^}]*)\})?")


def rules() -> list[dict[str, Any]]:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (group,) = yaml.safe_load(text)["groups"]
    assert isinstance(group["rules"], list)
    return group["rules"]


def queries() -> list[str]:
    graphs = [line.split(" | ", 1)[1] for line in PAGE.splitlines() if re.match(r"\| [a-z].* \| `.*\(.*broker_", line)]
    asked = [rule["expr"] for rule in rules()] + [query for row in graphs for query in re.findall(r"`([^`]+)`", row)]
    assert len(asked) > 20
    return asked


def test_each_alert_says_what_is_wrong_once() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names))
    assert all(rule["annotations"]["summary"] for rule in rules())


def test_brackets_match() -> None:
    for query in queries():
        for opening, closing in ("()", "{}", "[]"):
            assert query.count(opening) == query.count(closing), query


async def test_what_is_asked_for_is_there(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    broker.engine.usage.bytes_max = 1000
    known = dict(OF_PROMETHEUS)
    for name, labels in await scrape(client):
        known.setdefault(name, set()).update(label for label, _ in labels)
    for query in queries():
        asked = _METRIC.findall(query)
        assert asked, query
        for name, labels in asked:
            assert name in known, query
            assert set(re.findall(r"(\w+)[=!]", labels)) <= known[name], query


def test_codes_are_those_of_the_log() -> None:
    codes = {code for text in re.findall(r'code=~?"([^"]+)"', PAGE) for code in text.split("|")}
    assert codes
    assert codes <= set(CODES)
