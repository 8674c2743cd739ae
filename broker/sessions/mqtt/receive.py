"""The receiving side of one connection: from PUBLISH until its acknowledgement is queued.

A payload that is too large for memory is written to a file part by part, and its message is published once it is
complete.  Nothing else of the connection is read meanwhile.  A refused or repeated PUBLISH is read to its end, and then
answered like a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NoReturn

from broker.engine import LargeBody
from broker.engine.model.access import Access
from broker.engine.model.errors import EngineError, MemoryFull
from broker.engine.model.message import Body
from broker.sessions.base import without_calls
from broker.sessions.mqtt.client_session import ClientSession, Common
from broker.sessions.mqtt.connect import check_publish, payload_too_large
from broker.sessions.mqtt.port import Port
from broker.sessions.mqtt.publish import DROPPED_SILENTLY, Noted, NotTaken, Outcomes, Publisher, Refused, answers
from broker.sessions.mqtt.terms import refusal
from broker.sessions.upload import Uploading
from protocols.mqtt.codes import FAILURE, V5, PacketType, ReasonCode
from protocols.mqtt.errors import MqttError
from protocols.mqtt.packets import Ack, Begun, Part, Publish

#: The packets that acknowledge messages, by QoS.
_ANSWERS: Final = (PacketType.PUBACK, PacketType.PUBACK, PacketType.PUBREC)

#: What it costs to publish a run of messages, and to retain each, in microseconds of the tick's budget.
RUN_COST: Final = 60
RETAIN_COST: Final = 100

#: Why a connection is not read.
_FULL: Final = "full"


class Receiver:
    """The receiving side of a connection with a session, and the producer that full addresses block.

    While an address blocks, messages are accepted and their acknowledgements are held: the other end stops when its
    window is used up, its pings are still answered, and its own acknowledgements are still read.  Messages without a
    window (QoS 0, or in parts), too many messages or bytes, and a broker without memory for more stop the reading.
    """

    #: What is accepted while an address blocks: the windows of common clients, and of a link as shipped.
    held_messages_max = 1024
    held_bytes_max = 1 << 20

    def __init__(self, common: Common, session: ClientSession, link: Port) -> None:
        self._engine = engine = common.tick.engine
        self._session = session
        self._sessions = common.sessions
        self._traffic = common.sessions.traffic
        self._options = common.options
        self._mount = common.mount
        self._link = link
        self._publisher = Publisher(engine, common.sessions.syntax, self, session.client.access)
        self._rest: Publish | None = None  # what is left of a run,
        self._rest_refused: dict[int, Refused] = {}  # ... and what of it is refused
        self._run: Publish | None = None  # the PUBLISH that is arriving in parts,
        self._refused: dict[int, Refused] = {}  # ... and why, if it is refused
        self._failure: MqttError | None = None  # what was wrong when it was finished
        self._held: list[Ack] | None = None  # acknowledgements that wait for room; None: not blocked
        self._messages = self._bytes = 0  # received since
        self._uploading = Uploading(engine, link.reading)

    def publish(self, run: Publish) -> Publish | None:
        """Publish a run of messages in memory, or the first part of it; returns the rest.  Raises MqttError."""
        refused = self._rest_refused if run is self._rest else self._refusals(run, map(len, run.payloads))
        self._rest = None
        fitting = 1 if len(run.topics) == 1 else self._publisher.fitting(run)
        if fitting < len(run.topics):
            self._rest = run.cut(fitting)
            self._rest_refused = {at - fitting: why for at, why in refused.items() if at >= fitting}
            refused = {at: why for at, why in refused.items() if at < fitting}
        self._engine.ticks.spend(RETAIN_COST * len(run.topics) if run.retain else RUN_COST)
        self._take(run, run.payloads, refused)
        if self._held is not None:
            self._messages += len(run.payloads)
            self._bytes += sum(map(len, run.payloads))
            too_much = self._messages > self.held_messages_max or self._bytes > self.held_bytes_max
            if not run.qos or too_much or self._engine.usage.memory_full:
                self._link.reading.stop(_FULL)
        return self._rest

    def _refusals(self, run: Publish, sizes: Iterable[int]) -> dict[int, Refused]:
        """Return which messages of a run are refused whatever is in them, by position.  Raises MqttError."""
        check_publish(run.qos, run.retain, self._options)
        refused = {} if self._mount is None else dict(self._mount.publish(run))
        most = self._options.payload_bytes_max
        if most >= 0:
            for at, nbytes in enumerate(sizes):
                if nbytes > most and at not in refused:
                    refused[at] = Refused(ReasonCode.QUOTA_EXCEEDED, payload_too_large(nbytes, self._options))
        return refused

    def _take(self, run: Publish, payloads: Sequence[Body], refused: dict[int, Refused]) -> None:
        """Publish the messages that are neither refused nor repeated, and answer all.  Raises MqttError."""
        self._traffic.received += len(run.topics)
        repeated: list[int] = []
        noted: Noted | None = None
        stored = self._session.in_flight.stored
        if run.qos:
            repeated = self._session.incoming.receive(run.qos, run.packet_ids)
            if run.qos == 2:
                self._charge(run, repeated)
            if run.qos == 2 and stored is not None:
                noted = partial(self._engine.sessions.packet_ids.received, stored)
        left = [*repeated, *refused] if refused else repeated
        outcomes = self._publisher.publish(run, payloads, left, noted)
        outcomes.update({at: why for at, why in refused.items() if at not in repeated})
        self.answer(run, outcomes)
        if self._publisher.blocked:
            self._publisher.blocked = False
            self.block()

    def _charge(self, run: Publish, repeated: Sequence[int]) -> None:
        """Charge the packet identifiers that a session holds, until they are released.  Raises MqttError."""
        try:
            self._sessions.charge_ids(self._session)
        except MemoryFull as full:
            known = set(repeated)
            self._session.incoming.refused([id for at, id in enumerate(run.packet_ids) if at not in known])
            raise MqttError(ReasonCode.QUOTA_EXCEEDED, str(full)) from full

    def give_access(self, access: Access) -> None:
        """Set the permissions after the client has authenticated again."""
        self._publisher.give_access(access)

    def block(self) -> None:
        """Hold acknowledgements from now on, as an address that blocks its senders is full."""
        if self._held is None:
            self._held = []
            self._messages = self._bytes = 0

    @property
    def transport(self) -> object:
        return self._link.transport

    def unblock(self) -> None:
        """Send the acknowledgements that were held, and read: a full address has room again (see Producer)."""
        held, self._held = self._held or (), None
        for ack in held:
            self.queue_answer(ack)
        self._link.confirm()
        self._link.touch()
        self._link.reading.go(_FULL)

    def queue_answer(self, ack: Ack) -> None:
        """Acknowledge once everything before is durable, and no address blocks."""
        if self._held is not None and ack.type is not PacketType.PUBCOMP:
            self._held.append(ack)
        else:
            self._link.queue_answer(ack)

    def answer(self, run: Publish, outcomes: Outcomes) -> None:
        """Queue the acknowledgements of a run.  Raises MqttError if the client must not take a message as accepted."""
        link, kind = self._link, _ANSWERS[run.qos]
        if run.qos and (not outcomes or link.codec.version == V5):
            for ack in answers(kind, run, outcomes) if outcomes else (Ack(kind, run.packet_ids),):
                self.queue_answer(ack)
            return
        for refused, messages in Counter(outcomes.values()).items():
            if refused is not None:
                link.dropped(messages, refused.sentence)
                if run.qos and refused.reason not in DROPPED_SILENTLY:
                    self.end_for(run, outcomes, refused)
        if run.qos:
            self.queue_answer(Ack(kind, run.packet_ids))

    def end_for(self, run: Publish, outcomes: Outcomes, refused: Refused) -> NoReturn:
        """End the connection, as messages of a run are refused: if they are resent, they are new.  Raises NotTaken."""
        if run.qos == 2:
            self._session.incoming.refused([run.packet_ids[at] for at, why in outcomes.items() if why is not None])
        taken = [id for at, id in enumerate(run.packet_ids) if outcomes.get(at) is None]
        if taken:
            self.queue_answer(Ack(_ANSWERS[run.qos], taken))
        raise NotTaken(refused.reason, refused.sentence)

    def release(self, packet_ids: list[int]) -> None:
        """Process a PUBREL: messages with these identifiers are new from now on."""
        session, completed = self._session, PacketType.PUBCOMP
        unknown = set(session.incoming.release(packet_ids))
        known = [id for id in packet_ids if id not in unknown]
        if known:
            if session.in_flight.stored is not None:
                self._engine.sessions.packet_ids.completed(session.in_flight.stored, known, sent=False)
            self.queue_answer(Ack(completed, known))
        if unknown:
            self.queue_answer(Ack(completed, sorted(unknown), ReasonCode.PACKET_IDENTIFIER_NOT_FOUND))

    def answered(self, ack: Ack) -> None:
        """Note that a queued answer was sent."""
        incoming = self._session.incoming
        if ack.type is PacketType.PUBACK:
            incoming.acknowledged(len(ack.packet_ids))
        elif ack.type is PacketType.PUBREC and ack.reason_code >= FAILURE:
            incoming.refused(ack.packet_ids)
        elif ack.type is PacketType.PUBCOMP and not ack.reason_code:
            incoming.completed(ack.packet_ids)

    @property
    def waiting(self) -> bool:
        """Whether a large message is complete, but not published yet."""
        return self._uploading.whole

    def begin(self, begun: Begun) -> None:
        """Begin a message whose payload arrives in parts.  Raises MqttError."""
        self._run = run = begun.publish
        self._refused = self._refusals(run, [begun.nbytes])
        if self._held is not None:
            self._link.reading.stop(_FULL)
        incoming = self._session.incoming
        if run.qos == 2 and run.packet_ids[0] in incoming:
            incoming.receive(run.qos, run.packet_ids)  # raises the error if the identifier is in use
        elif not self._refused:
            try:
                self._publisher.check(run.topics[0])
                # A retained message is durable, and has the same body.
                self._uploading.begin(self._uploaded, self._go_on, durable=run.qos > 0 or run.retain)
            except EngineError as error:
                self._refuse(error)

    def _refuse(self, error: EngineError) -> None:
        self._refused = {0: Refused(refusal(error), str(error))}

    def part(self, part: Part) -> None:
        """Process a part of the payload.  Raises MqttError."""
        if self._uploading.coming:
            self._uploading.write(part.payload, last=part.last)
        elif part.last:
            self._finish(None)

    def _uploaded(self, body: LargeBody | EngineError) -> None:
        if isinstance(body, EngineError):
            self._refuse(body)
        if self._uploading.whole:
            try:
                self._finish(None if isinstance(body, EngineError) else body)
            except MqttError as wrong:
                self._failure = without_calls(wrong)

    def _go_on(self) -> None:
        failure, self._failure = self._failure, None
        self._link.proceed(failure)

    def _finish(self, body: LargeBody | None) -> None:
        """Publish the complete message, unless it was refused or repeated.  Raises MqttError."""
        run, refused = self._run, self._refused
        assert run is not None, "it has begun"
        self._run, self._refused = None, {}
        self._link.codec.resume()
        self._take(run, [] if body is None else [body], refused)

    def abandon(self) -> None:
        """Drop the unfinished message and the acknowledgements that were held, as the connection ends."""
        for ack in self._held or ():
            self._session.not_sent(ack)
        self._engine.producers.stop_waiting(self)
        self._publisher.forget_producer()
        self._uploading.abandon()
