"""Messages that come back from the journal, over HTTP: what a request may be, and what it does."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode

import pytest

from broker.engine.model.annotation import TypedInt
from broker.engine.model.message import RoutingType
from broker.engine.model.settings import AddressFullPolicy, AddressSettings, as_mapping
from broker.engine.model.settings_match import SettingsTable
from broker.management import replaying
from tests.broker.management import export_calls
from tests.broker.management.harness import NOW, Client, TestBroker

PATH = "/api/v1/messages:replay"

LINE = export_calls.LINE | {"queue": "orders"}


def b64(data: bytes) -> str:
    return b64encode(data).decode()


def body(*lines: object) -> bytes:
    return json.dumps({"name": "again", "messages": lines}).encode()


async def test_messages_come_back_as_they_were(broker: TestBroker, client: Client) -> None:
    answer = await client.call("POST", PATH, body=body(LINE, {**LINE, "id": 8, "to": "other"}))
    assert (answer.status, answer.json) == (200, {"replayed": 2, "refused": {}, "stopped": ""})
    [message] = broker.held("orders")
    header = message.header
    assert (message.head, message.body) == (b"colour:red\n", b"one")
    assert (header.priority, header.user, header.origin, header.timestamp) == (9, "alice", "c1", NOW - 1_000)
    assert header.routing_type is RoutingType.ANYCAST, "its own again, and so no annotation"
    assert header.annotations is not None
    assert "_AMQ_ORIG_ROUTING_TYPE" not in header.annotations
    assert header.annotations["_AMQ_ORIG_MESSAGE_ID"] == 7
    assert header.annotations["_AMQ_DL_REASON"] == "rejected"
    number = header.annotations["x"]
    assert isinstance(number, TypedInt)
    assert (number, number.type) == (2**64 - 1, "ulong"), "an annotation keeps its type"
    assert (await client.get("/api/v1/queues/other"))["messages"] == 1


async def test_it_is_answered_when_it_is_durable(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    await broker.settled()
    broker.disk_works = False
    calling = asyncio.create_task(client.call("POST", PATH, body=body(LINE)))
    await broker.waiting.wait()
    await broker.settled()
    assert not calling.done()
    broker.disk_works = True
    broker.tick.enter()
    assert (await calling).json["replayed"] == 1


@pytest.mark.parametrize(("queue", "type"), [("alice.news", "MULTICAST"), ("", "MULTICAST"), ("", "ANYCAST")])
async def test_one_that_no_queue_takes_does_not_keep_back_the_others(client: Client, queue: str, type: str) -> None:
    gone = {**LINE, "address": "news", "queue": queue, "routing-type": type}
    answer = await client.call("POST", PATH, body=body(gone, LINE))
    assert answer.json == {"replayed": 1, "refused": {"no-queue": 1}, "stopped": ""}


async def test_a_full_address_and_a_wrong_target_stop_it(broker: TestBroker, client: Client) -> None:
    blocking = AddressSettings(address_full_policy=AddressFullPolicy.BLOCK)
    broker.engine.configuration.change_settings(SettingsTable([], as_mapping(blocking)))
    broker.engine.usage.bytes_max = 1500  # one and a half, with what is noted of them
    broker.queue("orders")
    answer = await client.call("POST", PATH, body=body(LINE, {**LINE, "id": 8}, {**LINE, "id": 9}))
    assert answer.json["replayed"] == 2
    assert "address orders is full" in answer.json["stopped"]
    broker.engine.usage.bytes_max = -1
    answer = await client.call("POST", PATH, body=body({**LINE, "to": "a::b::c"}))
    assert answer.json["replayed"] == 0
    assert answer.json["stopped"]


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        (b'{"messages": []}', "name is the replay's name"),
        (b'{"name": "' + 101 * b"x" + b'", "messages": []}', "name is the replay's name"),
        (b'{"name": "a\\nb", "messages": []}', "name is the replay's name"),
        (b'{"name": 7, "messages": []}', "name is the replay's name"),
        (b"{", "it is not JSON"),
        (b"[]", "it is not an object"),
        (b'{"name": "again", "messages": {}}', "messages is a list"),
        (b'{"name": "again", "messages": [7]}', "the line is an object"),
        (b'{"name": "again"}', "messages is a list"),
        (body({**LINE, "protocol": "smtp"}), "protocol is 'stomp', 'amqp' or 'mqtt', not \"smtp\""),
        (body({**LINE, "protocol": ["stomp"]}), "protocol is"),
        (body({**LINE, "body": "?"}), "body is not Base64"),
        (body({**LINE, "head": 7}), "head must be Base64"),
        (body({**LINE, "head": b64(b"\xff")}), "head is not the head of a stomp message"),
        (body({**LINE, "head": b64(b"content-length:4\n")}), "head is not the head of a stomp message"),
        (body({**LINE, "priority": "high"}), "priority is a whole number"),
        (body({**LINE, "priority": -1}), "priority is at least 0"),
        (body({**LINE, "priority": float("inf")}), "priority is a whole number"),
        (body({**LINE, "timestamp": 2**63}), "timestamp is less than"),
        (body({**LINE, "id": 2**63}), "id is less than"),
        (body({**LINE, "user": "\ud800"}), "user is not valid Unicode"),
        (body({**LINE, "user": "x" * 65_536}), "user has more than 65535 bytes"),
        (body({**LINE, "address": "a\ud800"}), "address is not valid Unicode"),
        (body({**LINE, "routing-type": "BOTH"}), "routing-type is 'ANYCAST' or 'MULTICAST'"),
        (body({**LINE, "annotations": [1]}), "annotations is an object"),
        (body({**LINE, "annotations": {"a": [1]}}), "annotations.a"),
        (body({**LINE, "annotations": {"a": "\ud800"}}), "annotations.a"),
        (body({**LINE, "annotations": {"a": 2**64}}), "a number of more than 64 bits"),
        (body({**LINE, "annotations": {"_AMQ_DL_COUNT": "x"}}), "than a number for _AMQ_DL_COUNT"),
        (body({name: value for name, value in LINE.items() if name != "queue"}), "queue is missing"),
        (body(*[LINE] * (replaying.MESSAGES_MAX + 1)), "at most 1000"),
    ],
)
async def test_a_body_that_is_no_replay_changes_nothing(
    broker: TestBroker, client: Client, sent: bytes, said: str
) -> None:
    answer = await client.call("POST", PATH, body=sent)
    assert (answer.status, answer.json["code"]) == (400, "invalid-replay")
    assert said in answer.json["detail"]
    assert broker.engine.queues == {}


async def test_only_a_replay_may_have_a_large_body(client: Client) -> None:
    large = {**LINE, "body": "A" * 200_000}
    assert (await client.call("POST", PATH, body=body(large))).json["replayed"] == 1
    assert (await client.call("PATCH", "/api/v1/queues/orders", body=body(large))).status == 413
    assert (await client.call("POST", PATH, body=body(large), token="wrong")).status == 401
