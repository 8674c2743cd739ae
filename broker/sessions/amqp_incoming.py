"""A link on which the broker receives: to one address or, as the anonymous relay, to that of each message.

What the relay cannot deliver is rejected; the link ends if the sender could not hear that, because it has settled the
delivery or its source has no such outcome (Using the Anonymous Terminus for Message Routing, 2.2.2).

What arrives is gathered and published together, as runs that agree in header and address, when the read has been
looked at, or before anything that needs it done.  Accepted deliveries are settled once they are durable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from broker.engine.access import Access
from broker.engine.address import Address, Producer
from broker.engine.engine import Engine
from broker.engine.errors import EngineError
from broker.engine.message import Facts, Format, Message, RoutingType
from broker.engine.query import split_query
from broker.engine.queue import Queue
from broker.sessions.amqp_message import Special, make_facts, take_apart
from broker.sessions.amqp_terms import REJECTED, AmqpOptions, refused
from broker.sessions.amqp_transactions import OpenTransaction, rollback_only
from protocols.amqp.errors import INVALID_FIELD, AmqpError, DecodeError, link_error
from protocols.amqp.events import Transfers
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    DeliveryState,
    Error,
    Rejected,
    Source,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.session import Session

_ACCEPTED = Accepted()


class Owner(Protocol):
    """What a link needs of its connection's session layer."""

    engine: Engine
    options: AmqpOptions
    format: Format
    access: Access
    origin: str

    def answer(self, session: Session, role: bool, ids: Sequence[int], state: DeliveryState | None) -> None:
        """Settle deliveries once everything done so far is durable."""

    def speak(self) -> None:
        """What a link said outside of the peer's own turn goes out with this tick."""

    def transaction(self, txn_id: bytes) -> OpenTransaction:
        """An open transaction.  Raises AmqpError."""


class _Run:
    """Messages in a row for one address with the same facts; `ids` are their delivery ids."""

    __slots__ = (
        "address",
        "alone",
        "facts",
        "header",
        "ids",
        "messages",
        "name",
        "queue",
        "routing_type",
        "settled",
        "tx",
    )

    def __init__(
        self, name: str, facts: Facts, address: Address, queue: Queue | None, routing_type: RoutingType | None
    ) -> None:
        self.name = name
        self.facts = facts
        self.address = address
        self.queue = queue
        self.routing_type = routing_type
        self.header = b""
        self.alone = False  # its facts depend on more than the header: nobody joins it
        self.settled = False
        self.tx: OpenTransaction | None = None
        self.messages: list[Message] = []
        self.ids: list[int] = []


class IncomingLink:
    """A producer's link.  `address` is the target's, with its prefix; None: each message says where it goes."""

    def __init__(self, owner: Owner, link: Receiver, address: str | None, asked: RoutingType | None) -> None:
        self.link = link
        self._owner = owner
        self._address = address
        self._asked = asked
        self._runs: list[_Run] = []
        self._blocked = False
        self._waiting: dict[Producer, None] = {}  # where it stands while its first credit waits

    # -- gathering -------------------------------------------------------------------------------------------------

    def add(self, event: Transfers) -> None:
        """Gather messages.  Raises AmqpError for a transaction that is not known, and for what the relay cannot say."""
        tx = None
        if isinstance(event.state, TransactionalState):
            tx = self._owner.transaction(event.state.txn_id)
        run = self._last_run(event.settled, tx)
        ids, begun = event.ids, 0  # the first message of this event that is the run's
        name, relay = self._address, self._address is None
        for at, payload in enumerate(event.payloads):
            try:
                header, head, body, special = take_apart(payload)
                if relay:
                    name = _to(payload)
                assert name is not None
                if run is None or special is not None or header != run.header or name != run.name:
                    if run is not None:
                        run.ids += ids[begun:at]
                    run, begun = None, at
                    run = self._begin(name, header, special, event.settled, tx)
            except (DecodeError, EngineError) as error:
                if run is not None:
                    run.ids += ids[begun:at]
                run, begun = None, at + 1
                self._refuse(error, event, at, tx)
                continue
            run.messages.append(Message(run.facts, head, body))
            if special is not None:
                run.ids.append(ids[at])
                run, begun = None, at + 1
        if run is not None:
            run.ids += ids[begun:]

    def _last_run(self, settled: bool, tx: OpenTransaction | None) -> _Run | None:
        """The run that messages may join."""
        run = self._runs[-1] if self._runs else None
        return run if run is not None and not run.alone and run.settled == settled and run.tx is tx else None

    def _begin(
        self, name: str, header: bytes, special: Special | None, settled: bool, tx: OpenTransaction | None
    ) -> _Run:
        """Raises DecodeError, EngineError."""
        owner = self._owner
        plain, stated = owner.options.split(name)
        plain, query = split_query(plain)
        noted = None if special is None else special.routing_type
        asked = next((t for t in (stated, self._asked, noted, query.routing_type) if t is not None), None)
        address, queue = owner.engine.router.destination(plain, asked, access=owner.access, asked=query.asked)
        facts = make_facts(
            header,
            special,
            address.name,
            owner.format,
            asked,
            now=owner.engine.now,
            user=owner.access.user,
            origin=owner.origin,
        )
        facts.expiration, facts.expiry_source = address.settings.expiration(facts.expiration, facts.timestamp)
        run = _Run(name, facts, address, queue, asked)
        run.header, run.settled, run.tx, run.alone = header, settled, tx, special is not None
        self._runs.append(run)
        return run

    def _refuse(self, error: Exception, event: Transfers, at: int, tx: OpenTransaction | None) -> None:
        if isinstance(error, EngineError):
            why = refused(error)
        else:
            assert isinstance(error, AmqpError)
            why = Error(error.condition, error.description)
        relay = self._address is None
        if relay:
            why.info = {"delivery-tag": event.tags[at]}
        if tx is not None:
            tx.refused = tx.refused or rollback_only(why)
        heard = tx is not None if event.settled else rejects(self.link)
        if relay and not heard:
            raise link_error(why.condition, why.description or "", why.info)
        if not event.settled:
            rejected = Rejected(why)
            state = rejected if tx is None else TransactionalState(tx.id, rejected)
            self._owner.answer(self.link.session, RECEIVER, [event.ids[at]], state)

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Publish what was gathered; one refused run does not keep back the others."""
        runs, self._runs = self._runs, []
        blocked = False
        engine = self._owner.engine
        for run in runs:
            state: DeliveryState = _ACCEPTED
            try:
                if run.tx is not None:
                    engine.send_in(run.tx.transaction, run.address, run.queue, run.routing_type, run.messages)
                    state = TransactionalState(run.tx.id, _ACCEPTED)
                else:
                    engine.publish(run.address, run.queue, run.routing_type, run.messages)
            except EngineError as refusal:
                why = refused(refusal)
                rejected = state = Rejected(why)
                if run.tx is not None:
                    run.tx.refused = run.tx.refused or rollback_only(why)
                    state = TransactionalState(run.tx.id, rejected)
            else:
                blocked |= engine.block_if_full(run.address, self)
            if not run.settled:
                self._owner.answer(self.link.session, RECEIVER, run.ids, state)
        self._blocked = self._blocked or blocked
        self.top_up()

    def top_up(self) -> None:
        """Give credit again when little is left, unless the address is full."""
        options = self._owner.options
        if not self._blocked and self.link.credit <= options.low_credits:
            self.link.send_credit(options.credits)

    def wait_for_room(self, address: Address | None) -> None:
        """No first credit while the address is full, or (the anonymous relay) the disk."""
        engine = self._owner.engine
        if address is not None:
            self._blocked = engine.block_if_full(address, self)
            self._waiting = address.blocked
        else:
            disk = engine.core.usage.disk
            self._blocked = disk.full
            self._waiting = disk.waiting
            if disk.full:
                disk.waiting[self] = None

    def gone(self) -> None:
        """The link is detached: it waits for nothing."""
        self._waiting.pop(self, None)

    def unblock(self) -> None:
        """A full address has room again (see Producer)."""
        self._blocked = False
        self.top_up()
        self._owner.speak()


class Gathered:
    """What the links of a connection have gathered since it was last published.

    One link an address: where a second one comes, what the first has gathered is published before, so that messages to
    an address keep their order whatever links they come on.  The anonymous relay's may go to any address.
    """

    def __init__(self) -> None:
        self._links: dict[str | None, IncomingLink] = {}

    def add(self, link: IncomingLink) -> None:
        """A link has gathered messages."""
        links, order = self._links, link.link.order
        if links.get(order) is not link:
            if links and (order is None or order in links or None in links):
                self.publish()
            self._links[order] = link

    def publish(self) -> None:
        """Publish what was gathered."""
        if self._links:
            links, self._links = self._links, {}
            for link in links.values():
                link.publish()


def rejects(link: Receiver) -> bool:
    """Whether a message that comes on a link can be rejected: its source has this outcome, or says nothing of any."""
    source = link.attach.source if link.attach is not None else None
    outcomes = source.outcomes if isinstance(source, Source) else ()
    return not outcomes or REJECTED in outcomes


def _to(payload: bytes) -> str:
    """Where a message for the anonymous relay goes.  Raises DecodeError, AmqpError."""
    to = Encoded(payload).properties.to
    if not to:
        raise _NoAddress()
    return to


class _NoAddress(DecodeError):
    def __init__(self) -> None:
        super().__init__(0, "")
        self.condition = INVALID_FIELD
        self.description = "A message to the anonymous relay needs properties.to."
