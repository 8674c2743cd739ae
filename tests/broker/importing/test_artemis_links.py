"""Artemis's AMQP connections and bridges as links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.importing import Imported, Outcome
from tests.broker.importing.harness import ARTEMIS, core, finding, imported

QUEUES = """<addresses>
  <address name="a.one"><anycast><queue name="q.one"/></anycast></address>
  <address name="a.two"><anycast><queue name="a.two"/></anycast></address>
  <address name="news"><multicast><queue name="news.all"/></multicast></address></addresses>"""


def connection(
    inner: str, tmp_path: Path, attributes: str = "", uri: str = "tcp://b:5672"
) -> tuple[dict[str, Any], Imported]:
    """The link of one AMQP connection."""
    text = f'<amqp-connection uri="{uri}" name="x" {attributes}>{inner}</amqp-connection>'
    tables, found = imported(core(f"{QUEUES}<broker-connections>{text}</broker-connections>"), tmp_path)
    return tables.get("links", {}).get("x", {}), found


def bridge(inner: str, tmp_path: Path, connector: str = "tcp://b:61616") -> tuple[dict[str, Any], Imported]:
    """The link of one bridge."""
    text = f"""<connectors><connector name="c">{connector}</connector></connectors>
      <bridges><bridge name="x">{inner}<static-connectors><connector-ref>c</connector-ref></static-connectors></bridge>
      </bridges>"""
    tables, found = imported(core(QUEUES + text), tmp_path)
    return tables.get("links", {}).get("x", {}), found


def test_the_example(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    links = tables["links"]
    assert links.keys() == {"head-office", "paris", "paris-2"}
    assert links["head-office"] == {
        "url": ["amqps://other.example:61616", "amqps://spare.example:61616"],
        "ca": "/etc/bartleby/head-office-ca.pem",
        "user": "shop",
        "password-file": "/etc/bartleby/head-office.password",
        "retry-interval": "1s",
        "retry-interval-max": "1min",
        "idle-timeout": "20s",
        "send": {"orders-new": {"queue": "orders.new", "address": "orders", "routing-type": "ANYCAST"}},
    }
    assert links["paris"] == {
        "url": ["amqp://one.example:5672", "amqp://two.example:5672"],
        "user": "link",
        "password-file": "/etc/bartleby/paris.password",
        "retry-interval": "300ms",
        "retry-interval-max": "300ms",
        "enabled": False,
        "send": {"orders-large": {"queue": "orders.large", "address": "orders.new", "routing-type": "ANYCAST"}},
        "receive": {"orders-new": {"queue": "orders.new", "address": "orders.new"}},
    }
    assert links["paris-2"]["url"] == "amqp://three.example:61616"
    assert "named head-office" in finding(found, "bridge head office").why


def test_a_bridge_speaks_another_protocol_and_the_report_says_so(tmp_path: Path) -> None:
    _, found = imported(ARTEMIS, tmp_path)
    told = finding(found, "bridge head office")
    assert (told.outcome, told.target) == (Outcome.CHANGED, "links.head-office.url")
    assert "the acceptor there must accept AMQP on this port" in told.why
    assert "may arrive twice" in finding(found, "bridge head office: use-duplicate-detection").why
    _, bare = bridge("<queue-name>a.two</queue-name>", tmp_path)
    assert "may arrive twice" in finding(bare, "bridge x").why
    assert "cluster-user is not carried over" in finding(bare, "bridge x").why


@pytest.mark.parametrize(
    ("setting", "outcome", "why"),
    [
        ("ha", Outcome.LEFT, "support clusters"),
        ("min-large-message-size", Outcome.LEFT, "forwarded unchanged"),
        ("connection-ttl", Outcome.LEFT, "check-period"),
        ("initial-connect-attempts", Outcome.TAKEN, "always"),
        ("reconnect-attempts", Outcome.LEFT, "bartleby link stop"),
        ("reconnect-attempts-same-node", Outcome.LEFT, "support clusters"),
        ("confirmation-window-size", Outcome.LEFT, "window"),
        ("producer-window-size", Outcome.LEFT, "window"),
        ("password", Outcome.CHANGED, "first line of that file"),
        ("concurrency", Outcome.LEFT, "window"),
        ("pending-ack-timeout", Outcome.LEFT, "stays"),
        ("client-id", Outcome.LEFT, "BROKER.LINK"),
        ("trustStorePath", Outcome.CHANGED, "key stores are not read"),
        ("trustStorePassword", Outcome.LEFT, "key stores are not read"),
        ("sslEnabled", Outcome.TAKEN, "the url"),
    ],
)
def test_each_setting_of_a_bridge_is_told(setting: str, outcome: Outcome, why: str, tmp_path: Path) -> None:
    _, found = imported(ARTEMIS, tmp_path)
    told = finding(found, f"bridge head office: {setting}")
    assert told.outcome is outcome
    assert why in told.why


@pytest.mark.parametrize(
    ("culprit", "why"),
    [
        ('<filter string="x = 1"/>', "divert what matches the filter"),
        ("<transformer-class-name>T</transformer-class-name>", "no Java code"),
        ("<transformer><class-name>T</class-name></transformer>", "forwards messages unchanged"),
        ('<discovery-group-ref discovery-group-name="g"/>', "named hosts"),
    ],
)
def test_a_bridge_goes_with_all_it_means_or_not_at_all(culprit: str, why: str, tmp_path: Path) -> None:
    link, found = bridge(f"<queue-name>a.two</queue-name>{culprit}", tmp_path)
    assert link == {}
    name = culprit[1:].partition(" ")[0].partition(">")[0]
    assert why in finding(found, f"bridge x: {name}").why
    assert finding(found, "bridge x: queue-name").why == "the bridge is left out"
    assert finding(found, "connector c").outcome is Outcome.LEFT


@pytest.mark.parametrize(
    ("connector", "why"),
    [("vm://0", "only tcp://"), ("tcp://${host}:1", "no default"), ("tcp://u:hunter@b:1", "not a list of hosts")],
)
def test_a_bridge_that_leads_to_no_host_is_left(connector: str, why: str, tmp_path: Path) -> None:
    link, found = bridge("<queue-name>a.two</queue-name>", tmp_path, connector)
    assert link == {}
    assert why in finding(found, "bridge x: static-connectors").why


def test_a_bridge_without_connector_or_queue_is_left(tmp_path: Path) -> None:
    text = "<bridges><bridge><queue-name>q</queue-name></bridge><bridge><filter/></bridge><odd/></bridges>"
    tables, found = imported(core(text), tmp_path)
    assert "links" not in tables
    assert {"it refers to no connector: write [links.NAME] by hand", "unknown to this importer"} <= {
        each.why for each in found.report.findings
    }


def test_settings_that_a_bridge_does_not_give_come_from_its_queue(tmp_path: Path) -> None:
    link, found = bridge("<queue-name>news.all</queue-name>", tmp_path)
    assert link["send"]["news-all"] == {"queue": "news.all", "address": "news", "routing-type": "MULTICAST"}
    assert "kept their own" in finding(found, "bridge x: queue-name, no forwarding-address").why
    link, found = bridge("<queue-name>other</queue-name><routing-type>STRIP</routing-type>", tmp_path)
    assert link["send"]["other"] == {"queue": "other", "address": "other", "routing-type": "ANYCAST"}
    assert "the file does not have" in finding(found, "bridge x: routing-type").why


def test_settings_that_a_bridge_may_not_give_are_reported(tmp_path: Path) -> None:
    inner = "<queue-name>a.two</queue-name><forwarding-address/><ha>false</ha><ha>true</ha>"
    text = f"""<connectors><connector name="c">tcp://b</connector></connectors>
      <bridges><bridge name="x" forwarding-address="z" routing-type="ANYCAST">{inner}<static-connectors>
      <connector-ref>c</connector-ref></static-connectors></bridge></bridges>"""
    tables, found = imported(core(QUEUES + text), tmp_path)
    assert tables["links"]["x"]["send"]["a-two"]["address"] == "a.two"
    told = [each.why for each in found.report.findings if each.place.what == "bridge x: forwarding-address"]
    assert sorted(told) == [
        "messages kept their own addresses; here all go to the address of the queue",
        "unknown to this importer",
    ]
    assert any("given twice" in each.why for each in found.report.findings if each.place.what == "bridge x: ha")


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ((5000, None, None), ("5s", "5s")),
        ((60000, "1.0", 2000), ("1min", "1min")),
        ((1000, "2.0", 60000), ("1s", "1min")),
        ((1000, "1.5", 60000), ("1s", "1min")),
        ((None, None, 2000), (None, None)),
        ((50, None, None), (None, None)),
    ],
)
def test_the_time_between_attempts(given: tuple[Any, ...], taken: tuple[Any, ...], tmp_path: Path) -> None:
    names = ("retry-interval", "retry-interval-multiplier", "max-retry-interval")
    times = "".join(f"<{n}>{value}</{n}>" for n, value in zip(names, given, strict=True) if value is not None)
    link, found = bridge(f"<queue-name>a.two</queue-name>{times}", tmp_path)
    assert (link.get("retry-interval"), link.get("retry-interval-max")) == taken
    for name, value in zip(names, given, strict=True):
        told = [each for each in found.report.findings if each.place.what == f"bridge x: {name}"]
        assert bool(told) is (value is not None)


def test_senders_and_receivers_of_patterns_are_for_the_queues_of_the_file(tmp_path: Path) -> None:
    link, found = connection('<sender address-match="a.#"/><receiver address-match="*.two"/>', tmp_path)
    assert link["send"] == {
        "q-one": {"queue": "q.one", "address": "a.one", "routing-type": "ANYCAST"},
        "a-two": {"queue": "a.two", "address": "a.two", "routing-type": "ANYCAST"},
    }
    assert link["receive"] == {"a-two-2": {"queue": "a.two", "address": "a.two"}}
    assert "only the queues in the file" in finding(found, "amqp-connection x: sender q.one").why


def test_wildcards_are_those_of_the_file(tmp_path: Path) -> None:
    text = """<wildcard-addresses><any-words>@</any-words><delimiter>/</delimiter></wildcard-addresses>
      <addresses><address name="a/b"><anycast><queue name="a/b"/></anycast></address></addresses>
      <broker-connections><amqp-connection uri="tcp://b" name="x"><sender address-match="a/@"/></amqp-connection>
      </broker-connections>"""
    tables, _ = imported(core(text), tmp_path)
    assert tables["links"]["x"]["send"]["a-b"]["queue"] == "a/b"


@pytest.mark.parametrize("other", ['<sender address-match="a.two"/>', '\n<sender queue-name="a.two"/>'])
def test_a_queue_has_one_sender_in_a_connection(other: str, tmp_path: Path) -> None:
    link, found = connection(f'<sender queue-name="a.two"/>{other}', tmp_path)
    assert link["send"].keys() == {"a-two"}
    whys = [each.why for each in found.report.findings if each.place.what == "amqp-connection x: sender a.two"]
    assert any("already forwards its messages" in why for why in whys)


def test_a_receiver_of_a_topic_is_left(tmp_path: Path) -> None:
    link, found = connection('<receiver queue-name="news.all"/>', tmp_path)
    assert link == {}
    assert "it reads a topic there" in finding(found, "amqp-connection x: receiver news.all").why


def test_attributes_that_the_file_does_not_give_for_a_queue_are_reported(tmp_path: Path) -> None:
    link, found = connection('<receiver queue-name="far"/><sender address-match="none.#"/><sender/>', tmp_path)
    assert link["receive"]["far"] == {"queue": "far", "address": "far"}
    assert "the file has no such queue" in finding(found, "amqp-connection x: receiver far").why
    assert [each.place.value for each in found.report.findings if "no queue of the file" in each.why] == ["none.#", ""]


@pytest.mark.parametrize("child", ["mirror", "federation", "bridge", "peer", "gate"])
def test_a_bridge_that_is_no_route_makes_no_link(child: str, tmp_path: Path) -> None:
    link, found = connection(f'<{child}><p name="policy"><include/></p></{child}>', tmp_path, 'user="u"')
    assert link == {}
    assert finding(found, f"amqp-connection x: {child}").outcome is Outcome.LEFT
    assert "nothing in it translates to a route" in finding(found, "amqp-connection x").why
    assert "nothing in it translates to a route" in finding(found, "amqp-connection x: user").why
    (policy,) = [str(each) for each in found.report.findings if "policy" in str(each)]
    assert policy.count("policy") == 1


def test_routes_whose_names_are_alike_stay_two(tmp_path: Path) -> None:
    link, _ = connection('<sender queue-name="a b"/><sender queue-name="a.b"/><receiver queue-name="a-b"/>', tmp_path)
    assert [send["queue"] for send in link["send"].values()] == ["a b", "a.b"]
    assert link["receive"].keys() == {"a-b-3"}


def test_connections_of_one_name_stay_two_links(tmp_path: Path) -> None:
    one = '<amqp-connection uri="tcp://b:1" name="{}"><sender queue-name="{}"/></amqp-connection>'
    text = one.format("x y", "one") + one.format("x-y", "two") + one.format("", "three")
    tables, _ = imported(core(f"<broker-connections>{text}</broker-connections>"), tmp_path)
    routes = {name: list(link["send"]) for name, link in tables["links"].items()}
    assert routes == {"x-y": ["one"], "x-y-2": ["two"], "link": ["three"]}


@pytest.mark.parametrize(
    ("attributes", "what", "why"),
    [
        ('user="ENC(0)" password="ENC(1)"', "user", "encrypted"),
        ('password="hunter"', "password", "needs a user"),
        ('user="u" reconnect-attempts="3"', "reconnect-attempts", "retries until"),
        ('local-bind-port="7"', "local-bind-port", "operating system"),
        ('colour="blue"', "colour", "unknown"),
        ('auto-start="perhaps"', "auto-start", "not true or false"),
        ('retry-interval="soon"', "retry-interval", "not milliseconds"),
    ],
)
def test_attributes_that_are_left(attributes: str, what: str, why: str, tmp_path: Path) -> None:
    link, found = connection('<sender queue-name="q"/>', tmp_path, attributes)
    told = [each for each in found.report.findings if each.place.what == f"amqp-connection x: {what}"]
    assert {each.outcome for each in told} == {Outcome.LEFT}
    assert why in told[0].why
    assert "password-file" not in link


@pytest.mark.parametrize("uri", ["vm://0", "tcp://a:1#b", "", "tcp://${x}"])
def test_a_connection_that_leads_to_no_host_is_left_with_all_in_it(uri: str, tmp_path: Path) -> None:
    inner = '<sender queue-name="q"/><mirror/>'
    text = f'<amqp-connection uri="{uri}" name="x" user="u" password="hunter">{inner}</amqp-connection><odd/>'
    tables, found = imported(core(f"<broker-connections>{text}</broker-connections>"), tmp_path)
    assert "links" not in tables
    for what in ("", ": user", ": password", ": sender", ": mirror"):
        assert finding(found, f"amqp-connection x{what}").outcome is Outcome.LEFT


def test_tls_of_a_connection(tmp_path: Path) -> None:
    uri = (
        "tcp://b:1?sslEnabled=true;trustStorePath=/etc/ca.pem;trustStoreType=PEM;keyStorePath=k.p12;"
        "keyStorePassword=hunter;verifyHost=true;trustAll=true;saslMechanisms=PLAIN;tcpNoDelay=true"
    )
    link, found = connection('<sender queue-name="q"/>', tmp_path, uri=uri)
    assert (link["url"], link["ca"]) == ("amqps://b:1", "/etc/ca.pem")
    assert (link["certificate"], link["key"]) == ("/etc/bartleby/x.pem", "/etc/bartleby/x.key")
    for taken in ("verifyHost", "sslEnabled", "trustStoreType"):
        assert finding(found, f"amqp-connection x: {taken}").outcome is Outcome.TAKEN
    for left in ("trustAll", "saslMechanisms", "tcpNoDelay", "keyStorePassword"):
        assert finding(found, f"amqp-connection x: {left}").outcome is Outcome.LEFT
