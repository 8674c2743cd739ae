"""Rules for dead letters over HTTP: what those in force did, and what they or others would do."""

from __future__ import annotations

from typing import Any

import pytest

from broker.config import rules_of
from broker.management.models.dead_letter_rules import Rule
from broker.management.resources import dead_letter_rules
from tests.broker.management.harness import Client, TestBroker, die
from tests.support.rules import sections
from tests.support.sim_broker import configured

RULES = "/api/v1/dead-letter-rules"
TRY = "/api/v1/queues/DLQ/dead-letter-rules:try"


def use(broker: TestBroker, *rules: dict[str, object]) -> None:
    """Rules in force."""
    broker.tick.enter()
    broker.engine.dead_letter_rules.use(rules_of(configured(dead_letter_rules=sections(*rules))))


async def tried(client: Client, **body: Any) -> Any:
    """The answer to a trial."""
    answer = await client.call("POST", TRY, json=body)
    assert answer.status == 200, answer.json
    return answer.json


async def test_figures_of_the_rules_in_force(broker: TestBroker, client: Client) -> None:
    use(broker, {"action": "move", "to": "parking", "origin-address": "a"}, {"action": "retry", "every": "1h"})
    await die(broker, "a", b"1", b"2")
    await die(broker, "b", b"3")
    await broker.settled()
    answer = await client.get(RULES)
    nothing = {"retried": 0, "moved": 0, "discarded": 0, "refused": 0}
    assert answer["rules"] == [
        {"name": "move-1", "action": "move", **nothing, "moved": 2},
        {"name": "retry-2", "action": "retry", **nothing},
    ]
    assert answer["queues"] == ["DLQ"]


async def test_a_trial_of_rules(broker: TestBroker, client: Client) -> None:
    await die(broker, "a", b"1", b"2")
    await die(broker, "b", b"3")
    await broker.sent("DLQ", [b"sent there"])
    assert await tried(client) | {"verdicts": []} == {"queue": "DLQ", "verdicts": [], "other": 1, "next": None}
    answer = await tried(
        client,
        rules=[
            {"name": "old", "action": "discard", "min_age": 1000, "origin_queue": "a"},
            {"name": "again", "action": "retry", "reasons": ["rejected"], "every": 100},
        ],
    )
    found = {(each["rule"], each["action"], each["later"]): each["messages"] for each in answer["verdicts"]}
    assert found == {("again", "retry", True): 3}
    broker.now += 1000
    answer = await tried(client, rules=[{"name": "old", "action": "discard", "min_age": 1000, "origin_queue": "a"}])
    found = {(each["rule"], each["action"], each["later"]): each["messages"] for each in answer["verdicts"]}
    assert found == {("old", "discard", False): 2, (None, "leave", False): 1}
    assert all(len(each["examples"]) == each["messages"] for each in answer["verdicts"])
    assert broker.engine.queue("DLQ").message_count == 4


async def test_a_long_queue_takes_several_calls(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letter_rules, "LOOKED_AT_MAX", 100)
    await die(broker, "a", *[b"%d" % n for n in range(150)])
    first = await tried(client)
    then = await tried(client, after=first["next"])
    assert (first["verdicts"][0]["messages"], then["verdicts"][0]["messages"], then["next"]) == (128, 22, None)


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"rules": [{"name": "x"}]}, "action"),
        ({"rules": [{"name": "x", "action": "keep"}]}, "rules.0.action"),
        ({"rules": [{"name": "x", "action": "leave", "reasons": ["admin"]}]}, "reasons"),
        ({"rules": [{"name": "x", "action": "leave", "selector": "("}]}, "selector"),
        ({"rules": [{"name": "x", "action": "leave", "queue": "#.x"}]}, "can only be the last"),
        ({"rules": [{"name": "x", "action": "leave"}] * 257}, "rules"),
        ({"rules": [{"name": "x", "action": "leave", "age": 1}]}, "there is no field 'age'"),
        ({"after": "x"}, "after must be what an answer"),
    ],
)
async def test_rules_that_cannot_be_tried(
    broker: TestBroker, client: Client, body: dict[str, Any], detail: str
) -> None:
    await die(broker, "a", b"1")
    answer = await client.call("POST", TRY, json=body)
    assert answer.status == 400
    assert detail in answer.json["detail"]


async def test_of_a_queue_that_there_is_not(client: Client) -> None:
    assert (await client.call("POST", "/api/v1/queues/none/dead-letter-rules:try", json={})).status == 404


def test_the_api_and_the_configuration_have_the_same_rules() -> None:
    (section,) = sections({"action": "leave"})
    assert set(Rule.model_fields) == set(type(section).model_fields)
    mine = Rule(name="leave-1", action="leave")
    for name in Rule.model_fields.keys() - {"reasons"}:
        assert getattr(mine, name) == getattr(section, name), name


@pytest.mark.parametrize("target", ["", "a::", "::b", "a::b::c", "news.#"])
async def test_a_target_that_no_message_can_be_moved_to(broker: TestBroker, client: Client, target: str) -> None:
    await die(broker, "a", b"1")
    answer = await client.call("POST", TRY, json={"rules": [{"name": "m", "action": "move", "to": target}]})
    assert (answer.status, answer.json["code"]) == (400, "invalid-name")
