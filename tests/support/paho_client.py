"""The library paho-mqtt as the tests use it: messages and answers are awaited in order, each with a timeout."""

from __future__ import annotations

import queue
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.support.links import PATIENCE_S

VERSIONS: Final = {"3.1": paho.MQTTv31, "3.1.1": paho.MQTTv311, "5": paho.MQTTv5}


class Refused(Exception):
    """CONNACK refused the client; `code` is paho's reason code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{code:#x}")
        self.code = code


class Paho:
    """A client on its own thread, connected unless the port is 0.  Raises Refused.

    `options`: arguments of paho's client; `connecting`: arguments of its `connect`; `user`: name and password.
    """

    def __init__(
        self,
        port: int,
        name: str = "",
        version: str = "5",
        *,
        connecting: Mapping[str, Any] | None = None,
        user: tuple[str, str] | None = None,
        will: tuple[Any, ...] | None = None,
        tls: ssl.SSLContext | None = None,
        **options: Any,
    ) -> None:
        self.messages: queue.SimpleQueue[paho.MQTTMessage] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self.published: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()
        self.version = version
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
        if tls is not None:
            client.tls_set_context(tls)
        self._host = "127.0.0.1" if tls is None else "localhost"
        self._connecting = connecting or {}
        if port:
            self.connect(port)

    def connect(self, port: int) -> None:
        """Send CONNECT, and wait for its answer; also again after `drop`.  Raises Refused."""
        self.client.connect(self._host, port, **self._connecting)
        self.client.loop_start()
        code, self.present = self.answers.get(timeout=PATIENCE_S)
        if code:
            self.client.loop_stop()
            raise Refused(code)

    def subscribe(self, *wanted: Any, **more: Any) -> tuple[int, ...]:
        """Send SUBSCRIBE; returns the codes of SUBACK."""
        self.client.subscribe(*wanted, **more)
        return self.answers.get(timeout=PATIENCE_S)

    def unsubscribe(self, topics: str | list[str]) -> tuple[int, ...]:
        """Send UNSUBSCRIBE; returns the codes of UNSUBACK."""
        self.client.unsubscribe(topics)
        return self.answers.get(timeout=PATIENCE_S)

    def publish(self, topic: str, payload: bytes | str, qos: int = 0, **more: Any) -> int:
        """Send PUBLISH, and wait until it is acknowledged; returns its reason code."""
        sent = self.client.publish(topic, payload, qos, **more)
        mid, code = self.published.get(timeout=PATIENCE_S)
        assert mid == sent.mid
        return code

    def take(self, number: int = 1) -> list[paho.MQTTMessage]:
        """Wait for the next `number` messages."""
        return [self.messages.get(timeout=PATIENCE_S) for _ in range(number)]

    def payloads(self, number: int) -> list[bytes]:
        """Wait for the payloads of the next messages."""
        return [bytes(message.payload) for message in self.take(number)]

    def leave(self) -> None:
        """Send DISCONNECT."""
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        self.client._sock_close()
        self.client.loop_stop()


@contextmanager
def connected(port: int, name: str = "", version: str = "5", **options: Any) -> Iterator[Paho]:
    """Connect a client, and drop it afterwards."""
    client = Paho(port, name, version, **options)
    try:
        yield client
    finally:
        client.leave()


def kept(version: str) -> dict[str, Any]:
    """Return the options for a session that outlives its connection."""
    if version != "5":
        return {"clean_session": False}
    told = properties(PacketTypes.CONNECT, SessionExpiryInterval=3600)
    return {"connecting": {"clean_start": False, "properties": told}}


def properties(packet: int, **values: Any) -> Any:
    """Make properties of MQTT 5."""
    made = Properties(packet)  # type: ignore[no-untyped-call]
    for name, value in values.items():
        setattr(made, name, value)
    return made
