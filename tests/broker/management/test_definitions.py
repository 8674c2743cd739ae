"""Definitions over HTTP: exported, compared, imported; what of them lasts, and what is left alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.engine.delivery.subscribe import SubscribeRequest
from broker.engine.model.message import RoutingType
from broker.engine.queues.consumer import AckMode, Subscriber
from broker.management.models.definitions import DEFINITIONS_MAX
from tests.broker.management.harness import Client, Inbox, TestBroker, serving

DEFINITIONS = "/api/v1/definitions"

Changes = dict[tuple[str, str], dict[str, Any]]


async def imported(client: Client, document: dict[str, Any], *, dry_run: bool = False) -> Changes:
    """What became of each definition."""
    answer = await client.call("POST", f"{DEFINITIONS}?dry_run={str(dry_run).lower()}", json=document)
    assert answer.status == 200, answer.body
    assert answer.json["dry_run"] is dry_run
    return {(each["kind"], each["name"]): each for each in answer.json["changes"]}


async def fill(client: Client) -> None:
    """An address, two queues, one of them paused, and a divert."""
    queues: dict[str, dict[str, Any]] = {
        "prices": {"make_address": True, "routing_type": "ANYCAST", "attributes": {"ring-size": 5}},
        "news.red": {
            "address": "news",
            "make_address": True,
            "routing_type": "MULTICAST",
            "filter": "colour = 'red'",
            "attributes": {"exclusive": True},
        },
    }
    for name, wanted in queues.items():
        assert (await client.call("PUT", f"/api/v1/queues/{name}", json=wanted)).status == 201
    await client.call("PATCH", "/api/v1/queues/prices", json={"paused": True})
    await client.call("PATCH", "/api/v1/addresses/news", json={"paused": True})
    divert = {"address": "news", "forwarding_addresses": ["prices"], "add_headers": {"via": "news"}}
    assert (await client.call("PUT", "/api/v1/diverts/copies", json=divert)).status == 201


async def test_a_document_makes_another_broker_the_same(broker: TestBroker, client: Client, tmp_path: Path) -> None:
    await fill(client)
    document = await client.get(DEFINITIONS)
    async with serving(tmp_path / "other") as (other, its_client):
        would = await imported(its_client, document, dry_run=True)
        assert not other.engine.queues
        made = await imported(its_client, document)
        assert would == made
        made = {each: made[each] for each in made if each[0] in ("address", "queue", "divert")}
        assert {change["outcome"] for change in made.values()} == {"created"}
        assert len(made) == 5
        assert await its_client.get(DEFINITIONS) == document
        again = await imported(its_client, document)
        assert {change["outcome"] for change in again.values()} == {"same"}
        told = [(code, fields.get("queue", "")) for code, fields in other.reports if code.startswith("queue.")]
        assert told == [("queue.created", "news.red"), ("queue.created", "prices"), ("queue.paused", "prices")]
        shown = await its_client.get("/api/v1/queues/prices")
        assert (shown["attributes"]["ring-size"], shown["paused_itself"]) == (5, True)


async def test_differences_are_changed_and_unnamed_resources_stay(broker: TestBroker, client: Client) -> None:
    await fill(client)
    document = {
        "version": 1,
        "addresses": [{"name": "news", "routing_types": ["ANYCAST"], "paused": False}],
        "queues": [{"name": "prices", "address": "prices", "routing_type": "ANYCAST", "attributes": {"ring-size": 7}}],
        "diverts": [{"name": "copies", "address": "news", "forwarding_addresses": ["archive"]}],
    }
    changes = await imported(client, document)
    assert changes["address", "news"]["changes"] == [
        {"field": "routing_types", "before": ["MULTICAST"], "after": ["ANYCAST", "MULTICAST"]},
        {"field": "paused", "before": True, "after": False},
    ]
    assert changes["queue", "prices"]["changes"] == [
        {"field": "paused", "before": True, "after": False},
        {"field": "ring-size", "before": 5, "after": 7},
    ]
    assert [each["field"] for each in changes["divert", "copies"]["changes"]] == ["forwarding_addresses", "add_headers"]
    after = await client.get(DEFINITIONS)
    assert [queue["name"] for queue in after["queues"]] == ["news.red", "prices"]
    assert after["diverts"][0]["forwarding_addresses"] == ["archive"]
    codes = [code for code, _ in broker.reports]
    assert [code for code in codes if code in ("address.changed", "address.resumed", "queue.changed")] == [
        "address.changed",
        "address.resumed",
        "queue.changed",
    ]


@pytest.mark.parametrize(
    ("definition", "why"),
    [
        ({"name": "prices", "address": "other"}, "another address"),
        ({"name": "prices", "address": "prices", "durable": False, "filter": "a = 1"}, "another durable, filter"),
        ({"name": "bad", "address": ""}, "the address name is empty"),
        ({"name": "bad", "address": "a", "filter": "a ="}, "selector"),
        ({"name": "$sys.mqtt.retained", "address": "$sys.mqtt.retained"}, "the broker's own"),
    ],
)
async def test_an_impossible_change_is_refused_and_the_rest_done(
    broker: TestBroker, client: Client, definition: dict[str, Any], why: str
) -> None:
    await fill(client)
    wanted = {"routing_type": "ANYCAST"} | definition
    good = {"name": "good", "address": "good", "routing_type": "ANYCAST"}
    changes = await imported(client, {"version": 1, "queues": [wanted, good]})
    assert changes["queue", wanted["name"]]["outcome"] == "refused"
    assert why in changes["queue", wanted["name"]]["why"]
    assert changes["queue", "good"]["outcome"] == "created"
    assert broker.engine.queue("prices").address.name == "prices"


@pytest.mark.parametrize("dry_run", [True, False])
async def test_changes_that_consumers_would_notice_are_refused_also_in_a_dry_run(
    broker: TestBroker, client: Client, dry_run: bool
) -> None:
    await fill(client)
    inbox = Inbox()
    broker.read("prices", inbox)
    queue = {"name": "prices", "address": "prices", "routing_type": "ANYCAST", "attributes": {"non-destructive": True}}
    changes = await imported(client, {"version": 1, "queues": [queue]}, dry_run=dry_run)
    assert changes["queue", "prices"]["outcome"] == "refused"
    assert "while it has no consumers" in changes["queue", "prices"]["why"]


async def test_the_configurations_own_is_refused(broker: TestBroker, client: Client) -> None:
    broker.tick.enter()
    configuration = broker.engine.configuration
    address = configuration.declare("fixed", {RoutingType.ANYCAST})
    configuration.declare_queue(address, "fixed", RoutingType.ANYCAST, durable=True, selector="")
    document = await client.get(DEFINITIONS)
    assert {each["outcome"] for each in (await imported(client, document)).values()} == {"same"}
    queue = document["queues"][0]
    queue["attributes"] = {"exclusive": True}
    changes = await imported(client, {"version": 1, "queues": [queue]})
    assert changes["queue", "fixed"]["outcome"] == "refused"
    assert "broker.toml" in changes["queue", "fixed"]["why"]
    queue["attributes"] = {"enabled": False}  # an operator's business
    assert (await imported(client, {"version": 1, "queues": [queue]}))["queue", "fixed"]["outcome"] == "changed"


async def test_files_are_compared_only(broker: TestBroker, client: Client) -> None:
    document = {
        "version": 1,
        "address_settings": {"#": {"dead-letter-address": "DLQ"}, "a": {"max-delivery-attempts": 3}},
        "permissions": {"a": {"send": ["team"]}},
        "users": [{"name": "alice", "roles": ["team"]}, {"name": "carl", "roles": []}, {"name": "dora"}],
    }
    changes = await imported(client, document)
    outcomes = {key: change["outcome"] for key, change in changes.items()}
    assert outcomes == {
        ("address-setting", "#"): "same",
        ("address-setting", "a"): "by-hand",
        ("permission", "a"): "by-hand",
        ("user", "alice"): "same",
        ("user", "carl"): "by-hand",
        ("user", "dora"): "by-hand",
    }
    assert changes["user", "carl"]["changes"] == [{"field": "roles", "before": ["chiefs"], "after": []}]
    assert changes["user", "dora"]["why"] == "use `bartleby user add dora`"


async def test_resources_of_clients_are_left_out(broker: TestBroker, client: Client) -> None:
    await fill(client)
    broker.send("automatic", [b"1"])
    broker.tick.enter()
    request = SubscribeRequest(
        "news", RoutingType.MULTICAST, name="durable", durable=True, ack_mode=AckMode.INDIVIDUAL, client_id="c"
    )
    broker.engine.consumers.subscribe(Inbox(), request)
    broker.engine.queue("durable").creator = "alice"
    broker.engine.sessions.open("m.c", {"expiry": 0})
    for name in (r"m\.c.news", "$share.group.news"):
        broker.engine.consumers.subscribe(
            Inbox(),
            SubscribeRequest(
                "news",
                RoutingType.MULTICAST,
                name=name,
                subscriber=Subscriber.SESSION,
                durable=True,
                shared=name.startswith("$share."),
            ),
        )
    exported = await client.get(DEFINITIONS)
    assert [queue["name"] for queue in exported["queues"]] == ["news.red", "prices"]
    assert [address["name"] for address in exported["addresses"]] == ["news", "prices"]
    every = await client.get(f"{DEFINITIONS}?auto_created=true")
    assert [queue["name"] for queue in every["queues"]] == ["automatic", "news.red", "prices"]
    assert [address["name"] for address in every["addresses"]] == ["automatic", "news", "prices"]


async def test_one_request_has_so_many_and_they_are_done_in_steps(broker: TestBroker, client: Client) -> None:
    queues = [{"name": f"q{n}", "address": "many", "routing_type": "ANYCAST"} for n in range(DEFINITIONS_MAX)]
    before = broker.engine._state.pending.work.number
    changes = await imported(client, {"version": 1, "queues": queues})
    assert {change["outcome"] for change in changes.values()} == {"created"}
    assert broker.engine._state.pending.work.number - before >= 10, "all in one tick"
    assert len((await client.get(DEFINITIONS))["queues"]) == DEFINITIONS_MAX
    queues.append(queues[0])
    answer = await client.call("POST", DEFINITIONS, json={"version": 1, "queues": queues})
    assert (answer.status, answer.json["detail"]) == (400, f"queues has more than {DEFINITIONS_MAX} entries")


@pytest.mark.parametrize(
    ("document", "detail"),
    [
        ({}, "version is missing"),
        ({"version": 2}, "version must be 1"),
        ({"version": 1, "exchanges": []}, "there is no field 'exchanges'"),
        ({"version": 1, "users_file": {}}, "there is no field 'users_file'"),
    ],
)
async def test_another_document_is_refused_whole(client: Client, document: dict[str, Any], detail: str) -> None:
    answer = await client.call("POST", DEFINITIONS, json=document)
    assert answer.status == 400
    assert detail in answer.json["detail"]
