"""Real clients fill a queue beyond its memory; the broker is killed; everything is there, once and in order."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proton import Message

from tests.support.daemon import running
from tests.support.proton_client import connected as proton
from tests.support.proton_client import text as text_of
from tests.support.stomp_py import connected

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
        with proton(broker.ports["amqp"]) as connection:
            sender = connection.create_sender("queue://q")
            for n in range(1, 200, 2):
                sender.send(Message(f"{n}", durable=True))
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
        expected = [*map(str, range(MESSAGES // 2, MESSAGES, 2)), "stomp", *map(str, range(1, 200, 2))]
        with proton(broker.ports["amqp"]) as connection:
            receiver = connection.create_receiver("queue://q", credit=50)
            for text in expected:
                assert text_of(receiver.receive()) == text
                receiver.accept()
        assert broker.queue("q")["messages"] == 0


SCHEDULED: Final = 20_000

SMALL: Final = """
[[address-settings]]
match = "q"
address-full-policy = "PAGE"
max-size-bytes = 200_000
max-read-page-bytes = 100_000
default-queue-routing-type = "ANYCAST"
"""

#: What is read at once stays together, in memory or on disk: a megabyte would be four times as much as a read.
READ: Final = 256 << 10


def test_scheduled_messages_wait_on_disk_over_a_kill(tmp_path: Path) -> None:
    """A client that schedules is not stopped, however many they are: so they must not stay in memory."""
    later, soon = {"persistent": "true", "AMQ_SCHEDULED_DELAY": "3600000"}, {"AMQ_SCHEDULED_DELAY": "1"}
    with running(tmp_path, SMALL) as broker:
        with connected(broker.port) as client:
            for n in range(SCHEDULED):
                if n % 4_000 == 3_999:
                    client.put("/queue/q", "x" * 1000, later)
                    assert broker.get("status")["memory_bytes"] <= 200_000 + READ
                else:
                    client.send("/queue/q", "x" * 1000, later)
        assert (broker.queue("q")["scheduled"], broker.queue("q")["messages"]) == (SCHEDULED, SCHEDULED)
        broker.restart()
        assert broker.get("status")["memory_bytes"] <= 200_000 + READ
        assert broker.queue("q")["scheduled"] == SCHEDULED
        with connected(broker.port) as client:
            client.subscribe("/queue/q", "client-individual", {"consumer-window-size": "20000"})
            client.put("/queue/q", "soon", {"persistent": "true", **soon})
            message = client.take()
            assert message.text == "soon", "what is due goes out, whatever waits"
            client.ack(message)
            client.leave()
        assert broker.queue("q")["scheduled"] == SCHEDULED
