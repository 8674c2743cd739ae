"""The page that shows the API, and what else the API says of a broker: its users, an address's settings."""

from __future__ import annotations

import base64
import re
from hashlib import sha256
from html.parser import HTMLParser
from typing import Final

from broker.engine.model.attributes import ATTRIBUTES
from broker.engine.model.row import kebab
from broker.engine.model.settings import SETTINGS
from broker.management.problems import ALL_KINDS
from tests.broker.management.harness import USERS, Client, TestBroker

DOCS: Final = "/api/v1/docs"


class Page(HTMLParser):
    """What a page links to, what can be linked to in it, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.tags.add(tag)
        if "id" in given:
            self.ids.append(str(given["id"]))
        if "href" in given:
            self.links.add(str(given["href"]))
        assert not {name for name in given if name.startswith("on") or name in ("src", "style")}


async def test_the_page_shows_every_call_and_needs_nothing_else(client: Client) -> None:
    answer = await client.call("GET", DOCS, token=None)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    text = answer.body.decode()
    page = Page(text)
    assert not page.tags & {"script", "link", "img", "iframe", "object", "form"}
    assert page.links - {"/api/v1/openapi.json"} <= {f"#{id}" for id in page.ids}
    assert len(page.ids) == len(set(page.ids))
    document = await client.get("/api/v1/openapi.json")
    calls = [call for methods in document["paths"].values() for call in methods.values()]
    assert {call["operationId"] for call in calls} <= set(page.ids)
    assert set(ALL_KINDS) <= set(page.ids), "the type of each problem leads to its place"
    assert all(call.get("summary") and call.get("description") for call in calls)


async def test_the_page_may_use_its_own_style_only(client: Client) -> None:
    answer = await client.call("GET", DOCS)
    (style,) = re.findall(r"<style>(.*?)</style>", answer.body.decode(), re.DOTALL)
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; frame-ancestors 'none'"
    assert answer.headers["content-security-policy"] == policy
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_rows_added_to_the_tables_are_in_the_document(client: Client) -> None:
    schemas = (await client.get("/api/v1/openapi.json"))["components"]["schemas"]
    for name in ("QueueAttributes", "AskedAttributes"):
        assert list(schemas[name]["properties"]) == [kebab(field) for field in ATTRIBUTES]
    assert list(schemas["AddressSettings"]["properties"]) == [kebab(field) for field in SETTINGS]
    ring = schemas["AskedAttributes"]["properties"]["ring-size"]
    assert (ring["minimum"], ring["not"], ring.get("default")) == (-1, {"const": 0}, None)
    assert ring["description"] == ATTRIBUTES["ring_size"].row.why


async def test_the_settings_of_an_address_say_where_they_come_from(client: Client) -> None:
    answer = await client.get("/api/v1/addresses/to%2Fcome/settings")
    assert (answer["name"], answer["matches"]) == ("to/come", ["#"])
    settings = answer["settings"]
    assert set(settings) == set(map(kebab, SETTINGS))
    assert settings["dead-letter-address"] == {"value": "DLQ", "match": "#"}
    assert settings["management-browse-page-size"] == {"value": 5, "match": "#"}
    assert settings["max-delivery-attempts"] == {"value": 10, "match": None}
    assert settings["address-full-policy"]["value"] == "PAGE"
    assert settings["default-queue-routing-type"]["value"] == "MULTICAST"


async def test_users_are_named_with_their_roles_and_nothing_else(broker: TestBroker, client: Client) -> None:
    answer = await client.call("GET", "/api/v1/users?limit=1")
    assert answer.json["users"] == [{"name": "alice", "roles": ["team"]}]
    assert answer.json["total"] == len(USERS)
    rest = await client.get(f"/api/v1/users?after={answer.json['next']}")
    assert (rest["users"], rest["next"]) == ([{"name": "carl", "roles": ["chiefs"]}], None)


async def test_a_head_is_a_get_without_its_body(broker: TestBroker, client: Client) -> None:
    broker.queue("a")
    for path in ("/api/v1/queues/a", "/api/v1/queues/b", DOCS, "/livez", "/readyz", "/metrics"):
        got, head = await client.call("GET", path), await client.call("HEAD", path)
        assert (head.status, head.body) == (got.status, b"")
        if path != "/metrics":
            assert head.headers["content-length"] == str(len(got.body))
