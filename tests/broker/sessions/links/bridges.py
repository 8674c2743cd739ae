"""Two simulated brokers with an MQTT link, and clients of both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from protocols.mqtt.codes import V5, PacketType, Role
from protocols.mqtt.connection import MqttConnection
from protocols.mqtt.encode import PublishHead
from protocols.mqtt.packets import (
    Ack,
    Connack,
    Connect,
    Packet,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.runs import Shared
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_links import SimLinks, linked


def pair(
    *settings: dict[str, object], link: Mapping[str, Any] = {}, there: SimBroker | None = None, **routes: object
) -> tuple[SimBroker, SimBroker, SimLinks]:
    """Two brokers; the first has an MQTT link to the second, which is `there` or as shipped."""
    a = SimBroker(linked(*settings, url="mqtt://b:1883", mqtt=routes, **link))
    b = there or SimBroker(configured())
    links = SimLinks(a, {"b": b})
    links.run()
    return a, b, links


def scripted(script: Script, *, link: Mapping[str, Any] = {}, **routes: object) -> tuple[SimBroker, SimLinks]:
    """A broker with an MQTT link to a scripted one."""
    a = SimBroker(linked(url="mqtt://b:1883", mqtt=routes, **link))
    links = SimLinks(a, {"b": script})
    links.run()
    return a, links


def client(broker: SimBroker, client_id: str, *filters: str, qos: int = 0, **more: Any) -> MqttClient:
    """A client that has subscribed."""
    found = MqttClient().over(SimCarrier(broker)).connect(greeting(client_id, **more))
    assert found.code == 0
    if filters:
        found.subscribe(*filters, qos=qos)
    return found


class Script:
    """Another broker: which protocol levels it speaks, whether it has a session, and how it answers.

    `levels`: as CONNECT has them, 0x84 is a bridge's 3.1.1; a version that it does not speak is refused, or the
    connection is closed (`hangs_up`).  `heard` are the packets of all connections, `connects` their levels.
    """

    def __init__(self, *levels: int, present: bool = False, hangs_up: bool = False) -> None:
        self.levels = levels
        self.present = present
        self.hangs_up = hangs_up
        self.starting = 0  # so many connections are closed without a word
        self.silent: set[PacketType] = set()  # packets that it does not answer
        self.connects: list[int] = []
        self.heard: list[Packet] = []

    def accept(self, remote: str, heard: list[bytes]) -> ScriptedEnd:
        """See Answering."""
        self.end = ScriptedEnd(self, heard)
        return self.end

    def run(self) -> None:
        """Nothing is left to do."""

    def advance(self, ms: int) -> None:
        """It has no timers."""

    def of(self, kind: type[Any]) -> list[Any]:
        """The packets of a kind that it has heard."""
        return [packet for packet in self.heard if isinstance(packet, kind)]


class ScriptedEnd:
    """One connection of it."""

    def __init__(self, script: Script, heard: list[bytes]) -> None:
        self.closed = False
        self.codec = MqttConnection(Shared(Role.SERVER))
        self._script = script
        self._heard = heard

    def raw(self, data: bytes) -> None:
        """See OtherEnd."""
        script = self._script
        if self.codec.version == 0:
            level = data[data.index(b"MQTT") + 4]
            script.connects.append(level)
            if script.starting:
                script.starting -= 1
                self.closed = True
                return
            if level not in script.levels:
                self.closed = True
                if not script.hangs_up:
                    self._heard.append(b"\x20\x02\x00\x01")
                return
            data = data.replace(b"MQTT\x84", b"MQTT\x04", 1)
        self.codec.receive_data(data)
        while packets := self.codec.events():
            for packet in packets:
                script.heard.append(packet)
                if packet.type not in script.silent:
                    self._answer(packet)
        assert self.codec.error is None, self.codec.error
        self.say()

    def _answer(self, packet: Packet) -> None:
        if isinstance(packet, Connect):
            self.codec.send(Connack(0, self._script.present))
        elif isinstance(packet, Subscribe):
            self.codec.send(Suback(packet.packet_id, [each.qos for each in packet.subscriptions]))
        elif isinstance(packet, Unsubscribe):
            codes = [0] * len(packet.filters) if self.codec.version == V5 else []
            self.codec.send(Unsuback(packet.packet_id, codes))
        elif isinstance(packet, Publish) and packet.qos:
            kind = PacketType.PUBACK if packet.qos == 1 else PacketType.PUBREC
            self.codec.send(Ack(kind, packet.packet_ids))
        elif isinstance(packet, Ack) and packet.type is PacketType.PUBREL:
            self.codec.send(Ack(PacketType.PUBCOMP, packet.packet_ids))

    def publish(self, topic: str, payload: bytes, qos: int, packet_id: int, *, dup: bool = False) -> None:
        """PUBLISH."""
        self.codec.send_publish(PublishHead(self.codec.version, topic, qos=qos, dup=dup), [payload], [packet_id])
        self.say()

    def say(self) -> None:
        """What is to be said goes to the link."""
        data = self.codec.data_to_send()
        if data:
            self._heard.append(data)

    def abort(self) -> None:
        """See OtherEnd."""
        self.closed = True
