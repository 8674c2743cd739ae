"""Why did it die, and what became of it: groups and trails from the command line, real clients, SIGKILLs between."""

from __future__ import annotations

from pathlib import Path
from time import monotonic

from tests.interop.operating import operate
from tests.support.daemon import DaemonProcess, running
from tests.support.process import PATIENCE_S
from tests.support.stomp_py import DURABLE, connected

SETTINGS = """
[[address-settings]]
match = "#"
dead-letter-address = "DLQ"

[[address-settings]]
match = "orders"
max-delivery-attempts = 2
delivery-count-persistence = "strict"
"""


def indexed(broker: DaemonProcess) -> bool:
    """Whether all segments but the newest have an index, as they have after a while."""
    journal = broker.data / "journal"
    complete = {path.stem for path in sorted(journal.glob("*.journal"))[:-1]}
    until = monotonic() + PATIENCE_S
    while {path.stem for path in (journal / "index").glob("*.ids")} != complete:
        assert monotonic() < until
        broker.get("status")
    return bool(complete)


def test_a_message_is_followed_through_deaths_retries_and_crashes(tmp_path: Path) -> None:
    with running(tmp_path, SETTINGS) as broker:
        with connected(broker.port) as client:
            client.put("/queue/orders", "the order", DURABLE)
            client.subscribe("/queue/orders", "client-individual", id="s")
            client.nack(client.take())
            client.nack(client.take())
            client.frame("UNSUBSCRIBE", {"id": "s"})
            client.put("/queue/bills", "a bill", DURABLE)
            client.subscribe("/queue/bills", "client-individual", id="b")
            client.nack(client.take(), requeue="false", reason="no such customer")
        groups = operate(broker, "dead-letters", "groups", "--by", "reason,origin")["groups"]
        found = {(each["group"]["reason"], each["group"]["origin"]): each["messages"] for each in groups}
        assert found == {("max-deliveries", "orders"): 1, ("rejected", "bills"): 1}
        of_orders = ("--filter", "_AMQ_ORIG_QUEUE = 'orders'")
        [dead] = operate(broker, "queue", "browse", "DLQ", *of_orders)["messages"]
        broker.restart()
        assert operate(broker, "queue", "retry", "DLQ", *of_orders)["moved"] == 1
        broker.restart()
        with connected(broker.port) as client:
            client.subscribe("/queue/orders", "client-individual")
            message = client.take()
            client.ack(message)
        last = int(message.headers["message-id"].rpartition(",")[2])
        broker.restart()
        bare = operate(broker, "message", "trail", str(last))
        assert indexed(broker)
        trail = operate(broker, "message", "trail", str(dead["id"]))
        [left] = operate(broker, "queue", "browse", "DLQ")["messages"]
        bill = operate(broker, "message", "trail", str(left["id"]))
    assert [(step["kind"], step["queues"]) for step in trail["steps"]] == [
        ("stored", ["orders"]),
        ("delivering", ["orders"]),
        ("delivering", ["orders"]),
        ("stored", ["DLQ"]),
        ("died", ["orders"]),
        ("left", ["orders"]),
        ("stored", ["orders"]),
        ("left", ["DLQ"]),
        ("delivering", ["orders"]),
        ("left", ["orders"]),
    ]
    assert (trail["ids"][1:], trail["ended"], trail["problems"]) == ([dead["id"], last], "consumed", [])
    retried = [step for step in trail["steps"] if step["actor"]]
    assert [(step["reason"], step["queues"], step["task"] > 0) for step in retried] == [("moved", ["DLQ"], True)]
    assert retried[0]["actor"].startswith("management.token, ")
    assert "left: moved in task" in retried[0]["told"]
    assert bare["steps"] == trail["steps"]
    assert (bill["opened"], bill["segments"]) == (2, 4), "the one that speaks of it, and the newest"
