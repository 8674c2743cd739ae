"""The two clients that scenarios are written for, with one face: what they send, what they see, what they answer.

Nothing sleeps.  AMQP drains, so that a broker says itself that there is no more; STOMP has to wait a while for silence.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from time import time
from types import MappingProxyType
from typing import Any, Final, Protocol

from proton import Delivery, LinkException, Message, Timeout, symbol
from proton.handlers import MessagingHandler
from proton.reactor import Copy, LinkOption, Selector
from proton.utils import BlockingConnection, LinkDetached

from tests.support.links import Lost
from tests.support.proton_client import Capability
from tests.support.stomp_py import Client

#: Seconds to wait for what has to come.
PATIENCE_S: Final = 20.0
#: Seconds after which a broker that may not answer a drain has nothing.  Artemis does not answer a consumer that is not
#: its turn, of an exclusive queue for one; Bartleby always does, once the disk has what came before.
SILENCE_S: Final = 2.0

Properties = Mapping[str, Any]
NONE: Final[Properties] = MappingProxyType({})


@dataclass(slots=True)
class Got:
    """A message that a reader holds: nobody has answered for it yet."""

    body: str
    properties: dict[str, str]
    """Application properties and broker's annotations by name, as texts."""
    redelivered: bool
    accept: Callable[[], None]
    fail: Callable[[], None]
    """Tell the broker that it could not be processed."""
    refuse: Callable[[], None] | None = None
    """Tell it that nobody ever will; None where the protocol has no such word."""


@dataclass(slots=True)
class Reading:
    """How to read: selector, only looking, the routing type that the client says, messages ahead over AMQP."""

    selector: str = ""
    browse: bool = False
    routing: str = ""
    credit: int = 100


class Reader(Protocol):
    """A consumer."""

    def take(self, seconds: float = 0) -> list[Got]:
        """All that there is, after waiting so long for the first."""

    def close(self) -> None:
        """Leave, with what was not answered."""


class Refused(Exception):
    """The broker does not let the client read or send there."""


class Peer(Protocol):
    """A client of one protocol."""

    name: str

    def send(
        self,
        to: str,
        body: str,
        *,
        properties: Properties = NONE,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        group: str = "",
        duplicate: str = "",
        routing: str = "",
        priority: int = 4,
    ) -> str:
        """Send a durable message; what the broker says to it."""

    def read(self, source: str, reading: Reading | None = None) -> Reader:
        """Consume or browse.  Raises Refused."""

    def close(self) -> None:
        """Leave."""


# -- AMQP 1.0: proton --------------------------------------------------------------------------------------------------


_ROUTING: Final = {"ANYCAST": "queue", "MULTICAST": "topic"}
_NUMBERS: Final = count(1)


class _Inbox(MessagingHandler):
    def __init__(self) -> None:
        super().__init__(prefetch=0, auto_accept=False, auto_settle=False)
        self.arrived: deque[tuple[Message, Delivery]] = deque()

    def on_message(self, event: Any) -> None:
        self.arrived.append((event.message, event.delivery))


class AmqpReader:
    """A receiving link."""

    def __init__(self, connection: Any, source: str, reading: Reading, silence_s: float) -> None:
        self._connection = connection
        self._silence_s = silence_s
        self._inbox = _Inbox()
        self._credit = reading.credit
        options: list[LinkOption] = [Capability(_ROUTING[reading.routing])] if reading.routing else []
        if reading.selector:
            options.append(Selector(reading.selector))
        if reading.browse:
            options.append(Copy())
        try:
            # A name of its own: proton's is that of the address, and a second of that name is the same link.
            self._receiver = connection.create_receiver(
                source, credit=0, handler=self._inbox, name=f"reader-{next(_NUMBERS)}", options=options
            )
        except (LinkDetached, LinkException) as error:
            raise Refused(str(error)) from error
        self._link = self._receiver.link

    def take(self, seconds: float = 0) -> list[Got]:
        """See Reader."""
        if seconds:
            self._link.flow(1)
            self._wait(lambda: self._inbox.arrived, seconds)
        self._link.drain(max(self._credit - self._link.credit, 0))
        self._wait(lambda: not self._link.draining(), self._silence_s)
        self._link.drain_mode = False
        found = [self._got(message, delivery) for message, delivery in self._inbox.arrived]
        self._inbox.arrived.clear()
        return found

    def _wait(self, enough: Callable[[], object], seconds: float) -> None:
        """Until it is enough, or for so long."""
        with suppress(Timeout):
            self._connection.wait(enough, timeout=seconds, msg="waiting")

    def _got(self, message: Message, delivery: Delivery) -> Got:
        parts: tuple[Any, ...] = (message.properties, message.annotations)
        properties = {str(name): _text(value) for part in parts if part for name, value in part.items()}
        return Got(
            _text(message.body),
            properties,
            bool(message.delivery_count),
            lambda: self._settle(delivery, Delivery.ACCEPTED),
            lambda: self._settle(delivery, Delivery.MODIFIED, failed=True),
            lambda: self._settle(delivery, Delivery.REJECTED),
        )

    def _settle(self, delivery: Delivery, state: Any, *, failed: bool = False) -> None:
        if failed:
            delivery.local.failed = True
        # The next flow or detach comes after it on the wire, so that what follows sees its effect.
        delivery.update(state)
        delivery.settle()

    def close(self) -> None:
        """See Reader."""
        self._receiver.close()


_SAID: Final = {
    Delivery.ACCEPTED: "accepted",
    Delivery.REJECTED: "rejected",
    Delivery.RELEASED: "released",
    Delivery.MODIFIED: "modified",
}


class AmqpPeer:
    """A connection of proton.  `quiet_s` 0 says that the broker answers every drain."""

    name = "amqp"

    def __init__(self, port: int, quiet_s: float) -> None:
        self._silence_s = SILENCE_S if quiet_s else PATIENCE_S
        self._connection: Any = BlockingConnection(f"127.0.0.1:{port}", timeout=PATIENCE_S, allowed_mechs="ANONYMOUS")

    def send(
        self,
        to: str,
        body: str,
        *,
        properties: Properties = NONE,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        group: str = "",
        duplicate: str = "",
        routing: str = "",
        priority: int = 4,
    ) -> str:
        """See Peer."""
        own = {**properties, "_AMQ_DUPL_ID": duplicate} if duplicate else dict(properties)
        message = Message(body, durable=True, priority=priority, properties=own)
        if ttl_ms:
            message.ttl = ttl_ms / 1000
        if delay_ms:
            message.annotations = {symbol("x-opt-delivery-delay"): delay_ms}
        if group:
            message.group_id = group
        options: list[LinkOption] = [Capability(_ROUTING[routing])] if routing else []
        try:
            sender = self._connection.create_sender(to, options=options)
        except (LinkDetached, LinkException):
            return "refused"
        try:
            delivery = sender.send(message, timeout=PATIENCE_S, error_states=[])
            return _SAID[delivery.remote_state]
        except LinkDetached:
            return "refused"
        finally:
            sender.close()

    def read(self, source: str, reading: Reading | None = None) -> Reader:
        """See Peer."""
        return AmqpReader(self._connection, source, reading or Reading(), self._silence_s)

    def close(self) -> None:
        """See Peer."""
        self._connection.close()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


# -- STOMP 1.2: stomp.py -----------------------------------------------------------------------------------------------


class StompReader:
    """A subscription on a connection of its own."""

    def __init__(self, port: int, quiet_s: float, source: str, reading: Reading) -> None:
        self._quiet_s = quiet_s
        self._client = Client(port, client_id="")
        headers = {"subscription-type": reading.routing} if reading.routing else {}
        if reading.selector:
            headers["selector"] = reading.selector
        if reading.browse:
            headers["browser"] = "true"
        try:
            self._client.subscribe(source, "client-individual", headers)
        except Lost as error:
            raise Refused(source) from error

    def take(self, seconds: float = 0) -> list[Got]:
        """See Reader."""
        found: list[Got] = []
        wait = max(seconds, self._quiet_s)
        while True:
            try:
                message = self._client.take(wait)
            except (queue.Empty, Lost):
                return found
            wait = self._quiet_s
            found.append(
                Got(
                    message.text,
                    message.headers,
                    message.headers.get("redelivered") == "true",
                    lambda message=message: self._client.ack(message),  # type: ignore[misc]
                    lambda message=message: self._client.nack(message),  # type: ignore[misc]
                )
            )

    def close(self) -> None:
        """See Reader."""
        if not self._client.lost:
            self._client.leave()


class StompPeer:
    """A connection of stomp.py to send by; readers have their own."""

    name = "stomp"

    def __init__(self, port: int, quiet_s: float) -> None:
        self._port = port
        self._quiet_s = quiet_s
        self._client = Client(port)

    def send(
        self,
        to: str,
        body: str,
        *,
        properties: Properties = NONE,
        ttl_ms: int = 0,
        delay_ms: int = 0,
        group: str = "",
        duplicate: str = "",
        routing: str = "",
        priority: int = 4,
    ) -> str:
        """See Peer."""
        headers = {name: str(value) for name, value in properties.items()}
        headers |= {"persistent": "true", "priority": str(priority)}
        headers |= {"AMQ_SCHEDULED_DELAY": str(delay_ms)} if delay_ms else {}
        headers |= {"JMSXGroupID": group} if group else {}
        headers |= {"_AMQ_DUPL_ID": duplicate} if duplicate else {}
        headers |= {"destination-type": routing} if routing else {}
        headers |= {"expires": str(int(time() * 1000) + ttl_ms)} if ttl_ms else {}
        try:
            self._client.put(to, body, headers)
        except Lost:
            self._client = Client(self._port)
            return "refused"
        return "accepted"

    def read(self, source: str, reading: Reading | None = None) -> Reader:
        """See Peer."""
        return StompReader(self._port, self._quiet_s, source, reading or Reading())

    def close(self) -> None:
        """See Peer."""
        self._client.leave()


PEERS: Final[Mapping[str, Callable[[int, float], Peer]]] = {"amqp": AmqpPeer, "stomp": StompPeer}
