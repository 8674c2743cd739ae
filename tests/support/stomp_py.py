"""The library stomp.py as the tests use it: frames are awaited in order, each with a timeout."""

from __future__ import annotations

import queue
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import stomp

from tests.support.links import PATIENCE_S, Lost

VERSIONS: Final = ("1.0", "1.1", "1.2")

_CONNECTIONS: Final = {"1.0": stomp.StompConnection10, "1.1": stomp.StompConnection11, "1.2": stomp.StompConnection12}

DURABLE: Final = {"persistent": "true"}


@dataclass(frozen=True, slots=True)
class Received:
    """A frame from the broker."""

    command: str
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def redelivered(self) -> bool:
        """The value of the header `redelivered`, which must be present."""
        return {"true": True, "false": False}[self.headers["redelivered"]]


class Client(stomp.ConnectionListener):  # type: ignore[misc]
    """One connection.  Messages, receipts, errors and the end are queued separately until a call waits for them.

    `tls`: arguments of stomp.py's `set_ssl`.  `web`: by WebSocket.
    """

    def __init__(
        self,
        port: int,
        version: str = "1.2",
        *,
        client_id: str = "",
        heart_beats: tuple[int, int] = (0, 0),
        headers: Mapping[str, str] | None = None,
        login: tuple[str, str] | None = None,
        tls: Mapping[str, Any] | None = None,
        web: bool = False,
    ) -> None:
        self.version = version
        self.messages: queue.SimpleQueue[Received | None] = queue.SimpleQueue()
        self.errors: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self.lost = False
        self._greetings: queue.SimpleQueue[Received] = queue.SimpleQueue()
        self._receipts: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._numbers = count(1)
        options: dict[str, Any] = {} if version == "1.0" else {"heartbeats": heart_beats}
        if not web:
            options["timeout"] = PATIENCE_S
        where = [("127.0.0.1", port)]
        connection = stomp.WSStompConnection if web else _CONNECTIONS[version]
        self.connection = connection(where, auto_decode=False, reconnect_attempts_max=1, **options)
        if tls is not None:
            self.connection.set_ssl(where, **tls)
        self.connection.set_listener("test", self)
        greeting = dict(headers or {})
        if client_id:
            greeting["client-id"] = client_id
        user, passcode = login or (None, None)
        self.connection.connect(user, passcode, wait=True, headers=greeting)
        if not web and tls is None:  # a blocking read by TLS would keep Python from writing
            self.connection.transport.socket.settimeout(None)
        self.connected = self._greetings.get(timeout=PATIENCE_S)

    # -- what stomp.py calls, on its own thread --------------------------------------------------------------------

    def on_connected(self, frame: Any) -> None:
        self._greetings.put(_received(frame))

    def on_message(self, frame: Any) -> None:
        self.messages.put(_received(frame))

    def on_receipt(self, frame: Any) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        self.errors.put(_received(frame))

    def on_disconnected(self) -> None:
        self.lost = True
        self.messages.put(None)
        self._receipts.put(None)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, destination: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a SEND, without waiting."""
        data = body.encode() if isinstance(body, str) else body
        self.connection.send(destination, data, headers=dict(headers or {}))

    def put(self, destination: str, body: bytes | str = b"", headers: Mapping[str, str] | None = None) -> None:
        """Send a SEND, and wait for the receipt."""
        receipt = self.receipt()
        self.send(destination, body, {**(headers or {}), "receipt": receipt})
        self.confirmed(receipt)

    def receipt(self) -> str:
        """Return a new receipt id."""
        return f"r-{next(self._numbers)}"

    def confirmed(self, receipt: str) -> None:
        """Wait for this receipt, which must be the next one.  Raises Lost."""
        found = self._receipts.get(timeout=PATIENCE_S)
        if found is None:
            raise Lost(receipt)
        assert found == receipt, f"receipts come in order: {found} came before {receipt}"

    def frame(self, command: str, headers: Mapping[str, str], *, confirm: bool = True) -> None:
        """Send any frame without a body, and wait for its receipt."""
        receipt = {"receipt": self.receipt()} if confirm else {}
        self.connection.send_frame(command, {**headers, **receipt})
        if confirm:
            self.confirmed(receipt["receipt"])

    # -- consuming -------------------------------------------------------------------------------------------------

    def subscribe(
        self, destination: str, ack: str = "auto", headers: Mapping[str, str] | None = None, *, id: str = ""
    ) -> str:
        """Send SUBSCRIBE, and wait for the receipt; returns the subscription's id."""
        receipt = self.receipt()
        id = id or f"s-{receipt}"
        self.connection.subscribe(destination, id, ack, headers={**(headers or {}), "receipt": receipt})
        self.confirmed(receipt)
        return id

    def take(self, seconds: float = PATIENCE_S) -> Received:
        """Wait for the next message.  Raises Lost, and queue.Empty."""
        message = self.messages.get(timeout=seconds)
        if message is None:
            self.messages.put(None)
            raise Lost("message")
        return message

    def texts(self, number: int) -> list[str]:
        """Wait for the bodies of the next `number` messages."""
        return [self.take().text for _ in range(number)]

    def ack(self, message: Received, *, transaction: str | None = None) -> None:
        """Send ACK, with the version's headers, and wait for the receipt."""
        receipt = self.receipt()
        self.connection.ack(*self._named(message), transaction=transaction, receipt=receipt)
        self.confirmed(receipt)

    def nack(self, message: Received, *, transaction: str | None = None, **headers: str) -> None:
        """Send NACK, maybe with more headers (requeue, reason), and wait for the receipt."""
        receipt = self.receipt()
        self.connection.nack(*self._named(message), transaction=transaction, receipt=receipt, **headers)
        self.confirmed(receipt)

    def _named(self, message: Received) -> tuple[str, ...]:
        if self.version == "1.2":
            return (message.headers["ack"],)
        id = message.headers["message-id"]
        return (id,) if self.version == "1.0" else (id, message.headers["subscription"])

    # -- the end ---------------------------------------------------------------------------------------------------

    def error(self) -> Received:
        """Wait for the ERROR frame, after which the broker hangs up."""
        found = self.errors.get(timeout=PATIENCE_S)
        self.await_loss()
        return found

    def await_loss(self) -> None:
        """Wait until the connection has ended; drops earlier messages."""
        while self.messages.get(timeout=PATIENCE_S) is not None:
            pass
        self.messages.put(None)

    def leave(self) -> None:
        """Send DISCONNECT, and wait for the end."""
        self.connection.disconnect(receipt=self.receipt())
        self.await_loss()
        self._join()

    def drop(self) -> None:
        """Close the connection without DISCONNECT."""
        self.connection.transport.disconnect_socket()
        self._join()

    def _join(self) -> None:
        self.connection.transport.io_thread.join(PATIENCE_S)


def _received(frame: Any) -> Received:
    body = frame.body or b""
    return Received(frame.cmd, dict(frame.headers), body if isinstance(body, bytes) else body.encode())


@contextmanager
def connected(port: int, version: str = "1.2", **options: Any) -> Iterator[Client]:
    """Connect a client, and drop it afterwards."""
    client = Client(port, version, **options)
    try:
        yield client
    finally:
        if client.lost:
            client._join()
        else:
            client.drop()
