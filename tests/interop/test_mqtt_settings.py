"""What an MQTT acceptor can be told to allow, as paho-mqtt and asyncio-mqtt meet it."""

from __future__ import annotations

import asyncio
import queue
import warnings
from collections.abc import Iterator
from typing import Any, Final

import paho.mqtt.client as paho
import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.links import PATIENCE_S
from tests.support.paho_client import VERSIONS, Paho, Refused, connected
from tests.support.sim_gate import cheap_user

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import asyncio_mqtt

SETTINGS: Final = """
[acceptors.mqtt]
protocol = "mqtt"
port = 0

[acceptors.strict]
protocol = "mqtt"
port = 0
maximum-qos = 1
retain-available = false
message-size-limit = "1KiB"
max-keepalive = "30s"
in-flight-bytes-max = "1KiB"
filter-subscriptions = true
allow-zero-length-clientid = false

[acceptors.devices]
protocol = "mqtt"
port = 0
mount-point = "devices/"
allowed-roles = ["devices"]

[security]
login-failure-delay = 0
anonymous = true
anonymous-roles = ["amq"]

[[security-settings]]
match = "#"
send = ["amq", "devices"]
consume = ["amq", "devices"]
createAddress = ["amq", "devices"]
createDurableQueue = ["amq", "devices"]
createNonDurableQueue = ["amq", "devices"]
deleteNonDurableQueue = ["amq", "devices"]
deleteDurableQueue = ["amq", "devices"]

[[security-settings]]
match = "secret.#"
send = ["amq"]
consume = ["devices"]
createAddress = ["amq"]

[acceptors.http]
protocol = "http"
port = 0
"""

EARLY: Final = ("3.1", "3.1.1")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaemonProcess]:
    """A broker with an acceptor that allows little."""
    users = {"pump": cheap_user("secret", "devices"), "clerk": cheap_user("secret", "amq")}
    with running(tmp_path_factory.mktemp("limited"), SETTINGS, stored=users) as broker:
        yield broker


def refused(port: int, version: str, name: str = "c", *, keepalive: int = 20, user: str = "") -> int:
    """The reason code with which a client is refused, as paho has it."""
    login = (user, "secret") if user else None
    with pytest.raises(Refused) as told:
        Paho(port, name, version, user=login, connecting={"keepalive": keepalive}, reconnect_on_failure=False)
    return told.value.code


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_is_held_to_the_settings(limited: DaemonProcess, version: str) -> None:
    client = Paho(limited.ports["strict"], f"paho {version}", version, connecting={"keepalive": 20})
    assert client.subscribe("settings/#", 2) == (1,)
    client.client.publish("settings/a", b"x" * 1024, qos=1)
    assert client.messages.get(timeout=PATIENCE_S).payload == b"x" * 1024
    if version == "5":
        assert client.published.get(timeout=PATIENCE_S)[1] == 0
        client.client.publish("settings/a", b"x" * 1025, qos=1)
        assert client.published.get(timeout=PATIENCE_S)[1] == 0x97
    client.client.publish("settings/a", b"end", qos=1)
    assert client.messages.get(timeout=PATIENCE_S).payload == b"end"
    gone: queue.SimpleQueue[int] = queue.SimpleQueue()
    client.client.on_disconnect = lambda c, u, flags, code, p: gone.put(code.value)
    client.client.publish("settings/a", b"kept?", qos=1, retain=True)
    assert gone.get(timeout=PATIENCE_S) == (0x9A if version == "5" else 0x80)
    client.client.loop_stop()


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_gets_what_it_may_read(limited: DaemonProcess, version: str) -> None:
    with connected(limited.ports["mqtt"], f"open {version}", version, connecting={"keepalive": 20}) as refused_one:
        assert refused_one.subscribe("#", 1) != (1,)
    with connected(limited.ports["strict"], f"filtered {version}", version, connecting={"keepalive": 20}) as client:
        assert client.subscribe("#", 1) == (1,)
        for topic in (f"secret/{version}", f"readable/{version}"):
            client.client.publish(topic, topic.encode(), qos=1)
        assert client.messages.get(timeout=PATIENCE_S).topic == f"readable/{version}"


@pytest.mark.parametrize("version", VERSIONS)
def test_paho_has_few_bytes_in_flight(limited: DaemonProcess, version: str) -> None:
    client = Paho(limited.ports["strict"], f"few {version}", version, connecting={"keepalive": 20})
    client.client.manual_ack_set(True)
    client.subscribe(f"few/{version}", 1)
    for n in range(4):
        client.client.publish(f"few/{version}", b"%d" % n * 600, qos=1)
    got = [client.messages.get(timeout=PATIENCE_S) for _ in range(2)]
    with pytest.raises(queue.Empty):
        client.messages.get(timeout=0.3)
    client.client.ack(got[0].mid, 1)
    client.client.ack(got[1].mid, 1)
    assert [client.messages.get(timeout=PATIENCE_S).payload[:1] for _ in range(2)] == [b"2", b"3"]
    client.client.loop_stop()


@pytest.mark.parametrize("version", EARLY)
def test_an_early_paho_with_a_long_keep_alive_is_refused(limited: DaemonProcess, version: str) -> None:
    assert refused(limited.ports["strict"], version, keepalive=31) == 0x85, "what paho makes of return code 2"


def test_paho_without_a_name_is_refused(limited: DaemonProcess) -> None:
    assert refused(limited.ports["strict"], "5", "") == 0x85


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_asyncio_mqtt_is_held_to_the_settings(limited: DaemonProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paho.Client, "message_retry_set", lambda *_: None, raising=False)

    async def publish_too_much() -> None:
        async with asyncio_mqtt.Client(
            "127.0.0.1", limited.ports["strict"], client_id="asyncio", keepalive=20
        ) as client:
            await client.publish("settings/b", b"x", qos=1)
            await client.publish("settings/b", b"x", qos=2, timeout=1)

    with pytest.raises(asyncio_mqtt.MqttError):
        asyncio.run(asyncio.wait_for(publish_too_much(), PATIENCE_S))
    limited.await_log("0x9B")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_port_for_devices(limited: DaemonProcess, version: str) -> None:
    port, root = limited.ports["devices"], limited.ports["mqtt"]
    for user in ("", "clerk"):
        assert refused(port, version, user=user) in (0x86, 0x87)
    options: dict[str, Any] = {"connecting": {"keepalive": 20}}
    with connected(root, f"outside {version}", version, **options) as outside:
        outside.subscribe(f"devices/{version}/#", 1)
        pump = Paho(port, f"pump {version}", version, user=("pump", "secret"), **options)
        pump.subscribe(f"{version}/+", 1)
        pump.client.publish(f"{version}/a", b"from inside", qos=1)
        message = outside.messages.get(timeout=PATIENCE_S)
        assert (message.topic, message.payload) == (f"devices/{version}/a", b"from inside")
        assert pump.messages.get(timeout=PATIENCE_S).topic == f"{version}/a"
        outside.client.publish(f"devices/{version}/b", b"from outside", qos=1)
        message = pump.messages.get(timeout=PATIENCE_S)
        assert (message.topic, message.payload) == (f"{version}/b", b"from outside")
        pump.leave()
