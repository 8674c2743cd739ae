"""SENDs become runs of messages.

The sends of one read that go to the same destination, one after the other, and agree in everything but application
headers and body are published as one run.  The order in which runs are published differs from the order of arrival
only between destinations, never within one.
"""

from __future__ import annotations

from broker.engine.address import Address, Producer
from broker.engine.engine import Engine
from broker.engine.errors import EngineError
from broker.engine.message import Facts, Format, Message, RoutingType
from broker.engine.queue import Queue
from broker.engine.transaction import Transaction
from broker.sessions.stomp_headers import (
    UNUSUAL,
    Headers,
    Prefixes,
    encode_headers,
    make_facts,
    make_head,
    refused,
    routing_type,
    usual_lines,
)
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Frame

#: The values of the headers that decide the facts of a send, beside its destination.
Key = tuple[bytes | None, ...]


class _Run:
    """Sends for one destination with the same facts, in a row."""

    __slots__ = ("address", "consumed", "facts", "key", "messages", "queue", "receipt", "routing_type", "tx")

    def __init__(
        self,
        key: Key,
        address: Address,
        queue: Queue | None,
        routing_type: RoutingType | None,
        facts: Facts,
        tx: Transaction | None,
        consumed: list[bytes],
    ) -> None:
        self.key = key
        self.address = address
        self.queue = queue
        self.routing_type = routing_type
        self.facts = facts
        self.tx = tx
        self.consumed = consumed
        self.messages: list[Message] = []
        self.receipt: bytes | None = None


class Sends:
    """What a connection has sent and not yet published.  `user` and `origin` are known once it has connected."""

    def __init__(self, engine: Engine, prefixes: Prefixes, format: Format) -> None:
        self.user = ""
        self.origin = ""
        self._engine = engine
        self._prefixes = prefixes
        self._format = format
        self._runs: list[_Run] = []
        self._open: dict[bytes, _Run] = {}  # the last run of each destination

    def add(self, frame: Frame, tx: Transaction | None) -> None:
        """Gather a SEND.  Raises StompError, EngineError."""
        headers = frame.headers
        if not UNUSUAL.isdisjoint(headers):
            self._add_unusual(frame, tx)
            return
        get = headers.get
        destination = headers[b"destination"]
        key = (get(b"persistent"), get(b"priority"), get(b"expires"), get(b"transaction"))
        run = self._open.get(destination)
        if run is None or run.key != key:
            run = self._open[destination] = self._begin(headers, key, tx)
        receipt = get(b"receipt")
        if receipt is not None and run.receipt is None:
            run.receipt = receipt
        run.messages.append(Message(run.facts, make_head(frame, run.consumed, receipt), frame.body))

    def _add_unusual(self, frame: Frame, tx: Transaction | None) -> None:
        """A send whose facts depend on rare headers stands alone: nothing that follows has its key."""
        headers = frame.headers
        run = self._open[headers[b"destination"]] = self._begin(headers, (), tx)
        run.receipt = headers.get(b"receipt")
        run.messages.append(Message(run.facts, encode_headers(headers), frame.body))

    def _begin(self, headers: Headers, key: Key, tx: Transaction | None) -> _Run:
        _, name, stated = self._prefixes.split(headers[b"destination"].decode())
        asked = routing_type(headers.get(b"destination-type"), "destination-type", "SEND", headers)
        wanted = stated if asked is None else asked
        address, queue = self._engine.router.destination(name, wanted)
        facts = make_facts(
            headers, address.name, wanted, self._format, now=self._engine.now, user=self.user, origin=self.origin
        )
        facts.expiration, facts.expiry_source = address.settings.expiration(facts.expiration, facts.timestamp)
        run = _Run(key, address, queue, wanted, facts, tx, usual_lines(headers))
        self._runs.append(run)
        return run

    def publish(self, producer: Producer) -> tuple[StompError | None, bool]:
        """Publish what was gathered: the first refusal, if any, and whether the producer must stop for now.

        One refused run does not keep back the others.
        """
        if not self._runs:
            return None, False
        runs, self._runs = self._runs, []
        self._open.clear()
        failure: StompError | None = None
        blocked = False
        engine = self._engine
        for run in runs:
            try:
                if run.tx is not None:
                    engine.send_in(run.tx, run.address, run.queue, run.routing_type, run.messages)
                    continue
                engine.publish(run.address, run.queue, run.routing_type, run.messages)
            except EngineError as refusal:
                headers = {} if run.receipt is None else {b"receipt": run.receipt}
                failure = failure or refused("SEND", refusal, headers)
                continue
            blocked |= engine.block_if_full(run.address, producer)
        return failure, blocked

    def forget(self) -> None:
        """The connection is gone: what was not published never will be."""
        self._runs.clear()
        self._open.clear()


