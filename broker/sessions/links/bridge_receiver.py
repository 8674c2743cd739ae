"""The receiving side of an MQTT link, and its handling of messages for which this broker has no room.

Such a message is not acknowledged, nor are later ones on its topic: the other end keeps them.  The connection stays
open for outgoing messages and for other topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from broker.engine.model.errors import EngineError
from broker.sessions.links.bridge import TOPICS_REMEMBERED_MAX, Bridge, BridgeRoute
from broker.sessions.mqtt.client_session import ClientSession
from broker.sessions.mqtt.endpoint import MqttEndpoint
from broker.sessions.mqtt.publish import DROPPED_SILENTLY, Outcomes, Refused
from broker.sessions.mqtt.receive import Receiver
from protocols.mqtt.codes import V5, PacketType, ReasonCode
from protocols.mqtt.packets import Ack, Begun, Publish

#: Temporary refusals: the message is not acknowledged, so the other end keeps it and sends it again on the next
#: connection.  Before MQTT 5 that applies to most refusals, as PUBACK cannot report them.
_PASSING: Final = frozenset(
    {ReasonCode.QUOTA_EXCEEDED, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR}
)

#: Bytes of payloads that are accepted while an address blocks: a window of sensor readings, and little memory.
_HELD_BYTES_MAX: Final = 4 << 20


class BridgeReceiver(Receiver):
    """The receiving side of a link's connection, counted by route.  `no_room` is called with a full topic and why.

    While an address blocks its senders, messages are accepted and their acknowledgements are held: the other end stops
    when its window is used up, and its own acknowledgements are still read.  Messages without a window (QoS 0, or in
    parts), and too many bytes, stop the reading.
    """

    def __init__(
        self,
        bridge: Bridge,
        session: ClientSession,
        connection: MqttEndpoint,
        no_room: Callable[[BridgeRoute, str, Refused], None],
    ) -> None:
        super().__init__(bridge.common, session, connection)
        self._by_topic = bridge.inward.by_topic
        self._connection = connection
        self._no_room = no_room
        self._held: list[Ack] | None = None  # acknowledgements that wait for room here; None: not blocked
        self._bytes = 0  # of payloads received since

    def publish(self, run: Publish) -> None:
        super().publish(run)
        if self._held is not None:
            self._bytes += sum(map(len, run.payloads))
            if not run.qos or self._bytes > _HELD_BYTES_MAX:
                super().block()

    def begin(self, begun: Begun) -> None:
        super().begin(begun)
        if self._held is not None:
            super().block()

    def block(self) -> None:
        if self._held is None:
            self._held, self._bytes = [], 0

    def unblock(self) -> None:
        held, self._held = self._held or [], None
        for ack in held:
            self.owe(ack)
        self._connection.confirm()
        self._connection.touch()
        super().unblock()

    def owe(self, ack: Ack) -> None:
        if self._held is not None and ack.type is not PacketType.PUBCOMP:
            self._held.append(ack)
        else:
            super().owe(ack)

    def abandon(self) -> None:
        for ack in self._held or ():
            self._session.unsaid(ack)
        super().abandon()

    def has_room(self, topics: Iterable[str]) -> bool:
        """Whether one of these topics accepts messages again."""
        for topic in topics:
            try:
                self._publisher.check(topic)
            except EngineError:
                continue
            return True
        return False

    def answer(self, run: Publish, outcomes: Outcomes) -> None:
        kept = {at: why for at, why in outcomes.items() if why is not None and self._keeps(run, why)}
        if kept:
            outcomes = self._leave(run, outcomes, kept)
            if not run.topics:
                return
        for at, topic in enumerate(run.topics):
            found = self._by_topic.get(topic)
            if found is not None:
                refused = outcomes.get(at)
                if refused is None:
                    found.route.passed += 1
                    found.rounds = 0
                else:
                    found.route.refused += 1
                    found.route.note(refused.sentence)
        # Only a server may answer "no matching subscribers"; a link is a client.
        super().answer(run, {at: why for at, why in outcomes.items() if why is not None})

    def _keeps(self, run: Publish, why: Refused) -> bool:
        """Whether the other end is to keep a message."""
        if not run.qos:
            return False
        return why.reason in _PASSING or (self._link.codec.version != V5 and why.reason not in DROPPED_SILENTLY)

    def _leave(self, run: Publish, outcomes: Outcomes, kept: dict[int, Refused]) -> Outcomes:
        """Remove the messages that the other end keeps from a run; returns the rest's outcomes.  Raises MqttError."""
        for at, why in kept.items():
            route = self._by_topic.get(run.topics[at])
            if route is None or len(route.full) >= TOPICS_REMEMBERED_MAX:
                self.end_for(run, outcomes, why)
            self._no_room(route, run.topics[at], why)
        if run.qos == 2:
            self._session.incoming.refused([run.packet_ids[at] for at in kept])
        places = [at for at in range(len(run.topics)) if at not in kept]
        run.topics, run.packet_ids = [run.topics[at] for at in places], [run.packet_ids[at] for at in places]
        return {new: outcomes[at] for new, at in enumerate(places) if at in outcomes}
