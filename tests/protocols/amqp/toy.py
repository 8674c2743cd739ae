"""A small broker on the codec, for real clients: queues in memory, one thread a connection."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from protocols.amqp.connection import AmqpConnection
from protocols.amqp.events import Attached, Began, Credit, Detached, Dispositions, Ended, Event, Transfers
from protocols.amqp.link import Link
from protocols.amqp.performatives import (
    RECEIVER,
    Accepted,
    Close,
    Open,
    Released,
    SaslCode,
    SaslInit,
    SaslOutcome,
    Source,
    Target,
)
from protocols.amqp.receiver import Receiver
from protocols.amqp.sender import Sender
from protocols.amqp.serial import ranges

CREDIT: Final = 50


class Toy:
    """The broker; `logins` are the users that came in, `queues` what is not yet taken."""

    def __init__(self) -> None:
        self.queues: defaultdict[str, deque[bytes]] = defaultdict(deque)
        self.logins: list[str] = []
        self.failures: list[BaseException] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while True:
            client, _ = self._socket.accept()
            if client.getpeername() == self._stopper:
                client.close()
                return
            self._threads.append(threading.Thread(target=Served(self, client).run))
            self._threads[-1].start()

    _stopper: object = None

    def stop(self) -> None:
        """Take no more connections, and wait for the others to end."""
        with socket.socket() as stopper:
            stopper.bind(("127.0.0.1", 0))
            self._stopper = stopper.getsockname()
            stopper.connect(("127.0.0.1", self.port))
            for thread in self._threads:
                thread.join()
        self._socket.close()


class Served:
    """One connection."""

    def __init__(self, toy: Toy, client: socket.socket) -> None:
        self._toy = toy
        self._client = client
        self._codec = AmqpConnection(container_id="toy", mechanisms=("PLAIN", "ANONYMOUS"))
        self._senders: dict[Sender, str] = {}
        self._addresses: dict[Receiver, str] = {}

    def run(self) -> None:
        """Until it is closed."""
        codec = self._codec
        try:
            with self._client as client:
                while not codec.close_expected and (data := client.recv(65536)):
                    codec.receive_data(data)
                    while events := codec.events():
                        for event in events:
                            self._handle(event)
                    if codec.error is not None:
                        codec.send_close(codec.error)
                    client.sendall(codec.data_to_send())
        except BaseException as error:
            self._toy.failures.append(error)

    def _handle(self, event: Event) -> None:
        match event:
            case SaslInit(mechanism, response):
                _, user, password = (response or b"").split(b"\0") if mechanism == "PLAIN" else (b"", b"nobody", b"pw")
                if password == b"pw":
                    self._toy.logins.append(user.decode())
                self._codec.send_sasl(SaslOutcome(SaslCode.OK if password == b"pw" else SaslCode.AUTH))
            case Open():
                self._codec.send_open(idle_time_out=30_000)
            case Began(session):
                session.send_begin()
            case Attached(link):
                self._attach(link)
            case Transfers(link=link, ids=ids, payloads=payloads, settled=settled):
                self._toy.queues[self._addresses[link]].extend(payloads)
                if not settled:
                    for first, last in ranges(ids):
                        link.session.send_disposition(RECEIVER, first, last, state=Accepted())
                if link.credit < CREDIT // 2:
                    link.send_credit(CREDIT)
            case Credit(link):
                self._deliver(link)
            case Dispositions(link, _, contexts, state):
                if isinstance(link, Sender) and isinstance(state, Released):
                    for message in reversed(contexts):
                        assert isinstance(message, bytes)
                        self._toy.queues[self._senders[link]].appendleft(message)
            case Detached(link, closed):
                link.send_detach(closed=closed)
            case Ended(session):
                session.send_end()
            case Close():
                self._codec.send_close()
        for sender in self._senders:
            self._deliver(sender)

    def _attach(self, link: Link) -> None:
        attach = link.attach
        assert attach is not None
        link.send_attach(source=attach.source, target=attach.target)
        if isinstance(link, Receiver):
            assert isinstance(attach.target, Target)
            self._addresses[link] = attach.target.address or ""
            link.send_credit(CREDIT)
        elif isinstance(link, Sender):
            assert isinstance(attach.source, Source)
            self._senders[link] = attach.source.address or ""

    def _deliver(self, link: Sender) -> None:
        queue = self._toy.queues[self._senders[link]]
        if count := min(link.room, len(queue)):
            messages = [queue.popleft() for _ in range(count)]
            link.send(messages, messages)
        if link.drain and link.credit and not queue:
            link.send_drained()


@contextmanager
def toy_broker() -> Iterator[Toy]:
    """A broker as long as the block."""
    toy = Toy()
    try:
        yield toy
    finally:
        toy.stop()
    assert toy.failures == []
