"""A bridge of Mosquitto to Bartleby: a broker that connects as a client does."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.interop.numbered import (
    END,
    arrived,
    check,
    client,
    collect,
    collected,
    numbers,
    publish,
)
from tests.interop.relay import Relay, relayed
from tests.support.daemon import DaemonProcess, running
from tests.support.peers import Mosquitto
from tests.support.process import NotAvailable, awaited, started

#: As docs/mqtt-bridges.md says: before MQTT 5 Mosquitto ends a connection with more in flight than its own number.
SETTINGS: Final = """
[acceptors.mqtt]
protocol = "mqtt"
default-maximum-in-flight-publish-messages = 1000

[acceptors.http]
protocol = "http"
"""

#: Before MQTT 5 it asks for a protocol of its own first, and comes back some seconds after the refusal.
DIRECT: Final = "try_private false"


@contextmanager
def bridge(directory: Path, port: int, version: str, *more: str) -> Iterator[Mosquitto]:
    """Mosquitto with a bridge to the port: what is below `up` goes out, what is below `down` comes in.

    It is never killed, so it writes nothing down.
    """
    directory.mkdir()
    settings = [
        "connection bridge",
        f"address 127.0.0.1:{port}",
        "topic up/# out 2",
        "topic down/# in 2",
        f"bridge_protocol_version {version}",
        "remote_clientid mosquitto",
        "cleansession false",
        "notifications false",
        "restart_timeout 1 1",
        *more,
        "max_inflight_messages 1000",  # of none it would make a Receive Maximum of 0
    ]
    try:
        with started(Mosquitto(directory, "max_queued_messages 0", *settings)) as mosquitto:
            yield mosquitto
    except NotAvailable as missing:
        pytest.skip(str(missing))


@contextmanager
def bridged(directory: Path, version: str, *more: str) -> Iterator[tuple[DaemonProcess, Relay, Mosquitto]]:
    """Bartleby, the port before it, and a Mosquitto whose bridge is up."""
    with (
        running(directory, SETTINGS) as broker,
        relayed(broker, "mqtt") as relay,
        bridge(directory / "there", relay.port, version, *more) as mosquitto,
    ):
        awaited(lambda: "mosquitto.down.#" in broker.queue_names())
        yield broker, relay, mosquitto


@pytest.mark.parametrize("version", ["mqttv311", "mqttv50"])
@pytest.mark.parametrize("qos", [1, 2])
def test_the_bridge_takes_messages_that_nobody_takes_there(tmp_path: Path, version: str, qos: int) -> None:
    """Its PUBACK says that there is no subscriber, as a server's may; the bridge stays, and what follows arrives."""
    with bridged(tmp_path, version, DIRECT) as (broker, relay, mosquitto):
        publish(relay.port, "down/1", qos, [b"nobody"])
        awaited(lambda: broker.queue("mosquitto.down.#")["messages"] == 0)
        reader = client(mosquitto.ports["mqtt"], "reader", "down/#")
        publish(relay.port, "down/1", qos, [b"somebody"])
        found = arrived(reader, 1)
        reader.disconnect()
        assert found == {("down/1", b"somebody"): 1}
        assert "mqtt.error" not in broker.log


def test_a_bridge_that_asks_for_a_protocol_of_its_own_comes_back_without(tmp_path: Path) -> None:
    with bridged(tmp_path, "mqttv311") as (_, relay, mosquitto):
        reader = client(mosquitto.ports["mqtt"], "reader", "down/#")
        publish(relay.port, "down/1", 1, [b"x"])
        found = arrived(reader, 1)
        reader.disconnect()
        assert set(found) == {("down/1", b"x")}


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_while_it_sends_to_the_bridge(tmp_path: Path, qos: int) -> None:
    with bridged(tmp_path, "mqttv311", DIRECT) as (broker, relay, mosquitto):
        collect(mosquitto.ports["mqtt"], "down/#")
        publish(relay.port, "down/1", qos, numbers())
        relay.restart()
        publish(relay.port, "down/1", qos, [END])
        check(collected(mosquitto.ports["mqtt"], "down/1"), qos)
        awaited(lambda: broker.queue("mosquitto.down.#")["messages"] == 0)


@pytest.mark.parametrize("qos", [1, 2])
def test_killed_while_it_gets_some_of_the_bridge(tmp_path: Path, qos: int) -> None:
    with bridged(tmp_path, "mqttv311", DIRECT) as (broker, relay, mosquitto):
        collect(relay.port, "up/#")
        relay.kill()
        publish(mosquitto.ports["mqtt"], "up/1", qos, numbers())
        relay.start()
        awaited(lambda: broker.queue("collector.up.#")["messages"] > 0)
        relay.restart()
        publish(mosquitto.ports["mqtt"], "up/1", qos, [END])
        check(collected(relay.port, "up/1"), qos)
