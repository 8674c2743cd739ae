"""One side of an MQTT connection: bytes in, packets out, and the other way round.

A packet is a byte with its type and flags, its length in one to four bytes, and so many bytes.

    receive_data  only keeps the bytes
    events        parses them: whole packets, in order, those of a kind in runs; a server stops after CONNECT, because
                  whether and how it reads on is said by the CONNACK that it sends
    error         what was wrong; the packets before it still come out of `events`, nothing after it does

Nothing is copied but what packets consist of.  A packet that is not complete is looked at again when as many bytes
have come as it lacks; how large it may be is known from its first bytes.  What is kept never exceeds the limits by
more than one read; a server that takes its time to answer CONNECT must not read on.

A payload above `Limits.whole_bytes_max` comes in parts, as its bytes do: `Begun`, then `Part`s; after the last one
nothing is read until `resume`.  What goes out may be read on the way too (`send_large`): everything else waits behind
it, and `data_to_send` has a piece at a time.

What the two sides have told each other is respected here: packets are not sent that are too large for the peer, what
it did not ask for is left out, topic aliases are used as far as it takes them, and resolved when it uses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from protocols.mqtt.codes import V5, VERSIONS, PacketType, Role
from protocols.mqtt.decode import connect_version, decode, early_version
from protocols.mqtt.encode import ACK_BYTES, PublishHead, PublishHeads, encode, encode_ack, encode_acks, may_send
from protocols.mqtt.errors import MqttError, malformed, too_large, violation
from protocols.mqtt.fields import VARINT_BYTES_MAX, VARINT_MAX
from protocols.mqtt.packets import Ack, Auth, Connack, Connect, Disconnect, Packet, Part
from protocols.mqtt.properties import (
    AUTHENTICATION_METHOD,
    MAXIMUM_PACKET_SIZE,
    NO_PROPERTIES,
    REASON_STRING,
    REQUEST_PROBLEM_INFORMATION,
    SERVER_REFERENCE,
    SESSION_EXPIRY_INTERVAL,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
    Properties,
    Property,
)
from protocols.mqtt.runs import NO_ALIASES, Shared, TopicAliases, payload_at, read_acks, read_begun, read_publishes
from protocols.mqtt.state import VIEWS, State, trigger, unexpected
from protocols.mqtt.streams import Source, Streams

#: The largest packet that the protocol knows.
PACKET_BYTES_MAX: Final = 1 + VARINT_BYTES_MAX + VARINT_MAX

#: Packets that may tell why even to a client that does not want to know [MQTT-3.1.2-29].
_TELL_ALWAYS: Final = frozenset({PacketType.CONNACK, PacketType.DISCONNECT})

#: Bytes of a topic from which on an alias saves something.
_ALIASED_BYTES_MIN: Final = 4

_PUBLISH: Final = PacketType.PUBLISH
_PUBACK: Final = PacketType.PUBACK
_PUBCOMP: Final = PacketType.PUBCOMP


class MqttConnection:
    """One connection, seen from `shared.role`.  `version` is that of its CONNECT, 0 before."""

    def __init__(self, shared: Shared | None = None) -> None:
        self.version = 0
        self.error: MqttError | None = None
        self.close_expected = False
        self.out: list[bytes] = []
        #: Bytes of the largest packet that the peer takes.
        self.packet_bytes_max_out = PACKET_BYTES_MAX
        self._shared = Shared() if shared is None else shared
        self._role = self._shared.role
        self._limits = self._shared.limits
        self._buffer = b""
        self._at = 0  # where the next packet begins in `_buffer`
        self._pending: bytearray | None = None  # what came since, while a packet was not complete
        self._wanted = 0  # with as many bytes in `_pending` parsing is of use again
        self._ended = False
        self._left = 0  # bytes that a payload in parts still has
        self._held = False  # it has come whole, and nobody has resumed
        self._streams: Streams | None = None  # made for the first large payload
        self._method: str | None = None  # what CONNECT said: the authentication method,
        self._lasting = False  # ... whether the session outlasts the connection,
        self._explaining = True  # ... and whether explanations are wanted
        self._aliases_in = NO_ALIASES
        self._aliases_out: dict[str, int] | None = None
        self._alias_max_out = 0
        self._enter(State.OPENED)

    @property
    def packet_bytes_max_in(self) -> int:
        """Bytes of the largest packet that we take."""
        return self._limits.packet_bytes_max

    @property
    def state(self) -> State:
        """Where the conversation is."""
        return self._state

    def _enter(self, state: State) -> None:
        """Another state: what may be sent and come now, and how large it may be."""
        self._state = state
        self._view = view = VIEWS[self._role][state]
        self._packet_bytes_max = self._limits.connect_bytes_max if view.stranger else self._limits.packet_bytes_max

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Keep bytes for `events`."""
        if self.error is not None or self._state is State.DISCONNECTED:
            return
        if self._pending is not None:
            self._pending += data
        elif self._buffer:
            self._pending = bytearray(data)
        else:
            self._buffer = data
            self._wanted = 0

    def receive_eof(self) -> None:
        """The peer will send no more: half a packet is an error, once the whole ones are out."""
        self._ended = True
        if not self._held and not self._ready():
            self._check_end()

    def _ready(self) -> bool:
        """Whether parsing may find something."""
        reading = self._view.reads and self.error is None and not self._held
        pending = 0 if self._pending is None else len(self._pending)
        return reading and pending >= self._wanted and self._buffer != b""

    def resume(self) -> None:
        """What follows a payload that came in parts can be read."""
        assert self._held, "the last part has come"
        self._held = False

    def events(self) -> list[Packet]:
        """The whole packets received since the last call; call again until there are none."""
        packets: list[Packet] = []
        if not self._ready():
            return packets
        if self._pending is not None:
            self._buffer = b"".join((self._buffer[self._at :], self._pending))
            self._at = 0
            self._pending = None
        self._wanted = 0
        try:
            while self._view.reads and self._parse(packets):
                pass
        except MqttError as error:
            self.error = error
        if self._ended and not self._held and not self._ready():
            self._check_end()
        if self.error is not None or self._state is State.DISCONNECTED or self._at == len(self._buffer):
            self._drop()
        return packets

    def _check_end(self) -> None:
        if self.error is None and self._view.reads and (self._buffer or self._left):
            self.error = malformed("the connection ended in the middle of a packet")
            self._drop()

    def _drop(self) -> None:
        """Keep nothing of what came."""
        self._buffer = b""
        self._at = 0
        self._pending = None

    def _parse(self, packets: list[Packet]) -> bool:
        """Append a packet, or a run of packets, if it is complete; whether to go on.  Raises MqttError."""
        if self._left:
            return self._take_part(packets)
        frame = self._frame()
        if frame is None:
            return False
        body, stop = frame
        data, at = self._buffer, self._at
        kind = data[at] >> 4
        if not self.version:
            self.version, error = connect_version(data, body, stop)
            if error is not None:
                raise error
        if self.version == V5 and body - at > 2 and not data[body - 1]:
            raise malformed("the length of a packet has a needless byte", "MQTT-1.5.5-1")
        packet: Packet
        if kind == _PUBLISH:
            if stop - body > self._limits.whole_bytes_max and not self._is_whole(packets, body, stop):
                return self._left > 0
            packet, self._at = read_publishes(data, at, body, stop, self.version, self._shared, self._aliases_in)
            packets.append(packet)
            return True
        run = read_acks(data, at, self.version) if _PUBACK <= kind <= _PUBCOMP else None
        if run is not None:
            packet, self._at = run
            packets.append(packet)
            return True
        packet = decode(data[at], data, body, stop, self._shared.contexts[self.version])
        self._hear(packet)
        self._at = stop
        packets.append(packet)
        return True

    def _frame(self) -> tuple[int, int] | None:
        """Where the fields of the next packet begin and end, or None if it is not complete.  Raises MqttError."""
        data, at = self._buffer, self._at
        end = len(data)
        if at == end:
            return None
        if data[at] >> 4 not in self._view.kinds:
            raise unexpected(data[at] >> 4, self._state, self._role.peer, self.version)
        length = 0
        body = at + 1
        for shift in range(0, 7 * VARINT_BYTES_MAX, 7):
            if body == end:
                self._wanted = 1
                return None
            byte = data[body]
            body += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
        else:
            sentence = "the length of a packet takes more than four bytes"
            raise malformed(sentence, "MQTT-1.5.5-1", silent=not self.version)
        stop = body + length
        if stop - at > self._packet_bytes_max:
            if not self.version:  # only a client that has shown which MQTT it speaks is told
                self.version, self._wanted = early_version(data, body), 1
            if self.version:
                raise too_large(stop - at, self._packet_bytes_max, stranger=self._view.stranger)
            return None
        if stop > end and not (length > self._limits.whole_bytes_max and data[at] >> 4 == _PUBLISH):
            self._wanted = stop - end
            return None
        return body, stop

    def _is_whole(self, packets: list[Packet], body: int, stop: int) -> bool:
        """Whether a large PUBLISH is to be read like others, and complete; if it comes in parts, it is begun.

        Raises MqttError.
        """
        data, at, end = self._buffer, self._at, len(self._buffer)
        payload, certain = payload_at(data, data[at], body, self.version, self._limits)
        if payload <= stop and (not certain or payload > end):
            self._wanted = max(payload - end, 1)
            return False
        if 0 <= stop - payload <= self._limits.whole_bytes_max:
            self._wanted = max(stop - end, 0)
            return stop <= end
        begun = read_begun(data, at, body, stop, payload, self.version, self._shared, self._aliases_in)
        packets.append(begun)
        self._at, self._left = payload, begun.nbytes
        return False

    def _take_part(self, packets: list[Packet]) -> bool:
        """What there is of a payload; whether there may be more."""
        at = self._at
        stop = min(at + self._left, len(self._buffer))
        if stop == at:
            return False
        self._left -= stop - at
        packets.append(Part(self._buffer[at:stop], last=not self._left))
        self._at = stop
        self._held = not self._left
        return False

    def _hear(self, packet: Packet) -> None:
        """What a packet of the peer changes.  Raises MqttError if it may not come now."""
        state = self._view.incoming.get(trigger(packet))
        if state is None:
            raise unexpected(packet.type, self._state, self._role.peer, self.version)
        if isinstance(packet, Connect):
            self._remember(packet.properties)
            self._respect(packet.properties)
        elif isinstance(packet, Connack):
            if not packet.reason_code:
                self._check_method(packet)
            self._respect(packet.properties)
        elif isinstance(packet, Auth):
            self._check_method(packet)
        elif isinstance(packet, Disconnect):
            self._check_expiry(packet.properties)
        if state is not self._state:
            self._enter(state)

    def _remember(self, properties: Properties) -> None:
        """What CONNECT said and matters until the end; not more, since it is kept for as long."""
        self._method = properties.get(AUTHENTICATION_METHOD)
        self._lasting = (properties.get(SESSION_EXPIRY_INTERVAL) or 0) > 0
        self._explaining = properties.get(REQUEST_PROBLEM_INFORMATION) != 0

    def _check_expiry(self, properties: Properties) -> None:
        """A session that ends with its connection is not prolonged when that ends (3.14.2.2.2).  Raises MqttError."""
        prolonged = properties.get(SESSION_EXPIRY_INTERVAL)
        if prolonged and not self._lasting:
            raise violation(f"DISCONNECT: a session expiry interval of {prolonged} s, where CONNECT had none")

    def _check_method(self, packet: Connack | Auth) -> None:
        """AUTH and the accepting CONNACK name the method of CONNECT [MQTT-4.12.0-5], and no other [MQTT-4.12.0-6].

        Raises MqttError.
        """
        named, method = packet.properties.get(AUTHENTICATION_METHOD), self._method
        if named != method:
            sentence = f"{packet.type.name}: the authentication method is {named!r}, in CONNECT it was {method!r}"
            raise violation(sentence, "MQTT-4.12.0-5" if method else "MQTT-4.12.0-6")

    def _respect(self, properties: Properties) -> None:
        """What the peer takes: CONNECT or CONNACK say it ([MQTT-3.1.2-24], [MQTT-3.1.2-26], [MQTT-3.2.2-17])."""
        self.packet_bytes_max_out = properties.get(MAXIMUM_PACKET_SIZE) or PACKET_BYTES_MAX
        self._alias_max_out = min(properties.get(TOPIC_ALIAS_MAXIMUM) or 0, self._limits.topic_alias_max)

    # -- sending ---------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything to send since the last call."""
        if self._streams:
            return self._streams.read()
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    @property
    def streaming(self) -> Source | None:
        """The payload that is still to be read, if any: call `data_to_send` again when what it gave has left."""
        return None if self._streams is None else self._streams.current

    def abandon(self) -> None:
        """Send nothing of what waits: a payload ends in the middle, and so does the connection."""
        self._streams = None
        self.out = []
        self._enter(State.DISCONNECTED)
        self._close()

    def discard(self) -> None:
        """Send nothing of what waits, whole packets or not: DISCONNECT may follow, unless a payload is on its way."""
        if self.streaming:
            self.abandon()
        else:
            self.out = []

    def send(self, packet: Packet) -> bool:
        """Send anything but PUBLISH; False: it is too large for the peer and was not sent [MQTT-3.1.2-24].

        CONNECT and CONNACK get what the limits say (Maximum Packet Size, Topic Alias Maximum), CONNACK and AUTH the
        authentication method.  A reason string and user properties are left out where the peer does not want them
        [MQTT-3.1.2-29] or has no room for them.  Raises ValueError for what may not be sent now, or not at all.
        """
        if isinstance(packet, Ack) and self._plain(packet):
            self.out.append(encode_acks(packet.type, packet.packet_ids))
            return True
        state = self._view.outgoing.get(trigger(packet))
        if isinstance(packet, Connect) and state is not None:
            self.version = packet.version
        if state is None or not may_send(packet.type, self.version, self._role):
            raise ValueError(f"a {self._role.value} cannot send {trigger(packet)} when {self._state.value}")
        if isinstance(packet, Connect):
            self._remember(packet.properties)
            packet = self._announcing(packet)
        elif isinstance(packet, Connack) and not packet.reason_code:
            packet = self._announcing(self._naming_method(packet))
        elif isinstance(packet, Auth):
            packet = self._naming_method(packet)
        raw = self._fitting(packet)
        if raw is None:
            return False
        self.out.append(raw)
        if state is not self._state:
            self._enter(state)
        if state is State.DISCONNECTED:
            self._close()
        return True

    def _plain(self, packet: Ack) -> bool:
        """Whether acknowledgements say nothing but packet ids, and may be sent: by far the most do, and may."""
        bare = not packet.reason_code and packet.properties is NO_PROPERTIES
        return bare and self._view.working and self.packet_bytes_max_out >= ACK_BYTES

    def _announcing(self, packet: Any) -> Any:
        """CONNECT or CONNACK with what the peer has to respect from now on."""
        if self.version != V5:
            return packet
        limits = self._limits
        own: list[tuple[Property[Any], Any]] = [(MAXIMUM_PACKET_SIZE, limits.packet_bytes_max)]
        if limits.topic_alias_max:
            own.append((TOPIC_ALIAS_MAXIMUM, limits.topic_alias_max))
            self._aliases_in = TopicAliases(limits.topic_alias_max)
        return replace(packet, properties=Properties([*packet.properties, *own]))

    def _naming_method(self, packet: Any) -> Any:
        """CONNACK or AUTH with the authentication method of CONNECT, if there is one [MQTT-4.12.0-5]."""
        if self._method is None or AUTHENTICATION_METHOD in packet.properties:
            return packet
        return replace(packet, properties=Properties([(AUTHENTICATION_METHOD, self._method), *packet.properties]))

    def _fitting(self, packet: Packet) -> bytes | None:
        """The bytes of a packet, with as much of its explanations as the peer wants and has room for."""
        most = self.packet_bytes_max_out
        if isinstance(packet, Ack):
            most *= len(packet.packet_ids)
        if packet.type in REASON_STRING.places and self.version == V5:
            explained: Any = packet
            if self._unwanted(packet.type):
                explained = _without(explained, USER_PROPERTY, REASON_STRING)
            for property in (USER_PROPERTY, REASON_STRING):
                raw = self._encode(explained)
                if len(raw) <= most:
                    return raw
                explained = _without(explained, property)
            packet = explained
        raw = self._encode(packet)
        return raw if len(raw) <= most else None

    def _unwanted(self, type: PacketType) -> bool:
        """Whether the client does not want explanations here [MQTT-3.1.2-29]; a server always gets them."""
        return self._role is Role.SERVER and not self._explaining and type not in _TELL_ALWAYS

    def _encode(self, packet: Packet) -> bytes:
        return encode_ack(packet, self.version) if isinstance(packet, Ack) else encode(packet, self.version)

    @property
    def mixing(self) -> bool:
        """Whether packets may be sent whose heads differ: the peer has no limit of size, and no topic aliases."""
        return self.packet_bytes_max_out >= PACKET_BYTES_MAX and not self._alias_max_out

    def send_publish(
        self, head: PublishHead | PublishHeads, payloads: Sequence[bytes], packet_ids: Sequence[int] = ()
    ) -> list[int]:
        """Send messages; the positions of those that are too large for the peer and were not sent [MQTT-3.1.2-25].

        `packet_ids` belong to the payloads, if the QoS is above 0; heads that differ are for peers that are `mixing`.
        Raises ValueError for what may not be sent now.
        """
        if head.version != self.version or not self._view.working:
            state = self._state.value
            raise ValueError(f"PUBLISH of MQTT {VERSIONS[head.version]} cannot be sent when {state}")
        if isinstance(head, PublishHeads):
            assert self.mixing, "a peer with limits gets what agrees in its head"
            head.encode(self.out, payloads, packet_ids)
            return []
        most = self.packet_bytes_max_out
        too_large: list[int] = []
        if most < PACKET_BYTES_MAX:
            too_large = [at for at, payload in enumerate(payloads) if head.packet_bytes(payload) > most]
            if too_large:
                left = set(too_large)
                payloads = [payload for at, payload in enumerate(payloads) if at not in left]
                packet_ids = [packet_id for at, packet_id in enumerate(packet_ids) if at not in left]
        if self._alias_max_out and payloads:
            head, payloads, packet_ids = self._alias(head, payloads, packet_ids)
        head.encode(self.out, payloads, packet_ids)
        return too_large

    def send_large(self, head: PublishHead, source: Source, packet_ids: Sequence[int]) -> None:
        """Send one message whose payload is read on its way; the peer takes packets of this size."""
        assert self._view.working, "a message for somebody who is here"
        assert head.packet_bytes_with(source.left) <= self.packet_bytes_max_out, "one that its receiver takes"
        head.encode_lead(self.out, source.left, packet_ids)
        if self._streams is None:
            self._streams = Streams()
        self.out = self._streams.add(self.out, source)

    def _alias(
        self, head: PublishHead, payloads: Sequence[bytes], packet_ids: Sequence[int]
    ) -> tuple[PublishHead, Sequence[bytes], Sequence[int]]:
        """What is left to send, with what head, once the peer knows the alias of this topic, if there is to be one."""
        if self._aliases_out is None:
            self._aliases_out = {}
        alias = self._aliases_out.get(head.topic)
        if alias is None:
            alias = len(self._aliases_out) + 1
            if alias > self._alias_max_out or len(head.topic) < _ALIASED_BYTES_MIN:
                return head, payloads, packet_ids
            introducing = head.aliased(alias, known=False)
            if introducing.packet_bytes(payloads[0]) > self.packet_bytes_max_out:
                return head, payloads, packet_ids
            introducing.encode(self.out, payloads[:1], packet_ids[:1])
            self._aliases_out[head.topic] = alias
            payloads, packet_ids = payloads[1:], packet_ids[1:]
        return head.aliased(alias, known=True), payloads, packet_ids

    def send_error(self, error: MqttError) -> None:
        """Say what is wrong, if there is a packet for it, and end.  Of several errors the first is sent."""
        if self.close_expected:
            return
        if self._streams:
            self.abandon()  # in the middle of a packet nothing can be said
            return
        if self._role is Role.SERVER and self.version and self._state is State.OPENED:
            self._enter(State.ANSWERING)  # a CONNECT came, however wrong
        said: list[tuple[Property[Any], Any]] = [(SERVER_REFERENCE, error.servers)] if error.servers else []
        explained = Properties([*said, (REASON_STRING, error.sentence)]) if self.version == V5 else Properties()
        if self._view.stranger:
            code = error.return_code if self.version != V5 else int(error.reason) if error.connack else None
            if code is not None and self.version:
                self.send(Connack(code, properties=explained))
        elif self.version == V5 and "DISCONNECT" in self._view.outgoing and error.disconnect(self._role):
            self.send(Disconnect(int(error.reason), explained))
        self._enter(State.DISCONNECTED)
        self._close()

    def _close(self) -> None:
        self.close_expected = True
        self._drop()


def _without(packet: Any, *properties: Property[Any]) -> Any:
    return replace(packet, properties=packet.properties.without(*properties))
