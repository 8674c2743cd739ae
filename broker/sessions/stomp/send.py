"""Groups SENDs into runs of messages.

A run contains the sends of one read that go to the same destination and differ only in application headers and body;
sends to other destinations may come between them.  Each queue still gets the messages in the order of their arrival:
runs that meet there are published together (`publish.in_turn`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from broker.engine import Address, Engine, LongWork, Producers, Refusal, Send, Transaction
from broker.engine.model.access import Access
from broker.engine.model.attributes import RequestedAttributes
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Body, Format, Message, MessageHeader, RoutingType
from broker.engine.model.query import split_query
from broker.sessions.reading import Reading
from broker.sessions.stomp.headers import (
    CONSUMED,
    GROUPING,
    UNUSUAL,
    USUAL,
    Headers,
    encode_headers,
    encode_plain,
    make_header,
    message_group,
    refused,
    routing_type,
    strip,
    usual_lines,
)
from broker.sessions.stomp.temporary import Destinations, is_temporary
from broker.sessions.stomp.transactions import Transactions
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame, Known, Lead

#: The values that determine a message header besides the destination: some headers, and whether it is in a group.
Key = tuple[bytes | bool | None, ...]

#: Headers that keep a send from joining a run by the fast path.
_DECIDING: Final = frozenset(CONSUMED | GROUPING | {b"reply-to"})

#: Runs, and messages, that are published together: some 60 us each, and 3 us.
_RUNS_MAX: Final = 32
_MESSAGES_MAX: Final = 2_048

#: What the filters of their queues may cost for messages that are published together, in microseconds.
_MATCHING_MAX: Final = 2_000

#: The reason to stop reading while an address is full.
_FULL: Final = "full"

#: How many sends are looked at together whether their addresses are full, and what each costs, in microseconds
#: (`queues.steps`): as much for the question as to free it.
ASKED_TOGETHER: Final = 256
ASK_COST: Final = 4

#: A header of every send: a run with this as `others` can be joined by none on the fast path.
_DESTINATION: Final = frozenset({b"destination"})


class _Lead(Lead):
    """The beginning of sends that can join a run: the values of their usual headers, and the run's key."""

    __slots__ = ("destination", "headers", "key")

    def __init__(self, run: _Run, headers: Headers) -> None:
        super().__init__(run.begins, _DECIDING)
        self.destination = headers[b"destination"]
        self.headers = {name: value for name, value in headers.items() if name in USUAL}
        self.key = run.key


class _Run(Send):
    """SENDs for one destination with the same message header.

    `consumed`: their header lines that the broker consumes, `lead`: those in one piece, `others`: names that determine
    the message header and that these sends lack.  A send with all of `consumed` and none of `others` belongs to the
    run; so does one that begins with `begins` and has no other determining header.  Either all sends of a run are in
    message groups or none is; `groups` has the header of each group.  `match_cost`: see `Producers`.
    """

    __slots__ = ("begins", "consumed", "groups", "key", "lead", "match_cost", "others", "receipts", "tx")

    def __init__(
        self,
        key: Key,
        name: str,
        routing_type: RoutingType | None,
        header: MessageHeader,
        tx: Transaction | None,
        headers: Headers,
        *,
        access: Access,
        asked: RequestedAttributes,
        match_cost: int,
    ) -> None:
        super().__init__(name, routing_type, header, access=access, asked=asked)
        self.key = key
        self.tx = tx
        self.match_cost = match_cost
        self.consumed = usual_lines(headers)
        self.lead = b"".join(self.consumed)
        self.begins = b"SEND\n" + self.lead
        self.others = _DECIDING.difference([name for name in USUAL if name in headers])
        self.groups: dict[tuple[str, bool], MessageHeader] = {}
        self.receipts: list[tuple[int, bytes]] = []  # with the message's position in the run

    def note_receipt(self, headers: Headers) -> None:
        """Note the receipt that the next message of the run asks for, if any."""
        receipt = headers.get(b"receipt")
        if receipt is not None:
            self.receipts.append((len(self.messages), receipt))

    def receipt_from(self, message: Message) -> bytes | None:
        """Return the first receipt asked for by a message of the run or one after it."""
        first = self.messages.index(message)
        return next((receipt for at, receipt in self.receipts if at >= first), None)

    def headers(self) -> Iterable[MessageHeader]:
        return (self.header, *self.groups.values())

    def header_for(self, group: tuple[str, bool]) -> MessageHeader:
        """Return the header of a send in this group, if any; one in a group ends the fast path for the run."""
        if not group[0]:
            return self.header
        header = self.groups.get(group)
        if header is None:
            self.others = _DESTINATION
            self.begins = b""
            header = self.groups[group] = self.header.in_group(group[0], closes=group[1])
        return header


class Sends:
    """The SENDs of a connection that are not published yet; the producer that full addresses block.

    `expect` is called with the beginning of sends that can join a run, `expect_reply` with temporary destinations
    without consumers to which the peer expects answers.  `published` counts those published; after a refusal, those
    before it.
    """

    def __init__(
        self,
        engine: Engine,
        reading: Reading,
        destinations: Destinations,
        format: Format,
        transactions: Transactions,
        expect_reply: Callable[[bytes], None],
        expect: Callable[[Lead], None],
    ) -> None:
        self.published = 0
        self._engine = engine
        self._destinations = destinations
        self._expect = expect
        self._expect_reply = expect_reply
        self._format = format
        self._reading = reading
        self._transactions = transactions
        self._runs: list[_Run] = []
        self._order: list[Message] | None = None  # messages of all runs in order of arrival; None with one run
        self._open: dict[bytes, _Run] = {}  # the last run of each destination
        self.matching = False  # some of them are matched with filters
        self._certain = 0  # how many runs, the first ones, cannot be refused as long as the journal has room

    def add(self, frame: Frame) -> None:
        """Gather a SEND.  Raises StompError, Denied."""
        if isinstance(frame, Known):
            self._add_known(frame)
            return
        headers = frame.headers
        run = self._open.get(headers[b"destination"])
        if run is not None and run.others.isdisjoint(headers):
            head = strip(frame, run.consumed, run.lead)
            if head is not None:
                message = Message(run.header, head, frame.body)
                run.messages.append(message)
                if self._order is not None:
                    self._order.append(message)
                return
        self._add_otherwise(frame)

    def _add_known(self, frame: Known) -> None:
        """Gather a send that begins with a known lead."""
        lead, lines = frame.lead, frame.lines
        assert isinstance(lead, _Lead)
        assert lines is not None
        run = self._open.get(lead.destination)
        if run is None or run.begins != lead.begins:
            run = self._open[lead.destination] = self._begin(lead.headers, lead.key)
        message = Message(run.header, encode_plain(lines), frame.body)
        run.messages.append(message)
        if self._order is not None:
            self._order.append(message)

    def _add_otherwise(self, frame: Frame) -> None:
        """Gather a send that begins a run, or belongs to one but has a receipt or escapes.

        If its message header depends on rare headers, the send is a run of its own, which no other can join.
        """
        headers = frame.headers
        get = headers.get
        if is_temporary(get(b"reply-to", b"")):
            self._make_reply_to_real(frame)
        destination = headers[b"destination"]
        if not UNUSUAL.isdisjoint(headers):
            self._open.pop(destination, None)
            self._add_alone(headers, frame.body)
            return
        group = ("", False) if GROUPING.isdisjoint(headers) else message_group(headers)
        key = (get(b"persistent"), get(b"priority"), get(b"expires"), get(b"transaction"), bool(group[0]))
        run = self._open.get(destination)
        if run is None or run.key != key:
            run = self._open[destination] = self._begin(headers, key)
            if not group[0] and frame.lines is not None and frame.lines.startswith(run.lead):
                self._expect(_Lead(run, headers))
        consumed, lead, receipt = run.consumed, run.lead, get(b"receipt")
        if receipt is not None:
            consumed = [*consumed, b"receipt:%b\n" % receipt]
            lead = b"".join(consumed)
            run.note_receipt(headers)
        head = strip(frame, consumed, lead)
        header = run.header_for(group) if group[0] else run.header
        self._append(run, Message(header, encode_headers(headers) if head is None else head, frame.body))

    def _add_alone(self, headers: Headers, body: Body) -> None:
        run = self._begin(headers, ())
        run.note_receipt(headers)
        self._append(run, Message.of(run.header_for(message_group(headers)), encode_headers(headers), body))

    def _make_reply_to_real(self, frame: Frame) -> None:
        """Replace a temporary reply-to by the name that other connections can use."""
        reply_to = frame.headers[b"reply-to"]
        prefix, name, _ = self._destinations.split(reply_to.decode())
        frame.headers[b"reply-to"] = (prefix + name).encode()
        frame.lines = None
        if not self._destinations.answered(reply_to.decode()):
            self.publish_first()
            self._expect_reply(reply_to)

    def add_large(self, frame: Frame, body: Body) -> None:
        """Gather a SEND whose body is in a file, as a run of its own.  Raises StompError, EngineError."""
        if is_temporary(frame.headers.get(b"reply-to", b"")):
            self._make_reply_to_real(frame)
        self._add_alone(frame.headers, body)

    def _append(self, run: _Run, message: Message) -> None:
        run.messages.append(message)
        if self._order is not None:
            self._order.append(message)

    def _begin(self, headers: Headers, key: Key) -> _Run:
        run = self.make(headers, key)
        if len(self._runs) == 1:
            self._order = self._runs[0].messages.copy()
        self._runs.append(run)
        self.matching |= run.match_cost > 0
        return run

    def make(self, headers: Headers, key: Key = ()) -> _Run:
        """Return a run for a SEND with these headers, without messages.  Raises StompError, Denied."""
        tx = self._transactions.of(headers, "SEND")
        destinations, now = self._destinations, self._engine.now
        access = destinations.access
        _, name, stated = destinations.split(headers[b"destination"].decode())
        asked = routing_type(headers.get(b"destination-type"), "destination-type", "SEND", headers)
        name, query = split_query(name)
        wanted = next((t for t in (asked, stated, query.routing_type) if t is not None), None)
        header = make_header(headers, wanted, self._format, now=now, user=access.user, origin=destinations.origin)
        cost = self._engine.producers.match_cost(name)
        return _Run(key, name, wanted, header, tx, headers, access=access, asked=query.asked, match_cost=cost)

    def may_be_refused(self) -> bool:
        """Whether any that are gathered could be refused; runs are examined once, as ACKs between them may be many."""
        runs = self._runs
        if not runs:
            return False
        new = runs[self._certain :]
        self._certain = len(runs)
        return any([run.tx is not None for run in new]) or self._engine.producers.may_refuse(new)

    @property
    def many(self) -> bool:
        """Whether they are so many that publishing them takes some milliseconds."""
        return len(self._runs) >= _RUNS_MAX or (bool(self._runs) and len(self._arrived) >= _MESSAGES_MAX)

    @property
    def costly(self) -> bool:
        """Whether filters make publishing them take some milliseconds."""
        return sum([len(run.messages) * run.match_cost for run in self._runs]) >= _MATCHING_MAX

    @property
    def gathered(self) -> int:
        """How many sends there have been, published or not."""
        return self.published + (len(self._arrived) if self._runs else 0)

    @property
    def _arrived(self) -> list[Message]:
        """The messages of all runs in the order of arrival."""
        return self._runs[0].messages if self._order is None else self._order

    def publish(self) -> StompError | None:
        """Publish what was gathered, up to the first refusal.  Returns that, if any.

        Sends after a refused one are not published; transactions are rolled back, since the connection ends.
        """
        if not self._runs:
            return None
        runs, order, arrived = self._runs, self._order, self._arrived
        self._forget()
        failure: StompError | None = None
        counting = len(arrived)  # up to the first refusal
        for tx, own, messages in _by_transaction(runs, order):
            if failure is not None:
                own, messages = _before(own, messages, arrived[:counting])
            if tx is None:
                result = self._engine.producers.publish(own, messages, producer=self, stop=True)
                refusals = result.refusals
                if result.blocked:
                    self._reading.stop(_FULL)
            else:
                refusals = _refused_in(tx, own, messages, self._engine.producers)
                # One that acknowledges may be what makes room: its COMMIT has to be read.
                if not refusals and not tx.settlements and self._engine.transactions.wait_for_room(tx, own, self):
                    self._reading.stop(_FULL)
            if refusals:
                counting = arrived.index(refusals[0].messages[0])
                failure = _refused(refusals)
        self.published += counting
        return failure

    def publish_first(self) -> None:
        """Publish what was gathered, before a frame that depends on it.  Raises StompError."""
        failure = self.publish()
        if failure is not None:
            raise failure

    def _forget(self) -> None:
        """Drop everything that is gathered."""
        self._runs, self._order, self._certain = [], None, 0
        self.matching = False
        self._open.clear()

    def wait_for_room(self, sends: list[Send]) -> LongWork:
        """Stop reading until the addresses of some sends have room; there may be thousands, which leave the list."""
        asked: set[Address] = set()
        sends.reverse()  # the next one last
        while sends:
            some = sends[-ASKED_TOGETHER:]
            del sends[-ASKED_TOGETHER:]
            addresses = dict.fromkeys([send.address for send in reversed(some) if send.address not in asked])
            asked.update(addresses)
            if any([self._engine.producers.wait_for_room(address, self) for address in addresses]):
                self._reading.stop(_FULL)
            yield ASK_COST * len(some)

    @property
    def transport(self) -> object:
        return self._reading.transport

    def unblock(self) -> None:
        """Read again: a full address has room (see Producer)."""
        self._reading.go(_FULL)

    def abandon(self) -> None:
        """Drop everything that is not published: the connection ends."""
        self._engine.producers.stop_waiting(self)
        self._engine.producers.give_up(self._runs)
        self._forget()
        self._expect_reply = _expect_none


def _expect_none(destination: bytes) -> None:
    pass


def _refused(refusals: list[Refusal]) -> StompError:
    """Return the error for the first refusal, with the receipt of the first refused message that has one."""
    receipts = (run.receipt_from(refusal.messages[0]) for refusal in refusals if isinstance(run := refusal.send, _Run))
    receipt = next((receipt for receipt in receipts if receipt is not None), None)
    return refused("SEND", refusals[0].error, {} if receipt is None else {b"receipt": receipt})


def _refused_in(tx: Transaction, runs: list[_Run], messages: list[Message], producers: Producers) -> list[Refusal]:
    """Add messages to a transaction, all or none.  Returns the refusals."""
    for run in runs:
        try:
            producers.find(run)
        except EngineError as error:
            producers.give_up(runs)
            return [Refusal(run, run.messages, error)]
    try:
        tx.send(runs, messages)
    except EngineError as error:
        producers.give_up(runs)
        return [Refusal(run, run.messages, error) for run in runs]
    for run in runs:
        run.tx = None  # which refers to them
    return []


def _by_transaction(
    runs: list[_Run], order: list[Message] | None
) -> Sequence[tuple[Transaction | None, list[_Run], list[Message]]]:
    """Return the runs of each transaction, with their messages in order; those without one come last."""
    tx = runs[0].tx
    if order is None:
        return [(tx, runs, runs[0].messages)]
    if all([run.tx is tx for run in runs]):
        return [(tx, runs, order)]
    of = {message: run.tx for run in runs for message in run.messages}
    return [
        (tx, [run for run in runs if run.tx is tx], [message for message in order if of[message] is tx])
        for tx in sorted(dict.fromkeys([run.tx for run in runs]), key=lambda tx: tx is None)
    ]


def _before(runs: list[_Run], messages: list[Message], earlier: list[Message]) -> tuple[list[_Run], list[Message]]:
    """Limit these runs and messages to the earlier ones."""
    among = set(earlier)
    for run in runs:
        run.messages = [message for message in run.messages if message in among]
    return [run for run in runs if run.messages], [message for message in messages if message in among]
