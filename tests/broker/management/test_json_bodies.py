"""Counting the values of JSON bodies, and reading each body once."""

from __future__ import annotations

import json

import pytest

from broker.management.json_bodies import has_more_values, has_more_values_outside_texts
from tests.broker.management.harness import Client, TestBroker


@pytest.mark.parametrize(
    ("body", "values"),
    [
        (b"1", 0),
        (b"[1]", 1),
        (b"[1,2,3]", 3),
        (b"[[],[[]]]", 5),
        (b'{"a":{"b":1},"c":2}', 3),
        (rb'{"a,[{":"\",[{,[{\\","c":","}', 2),
        (b'["a","b","c"]', 3),
    ],
)
def test_values_are_counted_outside_texts(body: bytes, values: int) -> None:
    """Lists and objects may count twice."""
    assert not has_more_values_outside_texts(body, values)
    assert values == 0 or has_more_values_outside_texts(body, values - 1)


def test_texts_alone_are_too_many_values() -> None:
    assert has_more_values_outside_texts(b"[" + b'"a",' * 100 + b'"a"]', 49)


def test_a_quick_count_includes_texts() -> None:
    assert has_more_values(b'"' + b"," * (3 << 20) + b'"', (3 << 20) - 1)
    assert not has_more_values(b'"' + b"," * (3 << 20) + b'"', 3 << 20)


def test_no_more_is_counted_than_has_to_be() -> None:
    looked_at = 0

    class Body(bytes):
        def count(self, each: bytes, at: int, end: int) -> int:  # type: ignore[override]
            nonlocal looked_at
            looked_at = max(looked_at, end)
            return super().count(each, at, end)

    assert has_more_values(Body(b"1," * (1 << 20)), 20_000)
    assert looked_at < 1 << 17


async def test_a_text_may_hold_anything(broker: TestBroker, client: Client) -> None:
    text = json.dumps([[n, '"\\'] for n in range(30_000)])
    answer = await client.call("POST", "/api/v1/addresses/a/messages", json={"text": text, "routing_type": None})
    assert answer.status == 201, answer.body


async def test_a_body_is_parsed_once(broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 0
    loads = json.loads

    def counting(*arguments: object, **named: object) -> object:
        nonlocal count
        count += 1
        return loads(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(json, "loads", counting)
    broker.queue("a")
    body = json.dumps({"paused": True}).encode()
    answer = await client.call("PATCH", "/api/v1/queues/a", body=body)
    assert (answer.status, count) == (200, 1)
