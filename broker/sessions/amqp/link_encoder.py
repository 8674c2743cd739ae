"""Encodes messages for another broker: each carries its hops and, for a Bartleby, its link id."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar, Final, NamedTuple

from broker.engine import DeliveryState
from broker.engine.model.message import RESERVED_PREFIXES, Annotations, Message
from broker.sessions.amqp.format import AMQP_FORMAT
from broker.sessions.amqp.link_id import HOPS, LINK_ID, LINK_ID_BYTES, hop, hops_of, link_id
from broker.sessions.amqp.message import DeliveryHistory, Encoder, annotated, as_amqp, typed_notes
from broker.sessions.convert import ConversionError, ReplyPrefixes
from protocols.amqp.encode import encode
from protocols.amqp.errors import DecodeError
from protocols.amqp.message import MESSAGE_ANNOTATIONS, PROPERTIES, encode_annotations
from protocols.amqp.message import Message as Encoded
from protocols.amqp.sections import ABSOLUTE_EXPIRY, has_property

#: How a head without message annotations begins.
_PROPERTIES: Final = b"\x00\x53\x73"
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"


class Stamp(NamedTuple):
    """The additions of a broker to messages over a link: its name, the link's name, its id (empty: no link ids).

    `relayed`: the other end is an anonymous relay, which reads the address from each message's `to`.
    """

    broker: str
    link: str
    broker_id: bytes
    relayed: bool = False


class LinkEncoder(Encoder):
    """Encodes messages for another broker's link; the bare message is unchanged.

    The header states how many deliveries have failed here, as the other broker continues the count.

    Annotations that only a broker writes (`_AMQ_ORIG_ADDRESS`) are left out for a Bartleby, which would drop them.
    """

    __slots__ = ("_queue_id", "_stamp")

    _as_they_came: ClassVar[int] = -1  # none

    def __init__(self, replies: ReplyPrefixes, stamp: Stamp) -> None:
        super().__init__(replies)
        self._stamp = stamp
        self._queue_id = 0

    def read(self, queue_id: int) -> None:
        """Set the queue that link ids name; relayed ones name none, so copies from several queues count as one."""
        self._queue_id = 0 if self._stamp.relayed else queue_id

    def history(self, past: DeliveryHistory) -> DeliveryHistory:
        """Return which messages may have been processed: no consumer has seen one that only came back from a link."""
        return DeliveryHistory(past.states, frozenset(), 0)

    def attempts(self, state: DeliveryState | None) -> int:
        return state.count if state else 0

    def rewritten(self, message: Message) -> bytes:
        header, stamp, head = message.header, self._stamp, message.head
        id = link_id(stamp.broker_id, message, self._queue_id) if stamp.broker_id else None
        notes = self._notes(header.annotations)
        if (
            not notes
            and not stamp.relayed
            and header.format.number == AMQP_FORMAT
            and isinstance(message.body, bytes)
            and _plain(head)
        ):
            before, behind = _first_hop(stamp, self._now)
            return before + (id or b"") + behind + head + message.body
        payload = as_amqp(message, self._replies, self._mark)
        hops = [*hops_of(payload), hop(stamp.broker, stamp.link, self._now)]

        def annotate(own: dict[object, object]) -> dict[object, object]:
            first: dict[object, object] = {} if id is None else {LINK_ID: id}
            return first | {name: value for name, value in (own | notes).items() if name != LINK_ID} | {HOPS: hops}

        return annotated(header, _addressed(payload, header.address) if stamp.relayed else payload, annotate)

    def _notes(self, annotations: Annotations | None) -> dict[object, object]:
        """Return the broker's annotations that the other broker accepts."""
        if not annotations:
            return {}
        if self._stamp.broker_id:
            annotations = {n: value for n, value in annotations.items() if not n.startswith(RESERVED_PREFIXES)}
        return typed_notes(annotations)


def _addressed(payload: bytes, address: str) -> bytes:
    """Set a message's `to` for an anonymous relay.  Links change no other field of the bare message."""
    encoded = Encoded(payload)
    try:
        properties = encoded.properties
    except DecodeError as error:
        raise ConversionError(f"not an AMQP message: {error.description}") from error
    if properties.to == address:
        return payload
    before = encoded.section(MESSAGE_ANNOTATIONS)
    rest = encoded.bare[len(encoded.section(PROPERTIES)) :]
    return before + encode(replace(properties, to=address)) + rest


def _plain(head: bytes) -> bool:
    """Whether a head has no annotations, and no expiry time that may have to change; False if in doubt."""
    if head.startswith(_PROPERTIES):
        return not has_property(head, len(_PROPERTIES), ABSOLUTE_EXPIRY)
    return not head or head.startswith(_APPLICATION_PROPERTIES)


@lru_cache(maxsize=64)
def _first_hop(stamp: Stamp, now: int) -> tuple[bytes, bytes]:
    """Return the annotations for a message without any, as the bytes before and after its link id."""
    annotations: dict[object, object] = {LINK_ID: bytes(LINK_ID_BYTES)} if stamp.broker_id else {}
    encoded = encode_annotations(MESSAGE_ANNOTATIONS, annotations | {HOPS: [hop(stamp.broker, stamp.link, now)]})
    before, _, behind = encoded.partition(bytes(LINK_ID_BYTES)) if stamp.broker_id else (encoded, b"", b"")
    return before, behind
