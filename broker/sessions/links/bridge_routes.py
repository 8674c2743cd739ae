"""The routes of a connected MQTT link: local subscriptions for outgoing messages, remote ones for incoming messages.

out     a subscription of the other end's session here: running
in      SUBSCRIBE: starting, then running; or refused: retrying
        no room for a message here: retrying; once there is room, sending stops and a new connection is opened, on
        which the other end sends all that it has kept
"""

from __future__ import annotations

from typing import Final

from broker.engine.model.errors import EngineError
from broker.sessions.links.bridge import Bridge, BridgeRoute
from broker.sessions.links.bridge_receiver import BridgeReceiver
from broker.sessions.links.model import State, is_due
from broker.sessions.mqtt.client_session import ClientSession, OtherEnd
from broker.sessions.mqtt.endpoint import MqttEndpoint
from broker.sessions.mqtt.publish import Refused
from broker.sessions.mqtt.terms import reason_words
from protocols.mqtt.codes import FAILURE, V5
from protocols.mqtt.packets import Suback, Subscribe, Subscription, Unsuback, Unsubscribe
from protocols.mqtt.topics import TopicFilter

#: Why a connection is not read: an operator has paused the link.
_PAUSED: Final = "paused"

#: Retained messages are sent for a new subscription only, not again after a connection was lost.
_RETAINED_ONCE: Final = 1


class BridgeRoutes:
    """The routes of one connection after CONNACK; the other end accepts `receive_maximum` messages in flight.

    `paused`: an operator has paused the link.
    """

    def __init__(
        self, bridge: Bridge, session: ClientSession, connection: MqttEndpoint, *, present: bool, receive_maximum: int
    ) -> None:
        assert session.other is not None, "a link's session has one"
        self.paused = False
        self._bridge = bridge
        self._session = session
        self._connection = connection
        self._other: OtherEnd = session.other
        self._settings = bridge.link.settings
        self._window = min(receive_maximum, self._settings.window)
        self._asking_since = 0  # when sending stopped, to reconnect for the messages that the other end keeps
        self._unsubscribing = 0  # the packet identifier of UNSUBSCRIBE, 0: none is pending
        self._now = bridge.link.now
        self._remember(present=present)
        self.receiver = BridgeReceiver(bridge, session, connection, self._no_room)

    def _remember(self, *, present: bool) -> None:
        """Store what is known of our session at the other end, before anything is sent."""
        other, sessions = self._other, self._bridge.common.sessions
        if not present:
            sessions.forget_other(self._session)
            other.filters.clear()
        other.kept, other.client_id = True, self._bridge.link.client_id
        other.filters = list(dict.fromkeys([*other.filters, *self._wanted()]))
        sessions.note(self._session)

    def _wanted(self) -> list[str]:
        """Return the topic filters to subscribe to at the other end."""
        return [each.there.text for each in self._bridge.incoming if not self._echoes(each)]

    def _echoes(self, route: BridgeRoute) -> bool:
        """Whether the other end would echo our messages, as it neither speaks MQTT 5 nor knows bridges."""
        version, private = self._bridge.versions.attempt
        return route.route.settings.outward and version != V5 and not private

    @property
    def holding(self) -> bool:
        """Whether sending is stopped for now."""
        return self.paused or self._asking_since > 0

    # -- starting --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the routes that are stopped or paused."""
        connection, deliveries = self._connection, self._session.deliveries
        self.paused = False
        connection.reading.go(_PAUSED)
        for each in self._bridge.routes:
            if each.route.state in (State.STOPPED, State.PAUSED):
                self._start(each)
        if deliveries.sender is None:
            deliveries.connect(connection, self._window)
        else:
            connection.pause(connection.window.paused)
        self._unsubscribe()
        connection.touch()

    def _start(self, each: BridgeRoute) -> None:
        route, session = each.route, self._session
        if route.settings.outward:
            try:
                self._bridge.subscribe(session, each)
            except EngineError as error:
                self._wait(each, f"this broker: {error}")
                return
            if not route.settings.qos:  # those retained while it was disconnected
                session.subscriptions.send_retained(each.here.text)
            self._bridge.common.sessions.note_changed(session)
        route.move("attach")
        if not route.settings.inward or (each.asked and not self._echoes(each)):
            self._running(each)
        elif self._echoes(each):
            self._wait(each, "the other broker speaks MQTT 3.1.1 and knows no bridges: it would send all back; use out")
        else:
            self._ask(each)

    def _ask(self, each: BridgeRoute) -> None:
        """Send SUBSCRIBE: one packet for each route, as some brokers limit the filters in a packet."""
        (each.asked,) = self._session.in_flight.outgoing.ids.allocate(1)
        wanted = Subscription(each.there, each.route.settings.qos)
        if self._connection.codec.version == V5:
            wanted.no_local = not each.there.share  # a shared subscription cannot have it
            wanted.retain_as_published = True
            wanted.retain_handling = _RETAINED_ONCE
        self._connection.send(Subscribe(each.asked, [wanted]))

    def answered(self, suback: Suback) -> None:
        """Process a SUBACK."""
        for each in self._bridge.incoming:
            if each.asked == suback.packet_id:
                self._session.in_flight.outgoing.ids.release([suback.packet_id])
                code = suback.reason_codes[0]
                if code >= FAILURE:
                    each.asked = 0
                    self._wait(each, f"{each.there.text} refused: {reason_words(code, suback.properties)}")
                else:
                    each.asked = -1
                    self._running(each)

    def _running(self, each: BridgeRoute) -> None:
        if each.full:  # there was no room for messages before SUBACK, or before a pause
            self._wait_for_room(each)
            return
        each.route.error = ""
        each.route.move("attached")
        self._connection.report("link.route_running", link=self._bridge.link.name, route=each.route.name)

    def _unsubscribe(self) -> None:
        """Send UNSUBSCRIBE for routes that are no longer configured."""
        wanted = self._wanted()
        gone = [text for text in self._other.filters if text not in wanted]
        if gone and not self._unsubscribing:
            (self._unsubscribing,) = self._session.in_flight.outgoing.ids.allocate(1)
            self._connection.send(Unsubscribe(self._unsubscribing, [TopicFilter(text, text) for text in gone]))

    def unsubscribed(self, unsuback: Unsuback) -> None:
        """Process an UNSUBACK."""
        if unsuback.packet_id != self._unsubscribing:
            return  # it answers nothing
        self._session.in_flight.outgoing.ids.release([unsuback.packet_id])
        self._unsubscribing = 0
        self._other.filters = self._wanted()
        self._bridge.common.sessions.note(self._session)

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, each: BridgeRoute, why: str, ms: int = 0) -> None:
        route = each.route
        route.retry_at = self._now() + (ms or self._settings.retry_interval_max)
        route.move("attach")
        route.move("refused", why)
        self._connection.report("link.route_waiting", link=self._bridge.link.name, route=route.name, error=why)

    def _no_room(self, each: BridgeRoute, topic: str, why: Refused) -> None:
        """Note a full topic: the other end keeps its messages until the next connection."""
        each.full.setdefault(topic, why)
        if each.route.state is not State.RETRYING:
            self._wait_for_room(each)
            each.rounds += 1

    def _wait_for_room(self, each: BridgeRoute) -> None:
        wait = min(self._settings.retry_interval << min(each.rounds, 30), self._settings.retry_interval_max)
        self._wait(each, next(iter(each.full.values())).sentence, wait)

    def _has_room(self, each: BridgeRoute) -> bool:
        """Whether there is room for the messages that a route lacks.  If so, sending stops, lest messages go twice."""
        if not self.receiver.has_room(each.full):
            return False
        if not self._asking_since:
            self._asking_since = self._now()
            self._connection.pause(self._connection.window.paused)
        return True

    def check(self) -> bool:
        """Retry the routes that are due; whether to reconnect now, for the messages that the other end keeps."""
        if self.paused:
            return False
        now, longest = self._now(), self._settings.retry_interval_max
        for each in self._bridge.routes:
            if each.route.state is State.RETRYING and is_due(each.route.retry_at, now, longest):
                if not each.full:
                    self._start(each)
                    self._connection.touch()
                elif not self._has_room(each):
                    each.route.retry_at = now + self._settings.retry_interval
        idle = not self._session.in_flight.outgoing
        return self._asking_since > 0 and (idle or now - self._asking_since >= longest)

    def pause(self) -> None:
        """Pass nothing on until `start`."""
        self.paused = True
        self._session.deliveries.set_blocked(True)
        if self._bridge.incoming:
            self._connection.reading.stop(_PAUSED)
        for each in self._bridge.routes:
            each.route.move("pause")

    def end(self) -> None:
        """Forget the requests of a connection that has ended."""
        self.receiver.forget_routes()
        asked = [each.asked for each in self._bridge.incoming if each.asked > 0]
        self._session.in_flight.outgoing.ids.release([*asked, self._unsubscribing])
        for each in self._bridge.incoming:
            each.asked = 0
            each.full.clear()
