"""Large messages with real clients, over a SIGKILL, and from one protocol to the other."""

from __future__ import annotations

import socket
from pathlib import Path
from random import Random
from typing import Final

from proton import Delivery, Message

from tests.support.daemon import running
from tests.support.links import PATIENCE_S
from tests.support.proton_client import connected as proton
from tests.support.stomp_py import DURABLE, connected

#: Many frames, and many reads; what is larger goes without these clients (tests/bench/test_large.py), which are slow.
LARGE_BYTES: Final = 2 << 20

BODY: Final = Random(1).randbytes(LARGE_BYTES).replace(b"\0", b"\1")


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


def test_from_proton_to_stomp_py_and_back(tmp_path: Path) -> None:
    with running(tmp_path) as broker:
        port = broker.ports["amqp"]
        with proton(port, allowed_mechs="ANONYMOUS") as sender:
            message = Message(body=BODY, durable=True, properties={"color": "red"})
            delivery = sender.create_sender("queue://crossing").send(message)
            assert delivery.remote_state == Delivery.ACCEPTED
        with connected(broker.port) as client:
            client.subscribe("/queue/crossing", "client-individual")
            received = client.take()
            assert (received.body, received.headers["color"]) == (BODY, "red")
            client.put("/queue/back", received.body, DURABLE)
            client.ack(received)
        with proton(port, allowed_mechs="ANONYMOUS") as receiver:
            back = receiver.create_receiver("queue://back", credit=1).receive(PATIENCE_S)
            assert bytes(back.body) == BODY
