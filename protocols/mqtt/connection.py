"""One side of an MQTT connection: bytes in, packets out, and the other way round.

    receive_data  only buffers the bytes
    events        parses them (`reader`): complete packets, in order, those of one kind in runs.  A server stops after
                  CONNECT: the CONNACK that it sends determines whether and how it continues
    error         the protocol error, if any; `events` still returns the packets before it, and nothing after it

A server that takes its time to answer CONNECT must stop reading from the socket.  After the last part of a payload that
arrives in parts, nothing is parsed until `resume`.  A payload may also be read while it is sent (`send_large`): all
other output waits behind it, and `data_to_send` returns a piece at a time.

This class respects what both sides have announced (`agreement`): packets too large for the peer are not sent,
explanations that it did not ask for are left out, topic aliases are used within its limit, and its own are resolved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from protocols.mqtt.agreement import Agreement
from protocols.mqtt.aliases import OwnAliases, TopicAliases
from protocols.mqtt.codes import V5, VERSIONS, PacketType, Role
from protocols.mqtt.encode import ACK_BYTES, PublishHead, PublishHeads, encode, encode_ack, encode_acks, may_send
from protocols.mqtt.errors import MqttError
from protocols.mqtt.fields import PACKET_BYTES_MAX
from protocols.mqtt.packets import Ack, Auth, Connack, Connect, Disconnect, Packet, Publish
from protocols.mqtt.properties import (
    MAXIMUM_PACKET_SIZE,
    NO_PROPERTIES,
    REASON_STRING,
    SERVER_REFERENCE,
    TOPIC_ALIAS_MAXIMUM,
    USER_PROPERTY,
    Properties,
    Property,
    explanation,
)
from protocols.mqtt.reader import PacketReader
from protocols.mqtt.runs import RUN_MAX, Shared
from protocols.mqtt.state import VIEWS, State, trigger, unexpected
from protocols.mqtt.streams import Source, Streams

#: Packets that change the state of the connection, or may not be permitted in it.
_CONTROL: Final = frozenset({PacketType.CONNECT, PacketType.CONNACK, PacketType.DISCONNECT, PacketType.AUTH})

#: How many packets, or runs of them, are parsed at a time: all those of a read may take long.  So may the messages in
#: runs, of which no further one is begun when there are `RUN_MAX`.
PACKETS_MAX: Final = 64


class MqttConnection:
    """One connection, seen from `shared.role`.  `version` is that of its CONNECT, 0 before."""

    __slots__ = (
        "_aliases",
        "_limits",
        "_reader",
        "_role",
        "_shared",
        "_streams",
        "_view",
        "agreement",
        "close_expected",
        "error",
        "out",
        "version",
    )

    def __init__(self, shared: Shared | None = None) -> None:
        self.version = 0
        self.error: MqttError | None = None
        self.close_expected = False
        self.out: list[bytes] = []
        self._shared = Shared() if shared is None else shared
        self._role = self._shared.role
        self._limits = self._shared.limits
        self.agreement = Agreement(self._limits)
        self._view = VIEWS[self._role][State.OPENED]
        self._reader = PacketReader(self._shared)
        self._streams: Streams | None = None  # made for the first large payload
        self._aliases: OwnAliases | None = None  # made for the first message, if the peer takes them

    @property
    def packet_bytes_max_in(self) -> int:
        """Size of the largest packet that we accept."""
        return self._limits.packet_bytes_max

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._view.state

    def _enter(self, state: State) -> None:
        """Change the state, and with it the packets and sizes that are permitted."""
        self._view = VIEWS[self._role][state]

    # -- receiving -------------------------------------------------------------------------------------------------

    def receive_data(self, data: bytes) -> None:
        """Buffer bytes for `events`."""
        if self.error is None and self._view.state is not State.DISCONNECTED:
            self._reader.add(data)

    @property
    def partial_bytes(self) -> int:
        """Bytes received and not returned by `events` yet, such as those of an incomplete packet."""
        return len(self._reader)

    def receive_eof(self) -> None:
        """The peer will send no more: an incomplete packet is an error, after `events` has returned the others."""
        self._reader.ended = True
        if self.error is None and self._view.reads and not self._reader.begin():
            try:
                self._reader.check_end()
            except MqttError as error:
                self._fail(error)

    def resume(self) -> None:
        """Parse what follows a payload that arrived in parts."""
        self._reader.resume()

    @property
    def has_more(self) -> bool:
        """Whether `events` may find more packets now."""
        return self.error is None and self._view.reads and self._reader.has_more

    def events(self) -> list[Packet]:
        """Return complete packets received since the last call, some at a time; call again until there are none."""
        packets: list[Packet] = []
        published = 0
        reader = self._reader
        if self.error is not None or not self._view.reads or not reader.begin():
            return packets
        try:
            while (packet := reader.read(self._view)) is not None:
                if packet.type in _CONTROL and not self._receive(packet):
                    packets.append(packet)
                    reader.trim()
                    break
                packets.append(packet)
                if isinstance(packet, Publish):
                    published += len(packet.topics)
                if len(packets) == PACKETS_MAX or published >= RUN_MAX:
                    reader.trim()
                    break
            else:
                if reader.ended:
                    reader.check_end()
        except MqttError as error:
            self._fail(error)
        self.version = reader.version
        if self._view.state is State.DISCONNECTED:
            reader.drop()
        return packets

    def _fail(self, error: MqttError) -> None:
        error.__traceback__ = error.__context__ = None  # their calls refer to this connection
        self.error = error
        self._reader.drop()

    def _receive(self, packet: Packet) -> bool:
        """Apply a packet of the peer to the state.  Returns whether to read on.  Raises MqttError if not allowed."""
        state = self._view.incoming.get(trigger(packet))
        if state is None:
            raise unexpected(packet.type, self.state, self._role.peer, self._reader.version)
        self.agreement.receive(packet)
        self._enter(state)
        return self._view.reads

    # -- sending ---------------------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the output since the last call."""
        if self._streams:
            return self._streams.read()
        out = self.out
        data = out[0] if len(out) == 1 else b"".join(out)
        out.clear()
        return data

    @property
    def streaming(self) -> Source | None:
        """The payload being sent, if any: call `data_to_send` again when the bytes that it returned have been sent."""
        return None if self._streams is None else self._streams.current

    def abandon(self) -> None:
        """Drop all pending output, even in the middle of a payload, and end the connection."""
        self._streams = None
        self.out = []
        self._enter(State.DISCONNECTED)
        self._close()

    def discard(self) -> None:
        """Drop all pending output.  DISCONNECT may follow, unless a payload was being sent."""
        if self.streaming:
            self.abandon()
        else:
            self.out = []

    def send(self, packet: Packet) -> bool:
        """Send anything but PUBLISH.  Returns False if it is too large for the peer and was not sent [MQTT-3.1.2-24].

        CONNECT and CONNACK get properties for the limits (Maximum Packet Size, Topic Alias Maximum), CONNACK and AUTH
        the authentication method.  A reason string and user properties are left out if the peer does not want them
        [MQTT-3.1.2-29] or they would exceed its maximum.  Raises ValueError if the packet may not be sent now, or ever.
        """
        if isinstance(packet, Ack) and self._plain(packet):
            self.out.append(encode_acks(packet.type, packet.packet_ids))
            return True
        state = self._view.outgoing.get(trigger(packet))
        if isinstance(packet, Connect) and state is not None:
            self.version = self._reader.version = packet.version
        if state is None or not may_send(packet.type, self.version, self._role):
            raise ValueError(f"a {self._role.value} cannot send {trigger(packet)} when {self.state.value}")
        if isinstance(packet, Connect):
            self.agreement.connecting(packet.properties)
            packet = self._announcing(packet)
        elif isinstance(packet, Connack) and not packet.reason_code:
            packet = self._announcing(self.agreement.naming_method(packet))
        elif isinstance(packet, Auth):
            packet = self.agreement.naming_method(packet)
        raw = self._fitting(packet)
        if raw is None:
            return False
        self.out.append(raw)
        if state is not self.state:
            self._enter(state)
        if state is State.DISCONNECTED:
            self._close()
        return True

    def _plain(self, packet: Ack) -> bool:
        """Whether acknowledgements have only packet ids and may be sent now: true for nearly all."""
        bare = not packet.reason_code and packet.properties is NO_PROPERTIES
        return bare and self._view.working and self.agreement.packet_bytes_max >= ACK_BYTES

    def _announcing(self, packet: Any) -> Any:
        """Return a CONNECT or CONNACK with our limits, which the peer has to respect from now on."""
        if self.version != V5:
            return packet
        limits = self._limits
        own: list[tuple[Property[Any], Any]] = [(MAXIMUM_PACKET_SIZE, limits.packet_bytes_max)]
        if limits.topic_alias_max:
            own.append((TOPIC_ALIAS_MAXIMUM, limits.topic_alias_max))
            self._reader.aliases = TopicAliases(limits.topic_alias_max)
        return replace(packet, properties=Properties([*packet.properties, *own]))

    def _fitting(self, packet: Packet) -> bytes | None:
        """Encode a packet, with as many explanations as the peer wants and accepts; None: too large even without."""
        most = self.agreement.packet_bytes_max
        if isinstance(packet, Ack):
            most *= len(packet.packet_ids)
        if packet.type in REASON_STRING.places and self.version == V5:
            explained: Any = packet
            if self._role is Role.SERVER and not self.agreement.explains(packet.type):
                explained = _without(explained, USER_PROPERTY, REASON_STRING)
            for property in (USER_PROPERTY, REASON_STRING):
                raw = self._encode(explained)
                if len(raw) <= most:
                    return raw
                explained = _without(explained, property)
            packet = explained
        raw = self._encode(packet)
        return raw if len(raw) <= most else None

    def _encode(self, packet: Packet) -> bytes:
        return encode_ack(packet, self.version) if isinstance(packet, Ack) else encode(packet, self.version)

    @property
    def mixing(self) -> bool:
        """Whether `send_publish` accepts different heads: the peer has no size limit and no topic aliases."""
        return self.agreement.packet_bytes_max >= PACKET_BYTES_MAX and not self.agreement.alias_max

    def send_publish(
        self, head: PublishHead | PublishHeads, payloads: Sequence[bytes], packet_ids: Sequence[int] = ()
    ) -> list[int]:
        """Send messages.  Returns the positions of those that are too large for the peer, unsent [MQTT-3.1.2-25].

        `packet_ids`: one per payload, if the QoS is above 0.  PublishHeads is only for peers that are `mixing`.
        Raises ValueError if they may not be sent now.
        """
        if head.version != self.version or not self._view.working:
            state = self.state.value
            raise ValueError(f"PUBLISH of MQTT {VERSIONS[head.version]} cannot be sent when {state}")
        if isinstance(head, PublishHeads):
            assert self.mixing, "a peer with limits gets what agrees in its head"
            head.encode(self.out, payloads, packet_ids)
            return []
        most = self.agreement.packet_bytes_max
        too_large: list[int] = []
        if most < PACKET_BYTES_MAX:
            too_large = [at for at, payload in enumerate(payloads) if head.packet_bytes(payload) > most]
            if too_large:
                left = set(too_large)
                payloads = [payload for at, payload in enumerate(payloads) if at not in left]
                packet_ids = [packet_id for at, packet_id in enumerate(packet_ids) if at not in left]
        if self.agreement.alias_max and payloads:
            if self._aliases is None:
                self._aliases = OwnAliases(self.agreement.alias_max)
            head, payloads, packet_ids = self._aliases.use(self.out, (head, payloads, packet_ids), most)
        head.encode(self.out, payloads, packet_ids)
        return too_large

    def send_large(self, head: PublishHead, source: Source, packet_ids: Sequence[int]) -> None:
        """Send one message whose payload is read while it is sent; the peer must accept packets of its size."""
        assert self._view.working, "a message for a peer that is connected"
        assert head.packet_bytes_with(source.left) <= self.agreement.packet_bytes_max, "one that its receiver takes"
        head.encode_lead(self.out, source.left, packet_ids)
        if self._streams is None:
            self._streams = Streams()
        self.out = self._streams.add(self.out, source)

    def send_error(self, error: MqttError) -> None:
        """Send an error, if there is a packet for it, and end.  Only the first of several errors is sent."""
        if self.close_expected:
            return
        if self._streams:
            self.abandon()  # no packet can be sent in the middle of another
            return
        if self._role is Role.SERVER and self.version and self.state is State.OPENED:
            self._enter(State.ANSWERING)  # a CONNECT has arrived, however wrong
        pairs: list[tuple[Property[Any], Any]] = [(SERVER_REFERENCE, error.servers)] if error.servers else []
        explained = Properties([*pairs, explanation(error.sentence)]) if self.version == V5 else Properties()
        if self._view.before_login:
            code = error.return_code if self.version != V5 else int(error.reason) if error.connack else None
            if code is not None and self.version:
                self.send(Connack(code, properties=explained))
        elif self.version == V5 and "DISCONNECT" in self._view.outgoing and error.disconnect(self._role):
            self.send(Disconnect(int(error.reason), explained))
        self._enter(State.DISCONNECTED)
        self._close()

    def _close(self) -> None:
        self.close_expected = True
        self._reader.drop()


def _without(packet: Any, *properties: Property[Any]) -> Any:
    return replace(packet, properties=packet.properties.without(*properties))
