"""Messages as lines over HTTP: pages, pieces of bodies, and lines that become messages again, once."""

from __future__ import annotations

import asyncio
import json
import threading
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import pytest

from broker.engine.model.errors import NotFound
from broker.management import lines, uploads
from broker.management.http import HttpServer
from broker.management.shared import Shared
from store.body import LargeBody
from tests.broker.management.export_calls import EXPORT, IMPORT, LINE, asked
from tests.broker.management.harness import NOW, TOKEN, Client, TestBroker, upload


async def exported(client: Client, *, path: str = EXPORT, **parameters: object) -> list[dict[str, Any]]:
    """All lines, page by page."""
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        query = "&".join(f"{name}={value}" for name, value in {**parameters, "after": after}.items())
        answer = await client.get(f"{path}?{query}")
        found += answer["messages"]
        if answer["next"] is None:
            return found
        after = answer["next"]


async def test_a_line_becomes_the_message_that_it_was(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    answer = await client.call("POST", IMPORT, json=asked(LINE))
    assert (answer.status, answer.json) == (200, {"imported": 1, "refused": {}, "known": False})
    await broker.settled()
    [found] = await exported(client)
    assert found["state"] == "ready"
    assert found["line"] == LINE | {"id": found["line"]["id"]}
    assert ("queue.imported", 1) in [(code, fields.get("messages")) for code, fields in broker.reports]


@pytest.mark.parametrize(
    ("changed", "shown"),
    [
        ({"durable": False}, {"durable": False}),
        ({"queues": [{"name": "orders", "due": NOW + 60_000}]}, {"queues": [{"name": "orders", "due": NOW + 60_000}]}),
        ({"queues": [{"name": "other", "delivery-count": 3}]}, {"queues": [{"name": "orders"}], "address": "orders"}),
        ({"queues": [{"name": "orders"}], "address": "elsewhere"}, {"address": "elsewhere"}),
    ],
)
async def test_other_members_of_a_line(
    broker: TestBroker, client: Client, changed: dict[str, object], shown: dict[str, object]
) -> None:
    broker.queue("orders")
    assert (await client.call("POST", IMPORT, json=asked(LINE | changed))).json["imported"] == 1
    await broker.settled()
    [found] = await exported(client)
    assert shown.items() <= found["line"].items()


async def test_they_keep_their_order_and_come_once(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    first = asked(*(LINE | {"body": b64encode(b"%d" % n).decode(), "priority": n % 2} for n in range(10)))
    second = asked(LINE, name="two")
    assert (await client.call("POST", IMPORT, json=first)).json["imported"] == 10
    assert (await client.call("POST", IMPORT, json=first)).json == {"imported": 0, "refused": {}, "known": True}
    assert (await client.call("POST", IMPORT, json=second)).json["imported"] == 1
    await broker.settled()
    bodies = [message.body for message in broker.held("orders")]
    assert bodies == [b"one", b"1", b"3", b"5", b"7", b"9", b"0", b"2", b"4", b"6", b"8"]


async def test_messages_that_no_queue_takes_are_counted(broker: TestBroker, client: Client) -> None:
    wanted = {"make_address": True, "routing_type": "ANYCAST", "filter": "colour = 'blue'"}
    assert (await client.call("PUT", "/api/v1/queues/orders", json=wanted)).status == 201
    answer = await client.call("POST", IMPORT, json=asked(LINE, LINE | {"head": b64encode(b"colour:blue\n").decode()}))
    assert answer.json == {"imported": 1, "refused": {"no-queue": 1}, "known": False}
    await broker.settled()
    assert broker.engine.queue("orders").message_count == 1


@pytest.mark.parametrize(
    ("request_", "detail"),
    [
        (asked(LINE, name=""), "name is the import's name"),
        (asked(LINE, target=""), "target is an address"),
        (asked(), "messages is a list of 1 to 200"),
        (asked(*[LINE] * (lines.MESSAGES_MAX + 1)), "messages is a list of 1 to 200"),
        (asked(LINE | {"priority": 10}), "priority is at most 9"),
        (asked(LINE | {"head": "!"}), "head is not Base64"),
        (asked(LINE | {"body-bytes": 3}), "body-bytes: send the whole body"),
        (asked({**LINE, "queues": []}), "queues is empty"),
    ],
)
async def test_a_mistake_is_explained_and_nothing_done(
    broker: TestBroker, client: Client, request_: dict[str, object], detail: str
) -> None:
    broker.queue("orders")
    answer = await client.call("POST", IMPORT, json=request_)
    assert (answer.status, answer.json["code"]) == (400, "invalid-import")
    assert detail in answer.json["detail"]
    assert not broker.engine.queue("orders").message_count


async def test_an_import_of_very_many_values_is_refused_unread(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "read_json", None)
    answer = await client.call("POST", IMPORT, json=asked(*[[]] * lines.VALUES_MAX))
    assert (answer.status, answer.json["detail"]) == (400, "it has more than 100000 values")


@pytest.mark.parametrize("nbytes", [0, 1, 3 << 20])
def test_the_id_of_an_import_is_that_of_the_request_as_a_whole(nbytes: int) -> None:
    """So it stays the same whatever the parts, and from release to release."""
    large = LINE | {"body": b64encode(bytes(nbytes)).decode(), "user": "\u00e4"}
    whole = json.dumps(["one", "orders", [large, LINE]]).encode()
    assert lines._id("one", "orders", [{"upload": "x", **large}, LINE | {"upload": "y"}]) == sha256(whole).digest()


async def test_requests_are_parsed_beside_the_event_loop(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def read(body: bytes) -> dict[str, Any]:
        seen.append(threading.current_thread())
        found: dict[str, Any] = json.loads(body)
        return found

    broker.queue("orders")
    monkeypatch.setattr(lines, "read_json", read)
    await client.call("POST", IMPORT, json=asked(LINE))
    await client.call("POST", "/api/v1/messages:replay", json=asked(LINE | {"queue": "orders"}))
    assert len(seen) == 2
    assert threading.main_thread() not in seen


async def test_pages_are_bounded_by_number_and_bytes(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"%03d" % n + bytes(200 << 10) for n in range(10)])
    page = await client.get(f"{EXPORT}?limit=1000")
    assert len(page["messages"]) == 6, "1 MiB, and the message that exceeds it"
    every = await exported(client, limit=4)
    assert [b64decode(each["line"]["body"])[:3] for each in every] == [b"%03d" % n for n in range(10)]


async def test_a_selector_chooses_and_an_id(broker: TestBroker, client: Client) -> None:
    for n in range(200):
        broker.send("orders", [b"%d" % n], headers=[(b"n", b"%d" % (n % 100))])
    await broker.settled()
    found = await exported(client, filter="n%20=%20'99'")
    assert [b64decode(each["line"]["body"]) for each in found] == [b"99", b"199"]
    id = found[0]["line"]["id"]
    assert await exported(client, id=id) == [found[0]]
    assert (await client.call("GET", f"{EXPORT}?id=1")).status == 404


async def test_messages_of_consumers_say_so(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1"])
    broker.read("orders")
    await broker.settled()
    assert [each["state"] for each in await exported(client)] == ["delivering"]


async def test_a_large_body_is_read_piece_by_piece(broker: TestBroker, client: Client) -> None:
    content = bytes(range(256)) * (5 << 10)
    await upload(broker, "orders", content)
    [found] = await exported(client)
    assert found["line"]["body-bytes"] == len(content)
    assert "body" not in found["line"]
    path = f"/api/v1/queues/orders/messages/{found['line']['id']}/stored-body"
    first = await client.call("GET", path)
    assert (len(first.body), first.headers["content-type"]) == (lines.PIECE_BYTES, "application/octet-stream")
    rest = await client.call("GET", f"{path}?offset={lines.PIECE_BYTES}")
    assert first.body + rest.body == content
    assert (await client.call("GET", f"{path}?offset={len(content)}")).body == b""
    gone = await client.call("GET", path.replace(str(found["line"]["id"]), "999999"))
    assert gone.json["code"] == "not-found"


def piece(data: bytes, offset: int = 0, *, last: bool = False) -> dict[str, object]:
    """The body of a call that brings a piece of a body."""
    return {"base64": b64encode(data).decode(), "offset": offset, "last": last}


UPLOAD = "/api/v1/uploads/one"


async def test_a_body_comes_in_pieces(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    assert (await client.call("PUT", UPLOAD, json=piece(b"abc"))).json == {"id": "one", "bytes": 3}
    line = {name: value for name, value in LINE.items() if name != "body"} | {"body-bytes": 5, "upload": "one"}
    early = await client.call("POST", IMPORT, json=asked(line))
    assert (early.status, early.json["detail"]) == (404, "upload one is not complete")
    again = await client.call("PUT", UPLOAD, json=piece(b"abc"))
    assert (again.status, "has 3 bytes" in again.json["detail"]) == (409, True)
    assert (await client.call("PUT", UPLOAD, json=piece(b"de", 3, last=True))).json["bytes"] == 5
    twice = await client.call("POST", IMPORT, json=asked(line, line))
    assert (twice.status, twice.json["detail"]) == (400, "an upload can be the body of one message only")
    other = await client.call("POST", IMPORT, json=asked(line | {"body-bytes": 6}))
    assert (other.status, other.json["detail"]) == (400, "body-bytes is 6, but the upload has 5 bytes")
    assert (await client.call("POST", IMPORT, json=asked(line))).json["imported"] == 1
    await broker.settled()
    [message] = broker.held("orders")
    assert isinstance(message.body, LargeBody)
    assert message.body.whole() == b"abcde"
    assert (await client.call("POST", IMPORT, json=asked(line))).status == 404, "it is that message's now"


async def test_the_same_message_with_another_upload_is_known(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    for id, known in (("one", False), ("two", True)):
        assert (await client.call("PUT", f"/api/v1/uploads/{id}", json=piece(b"abc", last=True))).status == 200
        line = {name: value for name, value in LINE.items() if name != "body"} | {"body-bytes": 3, "upload": id}
        assert (await client.call("POST", IMPORT, json=asked(line))).json["known"] is known
    await broker.settled()
    assert broker.engine.queue("orders").message_count == 1


async def test_uploads_are_few_and_end(client: Client) -> None:
    for n in range(uploads.UPLOADS_MAX):
        assert (await client.call("PUT", f"/api/v1/uploads/{n}", json=piece(b"x" * 10))).status == 200
    full = await client.call("PUT", UPLOAD, json=piece(b"x"))
    assert (full.status, full.json["detail"]) == (409, "8 bodies are being uploaded: wait until one is done")
    assert (await client.call("DELETE", "/api/v1/uploads/0")).json == {"id": "0", "bytes": 10}
    assert (await client.call("DELETE", "/api/v1/uploads/0")).json["bytes"] == 0
    assert (await client.call("PUT", UPLOAD, json=piece(b"x"))).status == 200
    gone = await client.call("PUT", "/api/v1/uploads/0", json=piece(b"x", 10))
    assert (gone.status, gone.json["code"]) == (404, "not-found")


async def test_uploads_are_counted_over_all_acceptors(broker: TestBroker) -> None:
    """What one has taken, another one knows, and a message may be sent to either."""
    broker.queue("orders")
    shared = Shared(broker)
    servers = [HttpServer(broker, TOKEN, shared=shared) for _ in range(2)]
    one, other = [Client((await server.start("127.0.0.1", 0))[0][1]) for server in servers]
    for n in range(uploads.UPLOADS_MAX):
        path = f"/api/v1/uploads/{n}"
        assert (await (other if n else one).call("PUT", path, json=piece(b"abc", last=True))).status == 200
    assert (await one.call("PUT", UPLOAD, json=piece(b"x"))).status == 409
    line = {name: value for name, value in LINE.items() if name != "body"} | {"body-bytes": 3, "upload": "0"}
    assert (await other.call("POST", IMPORT, json=asked(line))).json["imported"] == 1
    for server in servers:
        await server.stop()


async def test_an_upload_that_is_abandoned_while_the_disk_is_slow_answers_its_client(
    broker: TestBroker, client: Client
) -> None:
    broker.disk_works = False
    last = asyncio.ensure_future(client.call("PUT", UPLOAD, json=piece(b"abc", last=True)))
    while not (answer := await client.call("DELETE", UPLOAD)).json["bytes"]:
        await broker.settled()
    assert answer.json == {"id": "one", "bytes": 3}
    abandoned = await last
    assert (abandoned.status, abandoned.json["code"]) == (404, "not-found")
    broker.disk_works = True
    broker.tick.enter()
    again = await client.call("PUT", UPLOAD, json=piece(b"abcd", last=True))
    assert again.json["bytes"] == 4, "the next one of its name is another"


async def test_an_upload_does_not_rest_while_a_piece_is_written(broker: TestBroker) -> None:
    coming = uploads.BodyUploads(broker, idle_seconds_max=0.0)
    broker.disk_works = False
    broker.tick.enter()
    writing = asyncio.ensure_future(coming.write("one", 0, b"abc", durable=True, last=True))
    for _ in range(20):
        await broker.settled()
    broker.disk_works = True
    broker.tick.enter()
    assert await writing == 3


async def test_an_upload_that_rests_is_given_up(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    coming = uploads.BodyUploads(broker, idle_seconds_max=0.01)
    ended, end = asyncio.Event(), coming.end

    def end_and_tell(id: str) -> None:
        end(id)
        ended.set()

    monkeypatch.setattr(coming, "end", end_and_tell)
    broker.tick.enter()
    assert await coming.write("one", 0, b"abc", durable=True, last=True) == 3
    await ended.wait()
    with pytest.raises(NotFound, match="no piece arrived for 0 s"):
        coming.body("one")
