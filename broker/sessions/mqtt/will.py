"""A will: the message to publish when a client's connection ends abnormally (MQTT 5.0, 3.1.2.5, 3.1.3.2)."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from broker.sessions.mqtt.format import make_head, read_properties
from broker.sessions.mqtt.publish import Publisher
from protocols.mqtt.packets import Will as WillMessage
from protocols.mqtt.properties import MESSAGE_EXPIRY_INTERVAL, WILL_DELAY_INTERVAL, Properties


@dataclass(slots=True, eq=False)
class Will:
    """The will of a session.  `delay` and `expiry` (-1: none) in seconds."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: Properties
    delay: int
    expiry: int

    @classmethod
    def of(cls, will: WillMessage) -> Will:
        """Make one from that of a CONNECT."""
        delay = will.properties.get(WILL_DELAY_INTERVAL) or 0
        expiry = will.properties.get(MESSAGE_EXPIRY_INTERVAL)
        return cls(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            will.properties.without(WILL_DELAY_INTERVAL, MESSAGE_EXPIRY_INTERVAL),
            delay,
            -1 if expiry is None else expiry,
        )

    @classmethod
    def from_json(cls, stored: dict[str, object]) -> Will:
        """Restore a stored one."""
        head = base64.b64decode(str(stored["head"]))
        delay, expiry = stored["delay"], stored["expiry"]
        assert isinstance(delay, int)
        assert isinstance(expiry, int)
        return cls(
            str(stored["topic"]),
            base64.b64decode(str(stored["payload"])),
            head[0] & 3,
            bool(head[0] & 4),
            read_properties(head),
            delay,
            expiry,
        )

    def to_json(self) -> dict[str, object]:
        """Return what is stored with the session."""
        head = make_head(self.qos, self.retain, self.properties)
        return {
            "topic": self.topic,
            "payload": base64.b64encode(self.payload).decode(),
            "head": base64.b64encode(head).decode(),
            "delay": self.delay,
            "expiry": self.expiry,
        }

    def publish(self, publisher: Publisher) -> None:
        """Publish the will.  Raises EngineError."""
        properties = self.properties
        if self.expiry >= 0:
            properties = Properties([(MESSAGE_EXPIRY_INTERVAL, self.expiry), *properties])
        publisher.send(self.topic, self.payload, self.qos, self.retain, properties)
