"""The operator's calls, over a real socket against a real engine."""

from __future__ import annotations

import base64
from urllib.parse import quote

import pytest

from broker.build import COMPILED
from broker.engine.delivery import redelivery
from broker.engine.model.limits import Limits
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.names import RETAINED
from broker.engine.model.settings import AddressSettings
from broker.engine.routing import destinations
from broker.management.limits import Limits as CallLimits
from broker.management.models.base import CURSOR_CHARS_MAX, LIMIT_DEFAULT, LIMIT_MAX
from broker.management.models.messages import BODY_PREVIEW_BYTES, PROPERTIES_MAX
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker

MESSAGES = "/api/v1/queues/{}/messages"


async def test_status_counts_what_is_there(broker: TestBroker, client: Client) -> None:
    await broker.sent("orders", [b"1", b"22"])
    status = await client.get("/api/v1/status")
    assert (status["name"], status["version"], status["compiled"]) == ("test", "1.2.3", COMPILED)
    assert (status["started"], status["uptime"]) == (NOW - 5_000, 5_000)
    assert (status["ready"], status["reasons"]) == (True, [])
    assert (status["queues"], status["addresses"], status["messages"]) == (1, 1, 2)
    assert status["acceptors"][0]["listening"] == ["127.0.0.1:61613"]
    assert status["journal"]["accepting"] is True
    assert status["journal"]["disk_free_bytes"] > 0
    assert status["journal"]["disk_full"] is False


@pytest.mark.parametrize("jump", [-3_600_000, 3_600_000])
async def test_the_uptime_does_not_follow_a_clock_that_is_set(broker: TestBroker, client: Client, jump: int) -> None:
    broker.jump(jump)
    assert (await client.get("/api/v1/status"))["uptime"] == 5_000


async def test_queues_are_listed_by_name_in_pages(broker: TestBroker, client: Client) -> None:
    for name in ("c", "a", "d", "b", "e"):
        broker.queue(name)
    first = await client.get("/api/v1/queues?limit=2")
    assert ([queue["name"] for queue in first["queues"]], first["total"]) == (["a", "b"], 5)
    page = await client.get(f"/api/v1/queues?limit=2&after={first['next']}")
    assert [queue["name"] for queue in page["queues"]] == ["c", "d"]
    last = await client.get(f"/api/v1/queues?limit=2&after={page['next']}")
    assert ([queue["name"] for queue in last["queues"]], last["next"]) == (["e"], None)
    everything = await client.get("/api/v1/queues")
    assert (len(everything["queues"]), everything["next"]) == (5, None)


async def test_a_list_goes_on_where_it_was_whatever_comes_and_goes(broker: TestBroker, client: Client) -> None:
    for name in ("b", "c", "d", "e"):
        broker.queue(name)
    first = await client.get("/api/v1/queues?limit=2")
    broker.queue("a")
    broker.queue("cc")
    for name in ("b", "c"):  # also the very one after which it goes on
        await client.call("DELETE", f"/api/v1/queues/{name}")
    page = await client.get(f"/api/v1/queues?after={first['next']}")
    assert [queue["name"] for queue in page["queues"]] == ["cc", "d", "e"]


async def test_the_brokers_own_queues_are_listed_when_asked_for_and_cannot_be_emptied(
    broker: TestBroker, client: Client
) -> None:
    broker.queue("a")
    broker.tick.enter()
    header = MessageHeader("topic", broker.engine.formats[1], durable=True)
    address, _ = destinations.destination(broker.engine._state, "topic", RoutingType.MULTICAST)
    broker.engine.retained.set(address, Message(header, b"", b"last"))
    assert [queue["name"] for queue in (await client.get("/api/v1/queues"))["queues"]] == ["a"]
    everything = await client.get("/api/v1/queues?internal=true")
    assert [queue["name"] for queue in everything["queues"]] == [RETAINED, "a"]
    assert everything["total"] == 2
    assert (await client.get(f"/api/v1/queues/{RETAINED}"))["messages"] == 1
    for kind, more in (("purge", {}), ("retry", {}), ("move", {"target": "b"})):
        asked = {"kind": kind, "queue": RETAINED} | more
        answer = await client.call("POST", "/api/v1/tasks", json=asked)
        assert (answer.status, answer.json["code"]) == (409, "in-use"), kind


@pytest.mark.parametrize(
    "query",
    ["limit=0", "limit=-1", "limit=x", "limit=1.0", "limit=%31%C2%B2", f"limit={LIMIT_MAX + 1}", "limit=" + "9" * 99],
)
async def test_a_limit_that_cannot_be_is_refused(client: Client, query: str) -> None:
    answer = await client.call("GET", f"/api/v1/queues?{query}")
    assert (answer.status, answer.json["code"]) == (400, "invalid-parameter")
    assert answer.json["errors"] == [
        {"where": "query", "field": "limit", "detail": answer.json["detail"].partition(" ")[2]}
    ]


@pytest.mark.parametrize(("query", "shown"), [("", LIMIT_DEFAULT), (f"?limit={LIMIT_MAX}", LIMIT_MAX)])
async def test_a_list_is_bounded(broker: TestBroker, client: Client, query: str, shown: int) -> None:
    for n in range(LIMIT_MAX + 1):
        broker.queue(f"q{n:04}")
    answer = await client.get(f"/api/v1/queues{query}")
    assert (len(answer["queues"]), answer["total"]) == (shown, LIMIT_MAX + 1)
    assert answer["next"] is not None


@pytest.mark.parametrize("list", ["queues", "addresses"])
async def test_a_list_of_those_with_a_text_in_their_names(broker: TestBroker, client: Client, list: str) -> None:
    for name in ("eu.orders", "eu.bills", "us.orders", "O%r"):
        broker.queue(name)
    first = await client.get(f"/api/v1/{list}?name=orders&limit=1")
    assert ([each["name"] for each in first[list]], first["total"]) == (["eu.orders"], 2)
    rest = await client.get(f"/api/v1/{list}?name=orders&after={first['next']}")
    assert ([each["name"] for each in rest[list]], rest["next"]) == (["us.orders"], None)
    assert [each["name"] for each in (await client.get(f"/api/v1/{list}?name=%25r"))[list]] == ["O%r"]
    assert (await client.get(f"/api/v1/{list}?name=nothing")) == {list: [], "next": None, "total": 0}


@pytest.mark.parametrize("name", ["a" * 1_024, '"' * 1_024, "\x01" * 1_024, "ä" * 512, "\U0001f600" * 256])
async def test_a_list_goes_on_after_any_name(broker: TestBroker, client: Client, name: str) -> None:
    broker.queue(name)
    broker.queue("\U0010ffff")
    first = await client.get("/api/v1/queues?limit=1")
    assert [queue["name"] for queue in first["queues"]] == [name]
    rest = await client.get(f"/api/v1/queues?after={first['next']}")
    assert [queue["name"] for queue in rest["queues"]] == ["\U0010ffff"]


@pytest.mark.parametrize("list", ["queues", "addresses", "diverts", "connections", "consumers", "users"])
async def test_a_cursor_that_is_none_is_refused(broker: TestBroker, client: Client, list: str) -> None:
    await broker.sent("a", [b"1", b"2"])
    other = (await client.get("/api/v1/queues/a/messages?limit=1"))["next"]
    for wrong in (other, "x", "WyJ4", "%FF", "e30", "WzFd", "W10", "bnVsbA", "a" * CURSOR_CHARS_MAX):
        answer = await client.call("GET", f"/api/v1/{list}?after={wrong}")
        assert (answer.status, answer.json["code"]) == (400, "invalid-cursor"), wrong
    assert (await client.call("GET", f"/api/v1/{list}?after={'a' * (CURSOR_CHARS_MAX + 1)}")).json[
        "code"
    ] == "invalid-parameter"


@pytest.mark.parametrize("name", ["plain", "a/b", "..", "a b?x=1&y", "a#b;c", "ä%2F", "orders/messages", "%"])
async def test_a_queue_may_have_any_name(broker: TestBroker, client: Client, name: str) -> None:
    await broker.sent(name, [b"x"])
    quoted = quote(name, safe="")
    shown = await client.get(f"/api/v1/queues/{quoted}")
    assert (shown["name"], shown["address"], shown["messages"]) == (name, name, 1)
    qualified = quote(f"{name}::{name}", safe="")
    assert (await client.get(f"/api/v1/queues/{qualified}"))["id"] == shown["id"]
    assert len((await client.get(MESSAGES.format(quoted)))["messages"]) == 1
    purge = {"kind": "purge", "queue": f"{name}::{name}"}
    assert (await client.call("POST", "/api/v1/tasks", json=purge)).json["moved"] == 1


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/api/v1/queues/none", 404, "not-found"),
        ("/api/v1/queues/other%3A%3Aorders", 404, "not-found"),
        ("/api/v1/queues/%FF", 400, "invalid-name"),
        ("/api/v1/queues/", 404, "no-such-call"),
        ("/api/v2/status", 404, "no-such-call"),
        ("/api/v1/status/", 404, "no-such-call"),
        ("/api/v1/queues/orders/messages?filter=a%20%3D", 400, "invalid-selector"),
        ("/api/v1/queues/orders/messages?filter=" + "a" * 5000, 400, "invalid-selector"),
    ],
)
async def test_an_unanswerable_call_is_explained(
    broker: TestBroker, client: Client, path: str, status: int, error: str
) -> None:
    broker.queue("orders")
    answer = await client.call("GET", path)
    assert (answer.status, answer.json["code"]) == (status, error)
    assert answer.json["detail"]


async def test_another_method_is_refused(client: Client) -> None:
    answer = await client.call("POST", "/api/v1/status")
    assert (answer.status, answer.json["code"]) == (405, "no-such-method")
    assert answer.headers["allow"] == "GET"
    answer = await client.call("POST", "/api/v1/queues/a", json={})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, PATCH, PUT")
    answer = await client.call("PATCH", "/api/v1/tasks/1:pause", json={})
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


async def test_a_queue_shows_its_consumers_and_settings(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2", b"3"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.read("orders", window=0, client_id="c-1", remote="10.0.0.1:1", user="bob")
    await broker.settled()
    shown = await client.get("/api/v1/queues/orders")
    assert (shown["messages"], shown["ready"], shown["scheduled"], shown["delivering"]) == (4, 2, 1, 1)
    assert shown["counters"]["added"] == 4
    assert shown["settings"]["dead-letter-address"] == "DLQ"
    assert shown["address_messages"] == 4
    assert shown["consumer_list"] == [
        {
            "id": 1,
            "queue": "orders",
            "address": "orders",
            "client_id": "c-1",
            "user": "bob",
            "remote": "10.0.0.1:1",
            "selector": "",
            "ack_mode": "client-individual",
            "unacknowledged": 1,
            "paused": False,
            "away": False,
        }
    ]


# -- browsing ----------------------------------------------------------------------------------------------------------


async def test_a_message_is_shown_with_everything_but_a_long_body(broker: TestBroker, client: Client) -> None:
    shown = AddressSettings().management_message_attribute_size_limit
    long_value = b"v" * (shown + 1)
    await broker.sent("orders", [b'{"n": 1}'], headers=[(b"color", b"r:ed"), (b"long", long_value)])
    page = await client.get(MESSAGES.format("orders"))
    assert (page["limit"], page["next"]) == (5, None)
    (message,) = page["messages"]
    assert message["properties"] == {"color": "r:ed", "long": "v" * shown + "…"}
    assert message["properties_omitted"] == 0
    assert message["body"] == {"encoding": "text", "data": '{"n": 1}', "bytes": 8, "truncated": False}
    expected = {"state": "ready", "address": "orders", "durable": True, "priority": 4, "timestamp": NOW}
    assert expected.items() <= message.items()
    assert (message["user"], message["origin"], message["protocol"]) == ("sender", "client-1", "stomp")


async def test_a_message_with_many_properties_is_cut(broker: TestBroker, client: Client) -> None:
    headers = [(b"h%d" % n, b"v") for n in range(PROPERTIES_MAX + 3)]
    await broker.sent("orders", [b""], headers=headers)
    (message,) = (await client.get(MESSAGES.format("orders")))["messages"]
    assert (len(message["properties"]), message["properties_omitted"]) == (PROPERTIES_MAX, 3)


@pytest.mark.parametrize(
    ("body", "encoding", "data"),
    [
        (b"", "text", ""),
        ("tab\tline\r\nü €".encode(), "text", "tab\tline\r\nü €"),
        (b"\x00\x01", "base64", "AAE="),
        (b"\xff", "base64", "/w=="),
        (b"esc\x1b[31m", "base64", base64.b64encode(b"esc\x1b[31m").decode()),
        (b"a" * BODY_PREVIEW_BYTES, "text", "a" * BODY_PREVIEW_BYTES),
        (b"a" * (BODY_PREVIEW_BYTES + 1), "text", "a" * BODY_PREVIEW_BYTES),
        ("€".encode() * BODY_PREVIEW_BYTES, "text", "€" * (BODY_PREVIEW_BYTES // 3)),
        (b"\xe2\x82", "base64", "4oI="),
    ],
)
async def test_a_body_is_shown_as_text_or_in_base64(
    broker: TestBroker, client: Client, body: bytes, encoding: str, data: str
) -> None:
    await broker.sent("orders", [body])
    (message,) = (await client.get(MESSAGES.format("orders")))["messages"]
    truncated = len(body) > BODY_PREVIEW_BYTES
    assert message["body"] == {"encoding": encoding, "data": data, "bytes": len(body), "truncated": truncated}


async def test_browsing_shows_where_each_message_is_and_takes_none_away(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.read("orders", window=0)
    await broker.settled()
    for _ in range(2):
        messages = (await client.get(MESSAGES.format("orders")))["messages"]
        shown = {message["body"]["data"]: message["state"] for message in messages}
        assert shown == {"1": "delivering", "2": "ready", "later": "scheduled"}
        assert [m["scheduled"] for m in messages if m["state"] == "scheduled"] == [NOW + 60_000]


async def test_browsing_goes_by_pages_of_the_setting_and_by_filter(broker: TestBroker, client: Client) -> None:
    for n in range(12):
        broker.send("orders", [b"%d" % n], headers=[(b"parity", b"odd" if n % 2 else b"even")])
    await broker.settled()

    async def pages(query: str) -> list[list[str]]:
        found: list[list[str]] = []
        after: str | None = ""
        while after is not None:
            page = await client.get(MESSAGES.format("orders") + f"?after={after}{query}")
            found.append([message["body"]["data"] for message in page["messages"]])
            after = page["next"]
        return found

    assert await pages("") == [["0", "1", "2", "3", "4"], ["5", "6", "7", "8", "9"], ["10", "11"]]
    assert await pages("&limit=12") == [[str(n) for n in range(12)]]
    assert await pages("&limit=4&filter=" + quote("parity = 'odd'")) == [["1", "3", "5", "7"], ["9", "11"]]


@pytest.mark.parametrize("call_limits", [CallLimits(filtered_max=4)])
async def test_a_long_queue_is_looked_through_in_several_calls(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"x"] * 9)
    await broker.sent("orders", [b"y"], headers=[(b"colour", b"red")])
    red, seen = quote("colour = 'red'"), list[int]()
    after: str | None = ""
    while after is not None:
        page = await client.get(f"{MESSAGES.format('orders')}?filter={red}&after={after}")
        seen.append(len(page["messages"]))
        after = page["next"]
    assert seen == [0, 0, 1]


@pytest.mark.parametrize("engine_limits", [Limits(move_step_max=3)])
async def test_browsing_goes_on_whatever_comes_and_goes(broker: TestBroker, client: Client) -> None:
    """Oldest first, also what consumers hold and what waits for its time."""
    broker.send("orders", [b"0"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.send("orders", [b"%d" % n for n in range(2, 6)])
    broker.read("orders", window=0)
    await broker.settled()
    first = await client.get(MESSAGES.format("orders") + "?limit=3")
    assert [(m["body"]["data"], m["state"]) for m in first["messages"]] == [
        ("0", "delivering"),
        ("later", "scheduled"),
        ("2", "ready"),
    ]
    purge = {"kind": "purge", "queue": "orders", "ids": [first["messages"][2]["id"]]}
    await client.call("POST", "/api/v1/tasks", json=purge)
    await broker.sent("orders", [b"6"])
    rest = await client.get(f"{MESSAGES.format('orders')}?limit=9&after={first['next']}")
    assert [m["body"]["data"] for m in rest["messages"]] == ["3", "4", "5", "6"]


async def test_a_dead_letter_shows_its_reason(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"poison"])
    inbox = Inbox()
    consumer = broker.read("orders", inbox)
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.reject(consumer, inbox.messages[0].id, text="cannot read it")
    await broker.settled()
    (message,) = (await client.get(MESSAGES.format("DLQ")))["messages"]
    noted = message["annotations"]
    assert (noted["_AMQ_ORIG_ADDRESS"], noted["_AMQ_DL_REASON"]) == ("orders", "rejected")
    assert noted["_AMQ_DL_TEXT"].endswith("cannot read it")


async def test_failed_deliveries_are_counted(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"x"])
    consumer = broker.read("orders")
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.close(consumer, redelivery.DISCONNECTED)
    await broker.settled()
    (message,) = (await client.get(MESSAGES.format("orders")))["messages"]
    assert message["failed_deliveries"] == 1
