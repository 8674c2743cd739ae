"""Large messages with real clients, over a SIGKILL, and from one protocol to the other."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
from proton import Message
from proton.handlers import MessagingHandler
from proton.reactor import Container

from tests.support.daemon import running
from tests.support.stomp_py import DURABLE, connected

#: Many frames, and many reads; what is larger goes without these clients (tests/bench/test_large.py), which are slow.
LARGE_BYTES: Final = 2 << 20

BODY: Final = Random(1).randbytes(LARGE_BYTES).replace(b"\0", b"\1")


class _Sender(MessagingHandler):
    """Sends one message, and waits until it is accepted."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.accepted = False

    def on_start(self, event: Any) -> None:
        event.container.create_sender(event.container.connect(self.url, allowed_mechs="ANONYMOUS"), "queue://crossing")

    def on_sendable(self, event: Any) -> None:
        if event.sender.credit and not self.accepted:
            event.sender.send(Message(body=BODY, durable=True, properties={"color": "red"}))
            event.sender.drained()

    def on_accepted(self, event: Any) -> None:
        self.accepted = True
        event.connection.close()


class _Receiver(MessagingHandler):
    """Takes one message."""

    def __init__(self, url: str, address: str) -> None:
        super().__init__(prefetch=1)
        self.url = url
        self.address = address
        self.body = b""

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(event.container.connect(self.url, allowed_mechs="ANONYMOUS"), self.address)

    def on_message(self, event: Any) -> None:
        self.body = bytes(event.message.body)
        event.connection.close()


@pytest.mark.timeout(120)
def test_stomp_py_and_proton_over_a_kill(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        with connected(broker.port) as client:
            client.put("/queue/crossing", BODY, DURABLE)
        with socket.create_connection(("127.0.0.1", broker.port)) as late:
            late.sendall(b"CONNECT\naccept-version:1.2\nhost:x\n\n\0")
            late.sendall(b"SEND\ndestination:/queue/crossing\ncontent-length:%d\n\n" % len(BODY) + BODY[: 1 << 20])
            assert late.recv(100).startswith(b"CONNECTED")
            broker.restart()
        assert len(broker.bodies) == 1
        with connected(broker.port) as client:
            client.subscribe("/queue/crossing", "client-individual")
            received = client.take()
            assert received.body == BODY
            client.nack(received)
            received = client.take()
            assert received.redelivered
            assert received.body == BODY
            client.ack(received)


@pytest.mark.timeout(120)
def test_from_proton_to_stomp_py_and_back(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        url = f"amqp://127.0.0.1:{broker.ports['amqp']}"
        sender = _Sender(url)
        Container(sender).run()
        assert sender.accepted
        with connected(broker.port) as client:
            client.subscribe("/queue/crossing", "client-individual")
            received = client.take()
            assert (received.body, received.headers["color"]) == (BODY, "red")
            client.put("/queue/back", received.body, DURABLE)
            client.ack(received)
        receiver = _Receiver(url, "queue://back")
        Container(receiver).run()
        assert receiver.body == BODY
