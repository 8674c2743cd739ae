"""One message over HTTP: all that it has, its body as a download, and what a message that is sent may have."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest

from broker.engine.filter import Filter
from broker.engine.model.settings import AddressFullPolicy
from broker.engine.model.settings_match import SettingsTable
from broker.management import lines, turns
from broker.management.looking import READ_AT_ONCE, Look
from broker.management.models.messages import ALL_PROPERTIES_MAX, BODY_SHOWN_BYTES, PROPERTIES_MAX
from broker.management.resources import messages as message_calls
from broker.sessions.amqp.format import AMQP_FORMAT
from protocols.amqp.message import DATA, encode_section
from tests.broker.management.harness import NOW, Client, TestBroker, die, upload

MESSAGES = "/api/v1/queues/a/messages"


async def only(client: Client, name: str = "a") -> int:
    """The id of the only message of a queue."""
    (message,) = (await client.get(f"/api/v1/queues/{name}/messages"))["messages"]
    assert isinstance(message["id"], int)
    return message["id"]


async def test_one_message_has_all_its_properties_and_much_of_its_body(broker: TestBroker, client: Client) -> None:
    headers = [(b"h%d" % n, b"v" * 1_000) for n in range(PROPERTIES_MAX + 1)]
    await broker.sent("a", [b"x" * (BODY_SHOWN_BYTES + 1)], headers=headers)
    shown = await client.get(f"{MESSAGES}/{await only(client)}")
    assert len(shown["properties"]) == PROPERTIES_MAX + 1 < ALL_PROPERTIES_MAX
    assert set(shown["properties"].values()) == {"v" * 1_000}
    assert shown["properties_omitted"] == 0
    body = {"encoding": "text", "data": "x" * BODY_SHOWN_BYTES, "bytes": BODY_SHOWN_BYTES + 1, "truncated": True}
    assert shown["body"] == body


async def test_a_dead_letter_alone(broker: TestBroker, client: Client) -> None:
    await die(broker, "a", b"poison")
    shown = await client.get(f"/api/v1/queues/DLQ/messages/{await only(client, 'DLQ')}")
    assert shown["annotations"]["_AMQ_DL_REASON"] == "rejected"
    assert shown["state"] == "ready"


@pytest.mark.parametrize("body", [b"", b"\x00<script>\xff", b"z" * 3_000_000])
async def test_a_body_is_downloaded_whole(broker: TestBroker, client: Client, body: bytes) -> None:
    """And no browser shows it, whatever it holds."""
    if len(body) < 1_000_000:
        broker.send("a", [body])
    else:
        await upload(broker, "a", body)
    await broker.settled()
    id = await only(client)
    got = await client.call("GET", f"{MESSAGES}/{id}/body")
    assert (got.status, got.body) == (200, body)
    assert got.headers["content-type"] == "application/octet-stream"
    assert got.headers["content-length"] == str(len(body))
    assert got.headers["content-disposition"] == f'attachment; filename="message-{id}.bin"'
    head = await client.call("HEAD", f"{MESSAGES}/{id}/body")
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(len(body)))


@pytest.mark.parametrize("nbytes", [200_000, 3_000_000])
async def test_a_large_body_of_amqp_is_downloaded_without_its_encoding(
    broker: TestBroker, client: Client, nbytes: int
) -> None:
    await upload(broker, "a", encode_section(DATA, b"y" * nbytes), AMQP_FORMAT)
    await broker.settled()
    got = await client.call("GET", f"{MESSAGES}/{await only(client)}/body")
    assert (got.status, got.body) == (200, b"y" * nbytes)


@pytest.mark.parametrize(
    ("id", "status", "code"),
    [
        ("999", 404, "not-found"),
        ("0", 400, "invalid-parameter"),
        ("x", 400, "invalid-parameter"),
        ("1e3", 400, "invalid-parameter"),
    ],
)
async def test_a_message_that_is_not_there(broker: TestBroker, client: Client, id: str, status: int, code: str) -> None:
    broker.send("a", [b"1"])
    for path in (f"{MESSAGES}/{id}", f"{MESSAGES}/{id}/body"):
        answer = await client.call("GET", path)
        assert (answer.status, answer.json["code"]) == (status, code)


async def send(client: Client, **message: object) -> None:
    answer = await client.call("POST", "/api/v1/addresses/a/messages", json=message)
    assert (answer.status, answer.json["taken"]) == (201, True), answer.body


async def test_a_message_is_sent_with_headers(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    headers = {
        "content_type": "text/plain",
        "correlation_id": "c:1\n",
        "reply_to": "answers",
        "type": "t",
        "group": "g",
    }
    await send(client, text="x", headers=headers, properties={"type": "not this", "p": "v"}, expiration=NOW + 9_000)
    shown = await client.get(f"{MESSAGES}/{await only(client)}")
    assert shown["properties"] == {
        "_AMQ_CONTENT_TYPE": "text/plain",
        "JMSCorrelationID": "c:1\n",
        "JMSReplyTo": "answers",
        "JMSType": "t",
        "_AMQ_GROUP_ID": "g",
        "p": "v",
    }
    assert shown["expiration"] == NOW + 9_000
    [message] = broker.held("a")
    assert message.header.group == "g"


async def test_bytes_are_sent(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    await send(client, base64=base64.b64encode(b"\x00\xff").decode())
    assert (await client.call("GET", f"{MESSAGES}/{await only(client)}/body")).body == b"\x00\xff"


async def test_a_message_is_sent_for_later(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    await send(client, text="x", scheduled=NOW + 60_000)
    (shown,) = (await client.get(MESSAGES))["messages"]
    assert (shown["state"], shown["scheduled"]) == ("scheduled", NOW + 60_000)


@pytest.mark.parametrize("limit", [1, 7, 1_000])
async def test_a_queue_that_is_on_disk_for_the_most_part_is_browsed_whole(
    broker: TestBroker, client: Client, limit: int
) -> None:
    paging: dict[str, object] = {"max_size_messages": 4, "address_full_policy": AddressFullPolicy.PAGE}
    defaults = broker.engine._state.registry.settings_table._defaults
    broker.tick.enter()
    broker.engine.configuration.change_settings(SettingsTable([("#", paging)], defaults))
    for n in range(40):
        await broker.sent("a", [b"%d" % n])
    assert broker.engine.queue("a").paged > 30
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await client.get(f"{MESSAGES}?limit={limit}&after={after}")
        seen += [message["body"]["data"] for message in page["messages"]]
        after = page["next"]
    assert seen == [str(n) for n in range(40)]
    last = page["messages"][-1]["id"]
    assert (await client.get(f"{MESSAGES}/{last}"))["body"]["data"] == "39"


class Turns:
    """Counts the turns of the event loop, and notes in which of them something is done that takes a whole one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._used = 0
        self._turn = 0
        self.seen: list[int] = []
        monkeypatch.setattr(turns, "thread_cpu_us", lambda: self._used)
        asyncio.get_running_loop().call_soon(self._count)

    def _count(self) -> None:
        self._turn += 1
        asyncio.get_running_loop().call_soon(self._count)

    def take(self, where: object, name: str) -> None:
        """Let each call of a function take a turn's time."""
        function = getattr(where, name)

        def costly(*arguments: Any, **named: Any) -> object:
            self._used += turns.TURN_US
            self.seen.append(self._turn)
            return function(*arguments, **named)

        self._monkeypatch.setattr(where, name, costly)


@pytest.mark.parametrize(
    ("path", "where", "name"),
    [
        (f"{MESSAGES}?limit=40", message_calls, "message_shown"),
        (f"{MESSAGES}?filter=a%20%3D%20%27b%27", Filter, "matches"),
        (f"{MESSAGES}:export?limit=40", lines, "json_line"),
        (f"{MESSAGES}:export?filter=a%20%3D%20%27b%27", Filter, "matches"),
    ],
)
async def test_costly_messages_take_a_turn_each(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch, path: str, where: object, name: str
) -> None:
    await broker.sent("a", [b"x"] * 40)
    each = Turns(monkeypatch)
    each.take(where, name)
    await client.get(path)
    assert len(each.seen) == len(set(each.seen)) == 40


async def test_an_answer_ends_where_it_is_long(
    broker: TestBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_calls, "PAGE_CHARS_MAX", 600)
    await broker.sent("a", [b"x" * 600, b"y" * 600, b"z" * 600])
    page = await client.get(f"{MESSAGES}?limit=100")
    assert [message["body"]["data"][0] for message in page["messages"]] == ["x"]
    rest = await client.get(f"{MESSAGES}?limit=100&after={page['next']}")
    assert rest["messages"][0]["body"]["data"][0] == "y"


async def test_a_queue_is_deleted_while_it_is_looked_at(broker: TestBroker) -> None:
    await broker.sent("a", [b"x"] * 2 * READ_AT_ONCE)
    queue = broker.engine.queue("a")
    look = Look(broker, queue, 0, 1_000, 1_000, None)
    each = iter(look)
    next(each)
    broker.engine.operators.delete_queue(queue, with_messages=True)
    assert len(list(each)) < READ_AT_ONCE
    assert look.last is None
