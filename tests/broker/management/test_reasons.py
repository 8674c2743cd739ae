"""Reasons and codes over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from broker.management.models.base import WORD_CHARS_MAX
from broker.reasons.reason import Kind
from broker.reasons.table import reasons
from tests.broker.management.harness import Client

REASONS = "/api/v1/reasons"


async def test_each_status_of_the_management_api_is_explained(client: Client) -> None:
    document = await client.get("/api/v1/openapi.json")
    calls = [call for methods in document["paths"].values() for call in methods.values()]
    answered = {int(status) for call in calls for status in call["responses"]}
    assert answered <= {reason.number for reason in reasons() if reason.kind in (Kind.ERROR, Kind.HTTP)}


async def test_all_of_them(client: Client) -> None:
    assert (await client.get(REASONS))["reasons"] == [reason.view() for reason in reasons()]


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("max-deliveries", ["max-deliveries"]),
        ("0x97", ["Quota exceeded"]),
        ("exit 3", ["unreachable"]),
        ("http 503", ["not-readable", "standby", "too-many-connections", "/livez", "/readyz"]),
        ("2026-11-21T09:57:12Z WARNING login.refused remote=a/b", ["login.refused"]),
        ("x" * (WORD_CHARS_MAX - 17) + " max-deliveries", ["max-deliveries"]),
    ],
)
async def test_one(client: Client, word: str, found: list[str]) -> None:
    answer = await client.get(f"{REASONS}/{quote(word, safe='')}")
    assert [reason["word"] for reason in answer["reasons"]] == found


async def test_an_unknown_one_is_404_and_what_is_near_it(client: Client) -> None:
    answer = await client.call("GET", f"{REASONS}/max-delivries")
    assert (answer.status, answer.json["code"]) == (404, "not-found")
    assert "max-deliveries" in answer.json["detail"]
    long = await client.call("GET", f"{REASONS}/{'x' * (WORD_CHARS_MAX + 1)}")
    assert (long.status, long.json["code"]) == (400, "invalid-parameter")
