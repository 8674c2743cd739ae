"""An operator brings dead letters back from the command line, and clients get them: real processes, a real crash."""

from __future__ import annotations

from pathlib import Path

from tests.interop.operating import operate
from tests.support.daemon import running
from tests.support.stomp_py import DURABLE, Client, Received, connected

SETTINGS = """
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
"""


def reject_all(client: Client, destination: str, number: int) -> list[Received]:
    """Consume so many messages and refuse each for good."""
    id = client.subscribe(destination, "client-individual")
    messages = [client.take() for _ in range(number)]
    for message in messages:
        client.nack(message, requeue="false", reason="no such customer")
    client.frame("UNSUBSCRIBE", {"id": id})
    return messages


def test_dead_letters_come_back_from_the_command_line(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            for n in range(3):
                client.put("/queue/orders", f"order {n}", {**DURABLE, "customer": str(n)})
            first = reject_all(client, "/queue/orders", 3)
        assert operate(broker, "queue", "retry", "DLQ", "--filter", "customer = '1'")["moved"] == 1
        moved = operate(broker, "queue", "move", "DLQ", "repair")
        assert (moved["queue"], moved["moved"], moved["refused"]) == ("DLQ", 2, {})
        before = broker.get("balance")
        broker.restart()  # SIGKILL: what was answered is on disk
        after = broker.get("balance")
        assert (after["broker_id"], after["queues"]) == (before["broker_id"], before["queues"])
        assert after["position"] > before["position"]
        counts = {queue["name"]: queue["journalled"] for queue in after["queues"]}
        assert (counts["orders"], counts["repair"], counts["DLQ"]) == (1, 2, 0)
        with connected(broker.port) as client:
            client.subscribe("/queue/orders", "client-individual")
            back = client.take()
            client.ack(back)
            client.subscribe("/queue/repair", "client-individual")
            repaired = [client.take(), client.take()]
    assert (back.text, back.headers["customer"], back.redelivered) == ("order 1", "1", False)
    assert back.headers["destination"] == "/queue/orders"
    assert back.headers["_AMQ_ORIG_QUEUE"] == "DLQ"
    assert back.headers["_AMQ_DL_REASON"] == "rejected"
    assert back.headers["_AMQ_DL_TEXT"].endswith("no such customer")
    assert back.headers["_AMQ_DL_FIRST_QUEUE"] == "orders"
    assert back.headers["_AMQ_DL_FIRST_MESSAGE_ID"] == first[1].headers["message-id"].rpartition(",")[2]
    assert [message.text for message in repaired] == ["order 0", "order 2"]
    assert {message.headers["_AMQ_ORIG_ADDRESS"] for message in repaired} == {"DLQ"}


def test_only_the_subscription_that_refused_it_gets_it_again(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        clients = [Client(broker.port, client_id=name) for name in ("left", "right")]
        for client in clients:
            client.subscribe("/topic/news", "client-individual", {"durable-subscription-name": "s"}, id="s")
        clients[0].put("/topic/news", "extra", DURABLE)
        taken = [client.take() for client in clients]
        clients[0].nack(taken[0], requeue="false")
        clients[1].ack(taken[1])
        assert operate(broker, "queue", "retry", "DLQ")["moved"] == 1
        again = clients[0].take()
        assert (again.text, again.headers["destination"]) == ("extra", "/topic/news")
        clients[0].ack(again)
        for client in clients:
            assert client.messages.empty()
            client.leave()
        assert {queue["journalled"] for queue in broker.get("balance")["queues"]} == {0}
