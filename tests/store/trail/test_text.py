"""The steps of a trail in words."""

from __future__ import annotations

from typing import Any

import pytest

from store.trail.steps import StepKind, TrailStep
from store.trail.text import sentence, unknown_sentence

DAY_2: dict[str, Any] = {"expiration": 86_400_000}


@pytest.mark.parametrize(
    ("kind", "fields", "text"),
    [
        (StepKind.STORED, {"address": "orders", "size": 1_234}, "stored on orders, 1,234 bytes"),
        (
            StepKind.STORED,
            {"address": "DLQ", "size": 3, "protocol": "mqtt", "user": "ann", "old_id": 7, "scheduled": 1_500, **DAY_2},
            "stored on DLQ, 3 bytes by mqtt; from ann; it was 7 before; not before 1970-01-01T00:00:01.500+00:00; "
            "expires 1970-01-02T00:00:00.000+00:00",
        ),
        (StepKind.COPIED, {"address": "orders", "size": 1}, "copied forward on orders, 1 byte"),
        (StepKind.LEFT, {"reason": "consumed"}, "left: consumed"),
        (
            StepKind.LEFT,
            {"reason": "moved", "actor": "alice, 10.0.0.7:40112", "task": 12},
            "left: moved in task 12 of alice, 10.0.0.7:40112",
        ),
        (StepKind.RETURNED, {"attempts": 1}, "came back, failed 1 time so far"),
        (StepKind.RETURNED, {"attempts": 2}, "came back, failed 2 times so far"),
        (StepKind.DELIVERING, {"consumer_id": 5}, "about to leave for consumer 5"),
        (StepKind.SCHEDULED, {"scheduled": 1_500}, "waits until 1970-01-01T00:00:01.500+00:00"),
        (StepKind.SCHEDULED, {}, "waits no longer"),
        (StepKind.IN_FLIGHT, {"client": "phone", "packet_id": 9}, "about to leave for phone as packet 9"),
        (
            StepKind.DIED,
            {"attempts": 1, "reason": "rejected"},
            "died after 1 delivery: rejected; nothing is left of it",
        ),
        (
            StepKind.DIED,
            {
                "attempts": 3,
                "reason": "max-deliveries",
                "text": "no such customer",
                "remote": "10.0.0.1:5",
                "new_id": 8,
            },
            "died after 3 deliveries: max-deliveries (no such customer), last held by 10.0.0.1:5; lives on as 8",
        ),
        (
            StepKind.DIED,
            {"attempts": 2, "reason": "rejected", "client": "worker", "remote": "h:1"},
            "died after 2 deliveries: rejected, last held by worker; nothing is left of it",
        ),
        (
            StepKind.EXPIRED,
            {"consumers": 2, **DAY_2},
            "expired (1970-01-02T00:00:00.000+00:00), 2 consumers on the queue; nothing is left of it",
        ),
        (
            StepKind.EXPIRED,
            {"consumers": 1, "new_id": 8, **DAY_2},
            "expired (1970-01-02T00:00:00.000+00:00), 1 consumer on the queue; lives on as 8",
        ),
    ],
)
def test_each_step_in_words(kind: StepKind, fields: dict[str, Any], text: str) -> None:
    step = TrailStep(kind=kind, message=4711, time=0, position=1, segment=1, offset=0, **fields)
    assert sentence(step) == text


def test_why_nothing_is_known() -> None:
    assert unknown_sentence(10, 10).startswith("there never was a message 10: ")
    assert "have come to 9 so far" in unknown_sentence(10, 10)
    assert unknown_sentence(9, 10).startswith("the journal knows nothing of message 9: ")
    assert unknown_sentence(9, 10, ["segment 3 is damaged"]).endswith("; segment 3 is damaged")
