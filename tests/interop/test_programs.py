"""What clients of other languages can do with a broker, scenario by scenario: each program says `ok` for each.

AMQP     Qpid JMS and Qpid ProtonJ2, go-amqp, rhea, fe2o3-amqp
MQTT     Eclipse Paho and HiveMQ's client in Java, those of Eclipse in Go, MQTT.js, rumqttc
STOMP    @stomp/stompjs and stompit, and Debian's php-stomp, ruby-stomp, libnet-stomp-perl

Fetching and building is part of the first test of a language, in a time limit of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.interop.conftest import SETTINGS
from tests.interop.programs import BUILD_S, RUN_S, go, java, node_suite, run, rust, script
from tests.support.daemon import DaemonProcess, running

pytestmark = pytest.mark.timeout(BUILD_S + RUN_S)

KINDS: Final = (
    SETTINGS
    + """
[[address-settings]]
match = "retro.#"
retroactive-message-count = 2

[diverts.copies]
address = "diverted.in"
forwarding-address = "diverted.copies"
routing-type = "ANYCAST"
add-headers = ["via: divert"]
"""
)


def php() -> list[str]:
    """PHP's own client, an extension."""
    check = "exit(extension_loaded('stomp') ? 0 : 1);"
    return script("php", "php/stomp.php", "-r", check, package="php-stomp")


def ruby() -> list[str]:
    """The gem."""
    return script("ruby", "ruby/stomp.rb", "-e", "require 'stomp'", package="ruby-stomp")


def perl() -> list[str]:
    """Net::Stomp."""
    return script("perl", "perl/stomp.pl", "-MNet::Stomp", "-e", "1", package="libnet-stomp-perl")


#: The program, its protocol, what it is told to do, and how many scenarios there are.
PROGRAMS: Final[dict[str, tuple[Callable[[], list[str]], str, tuple[str, ...], int]]] = {
    "jms": (lambda: java("Suite"), "amqp", (), 16),
    "jms options": (lambda: java("Options"), "amqp", (), 17),
    "protonj2": (lambda: java("ProtonJ2"), "amqp", (), 13),
    "go over AMQP": (go, "amqp", ("suite",), 8),
    "rust over AMQP": (rust, "amqp", ("suite",), 6),
    "java over MQTT": (lambda: java("Mqtt"), "mqtt", (), 6),
    "go over MQTT": (go, "mqtt", ("mqtt",), 6),
    "rust over MQTT": (rust, "mqtt", ("mqtt",), 9),
    "php": (php, "stomp", (), 3),
    "ruby": (ruby, "stomp", (), 18),
    "perl": (perl, "stomp", (), 5),
}

#: The suite of Node.js, its protocol, the variable with the port, and how many scenarios there are.
NODE: Final = {
    "rhea": ("amqp.test.mjs", "amqp", "BROKER_PORT", 8),
    "MQTT.js": ("mqtt.test.mjs", "mqtt", "MQTT_PORT", 14),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(broker: DaemonProcess, name: str) -> None:
    command, protocol, arguments, scenarios = PROGRAMS[name]
    passed = run([*command(), str(broker.ports[protocol]), *arguments])
    assert len(passed.splitlines()) == scenarios, passed


@pytest.mark.parametrize("name", NODE)
def test_suite_of_node(broker: DaemonProcess, name: str) -> None:
    script, protocol, variable, scenarios = NODE[name]
    assert node_suite(script, **{variable: str(broker.ports[protocol])}) == scenarios


def test_stomp_clients_of_node(broker: DaemonProcess) -> None:
    assert node_suite("suite.test.mjs", BROKER_PORT=str(broker.port)) >= 87, "with each client and version"


def test_kinds_of_queues(tmp_path: Path) -> None:
    with running(tmp_path, KINDS) as broker:
        passed = run([*java("Kinds"), str(broker.ports["amqp"])])
    assert len(passed.splitlines()) == 22, passed
