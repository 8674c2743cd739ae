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
from protocols.mqtt.codes import V5, ReasonCode
from protocols.mqtt.packets import Publish

#: Temporary refusals: the message is not acknowledged, so the other end keeps it and sends it again on the next
#: connection.  Before MQTT 5 that applies to most refusals, as PUBACK cannot report them.
_PASSING: Final = frozenset(
    {ReasonCode.QUOTA_EXCEEDED, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR}
)


def _ignore(route: BridgeRoute, topic: str, why: Refused) -> None:
    pass


class BridgeReceiver(Receiver):
    """The receiving side of a link's connection, counted by route.  `no_room` is called with a full topic and why.

    There are few links, so more is held for one while an address blocks: a window of sensor readings.
    """

    held_messages_max = 1 << 16
    held_bytes_max = 4 << 20

    def __init__(
        self,
        bridge: Bridge,
        session: ClientSession,
        connection: MqttEndpoint,
        no_room: Callable[[BridgeRoute, str, Refused], None],
    ) -> None:
        super().__init__(bridge.common, session, connection)
        self._by_topic = bridge.inward.by_topic
        self._no_room = no_room

    def forget_routes(self) -> None:
        """Refer to the routes no longer, which refer to this: the connection has ended."""
        self._no_room = _ignore

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
        left = {at: why for at, why in outcomes.items() if why is not None and self._is_left(run, why)}
        if left:
            outcomes = self._leave(run, outcomes, left)
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

    def _is_left(self, run: Publish, why: Refused) -> bool:
        """Whether the other end is to keep a message."""
        if not run.qos:
            return False
        return why.reason in _PASSING or (self._link.codec.version != V5 and why.reason not in DROPPED_SILENTLY)

    def _leave(self, run: Publish, outcomes: Outcomes, left: dict[int, Refused]) -> Outcomes:
        """Remove the messages that the other end keeps from a run; returns the rest's outcomes.  Raises MqttError."""
        for at, why in left.items():
            route = self._by_topic.get(run.topics[at])
            if route is None or len(route.full) >= TOPICS_REMEMBERED_MAX:
                self.end_for(run, outcomes, why)
            self._no_room(route, run.topics[at], why)
        if run.qos == 2:
            self._session.incoming.refused([run.packet_ids[at] for at in left])
        places = [at for at in range(len(run.topics)) if at not in left]
        run.topics, run.packet_ids = [run.topics[at] for at in places], [run.packet_ids[at] for at in places]
        return {new: outcomes[at] for new, at in enumerate(places) if at in outcomes}
