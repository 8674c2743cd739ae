"""paho-mqtt, aiomqtt and asyncio-mqtt against the broker, in every version that they speak."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.daemon import DaemonProcess
from tests.support.links import PATIENCE_S
from tests.support.paho_client import VERSIONS, Paho, connected, kept, properties

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import asyncio_mqtt


@pytest.fixture
def port(broker: DaemonProcess) -> int:
    """Where MQTT is spoken."""
    return broker.ports["mqtt"]


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_qos(port: int, version: str) -> None:
    """[MQTT-2.2.1-5], [MQTT-2.2.1-6], [MQTT-4.3.3-11]: paho tells answers apart by their packet identifiers."""
    with connected(port, "", version) if version != "3.1" else connected(port, "paho-31", version) as client:
        name = f"paho/{version}"
        assert client.subscribe([(f"{name}/+", 2), (f"{name}/low/#", 1), ("größe/🐎", 0)]) == (2, 1, 0)
        for number in range(30):
            client.publish(f"{name}/{number % 4}", b"%d" % number, number % 3)
        arrived = client.take(30)
        for qos in range(3):
            assert [int(m.payload) for m in arrived if m.qos == qos] == list(range(qos, 30, 3))
        client.publish(f"{name}/low/a/b", bytes(300_000), 2)
        (large,) = client.take()
        assert (large.qos, len(large.payload)) == (1, 300_000)
        client.publish("größe/🐎", "sécret", 2)
        (message,) = client.take()
        assert (message.topic, message.payload.decode(), message.qos) == ("größe/🐎", "sécret", 0)
        codes = client.unsubscribe([f"{name}/+", "nothing"])
        assert codes == ((0, 0x11) if version == "5" else ())


@pytest.mark.parametrize("version", VERSIONS)
def test_a_session_that_stays(port: int, version: str) -> None:
    name = f"paho-{version}-stays"
    with connected(port, name, version, **kept(version)) as client:
        assert not client.present
        client.subscribe(f"{name}/#", 2)
    with connected(port, f"{name}-2", version) as other:
        for number in range(20):
            other.publish(f"{name}/a", b"%d" % number, 1 + number % 2)
    with connected(port, name, version, **kept(version)) as client:
        assert client.present or version == "3.1"
        arrived = client.take(20)
        for qos in (1, 2):  # paho shows what has QoS 2 when it is released
            assert [int(m.payload) for m in arrived if m.qos == qos] == list(range(qos - 1, 20, 2))
    with connected(port, name, version) as client:
        assert not client.present


@pytest.mark.parametrize("version", VERSIONS)
def test_retained_messages_and_wills(port: int, version: str) -> None:
    name = f"paho/{version}/status"
    mortal = Paho(port, f"paho-{version}-mortal", version, will=(name, b"dead", 1, True))
    mortal.publish(name, b"alive", 1, retain=True)
    with connected(port, f"paho-{version}-watcher", version) as watcher:
        watcher.subscribe(name, 1)
        (message,) = watcher.take()
        assert (message.payload, message.retain) == (b"alive", True)
        mortal.drop()
        (message,) = watcher.take()
        assert (message.payload, message.retain) == (b"dead", False)
        watcher.publish(name, b"", 1, retain=True)
        assert watcher.payloads(1) == [b""]


def test_properties_and_options(port: int) -> None:
    hello = properties(PacketTypes.CONNECT, ReceiveMaximum=5, TopicAliasMaximum=0, UserProperty=("k", "1"))
    with connected(port, "paho-5", connecting={"properties": hello}) as client:
        wanted = properties(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=4711)
        options = SubscribeOptions(1, False, True, 2)
        assert client.subscribe("paho/5/p", options=options, properties=wanted) == (1,)
        told = properties(
            PacketTypes.PUBLISH,
            ContentType="text/plain",
            UserProperty=[("k", "1"), ("k", "0")],
            CorrelationData=b"\0\xff",
            ResponseTopic="a/answers",
            MessageExpiryInterval=3600,
            PayloadFormatIndicator=1,
            TopicAlias=3,
        )
        for number in range(20):
            assert client.publish("" if number else "paho/5/p", "größer", 1, properties=told) == 0
        for message in client.take(20):
            assert message.topic == "paho/5/p"
            found: Any = message.properties
            assert found.json() == {
                "ContentType": "text/plain",
                "UserProperty": [("k", "1"), ("k", "0")],
                "CorrelationData": b"\0\xff".hex(),
                "ResponseTopic": "a/answers",
                "MessageExpiryInterval": 3600,
                "PayloadFormatIndicator": 1,
                "SubscriptionIdentifier": [4711],
            }
        nobody = client.publish("paho/5/nobody", b"x", 1)
        assert nobody == 0x10, "no matching subscribers"


def test_paho_is_told_why(port: int) -> None:
    """A topic alias above the maximum: DISCONNECT 0x94."""
    with connected(port) as client:
        codes: SimpleQueue[int] = SimpleQueue()
        client.client.on_disconnect = lambda c, u, flags, code, p: codes.put(code.value)
        client.client.publish("a", "x", properties=properties(PacketTypes.PUBLISH, TopicAlias=9999))
        assert codes.get(timeout=PATIENCE_S) == 0x94


def test_a_shared_subscription(port: int) -> None:
    with connected(port, "paho-s1") as first, connected(port, "paho-s2") as second, connected(port, "paho-s3") as other:
        for member in (first, second):
            member.subscribe("$share/g/paho/shared/#", 1)
        for number in range(40):
            other.publish(f"paho/shared/{number}", b"%d" % number, 1)
        arrived: set[int] = set()
        while len(arrived) < 40:
            member = first if not first.messages.empty() else second
            other.publish("paho/barrier", b"", 1)
            if not member.messages.empty():
                arrived.add(int(member.payloads(1)[0]))
        assert arrived == set(range(40))


# -- clients of asyncio ------------------------------------------------------------------------------------------------


async def echo(client: Any, messages: Callable[[], Any], topic: str) -> list[tuple[str, bytes, int]]:
    """Publish with every QoS to oneself."""
    found: list[tuple[str, bytes, int]] = []
    await client.subscribe(f"{topic}/#", qos=2)
    for number in range(9):
        await client.publish(f"{topic}/{number}", b"%d" % number, qos=number % 3)
    async for message in messages():
        found.append((str(message.topic), message.payload, message.qos))
        if len(found) == 9:
            break
    return sorted(found)


@pytest.mark.parametrize("version", aiomqtt.ProtocolVersion)
def test_aiomqtt(port: int, version: aiomqtt.ProtocolVersion) -> None:
    async def talk() -> list[tuple[str, bytes, int]]:
        async with aiomqtt.Client("127.0.0.1", port, identifier=f"aio-{version.value}", protocol=version) as client:
            return await echo(client, lambda: client.messages, f"aio/{version.value}")

    found = asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))
    assert found == [(f"aio/{version.value}/{number}", b"%d" % number, number % 3) for number in range(9)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", asyncio_mqtt.ProtocolVersion)
def test_asyncio_mqtt(port: int, version: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It calls a method that did nothing in paho 1.6 and is gone from paho 2."""
    monkeypatch.setattr(paho.Client, "message_retry_set", lambda *_: None, raising=False)
    name = f"asyncio/{version.value}"

    async def talk() -> list[tuple[str, bytes, int]]:
        client = asyncio_mqtt.Client("127.0.0.1", port, client_id=f"asyncio-{version.value}", protocol=version)
        async with client, client.messages() as messages:
            return await echo(client, lambda: messages, name)

    found = asyncio.run(asyncio.wait_for(talk(), PATIENCE_S))
    assert found == [(f"{name}/{number}", b"%d" % number, number % 3) for number in range(9)]
