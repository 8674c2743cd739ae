"""The messages of the story, and the clients that send and handle them with stomp.py."""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import Any, Final

import stomp

#: How long a client waits for something that has to come, in seconds.
PATIENCE_S: Final = 10.0


@dataclass(slots=True)
class Order:
    """One message: where it is sent, what its handling comes to, and what became of it."""

    number: int
    what: str
    destination: str = "orders"
    trouble: str = ""  # what its consumer says each time it refuses it
    hopeless: bool = False  # refused for good at the first time
    lives_ms: int = 0  # 0: does not expire
    consumed: bool = False
    brought_back: bool = False  # after it had died
    deliveries: list[str] = field(default_factory=list)


def story() -> list[Order]:
    """Orders that succeed, fail, are hopeless, expire, and one queue that nobody reads."""
    goods = ("tea", "coffee", "a kettle", "two cups", "sugar", "a spoon", "milk", "a teapot")
    orders = [Order(number, what) for number, what in enumerate(goods, 1)]
    orders.insert(2, Order(0, "a samovar", trouble="customer 4711 is unknown"))
    orders.insert(6, Order(0, "½ a biscuit", trouble="schema 12 is not supported", hopeless=True))
    orders.append(Order(0, "a tea urn", trouble="the warehouse does not answer"))
    orders += [Order(0, what, destination="offers", lives_ms=400) for what in ("day-old cake", "warm scones")]
    orders += [Order(0, what, destination="archive") for what in ("invoice 1", "invoice 2", "invoice 3")]
    for number, order in enumerate(orders, 1):
        order.number = number
    return orders


class Client(stomp.ConnectionListener):  # type: ignore[misc]
    """A connection whose frames wait until somebody takes them."""

    def __init__(self, port: int, *, user: str | None = None, password: str | None = None) -> None:
        self.frames: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._receipts: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._connection = stomp.StompConnection12([("127.0.0.1", port)], reconnect_attempts_max=1)
        self._connection.set_listener("demo", self)
        self._connection.connect(user, password, wait=True, headers={"client-id": "warehouse"})

    def on_message(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self._receipts.put(frame.headers["receipt-id"])

    def send(self, order: Order) -> None:
        """Send an order durably; returns when the broker has it on disk."""
        headers = {"persistent": "true", "order": str(order.number), "receipt": f"send-{order.number}"}
        if order.lives_ms:
            headers["expires"] = str(int(time.time() * 1000) + order.lives_ms)
        self._connection.send(f"/queue/{order.destination}", order.what.encode(), "text/plain", headers)
        self._receipts.get(timeout=PATIENCE_S)

    def work_on(self, destination: str) -> None:
        """Subscribe, one message at a time."""
        headers = {"consumer-window-size": "0"}
        self._connection.subscribe(f"/queue/{destination}", "work", "client-individual", headers)

    def hear(self, topic: str) -> None:
        """Subscribe to a topic; returns when that is so."""
        self._connection.subscribe(f"/topic/{topic}", topic, "auto", {"receipt": topic})
        self._receipts.get(timeout=PATIENCE_S)

    def tell(self, topic: str, text: str) -> None:
        """Publish on a topic; returns when the broker has it on disk."""
        self._connection.send(f"/topic/{topic}", text.encode(), "text/plain", {"persistent": "true", "receipt": topic})
        self._receipts.get(timeout=PATIENCE_S)

    def take(self, seconds: float = PATIENCE_S) -> Any:
        """The next message.  Raises queue.Empty."""
        return self.frames.get(timeout=seconds)

    def handle(self, frame: Any, order: Order) -> None:
        """Acknowledge or refuse it; returns when the broker has that on disk."""
        id, receipt = frame.headers["ack"], f"done-{order.number}"
        if order.hopeless:
            self._connection.nack(id, receipt=receipt, requeue="false", reason=order.trouble)
        elif order.trouble:
            self._connection.nack(id, receipt=receipt, reason=order.trouble)
        else:
            self._connection.ack(id, receipt=receipt)
        self._receipts.get(timeout=PATIENCE_S)
        order.consumed = not order.trouble

    def leave(self) -> None:
        """DISCONNECT."""
        self._connection.disconnect()

    def forget(self) -> None:
        """Close the socket of a broker that is gone."""
        self._connection.transport.disconnect_socket()
