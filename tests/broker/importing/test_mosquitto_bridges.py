"""A mosquitto.conf's bridges as links."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.importing import Imported, Outcome
from tests.broker.importing.harness import MOSQUITTO, finding, imported

TOPIC = "topic # out\n"


def bridge(
    text: str, tmp_path: Path, address: str = "address b", topic: str = TOPIC
) -> tuple[dict[str, Any], Imported]:
    """The link of one bridge."""
    tables, found = imported(f"connection x\n{address}\n{topic}{text}\n".encode(), tmp_path)
    return tables.get("links", {}).get("x", {}), found


def routes(topics: str, tmp_path: Path) -> dict[str, dict[str, object]]:
    """The routes of these topics."""
    link, _ = bridge("", tmp_path, topic=topics)
    found: dict[str, dict[str, object]] = link.get("mqtt", {})
    return found


def test_the_example(tmp_path: Path) -> None:
    tables, _ = imported(MOSQUITTO, tmp_path)
    assert tables["links"] == {
        "head-office": {
            "url": ["mqtts://office.example.org:8883", "mqtts://spare.example.org:8883"],
            "user": "bridge",
            "password-file": "/etc/bartleby/head-office.password",
            "ca": "/etc/ssl/certs/office.pem",
            "certificate": "/etc/mosquitto/bridge.crt",
            "key": "/etc/mosquitto/bridge.key",
            "window": 50,
            "idle-timeout": "90s",
            "retry-interval": "10s",
            "retry-interval-max": "2min",
            "mqtt": {
                "sensors": {"topic": "sensors/#", "direction": "out", "qos": 1, "remote-prefix": "site7/"},
                "commands": {"topic": "commands/#", "direction": "in", "qos": 2, "remote-prefix": "site7/"},
                "all": {
                    "topic": "#",
                    "direction": "both",
                    "qos": 1,
                    "local-prefix": "shared/",
                    "remote-prefix": "shared/",
                },
            },
        },
        "test-mosquitto-org": {
            "url": "mqtt://test.mosquitto.org:1883",
            "user": "tester",
            "password-file": "/etc/bartleby/test-mosquitto-org.password",
            "mqtt": {
                "clients-total": {
                    "topic": "clients/total",
                    "direction": "in",
                    "qos": 0,
                    "local-prefix": "test/mosquitto/org/",
                    "remote-prefix": "$SYS/broker/",
                },
                "two-words": {"topic": "two words/#", "direction": "out", "qos": 0},
                "one": {
                    "topic": "one",
                    "direction": "out",
                    "qos": 0,
                    "local-prefix": "local/",
                    "remote-prefix": "remote/",
                },
            },
        },
    }


@pytest.mark.parametrize(
    ("what", "outcome", "why"),
    [
        ("address", Outcome.CHANGED, "does not return to the first"),
        ("bridge_insecure", Outcome.TAKEN, "always"),
        ("bridge_protocol_version", Outcome.TAKEN, "3.1.1"),
        ("bridge_attempt_unsubscribe", Outcome.TAKEN, "always"),
        ("bridge_alpn", Outcome.LEFT, "TLS 1.2 and 1.3"),
        ("bridge_outgoing_retain", Outcome.TAKEN, "always"),
        ("bridge_max_packet_size", Outcome.LEFT, "dead letter"),
        ("bridge_receive_maximum", Outcome.CHANGED, "both directions"),
        ("remote_clientid", Outcome.LEFT, "BROKER.LINK"),
        ("remote_password", Outcome.CHANGED, "first line of that file"),
        ("local_username", Outcome.LEFT, "no local client"),
        ("local_password", Outcome.LEFT, "no local client"),
        ("cleansession", Outcome.TAKEN, "always"),
        ("notifications", Outcome.LEFT, "activemq.notifications"),
        ("restart_timeout, the longest", Outcome.CHANGED, "doubles"),
        ("restart_timeout, until stable", Outcome.LEFT, "begins with retry-interval"),
        ("round_robin", Outcome.LEFT, "stays where it is"),
        ("start_type", Outcome.TAKEN, "always"),
        ("try_private", Outcome.TAKEN, "always"),
    ],
)
def test_each_setting_is_told(what: str, outcome: Outcome, why: str, tmp_path: Path) -> None:
    _, found = imported(MOSQUITTO, tmp_path)
    told = finding(found, f"connection head-office: {what}")
    assert told.outcome is outcome
    assert why in told.why


@pytest.mark.parametrize(
    ("line", "outcome", "settings"),
    [
        ("restart_timeout 20", Outcome.TAKEN, {"retry-interval": "20s", "retry-interval-max": "20s"}),
        ("restart_timeout soon", Outcome.LEFT, {}),
        ("restart_timeout", Outcome.LEFT, {}),
        ("keepalive_interval 5", Outcome.TAKEN, {"idle-timeout": "5s"}),
        ("start_type manual", Outcome.TAKEN, {"enabled": False}),
        ("start_type once", Outcome.LEFT, {}),
        ("start_type lazy", Outcome.LEFT, {}),
        ("start_type never", Outcome.LEFT, {}),
        ("cleansession true", Outcome.LEFT, {}),
        ("notifications 0", Outcome.TAKEN, {}),
        ("try_private false", Outcome.LEFT, {}),
        ("bridge_insecure true", Outcome.LEFT, {}),
        ("bridge_protocol_version mqttv31", Outcome.LEFT, {}),
        ("bridge_protocol_version mqttv311", Outcome.TAKEN, {}),
        ("bridge_require_ocsp true", Outcome.STRICTER, {"enabled": False}),
        ("bridge_require_ocsp false", Outcome.TAKEN, {}),
        ("bridge_tls_use_os_certs true", Outcome.TAKEN, {"url": "mqtts://b:1883"}),
        ("bridge_tls_use_os_certs false", Outcome.TAKEN, {"url": "mqtt://b:1883"}),
        ("bridge_cafile /ca.pem", Outcome.TAKEN, {"url": "mqtts://b:1883", "ca": "/ca.pem"}),
        ("bridge_capath /ca", Outcome.LEFT, {"url": "mqtts://b:1883"}),
        ("bridge_certfile /c.pem", Outcome.LEFT, {"url": "mqtt://b:1883"}),
        ("username me", Outcome.TAKEN, {"user": "me"}),
        ("remote_password hunter", Outcome.LEFT, {}),
        ("bridge_reload_type lazy", Outcome.LEFT, {}),
        ("bridge_tcp_keepalive 1 2 3", Outcome.LEFT, {}),
    ],
)
def test_settings_alone(line: str, outcome: Outcome, settings: dict[str, object], tmp_path: Path) -> None:
    link, found = bridge(line, tmp_path)
    assert settings.items() <= link.items()
    assert finding(found, f"connection x: {line.partition(' ')[0]}").outcome is outcome


def test_the_systems_authorities_beside_others(tmp_path: Path) -> None:
    _, found = bridge("bridge_cafile /ca.pem\nbridge_tls_use_os_certs true", tmp_path)
    assert "replaces" in finding(found, "connection x: bridge_tls_use_os_certs").why


@pytest.mark.parametrize(
    ("line", "url"),
    [
        ("address b", "mqtt://b:1883"),
        ("addresses b:1 c.example # d", ["mqtt://b:1", "mqtt://c.example:1883"]),
        ("address ::1:1884", "mqtt://[::1]:1884"),
        ("address [::1]:1884", "mqtt://[::1]:1884"),
        ("address 127.0.0.1:1884", "mqtt://127.0.0.1:1884"),
    ],
)
def test_addresses(line: str, url: object, tmp_path: Path) -> None:
    link, _ = bridge("", tmp_path, address=line)
    assert link["url"] == url


@pytest.mark.parametrize(
    ("address", "more"),
    [
        ("address b:0", ""),
        ("address b:65536", ""),
        ("address mqtt://hunter:x@b", ""),
        ("address ${HOST}", ""),
        ("address b:1 c:x", ""),
        ("address", ""),
        ("cleansession false", ""),
        ("address b", "bridge_psk hunter\nbridge_identity me"),
    ],
)
def test_a_bridge_that_cannot_be_is_left_with_all_in_it(address: str, more: str, tmp_path: Path) -> None:
    link, found = bridge(more, tmp_path, address=address)
    assert link == {}
    assert finding(found, "connection x").outcome is Outcome.LEFT
    assert finding(found, "connection x: topic").why == "the connection is left out"


def test_a_bridge_without_topics_is_no_link(tmp_path: Path) -> None:
    link, found = bridge("", tmp_path, topic="")
    assert link == {}
    assert "nothing in it translates to a route" in finding(found, "connection x").why


def test_a_bridge_whose_topics_are_all_refused_is_no_link(tmp_path: Path) -> None:
    link, found = bridge("remote_username me\nremote_password hunter", tmp_path, topic="topic a#b out\n")
    assert link == {}
    assert "give a topic filter" in finding(found, "connection x: topic").why
    assert "nothing in it translates to a route" in finding(found, "connection x: remote_password").why


def test_settings_of_a_bridge_need_a_connection(tmp_path: Path) -> None:
    _, found = imported(b"topic # out\nremote_password hunter\nconnection x\naddress b\ntopic a in\n", tmp_path)
    assert "no connection precedes it" in finding(found, "topic").why
    assert finding(found, "remote_password").place.value == "(not shown)"


def test_a_listener_in_between_ends_no_bridge(tmp_path: Path) -> None:
    link, _ = bridge("listener 1884\ntopic a in", tmp_path)
    assert link["mqtt"].keys() == {"all", "a"}


@pytest.mark.parametrize(
    ("line", "route"),
    [
        ("topic #", {"topic": "#", "direction": "out", "qos": 0}),
        ("topic a/# IN", {"topic": "a/#", "direction": "in", "qos": 0}),
        ("topic a both 2", {"topic": "a", "direction": "both", "qos": 2}),
        ('topic a out 1 "" r/', {"topic": "a", "direction": "out", "qos": 1, "remote-prefix": "r/"}),
        ('topic a out 1 l/ ""', {"topic": "a", "direction": "out", "qos": 1, "local-prefix": "l/"}),
        ("topic a out 1 l/", {"topic": "a", "direction": "out", "qos": 1, "local-prefix": "l/"}),
        ("topic a out 1 # as it is", {"topic": "a", "direction": "out", "qos": 1}),
        ('topic "a b" out', {"topic": "a b", "direction": "out", "qos": 0}),
        ('topic "" in 0 a a', {"topic": "a", "direction": "in", "qos": 0}),
        ('topic "" in 0 xa ya', {"topic": "a", "direction": "in", "qos": 0, "local-prefix": "x", "remote-prefix": "y"}),
    ],
)
def test_a_topic(line: str, route: dict[str, object], tmp_path: Path) -> None:
    assert list(routes(f"{line}\n", tmp_path).values()) == [route]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("topic", "write the route by hand"),
        ("topic a sideways", "write the route by hand"),
        ("topic a out 3", "write the route by hand"),
        ("topic a out one", "write the route by hand"),
        ('topic "a b out', "write the route by hand"),
        ('topic a out 0 "l/ r/', "write the route by hand"),
        ('topic ""', "the same ending"),
        ('topic "" out 0 local remote2', "the same ending"),
        ("topic a#b out", "give a topic filter"),
        ("topic a out 0 l/+/ r/", "give a topic filter"),
        ("topic ${T} out", "no default"),
    ],
)
def test_topics_that_are_left(line: str, why: str, tmp_path: Path) -> None:
    link, found = bridge("", tmp_path, topic=f"topic kept in\n{line}\n")
    assert link["mqtt"].keys() == {"kept"}
    (told,) = [each for each in found.report.findings if each.place.line == 4]
    assert told.outcome is Outcome.LEFT
    assert why in told.why


def test_of_two_topics_of_one_direction_the_first_stays(tmp_path: Path) -> None:
    _, found = bridge("", tmp_path, topic="topic a out 1\ntopic a in 1\ntopic a both 2\n")
    told = [each for each in found.report.findings if each.place.what == "connection x: topic"]
    assert {each.place.line: each.outcome for each in told} == {3: Outcome.TAKEN, 4: Outcome.TAKEN, 5: Outcome.LEFT}


def test_routes_whose_names_are_alike_stay_apart(tmp_path: Path) -> None:
    found = routes("topic a/b out\ntopic a-b out\ntopic a/b/# in\ntopic +/+ in\n", tmp_path)
    assert {name: route["topic"] for name, route in found.items()} == {
        "a-b": "a/b",
        "a-b-2": "a-b",
        "a-b-3": "a/b/#",
        "all": "+/+",
    }


def test_connections_of_one_name_stay_two_links(tmp_path: Path) -> None:
    one = "connection {}\naddress b\ntopic {} out\n"
    text = one.format("x", "one") + one.format("x", "two") + one.format("x/", "three") + one.format("", "four")
    tables, found = imported(text.encode(), tmp_path)
    assert {name: list(link["mqtt"]) for name, link in tables["links"].items()} == {
        "x": ["one"],
        "x-2": ["two"],
        "x-": ["three"],
        "link": ["four"],
    }
    assert any("named x-2" in each.why for each in found.report.findings if each.place.line == 4)


#: As hosted brokers describe it, with comments where people put them.
HOSTED = b"""
listener 1883
allow_anonymous true

# Bridge to a hosted broker
connection hosted # the name is one word
address abc123-ats.iot.example.com:8883
#topic to_cloud out 1
topic sensor/values both 1
topic awsiot_to_localgateway in 1   # from there
  topic localgateway_to_awsiot out 1
bridge_protocol_version mqttv311
bridge_insecure false
cleansession true
clientid bridgeawsiot
start_type automatic
notifications false
log_type all
bridge_cafile /etc/mosquitto/certs/rootCA.pem
bridge_certfile /etc/mosquitto/certs/cert.crt
bridge_keyfile /etc/mosquitto/certs/private.key
"""


def test_a_bridge_to_a_hosted_broker(tmp_path: Path) -> None:
    tables, found = imported(HOSTED, tmp_path)
    link = tables["links"]["hosted"]
    assert link["url"] == "mqtts://abc123-ats.iot.example.com:8883"
    assert link["key"] == "/etc/mosquitto/certs/private.key"
    assert {name: (route["direction"], route["qos"]) for name, route in link["mqtt"].items()} == {
        "sensor-values": ("both", 1),
        "awsiot_to_localgateway": ("in", 1),
        "localgateway_to_awsiot": ("out", 1),
    }
    assert tables["security"] == {"anonymous": True}
    assert finding(found, "connection hosted: clientid").outcome is Outcome.LEFT


def test_names_that_are_taken_get_the_next_number(tmp_path: Path) -> None:
    one = "connection {}\naddress b\ntopic # out\n"
    names = ["a", "a", "a", "a-4", "a", "a", "b", "y" * 120, "y" * 120]
    tables, _ = imported("".join(map(one.format, names)).encode(), tmp_path)
    cut = "y" * 100
    assert list(tables["links"]) == ["a", "a-2", "a-3", "a-4", "a-5", "a-6", "b", cut, cut[:98] + "-2"]
