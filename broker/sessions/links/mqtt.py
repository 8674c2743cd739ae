"""A link over MQTT: the side that connects, subscribes for its incoming routes and publishes for its outgoing ones.

    TCP (TLS)   CONNECT    MQTT 5, or 3.1.1 where that is refused
                CONNACK    what is known of the other end's session is stored; then the link runs
                SUBSCRIBE  an incoming route each: starting, then running; or refused: retrying

What was on its way when a connection ended is sent again on the next one, under its packet identifier: QoS 1 is at
least once, and QoS 2 exactly once as long as both ends keep their sessions.  An end that has lost its own says so by
Session Present, and what is not acknowledged is sent to it as new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NoReturn

from broker.engine import Consumer
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Message
from broker.sessions.convert import ConversionError
from broker.sessions.links.bridge import TOPICS_REMEMBERED_MAX, Bridge, BridgeRenderer, BridgeRoute
from broker.sessions.links.links import Links
from broker.sessions.links.model import State, has_come
from broker.sessions.login import Peer
from broker.sessions.mqtt.client_session import ClientSession
from broker.sessions.mqtt.endpoint import SHARED, Handlers, MqttEndpoint
from broker.sessions.mqtt.port import Publishing
from broker.sessions.mqtt.publish import DROPPED_SILENTLY, Outcomes, Refused
from broker.sessions.mqtt.receive import Receiver
from broker.sessions.mqtt.terms import KEEP_ALIVE_MAX, reason_words
from broker.sessions.tick import Transport
from broker.sessions.unsendable import Unsendable
from protocols.mqtt.codes import FAILURE, V5, VERSIONS, PacketType, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.inflight import RECEIVE_MAXIMUM_DEFAULT
from protocols.mqtt.packets import (
    BEGUN,
    PART,
    Ack,
    Begun,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
)
from protocols.mqtt.properties import (
    MAXIMUM_QOS,
    NO_PROPERTIES,
    RECEIVE_MAXIMUM,
    RETAIN_AVAILABLE,
    SERVER_KEEP_ALIVE,
    SESSION_EXPIRY_INTERVAL,
    Properties,
)
from protocols.mqtt.state import State as Conversation
from protocols.mqtt.topics import TopicFilter

#: A session that does not end.
_FOR_EVER: Final = 0xFFFF_FFFF

#: Why a connection is not read: an operator has paused the link.
_PAUSED: Final = "paused"

#: Retained messages come for a new subscription only: those that had come before a connection was lost do not again.
_RETAINED_ONCE: Final = 1

#: Refusals that pass: the other end keeps the message, which is not acknowledged, and sends it again on the next
#: connection.  So it does with all that it cannot be told of before MQTT 5.
_PASSING: Final = frozenset(
    {ReasonCode.QUOTA_EXCEEDED, ReasonCode.UNSPECIFIED_ERROR, ReasonCode.IMPLEMENTATION_SPECIFIC_ERROR}
)

#: Bytes of payloads that are taken while an address blocks: a window of sensor readings, and little memory.
_HELD_BYTES_MAX: Final = 4 << 20

#: CONNACK's return code before 5.0 for a version that is not known.
_UNKNOWN_VERSION: Final = 1

_RETURN_CODES: Final = {
    1: "the version is not spoken there",
    2: "the client identifier is not taken",
    3: "the other broker is not available",
    4: "the user name or the password is wrong",
    5: "not authorized",
}


class BridgeReceiver(Receiver):
    """What comes from the other end of a link, counted by route.

    What finds no room here is not acknowledged, nor what comes after it on its topic: the other end keeps it.  The
    connection goes on, for what goes out and for other topics.

    While an address blocks its senders, what comes is taken and its acknowledgements wait, so that the other end stops
    when its window is used up, and its own acknowledgements are read.  What has no window, or comes in too many bytes,
    stops the reading.
    """

    def __init__(self, bridge: Bridge, session: ClientSession, link: MqttLinkSession) -> None:
        super().__init__(bridge.common, session, link, link.reading)
        self._by_topic = bridge.inward.by_topic
        self._owner = link
        self._bytes = 0  # of what came while acknowledgements wait

    def publish(self, run: Publish) -> None:
        """See Receiver."""
        super().publish(run)
        if self._owner.held is not None:
            self._bytes += sum(map(len, run.payloads))
            if not run.qos or self._bytes > _HELD_BYTES_MAX:
                super().block()

    def begin(self, begun: Begun) -> None:
        """See Receiver."""
        super().begin(begun)
        if self._owner.held is not None:
            super().block()

    def block(self) -> None:
        """See Receiver."""
        if self._owner.held is None:
            self._owner.held, self._bytes = [], 0

    def unblock(self) -> None:
        """See Receiver."""
        self._owner.release_held()
        super().unblock()

    def has_room(self, topics: Iterable[str]) -> bool:
        """Whether one of these takes messages again."""
        for topic in topics:
            try:
                self._publisher.check(topic)
            except EngineError:
                continue
            return True
        return False

    def _keeps(self, run: Publish, why: Refused | None) -> bool:
        """Whether the other end is to keep a message."""
        if why is None or not run.qos:
            return False
        return why.reason in _PASSING or (self._owner.codec.version != V5 and why.reason not in DROPPED_SILENTLY)

    def _leave(self, run: Publish, outcomes: Outcomes, kept: dict[int, Refused]) -> Outcomes:
        """Take the messages that the other end keeps out of a run; what became of the rest.  Raises MqttError."""
        for at, why in kept.items():
            route = self._by_topic.get(run.topics[at])
            if route is None or len(route.full) >= TOPICS_REMEMBERED_MAX:
                self.end_for(run, outcomes, why)
            self._owner.no_room(route, run.topics[at], why)
        if run.qos == 2:
            self._session.incoming.refused([run.packet_ids[at] for at in kept])
        places = [at for at in range(len(run.topics)) if at not in kept]
        run.topics, run.packet_ids = [run.topics[at] for at in places], [run.packet_ids[at] for at in places]
        return {new: outcomes[at] for new, at in enumerate(places) if at in outcomes}

    def answer(self, run: Publish, outcomes: Outcomes) -> None:
        kept = {at: why for at, why in outcomes.items() if why is not None and self._keeps(run, why)}
        if kept:
            outcomes = self._leave(run, outcomes, kept)
            if not run.topics:
                return
        for at, topic in enumerate(run.topics):
            found = self._by_topic.get(topic)
            if found is not None:
                route, refused = found.route, outcomes.get(at)
                if refused is None:
                    route.passed += 1
                    found.rounds = 0
                else:
                    route.refused += 1
                    route.error, route.error_at = refused.sentence, route.link.now()
        # That nobody has subscribed is what a server says, and no client.
        super().answer(run, {at: why for at, why in outcomes.items() if why is not None})


class UnsendableByBridge(Unsendable):
    """What a bridge cannot send."""

    __slots__ = ("_session",)

    def __init__(self, session: MqttLinkSession) -> None:
        super().__init__(session.tick)
        self._session = session

    def give_up(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        """See Unsendable."""
        if not self._session.keeps(consumer, message, str(why)):
            super().give_up(consumer, message, why)


class MqttLinkSession(MqttEndpoint):
    """Our side of a link's connection."""

    def __init__(self, bridge: Bridge, transport: Transport, links: Links, *, connection_id: str, peer: Peer) -> None:
        super().__init__(bridge.common, transport, connection_id=connection_id, peer=peer)
        self.unsendable = UnsendableByBridge(self)
        self._bridge = bridge
        self._link = bridge.link
        self._links = links
        self._why = ""  # the connection ends
        self._answered = False  # CONNACK has come
        self._pausing = False
        self._late: list[Packet] = []  # messages that had come when it was paused
        self.held: list[Ack] | None = None  # what is owed and waits for room here; None: nothing does
        self._asking_since = 0  # what goes out ends, so that the other end can be asked again for what it keeps
        self._unsubscribing = 0  # in the packet of this identifier
        self._receive_maximum = RECEIVE_MAXIMUM_DEFAULT
        self._keep_alive = 0  # in ms
        self._pinged = self.engine.now
        self._connect()

    def _connect(self) -> None:
        settings, (version, private) = self._link.settings, self._bridge.attempt
        other = self._bridge.session.other
        assert other is not None, "a link's session has one"
        seconds = min(-(-settings.idle_timeout // 1_000), KEEP_ALIVE_MAX)
        self._keep_for(seconds)
        pairs = [(SESSION_EXPIRY_INTERVAL, _FOR_EVER), (RECEIVE_MAXIMUM, min(settings.window, RECEIVE_MAXIMUM_DEFAULT))]
        self.codec.send(
            Connect(
                version,
                self._bridge.name,
                clean_start=not other.kept,  # a session of which nothing is known here would be another one's
                keep_alive=seconds,
                user_name=settings.user or None,
                password=settings.password if settings.user else None,
                properties=Properties(pairs) if version == V5 else NO_PROPERTIES,
                bridge=private,
            )
        )
        self.touch()

    def _keep_for(self, seconds: int) -> None:
        """The keep alive; a server that has not answered for twice as long is gone."""
        self._keep_alive = self.send_interval = seconds * 1_000
        self.receive_timeout = 2 * self._keep_alive

    @property
    def handlers(self) -> Handlers:
        return _HANDLERS

    # -- coming in -------------------------------------------------------------------------------------------------

    def _on_connack(self, connack: Connack) -> None:
        self._answered = True
        bridge, version = self._bridge, self.codec.version
        if connack.reason_code:
            code = connack.reason_code
            if code == (ReasonCode.UNSUPPORTED_PROTOCOL_VERSION if version == V5 else _UNKNOWN_VERSION):
                bridge.try_another(certain=True)
            words = reason_words(code, connack.properties) if version == V5 else _RETURN_CODES[code]
            self._give_up(f"MQTT {VERSIONS[version]} refused: {words}")
            return
        told = connack.properties
        keep_alive = told.get(SERVER_KEEP_ALIVE)
        if keep_alive is not None:
            self._keep_for(keep_alive)
        self._receive_maximum = told.get(RECEIVE_MAXIMUM) or RECEIVE_MAXIMUM_DEFAULT
        qos_max, retains = told.get(MAXIMUM_QOS), told.get(RETAIN_AVAILABLE) != 0
        self.renderer = BridgeRenderer(bridge, version, qos_max=2 if qos_max is None else qos_max, retains=retains)
        sessions = self._common.sessions
        try:
            self.session, _ = sessions.connect(self, bridge.client(), None, clean=False, sessions_max=_FOR_EVER)
        except EngineError as error:
            self._give_up(f"this broker: {error}")
            return
        self._remember(self.session, present=connack.session_present)
        self.receiver = BridgeReceiver(bridge, self.session, self)
        # What was told is not enforced: Mosquitto 2.0 sends again all that was in flight when it had been told of more.
        self.session.incoming.connected()
        if self._link.pausing:  # what follows CONNACK has been read already
            self.pause_routes()
        ticket = self.engine.ticks.confirmation(self)
        if ticket:
            self.answers.after(ticket, connack)
        else:
            self.send(connack)
        self.touch()

    def _remember(self, session: ClientSession, *, present: bool) -> None:
        """The other end has a session for us from now on; what is known of it is stored before anything is sent."""
        assert session.other is not None
        if not present:
            self._common.sessions.forget_other(session)
            session.other.filters.clear()
        session.other.kept = True
        wanted = [route.there.text for route in self._bridge.incoming if not self._echoes(route)]
        session.other.filters = list(dict.fromkeys([*session.other.filters, *wanted]))
        self._common.sessions.note(session)

    def _echoes(self, route: BridgeRoute) -> bool:
        """Whether the other end would send us back what it gets from us, as it knows no bridges."""
        version, private = self._bridge.attempt
        return route.route.settings.outward and version != V5 and not private

    def send(self, packet: Packet | Publishing) -> None:
        if not isinstance(packet, Connack):
            super().send(packet)
        elif self.codec.state is not Conversation.DISCONNECTED:  # what it has brought about is durable
            assert self.session is not None
            if not self._bridge.stays():
                self._give_up("it may have been starting when it hung up on MQTT 5, which is tried once more")
                return
            self.opened("MQTT", self.session.client.access)
            self._links.opened(self._link, self, f"MQTT {VERSIONS[self.codec.version]}")

    def _give_up(self, why: str) -> None:
        self._why = why
        self.leaving = True
        self.touch()
        self.end(publish_will=False)

    # -- routes ----------------------------------------------------------------------------------------------------

    def start_routes(self) -> None:
        session = self.session
        assert session is not None, "the link is running"
        self._pausing = False
        self.reading.go(_PAUSED)
        for each in self._bridge.routes:
            if each.route.state in (State.STOPPED, State.PAUSED):
                self._start(session, each)
        if session.deliveries.sender is None:
            window = min(self._receive_maximum, self._link.settings.window)
            session.deliveries.connect(self, window)
        else:
            session.deliveries.set_blocked(self.window.paused)
        self._unsubscribe(session)
        self._take_late()
        self.touch()

    def _take_late(self) -> None:
        late, self._late = self._late, []
        try:
            for packet in late:
                SHARED[packet.type](self, packet)
        except MqttError as wrong:
            self.fail_with(wrong)
        self.confirm()

    def _on_message(self, packet: Packet) -> None:
        """A message, or a part of one; a paused link takes it when it is started."""
        if self._pausing:
            self._late.append(packet)
        else:
            SHARED[packet.type](self, packet)

    def _start(self, session: ClientSession, each: BridgeRoute) -> None:
        route, text = each.route, each.here.text
        if route.settings.outward:
            try:
                self._bridge.subscribe(session, each)
            except EngineError as error:
                self._wait(each, f"this broker: {error}")
                return
            if not route.settings.qos:  # what was retained while it was away
                session.subscriptions.send_retained(text)
            self._common.sessions.note_changed(session)
        route.move("attach")
        if not route.settings.inward:
            self._running(each)
        elif self._echoes(each):
            self._wait(each, "the other broker speaks MQTT 3.1.1 and knows no bridges: it would send all back; use out")
        elif each.asked:
            self._running(each)
        else:
            self._ask(session, each)

    def _ask(self, session: ClientSession, each: BridgeRoute) -> None:
        """SUBSCRIBE; one packet a route, as some brokers take few filters in one."""
        (each.asked,) = session.in_flight.outgoing.ids.allocate(1)
        wanted = Subscription(each.there, each.route.settings.qos)
        if self.codec.version == V5:
            wanted.no_local = not each.there.share  # a shared subscription cannot have it
            wanted.retain_as_published = True
            wanted.retain_handling = _RETAINED_ONCE
        self.send(Subscribe(each.asked, [wanted]))

    def _on_suback(self, suback: Suback) -> None:
        session = self.session
        assert session is not None
        for each in self._bridge.incoming:
            if each.asked == suback.packet_id:
                session.in_flight.outgoing.ids.release([suback.packet_id])
                code = suback.reason_codes[0]
                if code >= FAILURE:
                    each.asked = 0
                    self._wait(each, f"{each.there.text} refused: {reason_words(code, suback.properties)}")
                else:
                    each.asked = -1
                    self._running(each)

    def _running(self, each: BridgeRoute) -> None:
        if each.full:  # what the other end keeps came before SUBACK, or before a pause
            self._wait_for_room(each)
            return
        each.route.error = ""
        each.route.move("attached")
        self.report("link.route_running", link=self._link.name, route=each.route.name)

    def _wait(self, each: BridgeRoute, why: str, ms: int = 0) -> None:
        route = each.route
        route.retry_at = self.engine.now + (ms or self._link.settings.retry_interval_max)
        route.move("attach")
        route.move("refused", why)
        self.report("link.route_waiting", link=self._link.name, route=route.name, error=why)

    def _unsubscribe(self, session: ClientSession) -> None:
        """End what the other end sends for routes that are not configured any more."""
        assert session.other is not None
        wanted = {each.there.text for each in self._bridge.incoming if not self._echoes(each)}
        gone = [text for text in session.other.filters if text not in wanted]
        if gone and not self._unsubscribing:
            (self._unsubscribing,) = session.in_flight.outgoing.ids.allocate(1)
            self.send(Unsubscribe(self._unsubscribing, [TopicFilter(text, text) for text in gone]))

    def _on_unsuback(self, unsuback: Unsuback) -> None:
        session = self.session
        assert session is not None
        assert session.other is not None
        if unsuback.packet_id != self._unsubscribing:
            return  # nobody has asked
        session.in_flight.outgoing.ids.release([unsuback.packet_id])
        self._unsubscribing = 0
        session.other.filters = [each.there.text for each in self._bridge.incoming if not self._echoes(each)]
        self._common.sessions.note(session)

    def pause_routes(self) -> None:
        self._pausing = True
        if self.session is not None:
            self.session.deliveries.set_blocked(True)
        if self._bridge.incoming:
            self.reading.stop(_PAUSED)
        for route in self._link.routes.values():
            route.move("pause")

    def pause(self, paused: bool) -> None:
        super().pause(paused or self._pausing or self._asking_since > 0)

    def check(self) -> None:
        session = self.session
        if session is None or self.lost or not self.established:
            return
        self._bridge.count()
        if self._pausing:
            return
        now, longest = self.engine.now, self._link.settings.retry_interval_max
        for each in self._bridge.routes:
            if each.route.state is State.RETRYING and has_come(each.route.retry_at, now, longest):
                if each.full and not self._has_room(each):
                    each.route.retry_at = now + self._link.settings.retry_interval
                elif not each.full:
                    self._start(session, each)
                    self.touch()
        if self._asking_since and (not session.in_flight.outgoing or now - self._asking_since >= longest):
            self.shut_down("there is room again: the other broker is asked for what it has kept")

    # -- what finds no room ----------------------------------------------------------------------------------------

    def owe(self, ack: Ack) -> None:
        """See Port."""
        if self.held is not None and ack.type is not PacketType.PUBCOMP:
            self.held.append(ack)
        else:
            super().owe(ack)

    def release_held(self) -> None:
        """There is room again."""
        held, self.held = self.held or [], None
        for ack in held:
            self.owe(ack)
        self.confirm()
        self.touch()

    def no_room(self, each: BridgeRoute, topic: str, why: Refused) -> None:
        """The other end keeps what comes on a topic, until it is asked for it by another connection."""
        each.full.setdefault(topic, why)
        if each.route.state is not State.RETRYING:
            self._wait_for_room(each)
            each.rounds += 1

    def _wait_for_room(self, each: BridgeRoute) -> None:
        settings = self._link.settings
        wait = min(settings.retry_interval << min(each.rounds, 30), settings.retry_interval_max)
        self._wait(each, next(iter(each.full.values())).sentence, wait)

    def _has_room(self, each: BridgeRoute) -> bool:
        """Whether there is room for what a route lacks.  Then what goes out ends first, lest it be sent twice."""
        assert isinstance(self.receiver, BridgeReceiver), "something has come"
        if not self.receiver.has_room(each.full):
            return False
        if not self._asking_since:
            self._asking_since = self.engine.now
            self.pause(self.window.paused)
        return True

    # -- messages --------------------------------------------------------------------------------------------------

    def _on_ack(self, ack: Ack) -> None:
        session = self.session
        assert session is not None
        if ack.reason_code >= FAILURE:
            for packet_id, _, subscription, _ in session.in_flight:
                if packet_id in ack.packet_ids:
                    route = self._bridge.outgoing[subscription.filter.text].route
                    route.error, route.error_at = reason_words(ack.reason_code, ack.properties), route.link.now()
        super()._on_ack(ack)

    def refused(self, consumer: Consumer, message: Message, text: str) -> None:
        if not self.keeps(consumer, message, text):
            super().refused(consumer, message, text)

    def keeps(self, consumer: Consumer, message: Message, why: str) -> bool:
        """Whether a message that the other end does not take waits: no dead-letter address would keep a durable one."""
        if not message.header.durable or self.engine.messages.may_die(consumer.queue, message):
            return False
        self.engine.consumers.keep(consumer, message, self._link.settings.retry_interval_max)
        for each in self._bridge.outgoing.values():
            if each.queue == consumer.queue.name:
                each.route.error, each.route.error_at = why, each.route.link.now()
                if each.waiting != why:
                    each.waiting = why
                    self.report("link.route_waiting", link=self._link.name, route=each.route.name, error=why)
        return True

    def _on_pingresp(self, packet: Pingresp) -> None:
        """It is there."""

    # -- what the network calls ------------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Everything for the peer; a server that only listens is asked for a sign of life too."""
        due = self._keep_alive and self.engine.now - self._pinged >= self._keep_alive
        if due and self.established and not self.lost:
            self._ping()
        return super().data_to_send()

    def _ping(self) -> None:
        self._pinged = self.engine.now
        self.send(Pingreq())

    def send_heartbeat(self) -> None:
        """PINGREQ."""
        if self.established and not self.lost:
            self._ping()
            self.touch()

    def timed_out(self) -> None:
        self._why = f"nothing was heard for {self.receive_timeout} ms"
        super().timed_out()

    # -- the end ---------------------------------------------------------------------------------------------------

    def _on_disconnect(self, packet: Disconnect) -> None:
        self._bridge.picky |= packet.reason_code == ReasonCode.QUOTA_EXCEEDED
        self._give_up(f"the other broker closed the connection: {reason_words(packet.reason_code, packet.properties)}")

    def fail_with(self, failure: MqttError) -> None:
        self._why = self._why or str(failure)
        if not self._answered and self.codec.version == V5:  # an answer that is none of MQTT 5
            self._answered = True
            self._bridge.try_another(certain=True)
        super().fail_with(failure)

    def taken_over(self) -> NoReturn:
        raise AssertionError("a link has one connection")

    def shut_down(self, why: str = "", *, moved: bool = False) -> None:
        """The link or the broker stops: what it is owed waits at both ends."""
        self._why = why
        if self.established and self.codec.streaming is None:
            self.codec.send(Disconnect())
        self._give_up(why)

    def dismiss(self, reason: str) -> None:
        self.shut_down(reason)

    def ended(self) -> None:
        bridge, session = self._bridge, self.session
        if not self._answered and not self._why:
            self._why = f"the connection was closed before CONNACK, in MQTT {VERSIONS[self.codec.version]}"
            bridge.try_another(certain=False)
        elif self.established:
            bridge.begin_anew()
        if session is not None:
            asked = [each.asked for each in bridge.incoming if each.asked > 0]
            session.in_flight.outgoing.ids.release([*asked, self._unsubscribing])
        for each in bridge.incoming:
            each.asked = 0
            each.full.clear()
        bridge.count()
        self._links.lost(self._link, self._why)


#: What is done about each packet.
_HANDLERS: Final[Handlers] = {
    **SHARED,
    PacketType.PUBLISH: MqttLinkSession._on_message,
    BEGUN: MqttLinkSession._on_message,
    PART: MqttLinkSession._on_message,
    PacketType.CONNACK: MqttLinkSession._on_connack,
    PacketType.PUBACK: MqttLinkSession._on_ack,
    PacketType.PUBREC: MqttLinkSession._on_ack,
    PacketType.PUBCOMP: MqttLinkSession._on_ack,
    PacketType.SUBACK: MqttLinkSession._on_suback,
    PacketType.UNSUBACK: MqttLinkSession._on_unsuback,
    PacketType.PINGRESP: MqttLinkSession._on_pingresp,
    PacketType.DISCONNECT: MqttLinkSession._on_disconnect,
}
