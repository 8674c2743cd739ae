"""Diverts over HTTP; what settings hide from metrics and pages."""

from __future__ import annotations

import pytest

from broker.engine.model.settings_match import SettingsTable
from tests.broker.management.harness import SETTINGS, Client, TestBroker

DIVERTS = "/api/v1/diverts"


async def test_a_divert_is_made_shown_and_deleted(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    broker.queue("b")
    wanted = {
        "address": "a",
        "forwarding_addresses": ["b"],
        "filter": "k = 'v'",
        "add_headers": {"x": "y", "z": "1"},
        "remove_headers": ["w"],
    }
    made = await client.call("PUT", f"{DIVERTS}/copies", json=wanted)
    assert made.status == 201
    broker.send("a", [b"1"], headers=[(b"k", b"v")])
    await broker.sent("a", [b"2"])
    (shown,) = (await client.get(DIVERTS))["diverts"]
    assert shown["taken"] == 1
    expected = {
        "name": "copies",
        "address": "a",
        "forwarding_addresses": ["b"],
        "exclusive": False,
        "filter": "k = 'v'",
        "routing_type": "STRIP",
        "add_headers": {"x": "y", "z": "1"},
        "remove_headers": ["w"],
        "configured": False,
    }
    assert expected.items() <= shown.items()
    ((message),) = (await client.get("/api/v1/queues/b/messages"))["messages"]
    assert message["properties"] == {"k": "v", "x": "y", "z": "1"}
    assert (await client.call("DELETE", f"{DIVERTS}/copies")).status == 200
    assert await client.get(DIVERTS) == {"diverts": [], "next": None, "total": 0}


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"address": ""}, "the address name is empty"),
        ({"forwarding_addresses": []}, "1 to 64 forwarding addresses"),
        ({"forwarding_addresses": "b"}, "forwarding_addresses must be a list"),
        ({"forwarding_addresses": ["b.#"]}, "has a wildcard"),
        ({"exclusive": "yes"}, "exclusive must be true or false"),
        ({"routing_type": "ANY"}, "routing_type must be 'STRIP', 'PASS'"),
        ({"filter": "k ="}, "selector"),
        ({"add_headers": {"x": 1}}, "add_headers.x must be a text"),
        ({"add_headers": {"": "x"}}, "is empty"),
        ({"add_headers": {"x": "\0"}}, "must not have the character NUL"),
        ({"add_headers": {"_AMQ_DL_REASON": "x"}}, "divert d cannot add _AMQ_DL_REASON: only the broker writes it"),
        ({"transformer": "x"}, "there is no field 'transformer'"),
    ],
)
async def test_mistakes_are_explained(client: Client, body: dict[str, object], detail: str) -> None:
    wanted = {"address": "a", "forwarding_addresses": ["b"]} | body
    answer = await client.call("PUT", f"{DIVERTS}/d", json=wanted)
    assert answer.status == 400
    assert detail in answer.body.decode()
    assert await client.get(DIVERTS) == {"diverts": [], "next": None, "total": 0}


async def test_one_that_is_there_and_one_that_is_not(client: Client) -> None:
    path, wanted = f"{DIVERTS}/d", {"address": "a", "forwarding_addresses": ["b"]}
    assert (await client.call("PUT", path, json=wanted)).status == 201
    assert (await client.call("PUT", path, json=wanted)).status == 409
    assert (await client.call("DELETE", f"{DIVERTS}/e")).status == 404


async def test_queues_without_metrics_of_their_own(broker: TestBroker, client: Client) -> None:
    hidden: list[tuple[str, dict[str, object]]] = [*SETTINGS, ("quiet", {"enable_metrics": False})]
    table = SettingsTable(hidden, broker.engine._state.registry.settings_table._defaults)
    broker.tick.enter()
    broker.engine.configuration.change_settings(table)
    broker.send("quiet", [b"1"])
    await broker.sent("loud", [b"1", b"2"])
    text = (await client.call("GET", "/metrics")).body.decode()
    assert 'broker_queue_messages{queue="loud",state="ready"} 2.0' in text
    assert 'broker_queue_messages{queue="",state="ready"} 1.0' in text
    assert "quiet" not in text


@pytest.mark.parametrize(("limit", "shown"), [(0, "…"), (3, "vvv…"), (300, "v" * 300), (-1, "v" * 300)])
async def test_how_much_of_a_property_is_shown(broker: TestBroker, client: Client, limit: int, shown: str) -> None:
    table = SettingsTable(
        [("#", {"management_message_attribute_size_limit": limit})],
        broker.engine._state.registry.settings_table._defaults,
    )
    broker.tick.enter()
    broker.engine.configuration.change_settings(table)
    await broker.sent("a", [b"1"], headers=[(b"long", b"v" * 300)])
    (message,) = (await client.get("/api/v1/queues/a/messages"))["messages"]
    assert message["properties"] == {"long": shown}


async def test_refused_duplicates_are_counted(broker: TestBroker, client: Client) -> None:
    for _ in range(3):
        broker.send("a", [b"1"], headers=[(b"_AMQ_DUPL_ID", b"x")])
    await broker.settled()
    assert "broker_messages_duplicate_total 2.0" in (await client.call("GET", "/metrics")).body.decode()
