"""The operator's calls, over a real socket against a real engine."""

from __future__ import annotations

import asyncio
import base64
from urllib.parse import quote

import pytest

from broker.build import COMPILED
from broker.engine.delivery import redelivery
from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import Message, MessageHeader, RoutingType
from broker.engine.model.names import RETAINED
from broker.engine.model.settings import AddressSettings
from broker.engine.queues.consumer import AckMode
from broker.engine.routing import destinations
from broker.management import asking
from broker.management.limits import Limits as CallLimits
from broker.management.views import BODY_PREVIEW_BYTES, PROPERTIES_MAX
from tests.broker.management.harness import NOW, Client, Inbox, TestBroker

MESSAGES = "/api/v1/queues/{}/messages"


async def test_status_counts_what_is_there(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"22"])
    await broker.settled()
    status = await client.get("/api/v1/status")
    assert (status["name"], status["version"], status["compiled"]) == ("test", "1.2.3", COMPILED)
    assert (status["started"], status["uptime"]) == (NOW - 5_000, 5_000)
    assert (status["ready"], status["reasons"]) == (True, [])
    assert (status["queues"], status["addresses"], status["messages"]) == (1, 1, 2)
    assert status["acceptors"][0]["listening"] == ["127.0.0.1:61613"]
    assert status["journal"]["accepting"] is True
    assert status["journal"]["disk_free_bytes"] > 0
    assert status["journal"]["disk_full"] is False


async def test_queues_are_listed_by_name_in_pages(broker: TestBroker, client: Client) -> None:
    for name in ("c", "a", "d", "b", "e"):
        broker.queue(name)
    page = await client.get("/api/v1/queues?page=2&size=2")
    assert [queue["name"] for queue in page["queues"]] == ["c", "d"]
    assert (page["page"], page["size"], page["total"]) == (2, 2, 5)
    assert (await client.get("/api/v1/queues?page=4&size=2"))["queues"] == []
    everything = await client.get("/api/v1/queues")
    assert len(everything["queues"]) == 5
    assert everything["size"] == asking.PAGE_SIZE_DEFAULT


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
    for verb, path in (("DELETE", "messages"), ("POST", "messages:retry"), ("POST", "messages:move?to=b")):
        answer = await client.call(verb, f"/api/v1/queues/{RETAINED}/{path}")
        assert (answer.status, answer.json["error"]) == (409, "in-use"), path


@pytest.mark.parametrize(
    "query",
    ["page=0", "page=-1", "page=x", "page=%31%C2%B2", "size=0", f"size={asking.PAGE_SIZE_MAX + 1}", "page=99999999999"],
)
async def test_a_page_that_cannot_be_is_refused(client: Client, query: str) -> None:
    answer = await client.call("GET", f"/api/v1/queues?{query}")
    assert answer.status == 400
    assert answer.json["error"] == "invalid-parameter"
    assert "from 1 to" in answer.json["detail"]


async def test_the_largest_page_is_allowed(client: Client) -> None:
    assert (await client.get(f"/api/v1/queues?size={asking.PAGE_SIZE_MAX}"))["size"] == asking.PAGE_SIZE_MAX


@pytest.mark.parametrize("name", ["plain", "a/b", "..", "a b?x=1&y", "a#b;c", "ä%2F", "orders/messages", "%"])
async def test_a_queue_may_have_any_name(broker: TestBroker, client: Client, name: str) -> None:
    broker.send(name, [b"x"])
    await broker.settled()
    quoted = quote(name, safe="")
    shown = await client.get(f"/api/v1/queues/{quoted}")
    assert (shown["name"], shown["address"], shown["messages"]) == (name, name, 1)
    qualified = quote(f"{name}::{name}", safe="")
    assert (await client.get(f"/api/v1/queues/{qualified}"))["id"] == shown["id"]
    assert len((await client.get(MESSAGES.format(quoted)))["messages"]) == 1
    assert (await client.call("DELETE", MESSAGES.format(quoted))).json["purged"] == 1


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
async def test_what_cannot_be_answered_is_explained(
    broker: TestBroker, client: Client, path: str, status: int, error: str
) -> None:
    broker.queue("orders")
    answer = await client.call("GET", path)
    assert (answer.status, answer.json["error"]) == (status, error)
    assert answer.json["detail"]


async def test_another_method_is_refused(client: Client) -> None:
    answer = await client.call("POST", "/api/v1/status")
    assert (answer.status, answer.json["error"]) == (405, "no-such-method")
    assert "GET" in answer.headers["allow"]


async def test_a_queue_shows_its_consumers_and_settings(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2", b"3"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.engine.consumers.subscribe(
        Inbox(),
        SubscribeRequest(
            "orders", ack_mode=AckMode.INDIVIDUAL, window=0, client_id="c-1", remote="10.0.0.1:1", user="bob"
        ),
    )
    await broker.settled()
    shown = await client.get("/api/v1/queues/orders")
    assert (shown["messages"], shown["ready"], shown["scheduled"], shown["delivering"]) == (4, 2, 1, 1)
    assert shown["counters"]["added"] == 4
    assert shown["settings"]["dead_letter_address"] == "DLQ"
    assert shown["address_messages"] == 4
    assert shown["consumer_list"] == [
        {
            "id": 1,
            "client_id": "c-1",
            "user": "bob",
            "remote": "10.0.0.1:1",
            "selector": "",
            "ack_mode": "client-individual",
            "unacknowledged": 1,
            "paused": False,
        }
    ]


# -- browsing ----------------------------------------------------------------------------------------------------------


async def test_a_message_is_shown_with_everything_but_a_long_body(broker: TestBroker, client: Client) -> None:
    shown = AddressSettings().management_message_attribute_size_limit
    long_value = b"v" * (shown + 1)
    broker.send("orders", [b'{"n": 1}'], headers=[(b"color", b"r:ed"), (b"long", long_value)])
    await broker.settled()
    page = await client.get(MESSAGES.format("orders"))
    assert (page["page"], page["size"], page["complete"]) == (1, 5, True)
    (message,) = page["messages"]
    assert message["properties"] == {"color": "r:ed", "long": "v" * shown + "…"}
    assert message["properties_omitted"] == 0
    assert message["body"] == {"encoding": "text", "data": '{"n": 1}', "bytes": 8, "truncated": False}
    expected = {"state": "ready", "address": "orders", "durable": True, "priority": 4, "timestamp": NOW}
    assert expected.items() <= message.items()
    assert (message["user"], message["origin"], message["protocol"]) == ("sender", "client-1", "stomp")


async def test_a_message_with_many_properties_is_cut(broker: TestBroker, client: Client) -> None:
    headers = [(b"h%d" % n, b"v") for n in range(PROPERTIES_MAX + 3)]
    broker.send("orders", [b""], headers=headers)
    await broker.settled()
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
    broker.send("orders", [body])
    await broker.settled()
    (message,) = (await client.get(MESSAGES.format("orders")))["messages"]
    truncated = len(body) > BODY_PREVIEW_BYTES
    assert message["body"] == {"encoding": encoding, "data": data, "bytes": len(body), "truncated": truncated}


async def test_browsing_shows_where_each_message_is_and_takes_none_away(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.engine.consumers.subscribe(Inbox(), SubscribeRequest("orders", ack_mode=AckMode.INDIVIDUAL, window=0))
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

    async def bodies(query: str) -> list[str]:
        page = await client.get(MESSAGES.format("orders") + query)
        assert page["complete"] is True
        return [message["body"]["data"] for message in page["messages"]]

    assert await bodies("") == ["0", "1", "2", "3", "4"]
    assert await bodies("?page=3") == ["10", "11"]
    assert await bodies("?page=4") == []
    assert await bodies("?size=12") == [str(n) for n in range(12)]
    assert await bodies("?filter=" + quote("parity = 'odd'") + "&size=2&page=2") == ["5", "7"]


@pytest.mark.parametrize("call_limits", [CallLimits(looked_at_max=8, filtered_max=4)])
async def test_browsing_a_long_queue_ends_and_says_so(broker: TestBroker, client: Client) -> None:
    async def seen(query: str) -> tuple[int, bool]:
        page = await client.get(MESSAGES.format("orders") + query)
        return len(page["messages"]), page["complete"]

    broker.send("orders", [b"x"] * 8)
    await broker.settled()
    assert await seen("?size=9") == (8, True)
    assert await seen("?size=9&filter=" + quote("AMQDurable = 'DURABLE'")) == (4, False)
    broker.send("orders", [b"x"])
    await broker.settled()
    assert await seen("?size=8") == (8, True)
    assert await seen("?size=9") == (8, False)
    assert await seen("?size=8&page=2") == (0, False)


async def test_a_dead_letter_shows_its_reason(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"poison"])
    inbox = Inbox()
    consumer = broker.engine.consumers.subscribe(inbox, SubscribeRequest("orders", ack_mode=AckMode.INDIVIDUAL))
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
    consumer = broker.engine.consumers.subscribe(Inbox(), SubscribeRequest("orders", ack_mode=AckMode.INDIVIDUAL))
    await broker.settled()
    broker.tick.enter()
    broker.engine.consumers.close(consumer, redelivery.DISCONNECTED)
    await broker.settled()
    (message,) = (await client.get(MESSAGES.format("orders")))["messages"]
    assert message["failed_deliveries"] == 1


# -- purging -----------------------------------------------------------------------------------------------------------


async def test_a_purge_is_answered_only_when_it_is_durable(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2"])
    await broker.settled()
    broker.disk_works = False
    answer = asyncio.ensure_future(client.call("DELETE", MESSAGES.format("orders")))
    await broker.waiting.wait()
    assert (await client.get("/api/v1/queues/orders"))["messages"] == 0
    assert not answer.done(), "nothing is confirmed before it is durable"
    broker.disk_works = True
    broker.tick.enter()
    done = await answer
    assert (done.status, done.json) == (200, {"queue": "orders", "purged": 2, "delivering": 0})


async def test_a_purge_leaves_what_consumers_hold(broker: TestBroker, client: Client) -> None:
    broker.send("orders", [b"1", b"2", b"3"])
    broker.send("orders", [b"later"], scheduled=NOW + 60_000)
    broker.engine.consumers.subscribe(Inbox(), SubscribeRequest("orders", ack_mode=AckMode.INDIVIDUAL, window=0))
    await broker.settled()
    done = await client.call("DELETE", MESSAGES.format("orders"))
    assert done.json == {"queue": "orders", "purged": 3, "delivering": 1}
    shown = await client.get("/api/v1/queues/orders")
    assert (shown["messages"], shown["counters"]["purged"]) == (1, 3)


async def test_purging_an_empty_queue_is_answered_at_once(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    await broker.settled()
    broker.disk_works = False
    assert (await client.call("DELETE", MESSAGES.format("orders"))).json["purged"] == 0
