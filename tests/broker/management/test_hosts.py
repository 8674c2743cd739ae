"""By which names a broker may be called, so that no page of another site reads its answers."""

from __future__ import annotations

from time import thread_time

import pytest

from broker.management.hosts import AllowedHosts
from tests.broker.management.harness import Client, TestBroker


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1", True),
        ("127.0.0.1:8161", True),
        ("10.1.2.3:8161", True),
        ("[::1]:8161", True),
        ("[fe80::1%25eth0]", True),
        ("localhost:8161", True),
        ("LOCALHOST.", True),
        ("broker.localhost", True),
        ("bartleby:8161", True),
        ("", True),
        ("broker.example.org:8161", True),
        ("Broker.Example.Org.", True),
        ("a.svc.cluster.local", True),
        ("a.b.svc.cluster.local:1", True),
        ("svc.cluster.local", False),
        ("evil.example", False),
        ("evil.example:8161", False),
        ("broker.example.org.evil.example", False),
        ("evilbroker.example.org", False),
        ("127.0.0.1.evil.example", False),
        ("127.0.0.1.evil.example:8161", False),
        ("localhost.evil.example", False),
        ("[evil.example]", False),
        ("x.y@127.0.0.1", False),
        ("127.0.0.1,evil.example", False),
        ("0x7f.1", False),
    ],
)
def test_hosts(host: str, allowed: bool) -> None:
    hosts = AllowedHosts(["broker.example.org", "*.svc.cluster.local"])
    assert hosts.allow(host.encode()) is allowed


def test_a_host_as_long_as_a_header_may_be_costs_no_more_than_its_bytes() -> None:
    hosts = AllowedHosts(["broker.example.org", "*.svc.cluster.local"])
    took = []
    for host in (b"a." * 15_000 + b"evil", b"a." * 15_000 + b"svc.cluster.local"):
        begun = thread_time()
        assert hosts.allow(host) is host.endswith(b"local")
        took.append(thread_time() - begun)
    assert max(took) < 0.05, "it was 1.6 s: each of its endings was looked up"


def test_any_host() -> None:
    assert AllowedHosts(["*"]).allow(b"evil.example")


@pytest.mark.parametrize("path", ["/metrics", "/api/v1/status", "/api/v1/queues", "/nothing"])
async def test_a_page_whose_name_was_rebound_reads_nothing(client: Client, path: str) -> None:
    """The page was loaded from http://evil.example:8161, whose name has the broker's address since."""
    for headers in ({"Host": "evil.example:8161"}, {"Host": "evil.example:8161", "Origin": "http://evil.example"}):
        answer = await client.call("GET", path, headers=headers)
        assert answer.status == 421
        assert answer.json["code"] == "wrong-host"
        assert "evil.example:8161" in answer.json["detail"]
        assert "allowed-hosts" in answer.json["detail"]


async def test_nor_changes_anything(broker: TestBroker, client: Client) -> None:
    broker.queue("orders")
    headers = {"Host": "evil.example:8161", "Origin": "http://evil.example:8161"}
    answer = await client.call("PATCH", "/api/v1/queues/orders", headers=headers, json={"paused": True})
    assert answer.status == 421
    assert not broker.queue("orders").paused


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
async def test_probes_may_use_any_name(client: Client, path: str) -> None:
    assert (await client.call("GET", path, headers={"Host": "lb.example.org"})).status == 200


async def test_a_prometheus_that_calls_by_address_or_by_a_name_of_its_network(client: Client) -> None:
    for host in ("127.0.0.1:8161", "[::1]:8161", "broker:8161", "localhost:8161"):
        assert (await client.call("GET", "/metrics", headers={"Host": host}, token=None)).status == 200
    answer = await client.raw(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert answer.split()[1] == b"200"
