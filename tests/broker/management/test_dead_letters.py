"""Dead letters by group: counted a step a tick, one call at a time, and over HTTP."""

from __future__ import annotations

import asyncio

import pytest

from broker.engine import GROUPED_BY, DeadLetterGroup
from broker.engine.model.errors import NotFound
from broker.engine.model.limits import Limits
from broker.management.dead_letters import GroupCounter
from tests.broker.management.harness import NOW, Client, TestBroker, die

GROUPS = "/api/v1/dead-letters/groups"
ANY = dict.fromkeys(each.replace("-", "_") for each in GROUPED_BY)


async def test_dead_letters_are_counted_by_what_is_asked_for(broker: TestBroker, client: Client) -> None:
    await die(broker, "orders/new", b"1", b"2")
    broker.now += 50
    await die(broker, "bills", b"3")
    answer = await client.get(GROUPS)
    assert answer == {
        "queues": ["DLQ"],
        "groups": [
            {
                "group": ANY | {"reason": "rejected", "origin": "orders/new"},
                "messages": 2,
                "oldest": NOW,
                "newest": NOW,
            },
            {
                "group": ANY | {"reason": "rejected", "origin": "bills"},
                "messages": 1,
                "oldest": NOW + 50,
                "newest": NOW + 50,
            },
        ],
        "others": {"messages": 0, "oldest": 0, "newest": 0},
        "total": {"messages": 3, "oldest": NOW, "newest": NOW + 50},
        "unreadable": 0,
        "now": NOW + 50,
    }
    [group] = (await client.get(f"{GROUPS}?by=queue,first-origin,hour,words&queue=DLQ::DLQ"))["groups"][1:]
    assert group["group"] == ANY | {
        "queue": "DLQ",
        "first_origin": "bills",
        "words": "rejected by a consumer",
        "hour": NOW - NOW % 3_600_000,
    }


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("by=age", 400, "invalid-attribute"),
        ("by=", 400, "invalid-attribute"),
        ("by=reason,reason", 400, "invalid-attribute"),
        ("queue=no/such", 404, "not-found"),
        ("limit=5", 400, "invalid-parameter"),
    ],
)
async def test_a_queue_that_cannot_be_counted_is_refused(
    broker: TestBroker, client: Client, query: str, status: int, code: str
) -> None:
    refused = await client.call("GET", f"{GROUPS}?{query}")
    assert (refused.status, refused.json["code"]) == (status, code)


@pytest.mark.parametrize("engine_limits", [Limits(group_step_max=1)])
async def test_every_queue_of_dead_letters_is_counted_in_ticks_of_others(broker: TestBroker) -> None:
    await die(broker, "a", *[b"1"] * 9)
    await die(broker, "b", b"2")
    broker.queue("no/dead/letters")
    before = broker.tick.ended
    counter = GroupCounter(broker)
    counted = await counter.count()
    assert [(group, count.count) for group, count in counted.groups()] == [
        (DeadLetterGroup(reason="rejected", origin="a"), 9),
        (DeadLetterGroup(reason="rejected", origin="b"), 1),
    ]
    assert broker.tick.ended - before == 3
    assert list(counted.queues) == ["DLQ"]


@pytest.mark.parametrize("engine_limits", [Limits(group_step_max=1)])
async def test_calls_take_turns_and_a_queue_is_named(broker: TestBroker) -> None:
    await die(broker, "a", *[b"1"] * 9)
    counter = GroupCounter(broker)
    both = await asyncio.gather(counter.count(by=["words"]), counter.count(["DLQ"], ["queue"]))
    assert [counted.total.count for counted in both] == [9, 9]
    with pytest.raises(NotFound, match="no/such"):
        await counter.count(["no/such"])
