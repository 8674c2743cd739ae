"""Artemis's acceptors: several protocols on one port, parameters, TLS."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.importing import Outcome
from broker.importing.acceptors import Target, parse
from tests.broker.importing.harness import ARTEMIS, core, finding, imported


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tcp://0.0.0.0:61616", Target("tcp", "0.0.0.0", 61616, {})),
        (" tcp://localhost:5672?\n a=1;\n b=2 ", Target("tcp", "localhost", 5672, {"a": "1", "b": "2"})),
        ("tcp://[::1]:5672?protocols=AMQP&x=y", Target("tcp", "::1", 5672, {"protocols": "AMQP", "x": "y"})),
        ("vm://0", Target("vm", "0", 0, {})),
        ("tcp://h:65536", None),
        ("tcp://h:1,tcp://i:2", Target("tcp", "h", 1, {})),
        ("61616", None),
    ],
)
def test_addresses_of_acceptors(text: str, expected: Target | None) -> None:
    assert parse(text) == expected


def test_one_acceptor_of_several_protocols_becomes_one_each_on_one_port(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    acceptors = tables["acceptors"]
    assert acceptors["artemis"]["protocol"] == "amqp"
    assert acceptors["artemis"]["port"] == 61616
    assert acceptors["artemis"]["also"] == "artemis-stomp"
    assert acceptors["artemis"]["amqp-credits"] == 500
    assert acceptors["artemis-stomp"]["protocol"] == "stomp"
    assert acceptors["artemis-stomp"]["enabled"] is False, "it has no port of its own"
    assert {acceptors[name]["handshake-timeout"] for name in ("artemis", "artemis-stomp")} == {"7s"}
    foreign = [each for each in found.report.findings if each.place.value == "core, openwire"]
    assert [each.outcome for each in foreign] == [Outcome.LEFT]


def test_an_acceptor_without_protocols_speaks_all(tmp_path: Path) -> None:
    acceptors = '<acceptors><acceptor name="all">tcp://127.0.0.1:61616</acceptor></acceptors>'
    tables, _ = imported(core(acceptors), tmp_path)
    assert {"all", "all-stomp", "http"} <= tables["acceptors"].keys()
    assert "all-stomp" in tables["acceptors"]["all"]["also"]


def test_prefixes_are_those_of_the_file_and_no_others(tmp_path: Path) -> None:
    tables, _ = imported(ARTEMIS, tmp_path)
    stomp = tables["acceptors"]["stomp"]
    assert (stomp["anycast-prefix"], stomp["multicast-prefix"]) == ("jms.queue.", "")
    assert stomp["connections-allowed"] == 40


def test_tls_does_not_become_plain_text(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert tables["acceptors"]["secret"]["enabled"] is False
    assert finding(found, "acceptor secret: sslEnabled").outcome is Outcome.CHANGED


def test_protocols_that_bartleby_does_not_speak_are_reported(tmp_path: Path) -> None:
    tables, found = imported(ARTEMIS, tmp_path)
    assert tables["acceptors"].keys() == {"artemis", "artemis-stomp", "stomp", "secret", "http"}
    assert "inside Artemis's own process" in finding(found, "acceptor inside").why
    assert finding(found, "acceptor old: protocols").outcome is Outcome.LEFT
    assert finding(found, "acceptor odd").outcome is Outcome.LEFT
    assert "have no such setting" in finding(found, "acceptor stomp: shoeSize").why


def test_the_port_of_two_acceptors_goes_to_the_first(tmp_path: Path) -> None:
    acceptors = "".join(f'<acceptor name="{n}">tcp://127.0.0.1:5672?protocols=AMQP</acceptor>' for n in "ab")
    tables, found = imported(core(f"<acceptors>{acceptors}</acceptors>"), tmp_path)
    assert tables["acceptors"]["a"]["port"] == 5672
    assert "b" not in tables["acceptors"]
    assert "acceptors.a listens there already" in finding(found, "acceptor b").why
