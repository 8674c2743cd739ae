"""Records the messages sent into one end of a link and those that arrived at the other, each by its number.

Messages vary: sizes, durable or not, priorities, properties of all kinds.  They must arrive unchanged.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Final

from protocols.amqp.encode import encode
from protocols.amqp.message import DATA, Message, encode_application_properties, encode_section
from protocols.amqp.performatives import Accepted, Close, Header, Properties
from tests.support.amqp_client import AmqpClient, Delivery
from tests.support.link_peers import LinkPeer
from tests.support.links import Lost

#: Messages in one write, and the most in flight with a client here.
CHUNK: Final = 50

#: One message in this many is not durable: a broker that is killed may lose it.
NON_DURABLE: Final = 10

#: Sizes of bodies in bytes, weighted by their number.
SIZES: Final = (10,) * 6 + (100,) * 8 + (1_000,) * 4 + (10_000, 40_000)

#: How long an end may take to pass its messages on before it counts as stuck, in seconds.
QUIET_S: Final = 60.0

#: Silence after which a queue that cannot be drained counts as empty, in seconds.
SILENCE_S: Final = 1.0

_KEY: Final = "number"


@dataclass(slots=True)
class Entry:
    """A message as it was sent."""

    durable: bool
    priority: int
    properties: Properties
    application: dict[str, object]
    body: bytes
    to: str  # where it must arrive
    confirmed: bool = False


@dataclass(slots=True)
class LinkBooks:
    """Every message of a test by its number."""

    random: Random
    entries: dict[int, Entry] = field(default_factory=dict)
    arrived: Counter[int] = field(default_factory=Counter)
    non_durable: int = NON_DURABLE  # one in this many; 0: none
    unsure: set[int] = field(default_factory=set)  # a rival's broker died before it confirmed that these were consumed
    rivals: int = 0  # messages that rivals consumed

    def new(self, to: str = "") -> tuple[int, bytes]:
        """Make a message: its number, and its bytes; `to` is where it must arrive."""
        chance, number = self.random, len(self.entries)
        application: dict[str, object] = {_KEY: number, "half": number / 2, "even": number % 2 == 0}
        application |= {"text": "größe", "nothing": None} if chance.random() < 0.5 else {}
        properties = Properties(
            message_id=f"id-{number}",
            subject=chance.choice((None, "subject")),
            correlation_id=chance.choice((None, "correlation")),
            content_type=chance.choice((None, "application/octet-stream")),
            reply_to=chance.choice((None, "replies")),
        )
        durable = not self.non_durable or chance.randrange(self.non_durable) > 0
        body = chance.randbytes(chance.choice(SIZES))
        entry = self.entries[number] = Entry(durable, chance.randrange(10), properties, application, body, to)
        parts = [
            encode(Header(durable, entry.priority)),
            encode(properties),
            encode_application_properties(application),
        ]
        return number, b"".join([*parts, encode_section(DATA, body)])

    def send(self, client: AmqpClient, address: str, count: int, to: str = "") -> None:
        """Send new messages, and wait for their outcomes; all must be accepted.  Raises Lost."""
        link = client.sender(address)
        assert link.attach is not None, client.ends
        assert link.attach.target is not None, client.ends
        while count:
            made = [self.new(to) for _ in range(min(CHUNK, count))]
            contexts = dict(zip(client.post(link, *[payload for _, payload in made]), made, strict=True))
            try:
                client.wait(lambda wanted=set(contexts): wanted <= {each.context for each in client.outcomes})  # type: ignore[misc]
            finally:
                for outcome in client.outcomes:
                    if outcome.context in contexts:
                        assert outcome.state == Accepted(), outcome
                        self.entries[contexts[outcome.context][0]].confirmed = True
                client.outcomes.clear()
            count -= len(made)

    def receive(self, delivery: Delivery, at: str = "") -> None:
        """Record an arrival: the message must have been sent, to this place, and be unchanged."""
        number = number_of(delivery.message)
        assert number in self.entries, f"message {number} was never sent"
        self.arrived[number] += 1
        entry, message = self.entries[number], delivery.message
        assert entry.to == at, f"message {number} came out at {at}, and not at {entry.to}"
        assert message.application_properties == entry.application, number
        assert b"".join(map(bytes, message.body()[1])) == entry.body, number  # type: ignore[arg-type]
        found, sent = message.properties, entry.properties
        for name in ("message_id", "subject", "correlation_id", "content_type", "reply_to"):
            assert getattr(found, name) == getattr(sent, name), (number, name)
        assert message.header.durable or not entry.durable, number  # RabbitMQ 4 makes all of them durable
        assert message.header.priority == entry.priority, number

    @property
    def wanted(self) -> set[int]:
        """The messages that must arrive: those that were confirmed, and survive a SIGKILL."""
        return {number for number, entry in self.entries.items() if entry.confirmed and entry.durable}

    @property
    def missing(self) -> set[int]:
        """The messages that must arrive, and have not."""
        return self.wanted - self.arrived.keys() - self.unsure

    @property
    def doubled(self) -> dict[int, int]:
        """The messages that arrived more than once, and how often."""
        return {number: count for number, count in self.arrived.items() if count > 1}


def number_of(message: Message) -> int:
    """Return the number of a message."""
    number = message.application_properties[_KEY]
    assert isinstance(number, int)
    return number


def take_all(peer: LinkPeer, queue: str, books: LinkBooks, at: str = "") -> int:
    """Consume all messages of a queue; returns how many."""
    taken = 0
    with peer.client() as client:
        link = client.receiver(peer.address(queue), credit=0)
        assert link.attach is not None
        assert link.attach.source is not None, client.ends
        if not peer.drains:
            client.socket.settimeout(SILENCE_S)
        while True:
            link.send_credit(CHUNK, drain=peer.drains)
            with suppress(TimeoutError):
                client.wait(lambda: link.credit == 0)
            deliveries = client.take()
            for delivery in deliveries:
                books.receive(delivery, at)
            client.settle(*deliveries, settled=not peer.confirms)
            taken += len(deliveries)
            if peer.confirms:
                client.wait(lambda wanted=taken: len(client.confirmed) == wanted)  # type: ignore[misc]
            if len(deliveries) < CHUNK:
                client.codec.send_close()
                with suppress(Lost):
                    client.wait(lambda: any(isinstance(event, Close) for event in client.events))
                return taken


def send_until_killed(
    peer: LinkPeer, queue: str, books: LinkBooks, count: int, to: str = "", *, rival: bool = False
) -> bool:
    """Send messages while the broker may be killed; False if that happened.

    With a `rival`, another client consumes from the queue meanwhile.
    """
    try:
        with peer.client() as client, peer.client() as other:
            reader = Rival(other, peer.address(queue), books, to) if rival else None
            while count > 0:
                books.send(client, peer.address(queue), min(CHUNK, count), to)
                count -= CHUNK
                if reader is not None:
                    reader.take()
    except (Lost, ConnectionError):
        return False
    return True


class Rival:
    """A client of a queue that a link reads, too; messages that it holds when its broker dies are not consumed."""

    def __init__(self, client: AmqpClient, address: str, books: LinkBooks, to: str) -> None:
        self._client = client
        self._books = books
        self._to = to
        self._link = client.receiver(address, credit=CHUNK)

    def take(self, *, drain: bool = False) -> None:
        """Accept the messages that have arrived; they count once the broker has confirmed that.  Raises Lost.

        With `drain`, up to one chunk of what the queue has, and then no more.
        """
        client, books = self._client, self._books
        if drain:
            self._link.send_credit(CHUNK, drain=True)
            client.wait(lambda: self._link.credit == 0)
        client.poll()
        deliveries = client.take()
        taken = {number_of(each.message) for each in deliveries}
        books.unsure |= taken
        client.settle(*deliveries, settled=False)
        client.wait(lambda: {each.id for each in deliveries} <= client.confirmed)
        books.unsure -= taken
        books.rivals += len(deliveries)
        for delivery in deliveries:
            books.receive(delivery, self._to)
        self._link.send_credit(0 if drain else CHUNK)
        client.say()


def await_complete(peer: LinkPeer, queue: str, books: LinkBooks) -> None:
    """Consume from a queue that is being filled until no message is missing."""
    until = time.monotonic() + QUIET_S
    while books.missing:
        found = take_all(peer, queue, books)
        until = time.monotonic() + QUIET_S if found else until
        assert time.monotonic() < until, f"{len(books.missing)} of {len(books.wanted)} messages do not come"
