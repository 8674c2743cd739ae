"""Whatever stands in a file of others, what comes out is accepted, names no password, and joins no two links."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from broker.importing import InvalidFile, translate
from broker.importing.artemis_bridges import _ELSEWHERE, _SETTINGS, _VITAL
from broker.importing.classic_tables import NETWORK
from broker.importing.mosquitto_tables import BRIDGE, GENERAL, LISTENER
from tests.broker.importing.harness import broker, checked, core

SECRET: Final = "hunter2"

_NAMES = st.sampled_from(
    ["", "a", "a.b", "a b", "a/b", "#", ">", "x" * 120, "ä€", "::", "${p}", "${p:d}", "$x", ".", "a,b"]
)
_NUMBERS = st.sampled_from(["-1", "0", "1", "2.0", "50", "1000", "60000", "99999999999", "x", ""])
_TRUTHS = st.sampled_from(["true", "false", "0", "perhaps"])
_VALUES = _NAMES | _NUMBERS | _TRUTHS


def check(data: bytes, place: Path) -> None:
    """It is translated to what a broker takes, or refused with a sentence."""
    try:
        found = translate(data)
    except InvalidFile:
        return
    assert SECRET not in found.text + "\n".join(found.report.lines())
    file = place / "broker.toml"
    file.write_text(found.text, encoding="utf-8")
    config = checked(file)
    assert all(link.send or link.receive or link.topics or link.mqtt for link in config.links.values())
    queues = [f"link.{name}.{route}" for name, link in config.links.items() for route in (*link.topics, *link.mqtt)]
    assert len(queues) == len(set(queues))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files go, one over the other."""
    return tmp_path_factory.mktemp("any")


_SECRETS = ("remote_password", "password", "local_password", "bridge_psk", "plugin_opt_x", "remote_pasword")
_TOPICS = st.tuples(
    st.sampled_from(["a", "a/#", "#", '""', '"a b"', "$SYS/a", "a#", '"', "b/+"]),
    st.sampled_from(["in", "out", "both", "up"]),
    st.sampled_from(["0", "1", "2", "3"]),
    st.sampled_from(['""', "l/", "l/a", "+", "#"]),
    st.sampled_from(['""', "r/", "r/a"]),
).map(" ".join)
_LINES: SearchStrategy[str] = st.one_of(
    st.sampled_from(["a", "b", "a/", "${n}", ""]).map("connection {}\naddress b:1 c\ntopic # out".format),
    st.sampled_from(["b", "b:1 c", "::1:1", "b:0", "${h}"]).map("address {}".format),
    _TOPICS.map("topic {}".format),
    st.sampled_from(["1883", "8883 ::", "0 /s", "x"]).map("listener {}".format),
    st.builds("{} {}".format, st.sampled_from(sorted(BRIDGE | LISTENER | GENERAL)), _VALUES),
    st.sampled_from(_SECRETS).map(f"{{}} {SECRET}".format),
    st.sampled_from(["certfile /c", "keyfile /k", "require_certificate true", "cafile /ca", "remote_username me"]),
)


@given(st.lists(_LINES, max_size=25))
def test_any_conf(place: Path, lines: list[str]) -> None:
    check("\n".join(["persistence true", *lines]).encode(), place)


@given(st.text(max_size=200))
def test_any_text(place: Path, text: str) -> None:
    check(text.encode(), place)


_ADDRESSES = st.sampled_from(
    [
        "tcp://a:1",
        "tcp://b?sslEnabled=true;trustStorePath=t;keyStorePath=k",
        "(tcp://a:1,tcp://b)",
        "tcp://a:1#tcp://b:2",
        "vm://0",
        f"tcp://u:{SECRET}@a:1",
        f"tcp://a:1?keyStorePassword={SECRET}",
        "",
    ]
)
_BRIDGE = st.dictionaries(
    st.sampled_from(sorted({*_SETTINGS, *_ELSEWHERE, *_VITAL} - {"password"})), _VALUES, max_size=6
)
_CONNECTION = st.dictionaries(
    st.sampled_from(["user", "retry-interval", "reconnect-attempts", "auto-start", "x"]), _VALUES
)
_CHILD = st.tuples(
    st.sampled_from(["sender", "receiver", "peer", "mirror", "federation", "bridge", "x"]),
    st.dictionaries(st.sampled_from(["queue-name", "address-match"]), _NAMES | st.just("q.#")),
)


def _attributes(values: dict[str, str]) -> str:
    return " ".join(f'{name}="{escape(text)}"' for name, text in values.items())


def _element(name: str, values: dict[str, str]) -> str:
    return f"<{name} {_attributes(values)}/>"


@given(st.lists(st.tuples(_NAMES, _ADDRESSES, _BRIDGE), max_size=3), st.booleans())
def test_any_bridges(place: Path, bridges: list[tuple[str, str, dict[str, str]]], login: bool) -> None:
    connectors = "".join(f'<connector name="c{n}">{escape(uri)}</connector>' for n, (_, uri, _) in enumerate(bridges))
    text = ""
    for number, (name, _, settings) in enumerate(bridges):
        inner = "".join(f"<{key}>{escape(value)}</{key}>" for key, value in ({"queue-name": "q"} | settings).items())
        inner += f"<user>u</user><password>{SECRET}</password>" if login and "user" not in settings else ""
        inner += f"<static-connectors><connector-ref>c{number}</connector-ref></static-connectors>"
        text += f'<bridge name="{escape(name)}">{inner}</bridge>'
    check(core(f"<connectors>{connectors}</connectors><bridges>{text}</bridges>"), place)


@given(
    st.lists(st.tuples(_NAMES, _ADDRESSES, _CONNECTION, st.lists(_CHILD, max_size=4)), max_size=3),
    st.dictionaries(_NAMES, _NAMES, max_size=3),
)
def test_any_connections(
    place: Path,
    connections: list[tuple[str, str, dict[str, str], list[tuple[str, dict[str, str]]]]],
    queues: dict[str, str],
) -> None:
    text = ""
    for name, uri, settings, children in connections:
        inner = "".join(_element(*child) for child in children)
        attributes = _attributes({"name": name, "uri": uri, "password": SECRET} | settings)
        text += f"<amqp-connection {attributes}>{inner}</amqp-connection>"
    for name, queue in queues.items():
        inner = f'<anycast><queue name="{escape(queue)}"/></anycast>'
        text = f'<addresses><address name="{escape(name)}">{inner}</address></addresses>{text}'
    check(core(f"<broker-connections>{text}</broker-connections>"), place)


_LISTS = st.sampled_from(
    [
        "static:(tcp://a:1,tcp://b)",
        "masterslave:(ssl://a,tcp://b)",
        "static:(failover:(tcp://a,tcp://b)?x=1)?initialReconnectDelay=5&maxReconnectDelay=7",
        "static:(tcp://a)?initialReconnectDelay=60000",
        "multicast://default",
        f"static:(tcp://u:{SECRET}@a)",
        "",
    ]
)
_INCLUDES = st.tuples(
    st.sampled_from(["staticallyIncludedDestinations", "dynamicallyIncludedDestinations", "excludedDestinations", "x"]),
    st.lists(st.tuples(st.sampled_from(["queue", "topic", "tempQueue"]), _NAMES), max_size=3),
)
_NETWORK = st.dictionaries(
    st.sampled_from(["userName", "remoteUserName", "autoStart", *sorted(NETWORK)]), _VALUES, max_size=5
)


@given(st.lists(st.tuples(_NAMES, _LISTS, _NETWORK, st.lists(_INCLUDES, max_size=4)), max_size=3))
def test_any_network_connectors(
    place: Path,
    connectors: list[tuple[str, str, dict[str, str], list[tuple[str, list[tuple[str, str]]]]]],
) -> None:
    text = ""
    for name, uri, settings, sections in connectors:
        inner = ""
        for section, destinations in sections:
            each = "".join(_element(kind, {"physicalName": destination}) for kind, destination in destinations)
            inner += f"<{section}>{each}</{section}>"
        secrets = {"password": SECRET, "remotePassword": SECRET}
        attributes = _attributes({"name": name, "uri": uri} | settings | secrets)
        text += f"<networkConnector {attributes}>{inner}</networkConnector>"
    check(broker(f"<networkConnectors>{text}</networkConnectors>"), place)
