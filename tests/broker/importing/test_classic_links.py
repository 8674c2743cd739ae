"""ActiveMQ Classic's network connectors as links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.importing import Imported, Outcome
from tests.broker.importing.harness import CLASSIC, broker, finding, imported

QUEUE = '<staticallyIncludedDestinations><queue physicalName="q"/></staticallyIncludedDestinations>'


def connector(
    uri: str, tmp_path: Path, inner: str = QUEUE, attributes: str = ""
) -> tuple[dict[str, dict[str, Any]], Imported]:
    """The links of one connector."""
    text = f'<networkConnector name="x" uri="{uri}" {attributes}>{inner}</networkConnector>'
    tables, found = imported(broker(f"<networkConnectors>{text}</networkConnectors>"), tmp_path)
    return tables.get("links", {}), found


def test_the_example(tmp_path: Path) -> None:
    tables, found = imported(CLASSIC, tmp_path)
    links = tables["links"]
    depots = {
        "url": "amqp://north.example:5672",
        "user": "link",
        "password-file": "/etc/bartleby/depots.password",
        "retry-interval": "5s",
        "send": {"trucks-out": {"queue": "trucks.out", "address": "trucks.out"}},
        "topics": {"weather": {"address": "weather.#"}},
    }
    assert links == {
        "depots": depots,
        "depots-2": depots | {"url": "amqp://south.example:5672"},
        "spare": {
            "url": ["amqps://a.example:5671", "amqps://b.example:5671"],
            "user": "far",
            "password-file": "/etc/bartleby/spare.password",
            "enabled": False,
            "send": {"alarm": {"queue": "alarm", "address": "alarm"}},
        },
    }
    told = [each for each in found.report.findings if each.place.what == "networkConnector depots"]
    assert [each.target for each in told] == ["links.depots.url", "links.depots-2.url"]
    assert all("check that the other broker accepts AMQP on port 5672" in each.why for each in told)
    assert "port 5671" in finding(found, "networkConnector spare").why


@pytest.mark.parametrize(
    ("what", "outcome", "why"),
    [
        ("depots: password", Outcome.CHANGED, "first line of that file"),
        ("depots: duplex", Outcome.LEFT, "receive routes here"),
        ("depots: networkTTL", Outcome.LEFT, "max-hops"),
        ("depots: conduitSubscriptions", Outcome.LEFT, "everything that it reads"),
        ("depots: maxReconnectAttempts", Outcome.LEFT, "no such setting"),
        ("depots: initialReconnectDelay", Outcome.TAKEN, ""),
        ("depots: queue trucks.out", Outcome.CHANGED, "everything in it"),
        ("depots: queue trucks.kept", Outcome.LEFT, "excludedDestinations"),
        ("depots: topic weather.>", Outcome.CHANGED, "anonymous relay"),
        ("depots: dynamicallyIncludedDestinations queue include.test.foo", Outcome.LEFT, "ask for"),
        ("depots: excludedDestinations queue trucks.kept", Outcome.LEFT, "only what its routes name"),
        ("default-nc", Outcome.LEFT, "does not name the brokers"),
        ("spare: userName", Outcome.LEFT, "the broker itself"),
        ("spare: autoStart", Outcome.TAKEN, ""),
    ],
)
def test_each_thing_is_told(what: str, outcome: Outcome, why: str, tmp_path: Path) -> None:
    _, found = imported(CLASSIC, tmp_path)
    told = finding(found, f"networkConnector {what}")
    assert told.outcome is outcome
    assert why in told.why


@pytest.mark.parametrize(
    ("uri", "urls"),
    [
        ("static:(tcp://a)", ["amqp://a:5672"]),
        ("static:(nio://a:1,ssl://b:2)", ["amqp://a:5672", "amqps://b:5671"]),
        ("failover:(tcp://a:1,tcp://b:2)", [["amqp://a:5672", "amqp://b:5672"]]),
        ("static:(failover:(tcp://a,tcp://b),tcp://c)", [["amqp://a:5672", "amqp://b:5672"], "amqp://c:5672"]),
    ],
)
def test_each_connection_is_a_link(uri: str, urls: list[object], tmp_path: Path) -> None:
    links, _ = connector(uri, tmp_path)
    assert [link["url"] for link in links.values()] == urls
    assert {str(link["send"]) for link in links.values()} == {"{'q': {'queue': 'q', 'address': 'q'}}"}


@pytest.mark.parametrize(
    "uri", ["multicast://default", "static:(http://a:1)", "static:(tcp://${a}:1)", "static:()", ""]
)
def test_a_connector_that_leads_to_no_host_is_left_with_all_in_it(uri: str, tmp_path: Path) -> None:
    links, found = connector(uri, tmp_path, attributes='userName="u" password="hunter"')
    assert links == {}
    for what in ("", ": userName", ": password", ": queue q"):
        assert finding(found, f"networkConnector x{what}").outcome is Outcome.LEFT


def test_a_connector_of_dynamic_destinations_alone_is_no_link(tmp_path: Path) -> None:
    links, found = connector("static:(tcp://a)", tmp_path, inner="", attributes='autoStart="false"')
    assert links == {}
    assert "ask for" in finding(found, "networkConnector x").why
    assert "ask for" in finding(found, "networkConnector x: autoStart").why


@pytest.mark.parametrize(
    ("destination", "why"),
    [
        ('queue physicalName="a.>"', "a route reads one queue"),
        ('queue physicalName="a,b"', "not the name of one"),
        ('queue physicalName="a?consumer.x=1"', "not the name of one"),
        ("topic", "not the name of one"),
        ('tempQueue physicalName="t"', "not the name of one"),
        ('topic physicalName="news.>"', "excludedDestinations"),
        ('topic physicalName="news.eu.*"', "excludedDestinations"),
    ],
)
def test_destinations_that_are_left(destination: str, why: str, tmp_path: Path) -> None:
    inner = f"""<staticallyIncludedDestinations><{destination}/></staticallyIncludedDestinations><odd/>
      <excludedDestinations><topic physicalName="news.*.west"/><queue physicalName="news"/></excludedDestinations>"""
    links, found = connector("static:(tcp://a,tcp://b)", tmp_path, inner)
    assert links == {}
    (told,) = [each for each in found.report.findings if why in each.why and "excludedD" not in each.place.what]
    assert told.outcome is Outcome.LEFT
    assert finding(found, "networkConnector x: odd").outcome is Outcome.LEFT


def test_destinations_excluded_elsewhere_do_not_matter(tmp_path: Path) -> None:
    inner = """<staticallyIncludedDestinations><topic physicalName="news"/></staticallyIncludedDestinations>
      <excludedDestinations><topic physicalName="news.*"/><queue physicalName="news"/></excludedDestinations>"""
    links, _ = connector("static:(tcp://a)", tmp_path, inner)
    assert links["x"]["topics"]["news"] == {"address": "news"}


def test_connectors_of_one_name_and_routes_that_are_alike_stay_apart(tmp_path: Path) -> None:
    inner = """<staticallyIncludedDestinations><queue physicalName="a b"/><queue physicalName="a.b"/>
      <topic physicalName="a-b"/></staticallyIncludedDestinations>"""
    one = f'<networkConnector uri="static:(tcp://a)">{inner}</networkConnector>'
    tables, _ = imported(broker(f"<networkConnectors>{one}{one}<ldapNetworkConnector/></networkConnectors>"), tmp_path)
    assert tables["links"].keys() == {"link", "link-2"}
    for link in tables["links"].values():
        assert [send["queue"] for send in link["send"].values()] == ["a b", "a.b"]
        assert link["topics"].keys() == {"a-b-3"}


@pytest.mark.parametrize("attributes", ['userName="ENC(x)" password="hunter"', 'password="hunter"'])
def test_a_login_that_cannot_be_is_told_once(attributes: str, tmp_path: Path) -> None:
    links, found = connector("static:(tcp://a,tcp://b)", tmp_path, attributes=attributes)
    assert [link.keys() for link in links.values()] == [{"url", "send"}] * 2
    assert finding(found, "networkConnector x: password").outcome is Outcome.LEFT


def test_certificates_of_java_are_told(tmp_path: Path) -> None:
    context = '<sslContext><sslContext keyStore="k" keyStorePassword="hunter"/></sslContext>'
    links, found = connector("static:(ssl://a)", tmp_path, f"{QUEUE}{context}")
    assert links["x"]["url"] == "amqps://a:5671"
    assert "PEM files" in finding(found, "networkConnector x: sslContext").why


def test_unknown_attributes_are_told(tmp_path: Path) -> None:
    _, found = connector("static:(tcp://a?wireFormat.tightEncodingEnabled=true)", tmp_path, attributes='shoeSize="4"')
    assert "unknown" in finding(found, "networkConnector x: shoeSize").why
    assert finding(found, "networkConnector x: wireFormat.tightEncodingEnabled").outcome is Outcome.LEFT
