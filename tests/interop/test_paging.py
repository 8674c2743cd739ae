"""Real clients fill a queue beyond its memory; the broker is killed; everything is there, once and in order."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proton import Message
from proton.utils import BlockingConnection

from tests.interop.client import connected
from tests.support.daemon import running

MESSAGES: Final = 3_000

PAGES: Final = """
[[address-settings]]
match = "q"
address-full-policy = "PAGE"
max-size-messages = 100
max-read-page-messages = 200
default-queue-routing-type = "ANYCAST"
"""


def test_a_paged_queue_outlives_a_kill(tmp_path: Path) -> None:
    with running(tmp_path, PAGES) as broker:
        with connected(broker.port) as client:
            for n in range(0, MESSAGES, 2):
                if n == MESSAGES // 6:  # the address is full: whatever one read brings from here on is paged
                    client.put("/queue/q", f"{n}", {"persistent": "true"})
                else:
                    client.send("/queue/q", f"{n}", {"persistent": "true"})
            client.put("/queue/q", "stomp", {"persistent": "true"})
        connection = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=30)
        sender = connection.create_sender("queue://q")
        for n in range(1, 200, 2):
            sender.send(Message(f"{n}", durable=True))
        connection.close()
        total = MESSAGES // 2 + 1 + 100
        assert broker.queue("q")["paged"] >= total - MESSAGES // 12 - 1
        broker.restart()
        assert broker.queue("q")["messages"] == broker.queue("q")["paged"] == total
        with connected(broker.port) as client:
            client.subscribe("/queue/q", "client-individual", {"consumer-window-size": "20000"})
            for n in range(0, MESSAGES // 2, 2):
                message = client.take()
                assert message.text == f"{n}"
                client.ack(message)
            client.leave()
        connection = BlockingConnection(f"amqp://127.0.0.1:{broker.ports['amqp']}", timeout=30)
        receiver = connection.create_receiver("queue://q", credit=50)
        expected = [*map(str, range(MESSAGES // 2, MESSAGES, 2)), "stomp", *map(str, range(1, 200, 2))]
        for text in expected:
            assert _text(receiver.receive().body) == text
            receiver.accept()
        connection.close()
        assert broker.queue("q")["messages"] == 0


def _text(body: object) -> str:
    return bytes(body).decode() if isinstance(body, bytes | memoryview) else str(body)
