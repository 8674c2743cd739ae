"""Fed to a whole broker: what a client that has logged in to AMQP sends, and others receive.

A valid client opens a connection, attaches links to two queues and a topic, and one to the coordinator.  Then come, by
the first byte of an input, its frames, or single messages: the rest of the input is the payload of a valid TRANSFER.
Consumers of every protocol read what is accepted, so that each message is converted, too.
"""

from __future__ import annotations

from typing import Final

from protocols.amqp.encode import encode
from protocols.amqp.frames import AMQP_HEADER, SASL_HEADER, TYPE_SASL, frame
from protocols.amqp.message import AMQP_SEQUENCE, AMQP_VALUE, DATA, encode_application_properties, encode_section
from protocols.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Coordinator,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslInit,
    Source,
    Target,
    TransactionalState,
    Transfer,
)
from tests.support.amqp_client import AmqpSim, message
from tests.support.mqtt_client import MqttClient, greeting
from tests.support.mqtt_world import SimCarrier
from tests.support.sim_broker import SimBroker, configured
from tests.support.sim_browser import RawPeer

#: Inputs of one broker: its disk is in memory.
INPUTS_MAX: Final = 200

TARGETS: Final = ("queue://a", "topic://b", "a", "")

OPENING: Final = b"".join(
    [
        SASL_HEADER,
        frame(0, SaslInit("PLAIN", b"\0u\0p").encode(), TYPE_SASL),
        AMQP_HEADER,
        frame(0, Open("fuzz").encode()),
        frame(0, Begin(None, 0, 2048, 2048).encode()),
        *[
            frame(0, Attach(f"s{at}", at, False, source=Source(), target=Target(to), initial_delivery_count=0).encode())
            for at, to in enumerate(TARGETS)
        ],
        frame(0, Attach("tx", 4, False, source=Source(), target=Coordinator(), initial_delivery_count=0).encode()),
        frame(0, Attach("r", 5, True, source=Source("queue://back"), target=Target()).encode()),
        frame(0, Flow(0, 2048, 0, 2048, 5, 0, 10).encode()),
    ]
)


def sections() -> list[bytes]:
    """Valid messages of all kinds."""
    properties = encode_application_properties({"a": 1, "b": "text", "c": None, "d": 1.5})
    bodies = [
        encode_section(DATA, b"bytes"),
        encode_section(AMQP_VALUE, "text"),
        encode_section(AMQP_VALUE, {"a": [1, None, {"b": b"c"}]}),
        encode_section(AMQP_SEQUENCE, [1, "two", 3.0]),
        b"",
    ]
    return [message("text"), *[properties + body for body in bodies]]


def frames() -> list[bytes]:
    """What valid clients send on the links of `OPENING`."""
    payload = message("text")
    state = TransactionalState(b"1")
    return [
        *[frame(0, Transfer(at, 0, b"t", 0).encode() + payload) for at in range(4)],
        frame(0, Transfer(0, 0, b"t", 0, more=True).encode() + payload[:9])
        + frame(0, Transfer(0, more=False).encode() + payload[9:]),
        frame(0, Transfer(0, 0, b"t", 0, more=True).encode() + payload) + frame(0, Transfer(0, aborted=True).encode()),
        frame(0, Transfer(0, 0, b"t", 0, True).encode() + payload) + frame(0, Transfer(1, 1, b"t", 0).encode()),
        frame(0, Transfer(4, 0, b"t", 0).encode() + encode_section(AMQP_VALUE, None)),
        frame(0, Transfer(0, 0, b"t", 0, state=state).encode() + payload),
        frame(0, Disposition(True, 0, 3, True, Accepted()).encode()),
        frame(0, Flow(0, 2048, 1, 2048, 5, 0, 10, drain=True, echo=True).encode()),
        frame(0, Detach(0, True).encode()) + frame(0, Detach(5).encode()),
        frame(0, End().encode()),
    ]


class Sent:
    """The broker that is fed."""

    def __init__(self) -> None:
        self._left = 0
        self.accepted = 0

    def run(self, raw: bytes) -> None:
        """Send an input, and see that it costs nobody else anything."""
        if not self._left:
            self._left = INPUTS_MAX
            self._begin()
        self._left -= 1
        broker = self._broker
        peer = RawPeer(broker, "amqp")
        peer.raw(OPENING)
        rest = raw[1:]
        if raw[:1] < b"\x80":
            peer.raw(rest)
        else:
            peer.raw(frame(0, Transfer(raw[0] & 1, 0, b"t", 0).encode() + rest))
        peer.drop()
        broker.run()
        arrived = self._amqp.take()
        self._amqp.settle(*arrived)
        self.accepted += len(self._stomp.messages()) + len(arrived) + len(self._mqtt.take())
        assert broker.failure is None, broker.failure
        faults = [fields for code, fields in broker.reports if "traceback" in fields]
        assert not faults, faults
        assert not self._mqtt.closed
        assert not self._amqp.closed
        broker.reports.clear()

    def _begin(self) -> None:
        self._broker = SimBroker(configured())
        self._stomp = self._broker.subscriber("/queue/a")
        self._amqp = AmqpSim(self._broker, container="reader")
        self._amqp.receiver("b", "topic", credit=100_000)
        self._mqtt = MqttClient().over(SimCarrier(self._broker))
        self._mqtt.connect(greeting("reader"))
        self._mqtt.subscribe("b", qos=1)


def seeds() -> list[bytes]:
    """Inputs to begin with: frames, messages to the queue, messages to the topic."""
    return [b"\0" + each for each in [*frames(), b"".join(frames()[:4])]] + [
        first + each for first in (b"\x80", b"\x81") for each in sections()
    ]


TOKENS: Final = [
    encode(None),
    encode({}),
    b"\x00\x53\x70",
    b"\x00\x53\x72\xc1",
    b"\x00\x53\x73\xc0",
    b"\x00\x53\x74\xc1",
    b"\x00\x53\x75\xa0",
    b"\x00\x53\x77",
    b"\x00\x53\x78\xc1",
    b"\x98" + bytes(16),
    b"\xa1\x01\xff",
    b"\x83" + b"\xff" * 8,
    b"\x82\x7f\xf0\0\0\0\0\0\0",
    b"\x73\0\x11\0\0",
]
