"""Queues and messages: found, sorted, looked at, brought back, moved, removed, sent; who may."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

import pytest

from broker.console import listing
from broker.management.limits import Limits
from tests.broker.console.harness import Browser
from tests.broker.management.harness import TestBroker, die, managing

MARKUP = "<script>window.hacked=1</script>\"'><img src=x onerror=hack()>"


def counts(broker: TestBroker, *names: str) -> list[int]:
    """How many messages are on these queues."""
    return [broker.engine.queue(name).message_count for name in names]


@pytest.mark.parametrize("piece", [listing.PIECE, 7])
async def test_queues_are_found_sorted_and_paged(
    broker: TestBroker, owner: Browser, piece: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few at once, many in pieces and beside the event loop."""
    monkeypatch.setattr(listing, "PIECE", piece)
    for number in range(120):
        broker.queue(f"work.{number:03}")
    broker.send("work.077", [b"a", b"b"])
    await broker.sent("work.003", [b"a"])
    page = await owner.get("/queues")
    assert page.text.index("work.000") < page.text.index("work.049")
    assert "work.050" not in page.text
    assert "120 in all, page 1 of 3" in page.seen
    assert "work.119" in (await owner.get("/queues?page=3")).text
    page = await owner.get("/queues?sort=messages&down=1")
    assert page.text.index("work.077") < page.text.index("work.003") < page.text.index("work.000")
    page = await owner.get("/queues?q=WORK.11&down=1")
    assert page.text.index("work.119") < page.text.index("work.110")
    assert "10 in all" in page.seen
    assert "No queue has" in (await owner.get("/queues?q=nowhere")).seen
    assert "page 3 of 3" in (await owner.get("/queues?page=99")).seen
    assert (await owner.get("/queues?page=x")).status == 400


async def test_the_whole_round_of_orders_that_died(broker: TestBroker, owner: Browser) -> None:
    await die(broker, "orders", b'{"order": 1}', b'{"order": 2}', b'{"order": 3}')
    assert counts(broker, "orders", "DLQ") == [0, 3]
    page = await owner.get("/queue?name=DLQ")
    assert "holds dead or expired messages" in page.seen
    assert "rejected" in page.seen
    ids = [message.id for message in broker.held("DLQ")]
    page = await owner.get(f"/message?queue=DLQ&id={ids[0]}")
    assert '{ "order": 1 }' in page.seen
    assert "_AMQ_DL_REASON" in page.seen
    page = await owner.send(page, "/messages", do="retry")
    assert page.to == "/queue?name=DLQ"
    assert "1 message went back to where it came from." in (await owner.follow(page)).seen
    assert counts(broker, "orders", "DLQ") == [1, 2]
    page = await owner.get("/queue?name=DLQ")
    page = await owner.send(page, "/messages", do="retry", all="1")
    assert counts(broker, "orders", "DLQ") == [3, 0]
    fields = broker.reported("task.started")[-1]
    assert (fields["queue"], fields["kind"], fields["token"]) == ("DLQ", "retry", "management.token")


@pytest.mark.parametrize(
    ("given", "requested", "left"),
    [
        ({"do": "remove", "all": "1"}, "Remove all 3 messages of queue orders for good?", [0, 0]),
        ({"do": "move", "to": "other", "all": "1"}, "Move all 3 messages of queue orders to other?", [0, 3]),
        ({"do": "move", "to": "other"}, "Move 2 messages of queue orders to other?", [1, 2]),
        (
            {"do": "remove", "all": "1", "filter": "country = 'DE'"},
            "Remove all messages that match country = 'DE' of queue orders, which has 3 messages, for good?",
            [1, 0],
        ),
    ],
)
async def test_many_messages_are_asked_about_without_javascript(
    broker: TestBroker, owner: Browser, given: dict[str, str], requested: str, left: list[int]
) -> None:
    broker.queue("other")
    broker.send("orders", [b"1", b"2"], headers=[(b"country", b"DE")])
    await broker.sent("orders", [b"3"])
    page = await owner.get("/queue?name=orders")
    ids = {} if "all" in given else {"id": [str(message.id) for message in broker.held("orders")][:2]}
    question = await owner.send(page, "/messages", **given, **ids)
    assert (question.status, requested in question.seen) == (200, True), question.seen
    assert counts(broker, "orders", "other") == [3, 0]
    [form] = question.forms("/messages")
    done = await owner.post("/messages", {**form, **ids, "confirmed": "1"})
    assert done.status == 303
    assert counts(broker, "orders", "other") == left


async def test_chosen_messages_are_moved_and_removed(broker: TestBroker, owner: Browser) -> None:
    broker.queue("other")
    broker.send("orders", [b"1", b"2", b"3", b"4"], headers=[(b"country", b"DE")])
    await broker.sent("orders", [b"5"], headers=[(b"country", b"FR")])
    page = await owner.get("/queue?name=orders")
    ids = [str(message.id) for message in broker.held("orders")]
    sent = await owner.send(page, "/messages", do="move", to="other", id=ids[:2], confirmed="1")
    assert sent.status == 303
    assert counts(broker, "orders", "other") == [3, 2]
    sent = await owner.send(page, "/messages", do="remove", id=[ids[2], ids[0]], confirmed="1")
    page = await owner.follow(sent)
    assert "1 message was removed." in page.seen
    assert "1 stayed: They were named by id, but are not on the queue." in page.seen
    page = await owner.get("/queue?name=orders&filter=country+%3D+%27DE%27")
    assert page.text.count('name="id"') == 1
    await owner.send(page, "/messages", do="remove", all="1", confirmed="1")
    assert counts(broker, "orders") == [1], "that of the other country"
    page = await owner.get("/queue?name=orders")
    assert (await owner.send(page, "/messages", do="remove")).status == 400
    assert (await owner.send(page, "/messages", do="burn", id=ids[4])).status == 400
    assert (await owner.send(page, "/messages", do="move", id=ids[4], to="")).status == 400
    assert (await owner.send(page, "/messages", do="move", id=ids[4], to="orders")).status == 400
    assert 'role="alert"' in (await owner.get("/queue?name=orders&filter=a+%3D")).text


@pytest.mark.parametrize("call_limits", [Limits(filtered_max=10)])
async def test_a_long_queue_is_looked_through_page_by_page(broker: TestBroker, owner: Browser) -> None:
    broker.send("orders", [b"x"] * 60)
    await broker.sent("orders", [b"y"], headers=[(b"a", b"1")])
    ids = [message.id for message in broker.held("orders")]
    page = await owner.get("/queue?name=orders")
    assert page.text.count('name="id"') == 50
    assert f"/queue?name=orders&amp;after={ids[49]}" in page.text
    page = await owner.get(f"/queue?name=orders&after={ids[49]}")
    assert page.text.count('name="id"') == 11
    assert 'rel="next"' not in page.text
    page = await owner.get("/queue?name=orders&filter=a+%3D+%271%27")
    assert page.text.count('name="id"') == 0
    assert f"searched up to message {ids[9]}" in page.seen
    page = await owner.get(f"/queue?name=orders&filter=a+%3D+%271%27&after={ids[55]}")
    assert page.text.count('name="id"') == 1
    assert "searched up to" not in page.seen


async def test_a_body_is_saved_and_not_shown(broker: TestBroker, owner: Browser) -> None:
    await broker.sent("orders", [MARKUP.encode()])
    [message] = broker.held("orders")
    page = await owner.get(f"/message/body?queue=orders&id={message.id}")
    assert page.content == MARKUP.encode()
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment")


async def test_json_that_would_grow_without_measure_is_shown_as_text(broker: TestBroker, owner: Browser) -> None:
    depth = 700
    for body in ("[" * depth + "1," * 20_000 + "1" + "]" * depth, '{"order": [1]}'):
        broker.send("orders", [body.encode()])
    await broker.settled()
    nested, plain = (message.id for message in broker.held("orders"))
    page = await owner.get(f"/message?queue=orders&id={nested}")
    assert len(page.content) < 1 << 20, "it was 29 MB"
    assert "<summary>JSON</summary>" not in page.text
    assert "[[[1,1,1," in page.text
    assert "<summary>JSON</summary>" in (await owner.get(f"/message?queue=orders&id={plain}")).text


async def test_a_notice_waits_for_a_whole_page(broker: TestBroker, owner: Browser) -> None:
    broker.queue("orders")
    await owner.send(await owner.get("/queue?name=orders"), "/queue/pause")
    assert "Paused: its consumers" not in (await owner.get("/queues", hx_request="true")).seen
    assert "Paused: its consumers" in (await owner.get("/queues")).seen


async def test_a_message_is_sent(broker: TestBroker, owner: Browser) -> None:
    broker.queue("orders")
    page = await owner.get("/send?to=orders::orders")
    page = await owner.send(
        page, "/send", to="orders::orders", text="Grüße\r\n2", properties="country: DE\n n : 1 ", priority="7"
    )
    assert page.to == "/queue?name=orders"
    [message] = broker.held("orders")
    assert message.body == "Grüße\n2".encode()
    assert message.header.priority == 7
    page = await owner.get(f"/message?queue=orders&id={message.id}")
    assert "country DE" in page.seen
    assert "Grüße" in page.seen
    page = await owner.get("/send")
    assert (await owner.send(page, "/send", to="orders", properties="nonsense")).status == 400
    assert (await owner.send(page, "/send", to="orders", priority="10")).status == 400


async def test_a_queue_is_made_stopped_switched_off_and_deleted(broker: TestBroker, owner: Browser) -> None:
    made = await owner.send(await owner.get("/queues"), "/queues/make", **{"name": "new", "routing-type": "ANYCAST"})
    assert made.to == "/queue?name=new"
    await owner.send(await owner.follow(made), "/queue/pause")
    assert broker.engine.queue("new").paused
    await owner.send(await owner.get("/queue?name=new"), "/queue/resume")
    assert not broker.engine.queue("new").paused
    await owner.send(await owner.get("/queue?name=new"), "/queue/disable")
    assert not broker.engine.queue("new").open
    page = await owner.get("/queue?name=new")
    assert "disabled" in page.seen
    await owner.send(page, "/queue/enable")
    await broker.sent("new", [b"x"])
    assert (await owner.send(page, "/queue/delete")).status == 409
    assert (await owner.send(page, "/queue/delete", force="1")).to == "/queues"
    assert "new" not in broker.engine.queues
    told = [code for code, _ in broker.reports if code.startswith("queue.")]
    assert told == [f"queue.{deed}" for deed in ("created", "paused", "resumed", "changed", "changed", "deleted")]
    assert [fields["kind"] for fields in broker.reported("task.completed")] == ["delete-queue"]


async def test_text_of_clients_is_shown_and_not_run(broker: TestBroker, owner: Browser) -> None:
    broker.send(MARKUP, [MARKUP.encode()], headers=[(MARKUP.encode().replace(b":", b""), MARKUP.encode())])
    await broker.sent("bodies", [b"\x00\xff\xfe", "\u202e".encode() + b"abc", b"", b"[1, 2"])
    name = quote(MARKUP)
    [message] = broker.held(MARKUP)
    for path in (f"/queues?q={name}", f"/queue?name={name}&filter={name}", f"/message?queue={name}&id={message.id}"):
        page = await owner.get(path)
        assert page.status == 200
        assert "<script>window" not in page.text
        assert "<img src=x" not in page.text
        assert "window.hacked" in page.seen
    page = await owner.get(f"/queue?name={name}")
    assert page.forms("/queue/pause")[0]["name"] == MARKUP
    page = await owner.get("/queue?name=bodies")
    assert "\\u202e" in page.text
    assert "\u202e" not in page.text
    for found in broker.held("bodies"):
        page = await owner.get(f"/message?queue=bodies&id={found.id}")
        assert page.status == 200
        if found.body == b"\x00\xff\xfe":
            assert "00000000 00 ff fe" in page.seen
    assert (await owner.get("/message?queue=bodies&id=999999")).status == 404
    assert (await owner.get(f"/queue?name={quote('no ' + MARKUP)}")).status == 404
    assert "<script>w" not in (await owner.get(f"/queue?name={quote('no ' + MARKUP)}")).text


async def test_queues_that_a_user_may_not_manage_are_hidden(broker: TestBroker, browser: Browser) -> None:
    for name in ("orders", "secret"):
        broker.queue(name)
    await broker.sent("orders", [b"x"])
    managing(broker, "orders.#")
    await browser.log_in("alice", "s3cret")
    assert (await browser.get("/")).to == "/queues"
    page = await browser.get("/queues")
    assert "orders" in page.seen
    assert "secret" not in page.seen
    assert "Connections" not in page.seen
    assert (await browser.get("/live")).status == 403
    hidden = await browser.get("/queue?name=secret")
    missing = await browser.get("/queue?name=nothere")
    assert (hidden.status, missing.status) == (403, 403)
    page = await browser.get("/queue?name=orders")
    id = str(broker.held("orders")[0].id)
    assert (await browser.send(page, "/messages", do="move", to="secret", id=id)).status == 403
    assert (await browser.send(page, "/messages", do="move", to="orders.mine", id=id, unset="x")).status == 403
    assert (await browser.send(page, "/messages", queue="secret", do="remove", all="1")).status == 403
    assert (await browser.send(page, "/queue/pause", name="secret")).status == 403
    assert (await browser.send(await browser.get("/send"), "/send", to="secret", text="x")).status == 403
    made = await browser.get("/queues")
    assert (await browser.send(made, "/queues/make", name="mine")).status == 403
    assert counts(broker, "orders", "secret") == [1, 0]


async def test_the_figures_of_the_charts(broker: TestBroker, owner: Browser) -> None:
    await broker.sent("orders", [b"x", b"y"])
    live = json.loads((await owner.get("/live")).content)
    assert (live["in"], live["messages"]) == (2, 2)
    assert (await owner.get("/")).status == 200


async def test_a_fault_of_the_broker_is_a_page_that_says_so(
    broker: TestBroker, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.queue("orders")
    monkeypatch.setattr(type(broker.engine.messages), "page", lambda *_: 1 / 0)
    page = await owner.get("/queue?name=orders")
    assert page.status == 500
    assert "its log has the reason" in page.seen
    assert "broker.error" in [code for code, _ in broker.reports]


@pytest.mark.parametrize("path", ["/login", "/queues/make"])
async def test_a_browser_that_leaves_in_the_middle_of_a_form_is_no_fault(
    broker: TestBroker, owner: Browser, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    cookies = "; ".join(f"{name}={value}" for name, value in owner.cookies.items())
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\nContent-Length: 100\r\n"
    reader, writer = await asyncio.open_connection("127.0.0.1", owner.port)
    writer.write(f"{head}Content-Type: application/x-www-form-urlencoded\r\n\r\nname=".encode())
    writer.write_eof()
    await reader.read()
    writer.close()
    assert (await owner.get("/queues")).status == 200
    assert "broker.error" not in [code for code, _ in broker.reports]
    assert caplog.records == []


async def test_a_body_that_begins_with_a_new_line_is_edited_with_it(broker: TestBroker, owner: Browser) -> None:
    await broker.sent("orders", [b"\nfirst"])
    [message] = broker.held("orders")
    page = await owner.get(f"/message?queue=orders&id={message.id}")
    assert '">\n\nfirst</textarea>' in page.text, "browsers leave out the first one"
