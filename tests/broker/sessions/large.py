"""Bodies in files of their own: a broker with a low limit for them, and what is sent."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from broker.config import Config, load
from protocols.amqp.encode import encode
from protocols.amqp.message import DATA, Message, encode_application_properties, encode_section
from protocols.amqp.performatives import Header, Properties
from store.bodies import DIRECTORY
from tests.support.sim_broker import SimBroker, configured

#: The smallest large body, in bytes.
LARGE = 1000


def config(*settings: dict[str, object], mqtt: Mapping[str, object] | None = None, **limits: object) -> Config:
    """The configuration as shipped, with a low limit for bodies in memory, and other settings of the MQTT acceptor."""
    shipped = load(None)
    acceptors = dict(shipped.acceptors)
    for name in ("amqp", "stomp", "mqtt"):
        lower = {f"{name}_min_large_message_size": LARGE, **((mqtt or {}) if name == "mqtt" else {})}
        acceptors[name] = acceptors[name].model_copy(update=lower)
    return configured(
        *settings,
        acceptors=acceptors,
        limits=shipped.limits.model_copy(update=limits),
        journal=shipped.journal.model_copy(update={"segment_size": 1 << 20, "reserve": 1 << 16}),
    )


def body(nbytes: int = 3 * LARGE) -> bytes:
    """Bytes that no other body has."""
    return Random(nbytes).randbytes(nbytes).replace(b"\0", b"\1")


def files_of(broker: SimBroker) -> list[str]:
    """The files of bodies that are there."""
    return [path for path in broker.files.paths() if f"/{DIRECTORY}/" in path]


def message(data: bytes, *, durable: bool = True, **properties: object) -> bytes:
    """A message with a data section."""
    return (
        encode(Header(durable))
        + encode(Properties(message_id="m", to="q", **properties))  # type: ignore[arg-type]
        + encode_application_properties({"color": "red"})
        + encode_section(DATA, data)
    )


def data_of(payload: bytes) -> bytes:
    """The data sections of a message together."""
    kind, values = Message(payload).body()
    assert kind == DATA
    return b"".join(value for value in values if isinstance(value, bytes))


def value_of(data: bytes, kind: int) -> bytes:
    """A message whose body is one value with a long length."""
    return encode(Header(True)) + b"\x00\x53\x77" + bytes([kind]) + len(data).to_bytes(4) + data
