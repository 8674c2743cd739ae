"""The sessions of MQTT clients: the state that outlives a connection, and when it ends.

    CONNECT --clean start--> an old session ends, a new one begins
            '--otherwise---> the old one continues, if there is one (Session Present)
    the connection ends ----> the session ends after its expiry interval; 0: at once
                              its will is published: at once, after its delay, or with the session's end

A session whose expiry interval is not 0 is stored: its subscriptions have durable queues, and messages in flight are
journalled (`broker.engine.client_sessions.sessions`).  One of interval 0 is stored only for its will, so that the will
is published even if the broker crashes.  After a restart every session counts as disconnected at that moment: its
expiry and its will's delay begin then.

While a client is disconnected its consumers stay attached and paused: messages in flight stay in flight and do not
count as failed deliveries.  Its queues then accept durable messages only: QoS 0 is not stored for absent clients, and a
subscription of QoS 0 has no queue until its client is back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from broker.engine import Client, Definition, Ending, Engine, StoredSession
from broker.engine.model.access import Identity, unrestricted
from broker.engine.model.errors import AlreadyInUse, EngineError, RetainedFull
from broker.sessions.mqtt import will as wills
from broker.sessions.mqtt.delivery import Deliveries
from broker.sessions.mqtt.inflight import InFlight
from broker.sessions.mqtt.mount import Inward
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.publish import Publisher
from broker.sessions.mqtt.render import Heads
from broker.sessions.mqtt.subscribe import Subscriptions, key_of
from broker.sessions.mqtt.sys import BrokerFigures, Traffic
from broker.sessions.mqtt.terms import MqttOptions, TooMany
from broker.sessions.tick import Tick
from protocols.mqtt.codes import FAILURE, PacketType
from protocols.mqtt.inflight import Incoming
from protocols.mqtt.packets import Ack, Will
from protocols.mqtt.runs import Shared
from protocols.mqtt.topics import AddressSyntax


@dataclass(slots=True, eq=False)
class OtherEnd:
    """The session that the other end of a link has for this broker, which is its client.

    `kept`: it exists, as this broker has logged in before.  `client_id`: under this identifier; empty if an earlier
    version has stored it.  `filters`: the topic filters that it may have.
    """

    kept: bool = False
    client_id: str = ""
    filters: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, object]:
        """Return the stored form."""
        return {"kept": self.kept, "client_id": self.client_id, "filters": self.filters}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> OtherEnd:
        """Read the stored form."""
        filters = stored["filters"]
        assert isinstance(filters, list), "it was stored so"
        return cls(bool(stored["kept"]), str(stored.get("client_id", "")), [str(each) for each in filters])


@dataclass(slots=True, eq=False)
class ClientSession:
    """One session.  `stored`: its record, if it has one; `other`: for the session of a link only."""

    client: Client
    in_flight: InFlight
    deliveries: Deliveries
    subscriptions: Subscriptions
    incoming: Incoming = field(default_factory=Incoming)
    stored: StoredSession | None = None
    owner: Port | None = None
    will: Will | None = None
    other: OtherEnd | None = None
    ended: bool = False

    @property
    def idle(self) -> bool:
        """Whether it holds nothing that its client would miss, except its will, which is published as it ends."""
        return not (self.subscriptions or self.incoming or self.in_flight.outgoing or self.other)

    def definition(self) -> dict[str, object]:
        """Return what is stored of it, apart from its subscriptions and messages in flight."""
        will = None if self.will is None else wills.to_json(self.will)
        other = {} if self.other is None else {"other": self.other.to_json()}
        return {"protocol": "mqtt", **self.client.definition(), "will": will, **other}

    def not_sent(self, ack: Ack) -> None:
        """Note that the connection ended before this was sent: messages that it refuses are new if they are resent."""
        if ack.type is PacketType.PUBREC and ack.reason_code >= FAILURE:
            self.incoming.refused(ack.packet_ids)


class MqttSessions:
    """All sessions, by client identifier, of all acceptors: a client may reconnect through another one."""

    def __init__(self, engine: Engine, version: str, *, sys_interval: int = 0) -> None:
        self.engine = engine
        characters = engine.syntax
        self.syntax = AddressSyntax(characters.delimiter, characters.any_words, characters.single_word)
        self.heads = Heads(self.syntax)
        self._sessions: dict[str, ClientSession] = {}
        self._idle: dict[ClientSession, None] = {}  # that hold nothing, while their clients are away; oldest first
        self.traffic = Traffic()
        figures = BrokerFigures(
            engine, self.syntax, self.traffic, version, self.__len__, self._subscriptions, sys_interval
        )
        engine.system_topics.start(figures, sys_interval)

    def _subscriptions(self) -> int:
        return sum([len(session.subscriptions) for session in self._sessions.values()])

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, client_id: str) -> ClientSession | None:
        """Return a client's session, if it has one."""
        return self._sessions.get(client_id)

    # -- connections -----------------------------------------------------------------------------------------------

    def working(self, client_id: str) -> Port | None:
        """Return the connection of a client if packets of it are still to be handled, before another one takes over."""
        session = self._sessions.get(client_id)
        former = None if session is None else session.owner
        return former if former is not None and former.works else None

    def connect(
        self, owner: Port, client: Client, will: Will | None, options: MqttOptions, *, clean: bool
    ) -> tuple[ClientSession, bool]:
        """Return the session of a client that connects, and whether it existed; `clean`: end that and begin a new one.

        Ends the session's former connection, if it has one [MQTT-3.1.4-3].  Raises Denied for the session of another
        user, AlreadyInUse for one whose connection may not be ended, DiskFull, TooMany.

        If there are too many, the oldest session that holds nothing ends, while its client is away.  Else a user who
        may do nothing could use them all up, for ever.
        """
        session = self._sessions.get(client.id)
        if session is not None:
            session.client.admit(client, self.engine.report)
        if session is not None and session.owner is not None:
            if not options.link_stealing:
                raise AlreadyInUse("another connection has this client identifier, and it may not be taken over")
            former = session.owner
            try:
                former.taken_over()
            except BaseException as error:  # both connections end: a session must not have two
                self.engine.ticks.blame(former.transport, error)
                raise
            session = self._sessions.get(client.id)  # it may have ended with its connection
        if session is not None and clean:
            self.end(session)
            session = None
        if session is None and len(self) >= options.sessions_max:
            if not self._idle:
                raise TooMany(f"there are {len(self)} sessions: the limit is reached")
            self.end(next(iter(self._idle)))
        present = session is not None
        if session is None:
            session = self._begin(client)
        else:
            if session.client.access.user != client.access.user:
                session.subscriptions.hand_over(client.access.user)
            session.client.renew(client)
        self.engine.session_expiry.stop(client)  # this cancels the delayed will, too [MQTT-3.1.3-9]
        session.owner, session.will = owner, will
        self._idle.pop(session, None)
        try:
            self.note(session)
            session.subscriptions.return_all()
        except EngineError:
            session.owner, session.client.disconnected = None, self.engine.now
            if not present:
                del self._sessions[client.id]
            raise
        return session, present

    def _begin(self, client: Client) -> ClientSession:
        in_flight = InFlight(self.engine)
        deliveries = Deliveries(self.engine, in_flight)
        subscriptions = Subscriptions(self.engine, self.syntax, client, deliveries)
        session = self._sessions[client.id] = ClientSession(client, in_flight, deliveries, subscriptions)
        return session

    # -- links -----------------------------------------------------------------------------------------------------

    def hold(self, client: Client) -> ClientSession:
        """Return the session of a link that is not connected: the stored one, or a new one.  Raises DiskFull."""
        session = self._sessions.get(client.id)
        if session is None:
            session = self._begin(client)
            session.other = OtherEnd()
            self.note(session)
        return session

    def of_links(self) -> list[ClientSession]:
        """Return the sessions of all links, including those of an earlier run."""
        return [session for session in self._sessions.values() if session.other is not None]

    def forget_other(self, session: ClientSession) -> None:
        """Drop unfinished exchanges and free their packet ids: the other end of a link has lost its session.

        Messages that it has not acknowledged are sent again.
        """
        received, session.incoming = list(session.incoming), Incoming()
        if session.stored is not None:
            self.engine.sessions.packet_ids.completed(session.stored, received, sent=False)
        session.in_flight.forget_released()

    # -- what is stored --------------------------------------------------------------------------------------------

    def note(self, session: ClientSession) -> None:
        """Store a session as it is now, if it is to be stored.  Raises DiskFull for a new one."""
        stored, sessions = session.stored, self.engine.sessions
        if stored is not None or session.client.lasting or session.will is not None:
            definition, subscriptions = session.definition(), session.subscriptions
            if stored is None:
                session.stored = stored = sessions.open(session.client.id, definition)
                sessions.resume(stored, session.in_flight.current)
            parts = subscriptions.to_json() if session.client.lasting or subscriptions.durable else {}
            sessions.update(stored, {**dict.fromkeys(stored.parts), **parts}, definition)
            subscriptions.changed.clear()
        session.in_flight.stored = session.stored if session.client.lasting else None

    def note_changed(self, session: ClientSession) -> None:
        """Store the changed subscriptions of a session, if it is stored."""
        subscriptions = session.subscriptions
        if not subscriptions.changed or session.stored is None:
            return
        if session.client.lasting:
            self.engine.sessions.update(session.stored, subscriptions.changes())
        else:
            self.note(session)

    def disconnect(self, session: ClientSession, ending: Ending, *, publish_will: bool) -> None:
        """Note that a session's connection has ended; `publish_will`: without a DISCONNECT of reason code 0."""
        session.owner = None
        session.client.disconnected = self.engine.now
        session.deliveries.disconnect()
        if not publish_will:
            session.will = None
        if not session.client.lasting:
            self.end(session)
            return
        session.subscriptions.leave_all(ending)
        if wills.delay_of(session.will) == 0:
            self._publish_will(session)
        self.note(session)
        self._await_return(session)

    def _await_return(self, session: ClientSession) -> None:
        if session.idle:
            self._idle[session] = None
        expired, will_due = partial(self._expire, session), partial(self._send_will, session)
        self.engine.session_expiry.begin(session.client, expired, wills.delay_of(session.will), will_due)

    def _expire(self, session: ClientSession) -> None:
        self.traffic.expired += 1
        self.end(session)

    def _send_will(self, session: ClientSession) -> None:
        self._publish_will(session)
        self.note(session)

    def _publish_will(self, session: ClientSession) -> None:
        """Publish a session's will, once ([MQTT-3.1.2-8], [MQTT-3.1.2-10])."""
        will, session.will = session.will, None
        if will is None:
            return
        publisher = Publisher(self.engine, self.syntax, _NeverBlocked(), session.client.access)
        try:
            try:
                publisher.send(will.topic, will.payload, will.qos, will.retain, will.properties)
            except RetainedFull:  # it must be published even if it cannot be kept [MQTT-3.1.2-8]
                publisher.send(will.topic, will.payload, will.qos, False, will.properties)
        except EngineError as error:
            self.engine.report("mqtt.will_refused", client=session.client.id, topic=will.topic, error=str(error))

    def end(self, session: ClientSession) -> None:
        """End a session: publish its will if it has one, and delete its subscriptions and messages."""
        assert session.owner is None, "a session in use does not end"
        if session.ended:
            return
        session.ended = True
        self._idle.pop(session, None)
        self.engine.session_expiry.stop(session.client)
        self._publish_will(session)
        session.in_flight.stored = None  # its packet identifiers end with its record
        session.subscriptions.drop_all()
        if session.stored is not None:
            self.engine.sessions.drop(session.stored)
            session.stored = None
        del self._sessions[session.client.id]

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self) -> int:
        """Restore the stored sessions, before any client connects.  Returns how many there are."""
        restored = [self._restore(stored) for stored in self.engine.sessions.of_clients()]
        for session in restored:  # now all who share a subscription are known
            assert session.stored is not None, "it was stored"
            session.subscriptions.settle_restored()
            self.engine.sessions.resume(session.stored, session.in_flight.current)
        for session in restored:
            if session.client.lasting:
                self.note(session)
                self._await_return(session)
            else:
                self.end(session)
        self.engine.subscriptions.delete_abandoned()
        return len(self._sessions)

    def _restore(self, stored: StoredSession) -> ClientSession:
        definition = stored.definition
        other = definition.get("other")
        linked = isinstance(other, dict)
        identity = Identity.stored(str(definition["user"]), cast("list[str] | None", definition.get("roles")))
        access = unrestricted(stored.name) if linked else self.engine.security.access(identity, stored.name)
        session = self._begin(Client.restored(stored.name, access, definition, self.engine.now))
        session.stored = stored
        if isinstance(other, dict):
            session.other = OtherEnd.from_json(other)
        will = definition["will"]
        if isinstance(will, dict):
            session.will = wills.from_json(will)
        session.incoming.restore(list(stored.received))
        session.subscriptions.restore(_subscriptions(stored))
        session.in_flight.stored = stored if session.client.lasting else None
        session.deliveries.restore(stored)
        return session


@dataclass(slots=True, eq=False)
class Common:
    """Shared by all connections of an acceptor, or of a link."""

    tick: Tick
    options: MqttOptions
    codec: Shared
    sessions: MqttSessions
    heads: Heads  # with topics as the other end names them
    mount: Inward | None  # turns topics of the other end into local ones


def _subscriptions(stored: StoredSession) -> list[Definition]:
    """Return the subscriptions of a stored session; earlier versions had all of them in its definition."""
    found: dict[str, Definition] = {}
    before = stored.definition.get("subscriptions")
    for each in before if isinstance(before, list) else ():
        found[key_of(each)] = each
    found.update({key: part for key, (_, part) in stored.parts.items()})
    return sorted(found.values(), key=lambda each: bool(each.get("leaving")))


class _NeverBlocked:
    """The producer of a will: one message, so it is never blocked."""

    transport = None

    def unblock(self) -> None:
        """Do nothing: it was not blocked."""
