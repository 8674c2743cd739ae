"""paho-mqtt, aiomqtt and asyncio-mqtt against the broker, in every version that they speak."""

from __future__ import annotations

import asyncio
import queue
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import aiomqtt
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.support.daemon import DaemonProcess

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import asyncio_mqtt

#: How long to wait for something that has to come, in seconds.
PATIENCE_S: Final = 30.0

VERSIONS: Final = {"3.1": paho.MQTTv31, "3.1.1": paho.MQTTv311, "5": paho.MQTTv5}


class Paho:
    """A paho client on its own thread; messages and answers are waited for, in order."""

    def __init__(self, port: int, name: str, version: str, **options: Any) -> None:
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.published: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self.version = version
        will = options.pop("will", None)
        connecting = options.pop("connecting", {})
        user = options.pop("user", None)
        if version != "5":
            options.setdefault("clean_session", True)
        self.client = client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=VERSIONS[version], **options)
        client.on_connect = lambda c, u, flags, code, p: self.answers.put((code.value, flags.session_present))
        client.on_subscribe = lambda c, u, mid, codes, p: self.answers.put(tuple(code.value for code in codes))
        client.on_unsubscribe = lambda c, u, mid, codes, p: self.answers.put(tuple(code.value for code in codes))
        client.on_message = lambda c, u, message: self.messages.put(message)
        client.on_publish = lambda c, u, mid, code, p: self.published.put((mid, code.value))
        if will is not None:
            client.will_set(*will)
        if user is not None:
            client.username_pw_set(*user)
        client.connect("127.0.0.1", port, **connecting)
        client.loop_start()
        code, self.present = self.answers.get(timeout=PATIENCE_S)
        assert code == 0

    def subscribe(self, *wanted: Any, **more: Any) -> tuple[int, ...]:
        """SUBSCRIBE: the codes of SUBACK."""
        self.client.subscribe(*wanted, **more)
        return self.answers.get(timeout=PATIENCE_S)

    def unsubscribe(self, topics: str | list[str]) -> tuple[int, ...]:
        """UNSUBSCRIBE: the codes of UNSUBACK."""
        self.client.unsubscribe(topics)
        return self.answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes | str, qos: int = 0, **more: Any) -> int:
        """PUBLISH, and wait until it is done: its reason code."""
        sent = self.client.publish(topic, payload, qos, **more)
        mid, code = self.published.get(timeout=PATIENCE_S)
        assert mid == sent.mid
        return code

    def take(self, number: int = 1) -> list[paho.MQTTMessage]:
        """The next so many messages."""
        return [self.messages.get(timeout=PATIENCE_S) for _ in range(number)]

    def payloads(self, number: int) -> list[bytes]:
        """Their payloads."""
        return [bytes(message.payload) for message in self.take(number)]

    def leave(self) -> None:
        """DISCONNECT."""
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """End the connection without a word."""
        self.client._sock_close()
        self.client.loop_stop()


@contextmanager
def connected(port: int, name: str = "", version: str = "5", **options: Any) -> Iterator[Paho]:
    """A client that is gone afterwards."""
    client = Paho(port, name, version, **options)
    try:
        yield client
    finally:
        client.leave()


@pytest.fixture
def port(broker: DaemonProcess) -> int:
    """Where MQTT is spoken."""
    return broker.ports["mqtt"]


def kept(version: str) -> dict[str, Any]:
    """Options for a session that outlives its connection."""
    if version != "5":
        return {"clean_session": False}
    told = properties(PacketTypes.CONNECT, SessionExpiryInterval=3600)
    return {"connecting": {"clean_start": False, "properties": told}}


def properties(packet: int, **values: Any) -> Any:
    """Properties of MQTT 5."""
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("version", VERSIONS)
def test_messages_of_every_qos(port: int, version: str) -> None:
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
        )
        for _ in range(20):
            assert client.publish("paho/5/p", "größer", 1, properties=told) == 0
        for message in client.take(20):
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
