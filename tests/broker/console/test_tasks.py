"""Tasks: many messages, some in a tick; counted first, edited on the way, slowed, paused, cancelled."""

from __future__ import annotations

import pytest

from tests.broker.console.harness import Browser, Page
from tests.broker.management.harness import TestBroker, die, managing


async def slow(broker: TestBroker, owner: Browser) -> Page:
    """The page of a task that has begun to move a hundred messages, one at a time."""
    broker.queue("other")
    await broker.sent("orders", [b"x"] * 100)
    page = await owner.get("/queue?name=orders")
    started = await owner.send(page, "/messages", do="move", to="other", all="1", rate="1", confirmed="1")
    assert started.to.startswith("/task?id=")
    return await owner.follow(started)


async def test_a_task_is_seen_paused_resumed_and_cancelled(broker: TestBroker, owner: Browser) -> None:
    page = await slow(broker, owner)
    assert "running" in page.seen
    assert "1 message was moved." in page.seen
    assert 'hx-trigger="every 1s"' in page.text
    page = await owner.follow(await owner.send(page, "/task/pause"))
    assert "paused" in page.seen
    assert 'hx-trigger="every 1s"' not in page.text
    page = await owner.follow(await owner.send(page, "/task/resume"))
    page = await owner.follow(await owner.send(page, "/task/cancel"))
    assert "cancelled" in page.seen
    assert not page.forms("/task/cancel")
    listed = await owner.get("/tasks")
    assert "move to other orders cancelled 1 message was moved. 1 of 100" in listed.seen
    told = [code for code, _ in broker.reports if code.startswith("task.")]
    assert told == ["task.started", "task.paused", "task.resumed", "task.cancelled"]
    assert (await owner.get("/task?id=999999")).status == 404


async def test_dead_letters_are_counted_before_they_are_brought_back(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"1", b"2", b"3")
    page = await owner.get("/queue?name=DLQ&group-reason=rejected")
    sent = await owner.send(page, "/messages", **{"do": "retry", "all": "1", "dry-run": "1"})
    page = await owner.follow(sent)
    assert "3 messages would go back to where they came from." in page.seen
    assert "dry run" in page.seen
    assert "reason rejected" in page.seen
    assert broker.engine.queue("DLQ").message_count == 3


async def test_a_message_is_edited_on_its_way_back(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"wrong")
    [message] = broker.held("DLQ")
    page = await owner.get(f"/message?queue=DLQ&id={message.id}")
    given = {"do": "retry", "set": "country: DE", "body-before": "-", "body": "right\r\nline"}
    await owner.send(page, "/messages", **given)
    [message] = broker.held("orders")
    assert message.body == b"right\nline"
    page = await owner.get(f"/message?queue=orders&id={message.id}")
    assert "country DE" in page.seen


@pytest.mark.parametrize(
    ("body", "typed", "sent"),
    [
        (b"one\r\ntwo\n", "one\r\ntwo\r\n", b"one\r\ntwo\n"),
        (b"one\r\ntwo", "one\r\n2", b"one\n2"),
        (b"", "", b""),
        (b"", "x", b"x"),
        (b"x", "", b""),
    ],
)
async def test_the_body_that_is_seen_is_sent(
    broker: TestBroker, owner: Browser, body: bytes, typed: str, sent: bytes
) -> None:
    """Unchanged, it stays byte for byte, whatever ends of lines a browser sends."""
    await die(broker, "orders", body)
    [message] = broker.held("DLQ")
    page = await owner.get(f"/message?queue=DLQ&id={message.id}")
    before = page.forms("/messages")[1]["body-before"]
    await owner.send(page, "/messages", **{"do": "retry", "set": "a: 1", "body-before": before, "body": typed})
    [message] = broker.held("orders")
    assert message.body == sent


async def test_a_body_that_is_no_text_is_not_offered(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b"\0\xff")
    [message] = broker.held("DLQ")
    page = await owner.get(f"/message?queue=DLQ&id={message.id}")
    assert "The body is sent on as it is: it is no text to be edited here." in page.seen
    assert "body-before" not in page.forms("/messages")[1]
    await owner.send(page, "/messages", **{"do": "retry", "set": "a: 1", "body": "typed"})
    [message] = broker.held("orders")
    assert message.body == b"\0\xff"


async def test_a_task_is_for_who_manages_its_queue(broker: TestBroker, owner: Browser) -> None:
    page = await slow(broker, owner)
    id = page.forms("/task/pause")[0]["id"]
    managing(broker, "other")
    alice = Browser(owner.port)
    await alice.log_in("alice", "s3cret")
    assert "There are no tasks." in (await alice.get("/tasks")).seen
    assert (await alice.get(f"/task?id={id}")).status == 403
    csrf = (await alice.get("/tasks")).forms("/logout")[0]["csrf"]
    for deed in ("pause", "resume", "cancel"):
        assert (await alice.post(f"/task/{deed}", {"id": id, "csrf": csrf})).status == 403
