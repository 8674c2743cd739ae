"""What a crash leaves: SIGKILL at moments that matter, over real sockets (promises P1, P2, P4)."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.daemon import DaemonProcess, running
from tests.support.stomp_py import DURABLE, Client, Received, connected

SETTINGS = """
[broker]
message-expiry-scan-period = "100ms"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"

[[address-settings]]
match = "strict.#"
delivery-count-persistence = "strict"

[[address-settings]]
match = "poison.#"
max-delivery-attempts = 2
"""

NEWS = {"durable-subscription-name": "news"}


def in_ms(milliseconds: int) -> str:
    """A time from now as headers have it."""
    return str(int(time.time() * 1000) + milliseconds)


def all_of(broker: DaemonProcess, destination: str, number: int) -> list[Received]:
    """Take so many messages, which have to be all there are."""
    with connected(broker.port) as client:
        client.subscribe(destination, "client-individual")
        messages = [client.take() for _ in range(number)]
        for message in messages:
            client.ack(message)
        client.leave()
    assert broker.queue(destination.removeprefix("/queue/"))["messages"] == 0
    return messages


def test_amq_6059_an_expired_message_survives_restarts(tmp_path: Path) -> None:
    """AMQ-6059: the expired message shared its record, and so its expiration, with the original: a restart lost it."""
    with running(tmp_path, SETTINGS) as broker:
        deadline = in_ms(200)
        with connected(broker.port) as client, connected(broker.port) as watching:
            watching.subscribe("/queue/ExpiryQueue", "client")
            client.put("/queue/orders", "order 1", {**DURABLE, "expires": deadline})
            assert watching.take().text == "order 1"
        # Each time it is killed with the copy on the queue, and has time to expire what is wrongly still expiring.
        for _ in range(2):
            broker.restart()
            assert (broker.queue("ExpiryQueue")["messages"], broker.queue("orders")["messages"]) == (1, 0)
            with connected(broker.port) as client:
                client.put("/queue/orders", "other", {**DURABLE, "expires": in_ms(1)})
                client.subscribe("/queue/ExpiryQueue", "client")
                assert {client.take().text, client.take().text} == {"order 1", "other"}
                client.messages.put(None)
            purge(broker, "other")
        (kept,) = all_of(broker, "/queue/ExpiryQueue", 1)
        assert (kept.text, kept.headers["expires"]) == ("order 1", "0")
        assert kept.headers["_AMQ_DL_ORIG_EXPIRATION"] == deadline
        assert kept.headers["_AMQ_ORIG_QUEUE"] == "orders"
        broker.restart()
        assert broker.queue("ExpiryQueue")["messages"] == 0


def purge(broker: DaemonProcess, text: str) -> None:
    """Consume the messages of the expiry queue with this body."""
    with connected(broker.port) as client:
        client.subscribe("/queue/ExpiryQueue", "client-individual")
        for message in [client.take(), client.take()]:
            if message.text == text:
                client.ack(message)


def test_confirmed_messages_survive_and_acknowledged_ones_stay_away(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            for number in range(20):
                client.put("/queue/q", str(number), DURABLE)
            client.put("/queue/q", "not durable")
            client.subscribe("/queue/q", "client-individual")
            for message in [client.take() for _ in range(10)]:
                client.ack(message)
            broker.kill()
        broker.start()
        left = all_of(broker, "/queue/q", 10)
        assert [message.text for message in left] == [str(number) for number in range(10, 20)]


def test_strict_counts_know_what_was_only_prefetched(tmp_path: Path) -> None:
    """P4: after a crash everything that may have reached a consumer is redelivered; what never left is not."""
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            for number in range(10):
                client.put("/queue/strict.q", "x" * 1000, {**DURABLE, "number": str(number)})
            # A window of 3,000 bytes takes three messages and is still above zero at the third, or not: ask.
            client.subscribe("/queue/strict.q", "client-individual", {"consumer-window-size": "3000"})
            client.take()
            prefetched = broker.queue("strict.q")["delivering"]
            assert 1 < prefetched < 10
            broker.kill()
        broker.start()
        messages = all_of(broker, "/queue/strict.q", 10)
        assert [message.headers["number"] for message in messages] == [str(number) for number in range(10)]
        assert [message.redelivered for message in messages] == [True] * prefetched + [False] * (10 - prefetched)


def test_crashes_count_as_attempts_in_strict_mode(tmp_path: Path) -> None:
    """A recovery buries nothing by itself, but the attempts before it count when the next one fails."""
    settings = SETTINGS + '[[address-settings]]\nmatch = "strict.poison"\nmax-delivery-attempts = 3\n'
    with running(tmp_path, settings) as broker:
        with connected(broker.port) as client:
            client.put("/queue/strict.poison", "x", DURABLE)
        for attempt in range(2):
            with connected(broker.port) as client:
                client.subscribe("/queue/strict.poison", "client")
                assert client.take().redelivered is (attempt > 0)
                broker.kill()
            broker.start()
        with connected(broker.port) as client:
            client.subscribe("/queue/strict.poison", "client")
            client.nack(client.take())
        (dead,) = all_of(broker, "/queue/DLQ", 1)
        assert (dead.text, dead.headers["_AMQ_DL_ATTEMPTS"]) == ("x", "3")


@pytest.mark.parametrize("settle", ["nack", "requeue"])
def test_dead_letters_are_whole_after_a_crash(tmp_path: Path, settle: str) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            client.put("/queue/poison.q", "bad", {**DURABLE, "order": "7"})
            client.subscribe("/queue/poison.q", "client-individual")
            if settle == "nack":
                client.nack(client.take(), reason="first")
                client.nack(client.take(), reason="second")
            else:
                client.nack(client.take(), requeue="false", reason="second")
            broker.kill()
        broker.start()
        assert broker.queue("poison.q")["messages"] == 0
        (dead,) = all_of(broker, "/queue/DLQ", 1)
        assert (dead.text, dead.headers["order"], dead.headers["_AMQ_ORIG_QUEUE"]) == ("bad", "7", "poison.q")
        assert "second" in dead.headers["_AMQ_DL_TEXT"]
        assert dead.headers["_AMQ_DL_REASON"] == ("max-deliveries" if settle == "nack" else "rejected")


def test_failed_deliveries_are_counted_across_a_crash(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            client.put("/queue/poison.q", "bad", DURABLE)
            client.subscribe("/queue/poison.q", "client-individual", {"consumer-window-size": "0"})
            client.nack(client.take())
            broker.kill()
        broker.start()
        with connected(broker.port) as client:
            client.subscribe("/queue/poison.q", "client-individual")
            again = client.take()
            assert again.redelivered
            client.nack(again)
        (dead,) = all_of(broker, "/queue/DLQ", 1)
        assert dead.headers["_AMQ_DL_ATTEMPTS"] == "2"


def test_scheduled_messages_and_delays_survive(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        due = time.time() + 2
        with connected(broker.port) as client:
            for queue, at in (("q", due), ("p", due + 3600)):
                client.put(f"/queue/{queue}", "later", {**DURABLE, "AMQ_SCHEDULED_TIME": str(int(at * 1000))})
        broker.restart()
        (message,) = all_of(broker, "/queue/q", 1)
        assert (message.text, time.time() >= due - 0.001) == ("later", True)
        assert broker.queue("p")["scheduled"] == 1


def test_a_transaction_is_whole_or_absent(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            client.put("/queue/in", "work", DURABLE)
            client.subscribe("/queue/in", "client-individual")
            message = client.take()
            client.connection.begin("whole")
            client.send("/queue/out", "done", {**DURABLE, "transaction": "whole"})
            client.ack(message, transaction="whole")
            client.frame("COMMIT", {"transaction": "whole"})
            client.connection.begin("absent")
            client.put("/queue/out", "never", {**DURABLE, "transaction": "absent"})
            broker.kill()
        broker.start()
        assert broker.queue("in")["messages"] == 0
        assert [message.text for message in all_of(broker, "/queue/out", 1)] == ["done"]


def test_a_durable_subscription_survives(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port, client_id="me") as reader:
            reader.subscribe("/topic/t", "client-individual", {**NEWS, "selector": "kind = 'good'"})
        broker.restart()
        with connected(broker.port) as sender:
            for kind in ("bad", "good"):
                sender.put("/topic/t", kind, {**DURABLE, "kind": kind})
        broker.restart()
        with Reader(broker) as reader:
            message = reader.take()
            assert message.text == "good"
            reader.ack(message)
            reader.frame("UNSUBSCRIBE", {"id": "news", **NEWS})
        broker.restart()
        assert "me.news" not in broker.queue_names()


def test_a_wildcard_subscription_has_the_senders_order_after_a_crash(tmp_path: Path) -> None:
    """Over all topics that it takes, with those of a transaction at its commit."""
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port, client_id="me") as reader:
            reader.subscribe("/topic/order.#", "client-individual", NEWS, id="news")
        with connected(broker.port) as sender:
            for n in range(300):
                sender.send(f"/topic/order.{n % 3}", str(n), DURABLE)
            sender.connection.begin("tx")
            for n in range(300, 330):
                sender.send(f"/topic/order.{n % 3}", str(n), {**DURABLE, "transaction": "tx"})
            sender.frame("COMMIT", {"transaction": "tx"})
        broker.restart()
        with connected(broker.port, client_id="me") as reader:
            reader.subscribe("/topic/order.#", "client-individual", NEWS, id="news")
            assert [reader.take().text for _ in range(330)] == [str(n) for n in range(330)]


class Reader:
    """The subscriber, back again."""

    def __init__(self, broker: DaemonProcess) -> None:
        self._client = Client(broker.port, client_id="me")
        self._client.subscribe("/topic/t", "client-individual", {**NEWS, "selector": "kind = 'good'"}, id="news")

    def __enter__(self) -> Client:
        return self._client

    def __exit__(self, *_: object) -> None:
        self._client.drop()
