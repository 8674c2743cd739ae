"""The sessions of MQTT clients: the state that outlives a connection, and when it ends.

    CONNECT --clean start--> an old session ends, a new one begins
            '--otherwise---> the old one continues, if there is one (Session Present)
    the connection ends ----> the session ends after its expiry interval; 0: at once
                              its will is published: at once, after its delay, or with the session's end

A session whose expiry interval is not 0 is stored: its subscriptions have durable queues, and messages in flight are
journalled (`broker.engine.client_sessions.sessions`).  One of interval 0 is stored only for its will, so that the will
is published even if the broker crashes.  After a restart every session counts as disconnected at that moment: its
expiry and its will's delay begin then.

A client may have a thousand subscriptions: to leave, to return and to end are done in steps.  What is asked of a
session meanwhile waits for its turn (`MqttSessions.in_turn`).  For each stage, what happens meanwhile, and then:

                      RETURNING                  LEAVING                    ENDING
    CONNECT           is connected, taken over   waits, then returns        waits, then begins anew
    connection lost   LEAVING, or ENDING         -                          -
    message           to its queue; sent once    to its queue, if it has    to its queue, and deleted with it
                      CONNACK is                 one still
    queue deleted,    made again; or idle, if    made again as the client   one less to delete
    permission lost   it may not be read         returns, or idle then
    time              nothing expires            the expiry interval and    -
                                                 the will's delay pass
    restart           AWAY since the restart     AWAY since the restart     ends as it starts, without the will

While a client is disconnected its consumers stay attached and paused: messages in flight stay in flight and do not
count as failed deliveries.  Its queues then accept durable messages only: QoS 0 is not stored for absent clients, and a
subscription of QoS 0 has no queue until its client is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Final, cast

from broker.engine import Client, Definition, Ending, Engine, LongWork, StoredSession
from broker.engine.model.access import Identity, unrestricted
from broker.engine.model.errors import AlreadyInUse, EngineError, RetainedFull
from broker.sessions.mqtt import will as wills
from broker.sessions.mqtt.delivery import Deliveries
from broker.sessions.mqtt.inflight import InFlight
from broker.sessions.mqtt.mount import Inward
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.publish import NeverBlocked, Publisher
from broker.sessions.mqtt.render import Heads
from broker.sessions.mqtt.subscribe import Subscriptions, key_of
from broker.sessions.mqtt.sys import BrokerFigures, Traffic
from broker.sessions.mqtt.terms import MqttOptions, TooMany
from broker.sessions.tick import Tick, Transport
from protocols.mqtt.codes import FAILURE, PacketType
from protocols.mqtt.inflight import Incoming
from protocols.mqtt.packets import Ack, Will
from protocols.mqtt.runs import Shared
from protocols.mqtt.topics import AddressSyntax

#: What it costs to store a subscription, in microseconds (`broker.engine.queues.steps`).
NOTE_COST: Final = 10

#: The part of the sessions that is for users who have less than their share.
RESERVED_PART: Final = 4

#: What a packet identifier takes in memory until its exchange is completed: its entries in three tables, measured.
ID_BYTES: Final = 128

#: A session with more subscriptions does not end in one step: it is noted first that it ends.
ENDS_TOGETHER: Final = 32


class Stage(Enum):
    """What a session is doing."""

    AWAY = "its client is not connected"
    RETURNING = "its client is connecting"
    CONNECTED = "its client is connected"
    LEAVING = "its connection has ended"
    ENDING = "it is being deleted"
    ENDED = "it is no more"


class Event(Enum):
    """What happens to a session."""

    CONNECTS = "its client connects"
    RETURNED = "all subscriptions have returned"
    DISCONNECTS = "its connection ends"
    LEFT = "all subscriptions have left"
    ENDS = "it expires, or is not to outlive the connection, or its client makes a clean start"
    GONE = "all subscriptions are deleted"


#: The stage after an event; what is not here does not happen.
STAGES: Final = {
    (Stage.AWAY, Event.CONNECTS): Stage.RETURNING,
    (Stage.AWAY, Event.ENDS): Stage.ENDING,
    (Stage.RETURNING, Event.RETURNED): Stage.CONNECTED,
    (Stage.RETURNING, Event.DISCONNECTS): Stage.LEAVING,
    (Stage.RETURNING, Event.ENDS): Stage.ENDING,
    (Stage.CONNECTED, Event.DISCONNECTS): Stage.LEAVING,
    (Stage.CONNECTED, Event.ENDS): Stage.ENDING,
    (Stage.LEAVING, Event.LEFT): Stage.AWAY,
    (Stage.ENDING, Event.GONE): Stage.ENDED,
}

#: Stages that end by themselves.
_PASSING: Final = (Stage.LEAVING, Stage.ENDING)


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
    will: Will | None = None  # see MqttSessions._set_will
    charged: tuple[str, int] = "", 0  # the user and the bytes of the will (`broker.engine.queues.client_memory`)
    charged_ids: tuple[str, int] = "", 0  # the same of packet identifiers
    other: OtherEnd | None = None
    stage: Stage = Stage.AWAY

    def move(self, event: Event) -> None:
        """Go on to the next stage."""
        self.stage = STAGES[self.stage, event]

    @property
    def idle(self) -> bool:
        """Whether it holds nothing that its client would miss, except its will, which is published as it ends.

        Packet identifiers of messages that were dropped are nothing: sent again, they are dropped again.
        """
        received = self.stored is not None and self.stored.received
        return not (self.subscriptions or received or self.in_flight.outgoing or self.other)

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
        self._of_user: Counter[str] = Counter()  # how many each has, without those of links
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

    def in_turn(self, client_id: str, work: LongWork, transport: object) -> None:
        """Do something with a client's session, behind what is under way with it; `transport`: for this connection."""
        self.engine.ticks.begin_work(("session", client_id), work, transport)

    def make_way(self, arrival: Arrival, options: MqttOptions, again: Callable[[], None]) -> bool:
        """Whether a client that connects can have its session, or a new one, now.  Call it in turn.

        If not, what is in the way begins to end: the session's former connection [MQTT-3.1.4-3], behind what that has
        sent; or the session itself, at a clean start.  `again` is called behind that, or takes another turn.

        Raises Denied for the session of another user, AlreadyInUse for one whose connection may not be ended.
        """
        session = self._sessions.get(arrival.client.id)
        if session is None:
            return True
        if session.stage in _PASSING:
            again()
            return False
        former, admitted = session.owner, (session, session.client.access.user)
        if former is not None and former.works:
            self.engine.ticks.begin_work(former, _called(again), arrival.transport)
            return False
        if arrival.admitted != admitted:
            session.client.admit(arrival.client, self.engine.report)
            arrival.admitted = admitted
        if former is not None:
            if not options.link_stealing:
                raise AlreadyInUse("another connection has this client identifier, and it may not be taken over")
            try:
                former.taken_over()
            except BaseException as error:  # both connections end: a session must not have two
                self.engine.ticks.blame(former.transport, error)
                raise
        elif arrival.clean:
            self.end(session)
        else:
            return True
        again()
        return False

    def connect(self, owner: Port, arrival: Arrival, options: MqttOptions) -> tuple[ClientSession, bool]:
        """Return the session of a client that connects, and whether it existed.  Its subscriptions return next.

        Nothing is in its way.  Raises DiskFull, MemoryFull, TooMany.

        If there are too many, the oldest session that holds nothing ends, while its client is away.  Else a user who
        may do nothing could use them all up, for ever.
        """
        client = arrival.client
        session = self._sessions.get(client.id)
        present = session is not None
        if session is None:
            self._check_number(client.access.user, options.sessions_max)
            session = self._begin(client)
            self._of_user[client.access.user] += 1
        try:
            self._set_will(session, arrival.will, client.access.user)
        except EngineError:
            if not present:
                self._forget(session)
            raise
        if present:
            if session.client.access.user != client.access.user:
                session.subscriptions.hand_over(client.access.user)
                self._of_user -= Counter([session.client.access.user])
                self._of_user[client.access.user] += 1
            session.client.renew(client)
        self.engine.session_expiry.stop(client)  # this cancels the delayed will, too [MQTT-3.1.3-9]
        self._idle.pop(session, None)
        try:
            self.note(session)
        except EngineError:
            session.client.disconnected = self.engine.now
            if not present:
                self._set_will(session, None)
                self._forget(session)
            raise
        session.owner = owner
        session.move(Event.CONNECTS)
        return session, present

    def returning(self, session: ClientSession) -> LongWork:
        """Let the subscriptions of a session return whose client has connected.  Ends early if the connection does."""
        for work in (session.subscriptions.return_all(), self._note_parts(session)):
            for cost in work:
                yield cost
                if session.stage is not Stage.RETURNING:
                    return
        session.move(Event.RETURNED)

    def _begin(self, client: Client) -> ClientSession:
        in_flight = InFlight(self.engine)
        deliveries = Deliveries(self.engine, in_flight)
        subscriptions = Subscriptions(self.engine, self.syntax, client, deliveries)
        session = self._sessions[client.id] = ClientSession(client, in_flight, deliveries, subscriptions)
        return session

    def _forget(self, session: ClientSession) -> None:
        del self._sessions[session.client.id]
        if session.other is None:
            self._of_user -= Counter([session.client.access.user])
        self.engine.client_memory.release(*session.charged_ids)

    def _check_number(self, user: str, most: int) -> None:
        """Make room for another session of a user, of at most so many.  Raises TooMany.

        The last quarter is for users who have less than their share, so that one cannot shut out the others.
        """
        count, own = len(self), self._of_user[user]
        users = len(self._of_user) + (not own)
        if users > 1 and count >= most - most // RESERVED_PART and own >= most // users:
            raise TooMany(f"there are {count} sessions, {own} of this user: the others are reserved for other users")
        if count >= most:
            if not self._idle:
                raise TooMany(f"there are {count} sessions: the limit is reached")
            self.end(next(iter(self._idle)))

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
        """Store a session as it is now, apart from its subscriptions, if it is to be stored.

        Raises DiskFull for a new one.
        """
        stored, sessions = session.stored, self.engine.sessions
        if stored is not None or session.client.lasting or session.will is not None:
            definition = session.definition()
            if stored is None:
                session.stored = stored = sessions.open(session.client.id, definition)
                sessions.resume(stored, session.in_flight.current)
            sessions.update(stored, {}, definition)
        session.in_flight.stored = session.stored if session.client.lasting else None

    def _note_parts(self, session: ClientSession) -> LongWork:
        """Store the subscriptions of a session, if it is stored, and they are to be, too."""
        stored, sessions, subscriptions = session.stored, self.engine.sessions, session.subscriptions
        if stored is None:
            return
        gone = dict.fromkeys(stored.parts)
        if session.client.lasting or subscriptions.durable:
            for key, part in subscriptions.stored_forms():
                gone.pop(key, None)
                sessions.put(stored, key, part)
                yield NOTE_COST
        for key in gone:
            sessions.remove(stored, key)
            yield NOTE_COST
        subscriptions.changed.clear()

    def note_all(self, session: ClientSession) -> None:
        """Store a session and its subscriptions as they are now, at once.

        The definition comes last: earlier versions have stored the subscriptions in it.
        """
        for _ in self._note_parts(session):
            pass
        self.note(session)

    def note_changed(self, session: ClientSession) -> None:
        """Store the changed subscriptions of a session, if it is stored."""
        subscriptions = session.subscriptions
        if not subscriptions.changed or session.stored is None:
            return
        if session.client.lasting:
            self.engine.sessions.update(session.stored, subscriptions.changes())
        else:
            self.note_all(session)

    def disconnect(self, session: ClientSession, ending: Ending, *, publish_will: bool) -> None:
        """Note that a session's connection has ended; `publish_will`: without a DISCONNECT of reason code 0."""
        assert session.owner is not None, "it was connected"
        transport, session.owner = session.owner.transport, None
        session.client.disconnected = self.engine.now
        session.deliveries.disconnect()
        self.charge_ids(session, essential=True)
        if not publish_will:
            self._set_will(session, None)
        if not session.client.lasting:
            self.end(session, transport)
            return
        session.move(Event.DISCONNECTS)
        self.in_turn(session.client.id, self._leaving(session, ending), transport)

    def _leaving(self, session: ClientSession, ending: Ending) -> LongWork:
        """Let the subscriptions of a session leave, then publish its will."""
        try:
            yield from session.subscriptions.leave_all(ending)
            yield from self._note_parts(session)
            if wills.delay_of(session.will) == 0:
                self._publish_will(session)
            self.note(session)
        finally:
            session.move(Event.LEFT)
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

    def _set_will(self, session: ClientSession, will: Will | None, user: str = "") -> None:
        """Set a session's will, and charge it to a user.  Raises MemoryFull, which leaves the earlier one."""
        memory, nbytes = self.engine.client_memory, wills.memory_of(will)
        memory.release(*session.charged)
        try:
            memory.hold(user, nbytes)
        except EngineError:
            memory.hold_again(*session.charged)
            raise
        session.will, session.charged = will, (user, nbytes)

    def charge_ids(self, session: ClientSession, *, essential: bool = False) -> None:
        """Charge the packet identifiers that a session holds to its user; `essential`: whatever the limit is.

        Raises MemoryFull, which changes nothing.
        """
        memory, (user, held) = self.engine.client_memory, session.charged_ids
        nbytes = ID_BYTES * (session.incoming.handshakes + len(session.in_flight.outgoing.ids))
        now = session.client.access.user
        if held // 2 <= nbytes <= held and now == user:
            return
        memory.release(user, held)
        try:
            (memory.hold_again if essential else memory.hold)(now, nbytes)
        except EngineError:
            memory.hold_again(user, held)
            raise
        session.charged_ids = now, nbytes

    def _publish_will(self, session: ClientSession) -> None:
        """Publish a session's will, once ([MQTT-3.1.2-8], [MQTT-3.1.2-10])."""
        will = session.will
        if will is None:
            return
        self._set_will(session, None)
        publisher = Publisher(self.engine, self.syntax, NeverBlocked(), session.client.access)
        try:
            try:
                publisher.send(will.topic, will.payload, will.qos, will.retain, will.properties)
            except RetainedFull:  # it must be published even if it cannot be kept [MQTT-3.1.2-8]
                publisher.send(will.topic, will.payload, will.qos, False, will.properties)
        except EngineError as error:
            self.engine.report("mqtt.will_refused", client=session.client.id, topic=will.topic, error=str(error))

    def end(self, session: ClientSession, transport: object = None) -> None:
        """End a session: publish its will if it has one, and delete its subscriptions and messages."""
        assert session.owner is None, "a session in use does not end"
        session.move(Event.ENDS)
        self._idle.pop(session, None)
        self.engine.session_expiry.stop(session.client)
        self.in_turn(session.client.id, self._ending(session), transport)

    def _ending(self, session: ClientSession) -> LongWork:
        try:
            self._publish_will(session)
            yield from self._delete(session)
        finally:
            self._forget(session)
            session.move(Event.GONE)

    def _delete(self, session: ClientSession) -> LongWork:
        """Delete what a session has; if that is much, note first that it ends, without a will, after a restart."""
        stored, sessions, subscriptions = session.stored, self.engine.sessions, session.subscriptions
        together = len(subscriptions) + len(subscriptions.finishing) <= ENDS_TOGETHER
        if stored is not None and not together:
            session.client.expiry = 0
            sessions.change(stored, session.definition())
        session.in_flight.stored = None  # its packet identifiers end with its record
        for cost in subscriptions.drop_all():
            if not together:
                yield cost
        if stored is None:
            return
        for key in [] if together else list(stored.parts):
            sessions.remove(stored, key)
            yield NOTE_COST
        sessions.drop(stored)
        session.stored = None

    # -- after a restart -------------------------------------------------------------------------------------------

    def restore(self) -> int:
        """Restore the stored sessions, before any client connects.  Returns how many there are."""
        restored = [self._restore(stored) for stored in self.engine.sessions.of_clients()]
        for session in restored:  # now all who share a subscription are known
            assert session.stored is not None, "it was stored"
            session.subscriptions.finish_restore()
            self.engine.sessions.resume(session.stored, session.in_flight.current)
        for session in restored:
            if session.client.lasting:
                self.note_all(session)
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
        else:
            self._of_user[identity.user] += 1
        will = definition["will"]
        if isinstance(will, dict):
            session.will = wills.from_json(will)
            session.charged = identity.user, wills.memory_of(session.will)
            self.engine.client_memory.hold_again(*session.charged)
        session.incoming.restore(list(stored.received))
        session.subscriptions.restore(_subscriptions(stored))
        session.in_flight.stored = stored if session.client.lasting else None
        session.deliveries.restore(stored)
        self.charge_ids(session, essential=True)
        return session


@dataclass(slots=True, eq=False)
class Arrival:
    """A client that connects, through a `transport`; `clean`: it wants a new session.

    `admitted`: the session that it may have, and the user whose that was, once it has been asked for.
    """

    client: Client
    transport: Transport
    will: Will | None = None
    clean: bool = False
    admitted: tuple[ClientSession, str] | None = None


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


def _called(call: Callable[[], None]) -> LongWork:
    yield from ()
    call()
