"""The storm's clients of other protocols: Qpid Proton over AMQP and paho over MQTT, beside those of stomp.py.

They send to the same queues and use the same ledger.  A broker's confirmation is what their libraries report: an
accepted delivery, a PUBACK.  Their consumer gets no confirmation of its settlements, so its messages may return, and
may not be lost.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any, Final

from proton import Message, ProtonException
from proton.utils import BlockingConnection

from tests.support.ledger import Entry, Kind, Ledger
from tests.support.links import PATIENCE_S
from tests.support.paho_client import Paho

#: How long the consumer waits for a message before it checks whether the storm is over, in seconds.
LOOK_S: Final = 0.2

#: The most messages of the MQTT publisher without a PUBACK.
INFLIGHT_MAX: Final = 20


class _Amqp:
    """A connection of Proton's blocking client, on a thread of its own."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.ledger = ledger
        self.wrong = ""
        self.over = threading.Event()
        self._connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=PATIENCE_S)
        self.prepare()
        self._thread = threading.Thread(target=self._run, name=f"storm {type(self).__name__}")
        self._thread.start()

    def prepare(self) -> None:
        """Attach links."""
        raise NotImplementedError

    def work(self) -> None:
        """Send, or receive, one message."""
        raise NotImplementedError

    def _run(self) -> None:
        try:
            while not self.over.is_set():
                self.work()
        except (AssertionError, KeyError, ValueError) as wrong:
            self.wrong = repr(wrong)
        except (ProtonException, OSError):
            return  # the broker is gone

    def join(self) -> None:
        """End the client after the broker's end."""
        self._end(0)  # no answer to CLOSE will arrive

    def leave(self) -> None:
        """Send CLOSE, once all sends have their outcome or the broker is gone."""
        self._end(PATIENCE_S)

    def _end(self, patience_s: float) -> None:
        self.over.set()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "a client outlives the broker"
        self._connection.timeout = patience_s
        with suppress(ProtonException, OSError):
            self._connection.close()
        assert not self.wrong, self.wrong


class AmqpProducer(_Amqp):
    """Sends, and waits for each outcome."""

    def __init__(self, ledger: Ledger, port: int, queues: tuple[str, ...]) -> None:
        self._queues = queues
        self._links: dict[str, Any] = {}
        super().__init__(ledger, port)

    def prepare(self) -> None:
        self._links = {queue: self._connection.create_sender(queue) for queue in self._queues}

    def work(self) -> None:
        entry = self.ledger.new_single()
        self._links[entry.queue].send(Message(body=entry.body, durable=True, inferred=True))
        self.ledger.confirm(f"send:{entry.number}")


class AmqpConsumer(_Amqp):
    """Consumes from one queue; its settlements are not confirmed."""

    def __init__(self, ledger: Ledger, port: int, queue: str, *, reaching: bool = True) -> None:
        self._queue = queue
        self._reaching = reaching
        self.replaced = False  # see Consumer
        self._link: Any = None
        super().__init__(ledger, port)

    def prepare(self) -> None:
        self._link = self._connection.create_receiver(self._queue, credit=10)

    def work(self) -> None:
        try:
            message = self._link.receive(LOOK_S)
        except TimeoutError:
            return
        except ProtonException as error:
            if "timed out" in str(error):
                return
            raise
        entry = self.ledger.of(bytes(message.body))
        assert self.replaced or not entry.gone, f"message {entry.number} was delivered after its end, over AMQP"
        with self.ledger.lock:
            entry.deliveries += 1
            entry.reached |= self._reaching
        self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        if entry.kind is Kind.REJECTED:
            entry.silent = True
            self._link.reject()
        elif entry.kind is Kind.POISON or (entry.kind is Kind.LAZY and entry.deliveries < 3):
            entry.silent = True
            entry.reached = False  # Proton's MODIFIED says that nothing failed: it does not count
            self._link.release(delivered=True)
        else:
            entry.acked = True
            self._link.accept()


class MqttProducer:
    """Publishes with QoS 1, several messages at a time."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.ledger = ledger
        self._lost = False
        self._sent: dict[int, Entry] = {}
        self._early: set[int] = set()  # acknowledged before `publish` returned the packet's number
        self._room = threading.Semaphore(INFLIGHT_MAX)
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._client = Paho(port, reconnect_on_failure=False).client
        self._client.on_publish = self._published
        self._client.on_disconnect = lambda *_: self._on_disconnect()
        self._thread = threading.Thread(target=self._run, name="storm MqttProducer")
        self._thread.start()

    def _on_disconnect(self) -> None:
        with self.ledger.lock:
            self._lost = True
            self.ledger.lock.notify_all()
        self._end()

    def _end(self) -> None:
        self._over.set()
        self._room.release()

    def _published(self, client: Any, userdata: Any, mid: int, code: Any, properties: Any) -> None:
        # The client's own lock is held here and in `publish`: never call `publish` with our lock held.
        assert not code.is_failure, f"a message over MQTT: {code}"
        with self._lock:
            entry = self._sent.pop(mid, None)
            if entry is None:
                self._early.add(mid)
                return
        self._confirm(entry)

    def _confirm(self, entry: Entry) -> None:
        self.ledger.confirm(f"send:{entry.number}")
        self._room.release()

    def _run(self) -> None:
        while True:
            self._room.acquire()
            if self._over.is_set():
                return
            entry = self.ledger.new_single()
            info = self._client.publish(entry.queue.replace(".", "/"), entry.body, 1)
            with self._lock:
                early = info.mid in self._early
                self._early.discard(info.mid)
                if not early:
                    self._sent[info.mid] = entry
            if early:
                self._confirm(entry)

    def join(self) -> None:
        """End the client after the broker's end."""
        self._end()
        self._thread.join(PATIENCE_S)
        self._client.loop_stop()
        assert not self._thread.is_alive(), "a client outlives the broker"

    def leave(self) -> None:
        """Send DISCONNECT, once all messages are acknowledged or the broker is gone."""
        self._end()
        self._thread.join(PATIENCE_S)
        with self.ledger.lock:
            assert self.ledger.lock.wait_for(lambda: self._lost or not self._sent, PATIENCE_S), "no PUBACK"
        self._client.disconnect()
        self.join()
