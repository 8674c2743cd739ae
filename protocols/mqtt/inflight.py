"""Messages of QoS 1 and 2 in flight, in both directions: packet identifiers, expected packets, flow control.

Sent (`Outgoing`, 4.3.2 and 4.3.3):

    QoS 1:  AT_LEAST_ONCE --PUBACK--> done
    QoS 2:  EXACTLY_ONCE  --PUBREC--> RELEASED --PUBCOMP--> done
                          '--PUBREC with a failure--> done

Received with QoS 2 (`Incoming`):

    PUBLISH--> RECEIVED --PUBREL--> COMPLETING --PUBCOMP sent--> done
                   '--PUBREC with a failure sent--> done

1. A packet id is free again when its message is done ([MQTT-2.2.1-3], [MQTT-2.2.1-4]).
2. With PUBACK or PUBREC the receiver owns the message: it is not sent again, only PUBREL is ([MQTT-4.3.3-6]).
3. The receiver of QoS 2 recognises a repeated PUBLISH until PUBREL [MQTT-4.3.3-10], and afterwards treats it as new
   [MQTT-4.3.3-12].
4. At most Receive Maximum messages are unfinished at a time, over QoS 1 and 2 ([MQTT-3.3.4-7], [MQTT-3.3.4-9]).

These tables belong to a session and outlive its connections; only the quotas belong to a connection (4.9).  Nothing
here sends, waits or stores: the packets to send are returned.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, Generic, TypeVar

from protocols.mqtt.codes import PacketType, ReasonCode
from protocols.mqtt.errors import MqttError, violation

T = TypeVar("T")
_P = PacketType

PACKET_ID_MAX: Final = 65_535

#: A shared set for sides that use no packet identifier: most connections wait for messages, and an empty set takes 216
#: bytes.
_NONE: Final[set[int]] = set()

#: Receive Maximum of a peer that does not state it (3.1.2.11.3), and of all peers before 5.0.
RECEIVE_MAXIMUM_DEFAULT: Final = 65_535


class PacketIds:
    """The packet identifiers that one side of a session uses, for PUBLISH, SUBSCRIBE and UNSUBSCRIBE (2.2.1)."""

    __slots__ = ("_next", "_used")

    def __init__(self) -> None:
        self._used = _NONE
        self._next = 1

    def __len__(self) -> int:
        return len(self._used)

    def allocate(self, count: int) -> list[int]:
        """`count` unused ids, ascending except where they wrap at 65,535.  Raises ValueError if there are fewer."""
        used = self._used
        if count > PACKET_ID_MAX - len(used):
            raise ValueError(f"{count} packet identifiers wanted, {PACKET_ID_MAX - len(used)} are free")
        first = self._next
        stop = first + count
        found = list(range(first, stop))
        if stop > PACKET_ID_MAX + 1 or not used.isdisjoint(found):
            found = []
            while len(found) < count:
                if first > PACKET_ID_MAX:
                    first = 1
                if first not in used:
                    found.append(first)
                first += 1
            stop = first
        if used:
            used.update(found)
        else:
            self._used = set(found)
        self._next = stop if stop <= PACKET_ID_MAX else 1
        return found

    def use(self, packet_id: int) -> None:
        """Mark an id as used, when a session is restored.  Raises ValueError if it was already, or is invalid."""
        if packet_id in self._used or not 1 <= packet_id <= PACKET_ID_MAX:
            raise ValueError(f"packet identifier {packet_id} is in use or none")
        if self._used:
            self._used.add(packet_id)
        else:
            self._used = {packet_id}

    def release(self, packet_ids: Sequence[int]) -> None:
        """Free ids."""
        self._used.difference_update(packet_ids)


class Sent(Enum):
    """The packet that a sent message waits for."""

    AT_LEAST_ONCE = "waiting for PUBACK"
    EXACTLY_ONCE = "waiting for PUBREC"
    RELEASED = "waiting for PUBCOMP"


#: Transitions: (packet, whether it reports a failure) -> state -> next state, None: the message is done.
SENT: Final[dict[tuple[PacketType, bool], dict[Sent, Sent | None]]] = {
    (_P.PUBACK, False): {Sent.AT_LEAST_ONCE: None},
    (_P.PUBACK, True): {Sent.AT_LEAST_ONCE: None},
    (_P.PUBREC, False): {
        Sent.EXACTLY_ONCE: Sent.RELEASED,
        # repeated: our PUBREL was lost with a connection, and the receiver answers the PUBLISH once more
        Sent.RELEASED: Sent.RELEASED,
    },
    (_P.PUBREC, True): {Sent.EXACTLY_ONCE: None},
    (_P.PUBCOMP, False): {Sent.RELEASED: None},
    (_P.PUBCOMP, True): {Sent.RELEASED: None},
}


class Acknowledged(Generic[T]):
    """The result of acknowledgements.

    `settled`: the messages that the receiver owns now (or has refused, if they reported a failure), in the order of the
    acknowledgements.  `release`: the packet ids for which PUBREL must be sent.  `unknown`: packet ids that are not in
    use; for these PUBREC is answered with PUBREL and Packet Identifier not found, other packets are not answered.
    """

    __slots__ = ("release", "settled", "unknown")

    def __init__(self) -> None:
        self.settled: list[T] = []
        self.release: list[int] = []
        self.unknown: list[int] = []


class Outgoing(Generic[T]):
    """Unfinished messages sent with QoS 1 or 2, in the order of sending; `T` is the session's handle for a message.

    `ids`: the packet identifiers, which a client uses for SUBSCRIBE and UNSUBSCRIBE too.
    """

    __slots__ = ("_again", "_inflight", "_quota", "_receive_maximum", "_states", "ids")

    def __init__(self, ids: PacketIds) -> None:
        self.ids = ids
        self._inflight: dict[int, T | None] = {}
        self._states: dict[int, Sent] = {}  # of those that are not AT_LEAST_ONCE, which nearly all are
        self._again: list[int] | None = None  # packet ids still to send again on this connection, in reverse order
        self._receive_maximum = self._quota = RECEIVE_MAXIMUM_DEFAULT

    def __len__(self) -> int:
        return len(self._inflight)

    def __iter__(self) -> Iterator[tuple[int, Sent, T | None]]:
        """Packet id, state and message of each, in order of sending; a released one no longer has its message."""
        states = self._states
        return (
            (packet_id, states.get(packet_id, Sent.AT_LEAST_ONCE), message)
            for packet_id, message in self._inflight.items()
        )

    @property
    def quota(self) -> int:
        """How many new messages may be sent now [MQTT-4.9.0-2]: none until `resend` has finished."""
        return 0 if self._again else max(0, min(self._quota, PACKET_ID_MAX - len(self.ids)))

    def connected(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        """Begin a connection, with the receiver's Receive Maximum and a full quota [MQTT-4.9.0-1]."""
        assert 1 <= receive_maximum <= RECEIVE_MAXIMUM_DEFAULT
        self._receive_maximum = self._quota = receive_maximum
        self._again = [*reversed(self._inflight)] or None

    def restore(self, packet_id: int, state: Sent, message: T | None) -> None:
        """Restore a message that was in flight when the session was stored; call it in the order of sending."""
        self.ids.use(packet_id)
        self._inflight[packet_id] = message
        if state is not Sent.AT_LEAST_ONCE:
            self._states[packet_id] = state

    @property
    def resends(self) -> bool:
        """Whether there are packets to send again, now or after acknowledgements."""
        return bool(self._again)

    def resend(self, most: int = PACKET_ID_MAX) -> list[tuple[int, Sent, T | None]]:
        """The next packets to send again now after a reconnect, in order ([MQTT-4.4.0-1], [MQTT-4.6.0-1]).

        PUBLISH with DUP [MQTT-3.3.1-1], or PUBREL for released messages, which needs no quota but uses one: a receiver
        that keeps its session, as Mosquitto's bridges do, counts messages that it has not completed.  Call it until it
        returns nothing, and again after acknowledgements: the quota was used up, or it has finished.
        """
        found: list[tuple[int, Sent, T | None]] = []
        while self._again and len(found) < most:
            packet_id = self._again[-1]
            if packet_id in self._inflight:
                state = self._states.get(packet_id, Sent.AT_LEAST_ONCE)
                if self._quota <= 0 and state is not Sent.RELEASED:
                    break
                self._quota -= 1
                found.append((packet_id, state, self._inflight[packet_id]))
            self._again.pop()
        return found

    def forget_released(self) -> list[int]:
        """Free the packet ids for which PUBCOMP was owed, after the receiver has lost its session; returns them.

        Other messages in flight are sent again, and are new to the receiver.
        """
        done = [packet_id for packet_id, state in self._states.items() if state is Sent.RELEASED]
        for packet_id in done:
            del self._inflight[packet_id], self._states[packet_id]
        self.ids.release(done)
        return done

    def send(self, messages: Sequence[T], qos: int) -> list[int]:
        """Packet ids for new messages, at most `quota`, which are in flight from now on."""
        assert len(messages) <= self.quota
        packet_ids = self.ids.allocate(len(messages))
        self._inflight.update(zip(packet_ids, messages, strict=True))
        if qos > 1:
            self._states.update(dict.fromkeys(packet_ids, Sent.EXACTLY_ONCE))
        self._quota -= len(messages)
        return packet_ids

    def acknowledge(self, packet: PacketType, packet_ids: Sequence[int], *, failed: bool = False) -> Acknowledged[T]:
        """PUBACK, PUBREC or PUBCOMP came for these; `failed`: with a reason code of 0x80 or above.

        Raises MqttError for one that does not fit what was sent; then nothing has changed.
        """
        outcome: Acknowledged[T] = Acknowledged()
        inflight, states = self._inflight, self._states
        following = SENT.get((packet, failed), {})
        usual = Sent.AT_LEAST_ONCE
        if states or usual not in following:
            for packet_id in packet_ids:
                if packet_id in inflight and (state := states.get(packet_id, usual)) not in following:
                    raise violation(f"{packet.name} for packet identifier {packet_id}: {state.value}")
        done: list[int] = []
        if not states and following.get(usual, usual) is None:  # PUBACKs, and nothing but QoS 1 is in flight: usual
            for packet_id in packet_ids:
                message = inflight.pop(packet_id, None)
                if message is None:
                    outcome.unknown.append(packet_id)
                else:
                    outcome.settled.append(message)
                    done.append(packet_id)
            packet_ids = ()
        for packet_id in packet_ids:
            if packet_id not in inflight:
                outcome.unknown.append(packet_id)
                continue
            after = following[states.pop(packet_id, usual)]
            if after is None:
                message = inflight.pop(packet_id)
                done.append(packet_id)
            else:
                message, inflight[packet_id] = inflight[packet_id], None
                states[packet_id] = after
                outcome.release.append(packet_id)
            if message is not None:
                outcome.settled.append(message)
        self.ids.release(done)
        self._quota = min(self._quota + len(done), self._receive_maximum)
        return outcome


class Received(Enum):
    """The packet that a received message of QoS 2 waits for."""

    RECEIVED = "waiting for PUBREL"
    COMPLETING = "PUBCOMP is being sent"


#: Transitions for packets received or sent, by state (None: no message, or done).  A missing one is an error, the
#: peer's for PUBLISH, ours for PUBREC; a PUBREL for an unknown id gets an answer of its own.  If a PUBREL is repeated
#: before it was answered, the first PUBCOMP ends the exchange, and the second changes nothing.
RECEIVED: Final[dict[Received | None, dict[PacketType, Received | None]]] = {
    None: {_P.PUBLISH: Received.RECEIVED, _P.PUBCOMP: None},
    Received.RECEIVED: {
        _P.PUBLISH: Received.RECEIVED,  # again [MQTT-4.3.3-10]
        _P.PUBREC: None,  # with a failure; a PUBREC of success changes nothing
        _P.PUBREL: Received.COMPLETING,
        _P.PUBCOMP: Received.RECEIVED,
    },
    Received.COMPLETING: {
        _P.PUBREL: Received.COMPLETING,  # again, maybe after a reconnect
        _P.PUBCOMP: None,
    },
}


class Incoming:
    """Unfinished messages received with QoS 1 or 2.

    The session reports what it has sent: PUBACK, PUBREC with a failure, PUBCOMP.  A PUBREC of success changes nothing.
    """

    __slots__ = ("_at_least_once", "_earlier", "_exactly_once", "_receive_maximum")

    def __init__(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        self._receive_maximum = receive_maximum
        self._at_least_once = 0
        self._exactly_once: dict[int, Received] = {}
        self._earlier = _NONE  # those received on earlier connections

    def __len__(self) -> int:
        return self._at_least_once + len(self._exactly_once)

    @property
    def handshakes(self) -> int:
        """How many messages of QoS 2 are unfinished."""
        return len(self._exactly_once)

    def __iter__(self) -> Iterator[int]:
        """The packet ids of unfinished messages of QoS 2, which a session must store."""
        return iter(self._exactly_once)

    def __contains__(self, packet_id: object) -> bool:  # compiled, `in` finds this only, and not __iter__
        return packet_id in self._exactly_once

    def connected(self, receive_maximum: int = RECEIVE_MAXIMUM_DEFAULT) -> None:
        """Begin a connection, with our Receive Maximum: unfinished QoS 1 of the last one is forgotten, QoS 2 is not."""
        self._receive_maximum = receive_maximum
        self._at_least_once = 0
        self._earlier = set(self._exactly_once) or _NONE

    def restore(self, packet_ids: Sequence[int]) -> None:
        """Restore the unfinished messages of QoS 2 of a stored session."""
        self._exactly_once.update(dict.fromkeys(packet_ids, Received.RECEIVED))

    def receive(self, qos: int, packet_ids: Sequence[int]) -> list[int]:
        """Add PUBLISH packets with these ids; returns the positions of repeated ones, which are not new messages
        [MQTT-4.3.3-10].

        Every PUBLISH of QoS 1 is new [MQTT-4.3.2-5].  Raises MqttError for more than Receive Maximum at a time on one
        connection, which has a quota of its own (4.9), and for a packet id used again before PUBCOMP; then nothing has
        changed.
        """
        known = self._exactly_once
        repeated: list[int] = []
        fresh: dict[int, Received] = {}
        if qos == 2:
            fresh = dict.fromkeys(packet_ids, Received.RECEIVED)
            if len(fresh) < len(packet_ids) or not known.keys().isdisjoint(fresh):
                fresh = {}
                for position, packet_id in enumerate(packet_ids):
                    if packet_id in known:
                        self._advance(packet_id, _P.PUBLISH)
                    if packet_id in known or packet_id in fresh:
                        repeated.append(position)
                    else:
                        fresh[packet_id] = Received.RECEIVED
        added = len(packet_ids) - len(repeated)
        if added and len(self) - len(self._earlier) + added > self._receive_maximum:
            sentence = f"more than {self._receive_maximum} messages of QoS 1 and 2 wait for an acknowledgement"
            raise MqttError(ReasonCode.RECEIVE_MAXIMUM_EXCEEDED, sentence, "MQTT-3.3.4-7")
        if qos == 1:
            self._at_least_once += added
        else:
            known.update(fresh)
        return repeated

    def acknowledged(self, count: int) -> None:
        """Note that `count` PUBACKs were sent."""
        assert count <= self._at_least_once
        self._at_least_once -= count

    def refused(self, packet_ids: Sequence[int]) -> None:
        """Note PUBRECs sent with a failure: these packet ids are for new messages from now on [MQTT-4.3.3-9]."""
        for packet_id in packet_ids:
            self._advance(packet_id, _P.PUBREC)

    def release(self, packet_ids: Sequence[int]) -> list[int]:
        """Note PUBRELs received; returns the unknown ids, for which PUBCOMP says Packet Identifier not found."""
        known = self._exactly_once
        for packet_id in packet_ids:
            if packet_id in known:
                self._advance(packet_id, _P.PUBREL)
        return [packet_id for packet_id in packet_ids if packet_id not in known]

    def completed(self, packet_ids: Sequence[int]) -> None:
        """Note PUBCOMPs sent: these packet ids are for new messages from now on [MQTT-4.3.3-12]."""
        for packet_id in packet_ids:
            self._advance(packet_id, _P.PUBCOMP)

    def _advance(self, packet_id: int, packet: PacketType) -> None:
        state = self._exactly_once.get(packet_id)
        try:
            following = RECEIVED[state][packet]
        except KeyError:
            waits = "no message is in flight" if state is None else state.value
            raise violation(f"{packet.name} for packet identifier {packet_id}: {waits}", "MQTT-2.2.1-3") from None
        if following is None:
            self._exactly_once.pop(packet_id, None)
            self._earlier.discard(packet_id)
        else:
            self._exactly_once[packet_id] = following
