"""Refusals: each is a problem document (RFC 9457), whoever refuses, and says what kind it is."""

from __future__ import annotations

from typing import Final, NamedTuple

import pytest

from broker.engine.model.attributes import RING_OF_NOTHING
from broker.management.problems import ALL_KINDS
from tests.broker.management.harness import TOKEN, Client, TestBroker, encode

JSON: Final = {"Content-Type": "application/json"}


class Case(NamedTuple):
    """A call that is refused, with which status and code."""

    method: str
    path: str
    headers: dict[str, str]
    body: object
    status: int
    code: str


REFUSED: Final = [
    Case("GET", "/api/v1/queues?limit=x", {}, None, 400, "invalid-parameter"),
    Case("GET", "/api/v1/queues?after=x", {}, None, 400, "invalid-cursor"),
    Case("GET", "/api/v1/queues/%FF", {}, None, 400, "invalid-name"),
    Case("PUT", "/api/v1/queues/b", JSON, {"colour": 1}, 400, "invalid-body"),
    Case("PUT", "/api/v1/queues/b", JSON, {"filter": "a ="}, 400, "invalid-selector"),
    Case("GET", "/api/v1/queues", {"Authorization": "Bearer wrong"}, None, 401, "not-logged-in"),
    Case("DELETE", "/api/v1/queues/a", {"Origin": "http://evil.example"}, None, 403, "cross-origin"),
    Case("GET", "/api/v1/queues/b", {}, None, 404, "not-found"),
    Case("GET", "/api/v1/nothing", {}, None, 404, "no-such-call"),
    Case("GET", "/nothing", {}, None, 404, "no-such-call"),
    Case("POST", "/api/v1/queues", JSON, {}, 405, "no-such-method"),
    Case("DELETE", "/api/v1/queues/a", {}, None, 409, "in-use"),
    Case("GET", "/api/v1/queues", {"Transfer-Encoding": "chunked"}, None, 411, "length-required"),
    Case("GET", "/api/v1/queues", JSON, {}, 413, "body-too-large"),
    Case("PUT", "/api/v1/queues/b", {"Content-Type": "text/plain"}, {}, 415, "not-json"),
    Case("GET", "/metrics", {"Host": "evil.example"}, None, 421, "wrong-host"),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case.status}-{case.code}")
async def test_a_refusal_is_a_problem_document(broker: TestBroker, client: Client, case: Case) -> None:
    await broker.sent("a", [b"1"])
    token = None if "Authorization" in case.headers else TOKEN
    body = None if case.body is None else encode(case.body)
    answer = await client.call(case.method, case.path, token=token, headers=case.headers, body=body)
    assert (answer.status, answer.headers["content-type"]) == (case.status, "application/problem+json")
    kind = ALL_KINDS[case.code]
    assert answer.json.keys() == {"type", "title", "status", "detail", "code", "errors"}
    assert (answer.json["code"], answer.json["status"], answer.json["title"]) == (case.code, case.status, kind.title)
    assert answer.json["type"] == f"/api/v1/docs#{case.code}"
    assert answer.json["detail"]
    assert kind.action, "what to do about it"


async def test_all_wrong_fields_are_named_at_once(client: Client) -> None:
    body = {
        "routing_type": "BOTH",
        "durable": 1,
        "attributes": {"ring-size": 0, "exclusive": "no", "last-value-key": 7},
    }
    answer = await client.call("PUT", "/api/v1/queues/b", json=body)
    assert {each["field"]: each["detail"] for each in answer.json["errors"]} == {
        "routing_type": "must be 'ANYCAST' or 'MULTICAST'",
        "durable": "must be true or false",
        "attributes.ring-size": f"must not be 0: {RING_OF_NOTHING}",
        "attributes.exclusive": "must be true or false",
        "attributes.last-value-key": "must be a text",
    }
    assert {each["where"] for each in answer.json["errors"]} == {"body"}


@pytest.mark.parametrize(
    ("value", "detail"),
    [(-2, "must be at least -1"), (2**31, "must be at most 2147483647"), (2**31 - 1, ""), (-1, "")],
)
async def test_the_limits_of_an_attribute(client: Client, value: int, detail: str) -> None:
    body = {"make_address": True, "attributes": {"max-consumers": value}}
    answer = await client.call("PUT", "/api/v1/queues/b", json=body)
    assert answer.status == (400 if detail else 201)
    assert not detail or answer.json["errors"] == [
        {"where": "body", "field": "attributes.max-consumers", "detail": detail}
    ]
