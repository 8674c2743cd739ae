"""Coordinator links (part 4): their messages declare and discharge transactions."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from broker.sessions.amqp.link_owner import LinkOwner
from broker.sessions.amqp.terms import refused
from broker.sessions.amqp.transactions import Transactions
from protocols.amqp.composite import composite_of
from protocols.amqp.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_IMPLEMENTED,
    TRANSACTION_ROLLBACK,
    AmqpError,
    DecodeError,
    link_error,
)
from protocols.amqp.events import Portion, Transfers
from protocols.amqp.link import Channel
from protocols.amqp.message import AMQP_VALUE, Message
from protocols.amqp.performatives import (
    RECEIVER,
    SENDER,
    Accepted,
    Declare,
    Discharge,
    Error,
    Outcome,
    Rejected,
    TransactionalState,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.types import Described

#: Deliveries to settle once a transaction is committed.
Unsettled = Sequence[tuple[Channel, Sequence[int], Outcome]]


class CoordinatorLink:
    """The link of one transaction controller."""

    def __init__(self, owner: LinkOwner, link: Receiver, transactions: Transactions) -> None:
        self.link = link
        self._owner = owner
        self._transactions = transactions
        self._requests: deque[tuple[int, bytes]] = deque()  # that are not answered yet
        self._discharging = False  # the first of them takes more ticks

    @property
    def match_cost(self) -> int:
        return 0

    def add(self, event: Transfers) -> None:
        """Handle requests, and answer them.

        Raises AmqpError if they are settled, if the controller accepts no rejection, or if a message has not arrived
        completely of a transaction that is to be committed.
        """
        if event.settled:  # 4.2, 4.3
            raise link_error(NOT_ALLOWED, "transfer: a declare or discharge is not sent settled, as it has an answer.")
        self._requests += zip(event.ids, event.payloads, strict=True)
        self._answer_all()
        if self._discharging:
            self._owner.suspend()
        self.top_up()

    def _answer_all(self) -> None:
        """Answer requests, in order: what comes after a discharge waits until that is done."""
        while self._requests and not self._discharging:
            self._answer(*self._requests.popleft())

    def _answer(self, id: int, payload: bytes) -> None:
        rejectable = self.link.rejects
        try:
            request = read_request(payload)
            if isinstance(request, Declare):
                self._owner.answer(self.link.session, RECEIVER, [id], self._transactions.declare(self.link))
                return
            if not request.fail and self._transactions.is_partial(request.txn_id):
                error = Error(TRANSACTION_ROLLBACK, "A message of the transaction has not arrived completely.")
                rejectable = False  # such a link ends (4.4.1)
            else:
                self._discharge(id, request)
                return
        except AmqpError as wrong:
            error = refused(wrong)
        self._settle(id, error, rejectable=rejectable)

    def _discharge(self, id: int, request: Discharge) -> None:
        later = False

        def done(error: Error | None, unsettled: Unsettled) -> None:
            self._discharging = False
            if not later:
                outcomes.append((error, unsettled))
            elif not self._owner.lost:
                self._discharged(id, error, unsettled)

        outcomes: list[tuple[Error | None, Unsettled]] = []
        self._discharging = True
        try:
            self._transactions.discharge(request.txn_id, fail=bool(request.fail), done=done)
        except AmqpError:
            self._discharging = False
            raise
        later = self._discharging
        for error, unsettled in outcomes:
            self._settle(id, error, unsettled)

    def _discharged(self, id: int, error: Error | None, unsettled: Unsettled) -> None:
        """Answer a discharge that took more ticks, and go on."""
        try:
            self._settle(id, error, unsettled)
            self._answer_all()
        except AmqpError as wrong:
            self._owner.lose(self.link, wrong)
        if not self._discharging:
            self._owner.resume()

    def _settle(
        self, id: int, error: Error | None, unsettled: Unsettled = (), *, rejectable: bool | None = None
    ) -> None:
        """Answer a request, and settle the deliveries of what is committed.

        Raises AmqpError if the client accepts no rejection.
        """
        answer = self._owner.answer
        if error is not None and not (self.link.rejects if rejectable is None else rejectable):
            raise link_error(error.condition, error.description or "")
        for of, ids, outcome in unsettled:
            answer(of, SENDER, ids, outcome)
        answer(self.link.session, RECEIVER, [id], Accepted() if error is None else Rejected(error))

    def add_portion(self, event: Portion) -> None:
        """Do nothing: the link accepts no large messages."""

    def post(self, state: TransactionalState) -> None:
        """Do nothing: requests are part of no transaction."""

    def aborted(self) -> None:
        self.top_up()

    def publish(self) -> None:
        """Do nothing: requests are handled at once."""

    def top_up(self) -> None:
        options = self._owner.options
        if self.link.credit <= options.low_credits:
            self.link.send_credit(options.credits)

    def gone(self) -> None:
        """Roll back the open transactions of the link; if the connection has ended, its consumers are closed first."""
        self._requests.clear()
        if not self._owner.lost:
            self._transactions.abandon(self.link)


def read_request(payload: bytes) -> Declare | Discharge:
    """Decode a request.  Raises AmqpError."""
    try:
        kind, values = Message(payload).body()
        request = values[0] if kind == AMQP_VALUE and values else None
        if isinstance(request, Described):
            request = composite_of(request, 0)
    except DecodeError as error:
        raise link_error(DECODE_ERROR, f"A message to the coordinator: {error.description}") from error
    if isinstance(request, Declare) and request.global_id is not None:
        raise link_error(NOT_IMPLEMENTED, "Distributed transactions (global-id) are not supported.")
    if not isinstance(request, Declare | Discharge):
        raise link_error(INVALID_FIELD, "A coordinator takes amqp-value with declare or discharge.")
    return request
