"""The storm: a broker under the load of stomp.py, Proton and paho, killed by SIGKILL again and again, and the ledger.

a round     producer and consumer run until some receipts have arrived; SIGKILL; restart; check every queue
checked     every message whose receipt arrived is there exactly once, unless its ACK was sent
            no message whose ACK was confirmed returns, nor any that was gone after an earlier restart
            transactions are whole or absent
            on the strict queue every message that reached the consumer counts as delivered
            dead letters and expired messages carry their reason, and are the message that was sent
a backlog   is drained by another consumer when it gets long, and all of it must arrive
at times    the audits' ledger of the journal balances, and agrees with the broker about each queue
the end     the same once more; then all remaining messages are consumed, and the ledger balances
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.support.daemon import DaemonProcess, running
from tests.support.ledger import ATTEMPTS, QUEUES, Entry, Kind, Ledger, Outcome
from tests.support.links import PATIENCE_S, Lost
from tests.support.stomp_py import Client
from tests.support.storm_others import AmqpConsumer, AmqpProducer, MqttProducer

#: Small segments, so that the storm also covers new segments and the removal of dead ones.
SETTINGS: Final = f"""
[log]
level = "warning"

[journal]
segment-size = "4MiB"
reserve = "1MiB"

[limits]
body-bytes-max = "64KiB"
transaction-bytes-max = "256KiB"

[[address-settings]]
match = "#"
dead-letter-address = "DLQ"
expiry-address = "ExpiryQueue"
max-delivery-attempts = {ATTEMPTS}

[[address-settings]]
match = "storm.strict"
delivery-count-persistence = "strict"
"""

#: With it the audited ledger covers some hundred rounds; without it, only what the broker still has.
RETENTION: Final = """
[journal.retention]
enabled = true
max-bytes = "256MiB"
"""

#: The most receipts of a round; the seed chooses.
RECEIPTS_MAX: Final = 400

#: The longest round, in seconds, if receipts do not arrive.
ROUND_S: Final = 5.0

#: The most sends of stomp.py without a receipt: more would only be unconfirmed messages.
INFLIGHT_MAX: Final = 200

#: Messages on all queues above which they are drained, as each is looked at after each kill.
BACKLOG_MAX: Final = 1_000

#: How long an expiring message lives, in ms: shorter than a restart takes.
BRIEF_MS: Final = 30

#: The ERROR texts of a broker that stops, to its STOMP clients.
GOODBYES: Final = ("broker shutting down", "another broker has taken over")

#: The beginning of AMQP's data section.
_DATA: Final = b"\0\x53\x75"

ROOT: Final = Path(__file__).parents[2]

#: How long the audit may take, in seconds: it starts Spark.
AUDIT_S: Final = 300.0


@dataclass(slots=True)
class Figures:
    """The figures of a storm."""

    kills: int = 0
    sent: int = 0
    confirmed: int = 0
    consumed: int = 0
    dead: int = 0
    expired: int = 0
    redelivered: int = 0
    recovery_ms_max: int = 0


class _Listener(Client):
    """A connection of the storm that never waits.  It may lose the broker at any moment."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.ledger = ledger
        self.over = threading.Event()
        self.wrong = ""
        super().__init__(port)

    def on_receipt(self, frame: Any) -> None:
        if frame.headers["receipt-id"] != "leave:0":
            self.ledger.confirm(frame.headers["receipt-id"])

    def on_error(self, frame: Any) -> None:
        told = f"{frame.headers} {frame.body!r}"
        if not any(goodbye in told for goodbye in GOODBYES):
            self.wrong = told

    def on_message(self, frame: Any) -> None:
        # stomp.py swallows the exceptions of a listener.
        try:
            self.received(self.ledger.of(frame.body), frame.headers)
        except (AssertionError, KeyError, ValueError) as wrong:
            self.wrong = self.wrong or repr(wrong)

    def received(self, entry: Entry, headers: dict[str, str]) -> None:
        """Process a message."""
        raise AssertionError(f"nobody subscribed, and message {entry.number} came: {headers}")

    def on_disconnected(self) -> None:
        self.over.set()
        with self.ledger.lock:
            self.ledger.lock.notify_all()

    def attempt(self, send: Callable[[], object]) -> bool:
        """Send something; whether the connection took it."""
        try:
            send()
        except Exception:  # stomp.py passes on any exception of the socket
            return False
        return True

    def join(self) -> None:
        """Wait for the end of the connection, after the broker's end: all that had arrived was read by then."""
        assert self.over.wait(PATIENCE_S), "the connection outlives the broker"
        self._join()
        assert not self.wrong, self.wrong

    def leave(self) -> None:
        """Send DISCONNECT, and wait for the end."""
        self.connection.disconnect(receipt="leave:0")
        self.join()


class Producer(_Listener):
    """Sends until the broker is gone, or until `leave`."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self._enough = False
        self._unanswered = 0
        self._room = threading.Semaphore(INFLIGHT_MAX)
        super().__init__(ledger, port)
        self._thread = threading.Thread(target=self._run, name="storm producer")
        self._thread.start()

    def on_receipt(self, frame: Any) -> None:
        with self.ledger.lock:
            self._unanswered -= frame.headers["receipt-id"].startswith("send:")
            super().on_receipt(frame)
        self._room.release()

    def on_disconnected(self) -> None:
        super().on_disconnected()
        self._room.release()

    def _run(self) -> None:
        while self._room.acquire() and not self.over.is_set() and not self._enough:
            entries = self.ledger.new()
            with self.ledger.lock:
                self._unanswered += 1
            if not self.attempt(lambda made=entries: self._send(made)):  # type: ignore[misc]
                return

    def _send(self, entries: list[Entry]) -> None:
        receipt = "send:" + ",".join(str(entry.number) for entry in entries)
        headers = {"persistent": "true", "number": str(entries[0].number)}
        if len(entries) == 1:
            if entries[0].kind is Kind.BRIEF:
                headers["expires"] = str(int(time.time() * 1000) + BRIEF_MS)
            self._enter(entries[0], {**headers, "receipt": receipt})
            return
        transaction = f"t{entries[0].number}"
        self.connection.begin(transaction)
        for entry in entries:
            self._enter(entry, {**headers, "transaction": transaction})
        self.connection.commit(transaction, receipt=receipt)

    def _enter(self, entry: Entry, headers: dict[str, str]) -> None:
        self.connection.send(f"/queue/{entry.queue}", entry.body, headers=headers)

    def join(self) -> None:
        super().join()
        self._thread.join(PATIENCE_S)

    def leave(self) -> None:
        """Send DISCONNECT, once all sends are confirmed or the broker is gone."""
        self._enough = True
        self._room.release()
        self._thread.join(PATIENCE_S)
        with self.ledger.lock:
            answered = self.ledger.lock.wait_for(lambda: self.over.is_set() or not self._unanswered, PATIENCE_S)
        assert answered, f"{self._unanswered} receipts are missing"
        super().leave()


class Consumer(_Listener):
    """Consumes messages and settles each as its kind demands.

    `reaching`: its messages still count as delivered after the broker's end.  Once it is `replaced`, messages that were
    sent to it before may have been delivered to other clients meanwhile.
    """

    def __init__(self, ledger: Ledger, port: int, *, reaching: bool = True) -> None:
        self._reaching = reaching
        self.replaced = False
        self._subscribed = threading.Semaphore(0)
        super().__init__(ledger, port)

    def subscribe_to(self, *queues: str) -> None:
        """Subscribe, with a small window, so that the broker retains some messages.  Afterwards the queues exist.

        Raises Lost.
        """
        for queue in queues:
            headers = {"consumer-window-size": "65536", "receipt": "subscribed"}
            self.connection.subscribe(f"/queue/{queue}", queue, "client-individual", headers=headers)
        for _ in queues:
            assert self._subscribed.acquire(timeout=PATIENCE_S), f"no subscription: {self.wrong}"
            if self.over.is_set():
                raise Lost("no subscription")

    def on_disconnected(self) -> None:
        super().on_disconnected()
        self._subscribed.release(len(QUEUES))

    def on_receipt(self, frame: Any) -> None:
        if frame.headers["receipt-id"] == "subscribed":
            self._subscribed.release()
        else:
            super().on_receipt(frame)

    def received(self, entry: Entry, headers: dict[str, str]) -> None:
        assert self.replaced or not entry.gone, f"message {entry.number} was delivered after its end: {headers}"
        with self.ledger.lock:
            entry.deliveries += 1
            entry.reached |= self._reaching
        self.attempt(lambda: self.settle(entry, headers))

    def settle(self, entry: Entry, headers: dict[str, str]) -> None:
        """Acknowledge, refuse, or hold a message."""
        number, id = entry.number, headers["ack"]
        if entry.kind is Kind.POISON:
            self.connection.nack(id, receipt=f"nack:{number}", reason=f"poison {number}")
        elif entry.kind is Kind.REJECTED:
            self.connection.nack(id, receipt=f"nack:{number}", reason=f"rejected {number}", requeue="false")
        elif entry.kind is not Kind.LAZY or entry.deliveries >= 3:
            entry.acked = True
            self.connection.ack(id, receipt=f"ack:{number}")


class Undertaker(_Listener):
    """Consumes from the dead-letter and expiry queues, and checks each message closely."""

    def __init__(self, ledger: Ledger, port: int) -> None:
        self.problems: list[str] = []
        self.redelivered: dict[int, bool] = {}
        super().__init__(ledger, port)

    def received(self, entry: Entry, headers: dict[str, str]) -> None:
        self.redelivered[entry.number] = headers["redelivered"] == "true"
        if headers["subscription"] in ("DLQ", "ExpiryQueue"):
            self.problems += [f"dead letter {entry.number}: {p}: {headers}" for p in _flaws(entry, headers)]
        entry.acked = True
        self.connection.ack(headers["ack"], receipt=f"bury:{entry.number}")

    def empty(self, queue: str, number: int) -> None:
        """Consume the `number` messages of a queue; returns when each one's ACK is confirmed."""
        if number:
            headers = {"consumer-window-size": "-1"}
            with self.ledger.lock:
                wanted = self.ledger.receipts + number
                self.connection.subscribe(f"/queue/{queue}", queue, "client-individual", headers=headers)
                while (missing := wanted - self.ledger.receipts) > 0:
                    assert self._goes_on(), f"{queue}: {missing} of {number} messages did not come"
        assert not self.problems, "\n".join(self.problems)
        assert not self.wrong, self.wrong

    def _goes_on(self) -> bool:
        """Whether another receipt arrives; the lock is held."""
        before = self.ledger.receipts
        return self.ledger.lock.wait_for(lambda: self.ledger.receipts > before, PATIENCE_S)


def _flaws(entry: Entry, headers: dict[str, str]) -> list[str]:
    """Return what is wrong with a dead or expired message."""
    flaws = []
    if headers["_AMQ_ORIG_QUEUE"] != entry.queue or headers["_AMQ_DL_FIRST_QUEUE"] != entry.queue:
        flaws.append("another origin")
    reason, text, attempts = headers["_AMQ_DL_REASON"], headers["_AMQ_DL_TEXT"], int(headers["_AMQ_DL_ATTEMPTS"])
    expected = {Kind.POISON: "max-deliveries", Kind.REJECTED: "rejected", Kind.BRIEF: "expired"}.get(entry.kind)
    if reason != expected:
        flaws.append(f"the reason should be {expected}")
    said = f"{reason_word(entry.kind)} {entry.number}"
    if entry.kind in (Kind.POISON, Kind.REJECTED) and not entry.silent and not text.endswith(said):
        flaws.append("the text is not the consumer's")
    if entry.kind is Kind.POISON and attempts < ATTEMPTS:
        flaws.append("it died too early")
    if headers["expires"] != "0":
        flaws.append("it expires again")
    return flaws


def reason_word(kind: Kind) -> str:
    """Return the first word of the consumer's reason."""
    return "poison" if kind is Kind.POISON else "rejected"


def _number(message: dict[str, Any]) -> int:
    """Return the message's number, from its body as management shows it."""
    assert message["body"]["encoding"] == "base64", "bodies have a NUL in them"
    body = b64decode(message["body"]["data"])
    if body[:1] == b"\0":  # AMQP's sections as received, cut: the data section has a length of one byte or four
        at = body.index(_DATA) + len(_DATA)
        body = body[at + (2 if body[at] == 0xA0 else 5) :]
    return int(body.partition(b"\0")[0])


class Storm:
    """One broker, one ledger."""

    def __init__(self, broker: DaemonProcess, seed: int) -> None:
        self.figures = Figures()
        self._random = Random(seed)
        self._ledger = Ledger(Random(self._random.getrandbits(64)))
        self._broker = broker

    def round(self) -> None:
        """Run one round: load, SIGKILL, restart, check."""
        ledger, broker = self._ledger, self._broker
        consumer = Consumer(ledger, broker.port)
        consumer.subscribe_to(*QUEUES)  # MQTT messages need a queue to go to
        others = self._others()
        producer = Producer(ledger, broker.port)
        ledger.await_receipts(self._random.randint(1, RECEIPTS_MAX), ROUND_S)
        broker.kill()
        for client in (producer, consumer, *others):
            client.join()
        begun = time.monotonic()
        broker.start()
        self.figures.recovery_ms_max = max(self.figures.recovery_ms_max, int((time.monotonic() - begun) * 1000))
        self.figures.kills += 1
        if self._check() > BACKLOG_MAX:
            self._drain()
        else:
            self._send_to_dla()
        ledger.restarted()

    def _others(self) -> list[AmqpProducer | AmqpConsumer | MqttProducer]:
        """Start clients of other protocols: not all in every round, so that each also gets messages of the others."""
        ledger, ports = self._ledger, self._broker.ports
        chosen: list[AmqpProducer | AmqpConsumer | MqttProducer] = []
        if self._random.random() < 0.7:
            chosen.append(AmqpProducer(ledger, ports["amqp"], QUEUES))
        if self._random.random() < 0.7:
            chosen.append(AmqpConsumer(ledger, ports["amqp"], self._random.choice(QUEUES)))
        if self._random.random() < 0.7:
            chosen.append(MqttProducer(ledger, ports["mqtt"]))
        return chosen

    def _check(self) -> int:
        """Check where every message is; returns how many there are."""
        found: dict[int, list[str]] = {}
        delivered: dict[int, int] = {}
        for queue, message in self._shown():
            number = _number(message)
            found.setdefault(number, []).append(queue)
            delivered[number] = message["failed_deliveries"]
        wrong = self._ledger.check(found)
        for entry in self._ledger.entries.values():
            on_queue = found.get(entry.number) == [entry.queue]
            known = max(entry.nacks, int(entry.reached and entry.queue == "storm.strict"))
            if on_queue and delivered[entry.number] < known:
                wrong.append(f"message {entry.number} has failed {delivered[entry.number]} times: {entry}")
        self.figures.redelivered += sum(1 for count in delivered.values() if count)
        assert not wrong, "\n".join(wrong[:20]) + f"\n({len(wrong)} problems; {self._broker.directory})"
        self._ledger.strike_out(found)
        return len(found)

    def _settled_counts(self) -> dict[str, int]:
        """Return the messages on each queue, once none is on its way to the disk."""
        until = time.monotonic() + PATIENCE_S
        while True:
            queues = self._broker.get("queues", limit=1000)["queues"]
            places = ("ready", "paged", "scheduled", "delivering")
            moving = [q for q in queues if q["messages"] != sum(q[place] for place in places)]
            if not moving:
                return {q["name"]: q["messages"] for q in queues}
            assert time.monotonic() < until, f"messages are on their way to the disk for ever: {moving}"

    def _shown(self) -> list[tuple[str, dict[str, Any]]]:
        """Return each message with its queue; meanwhile none has moved or expired."""
        until = time.monotonic() + PATIENCE_S
        while True:
            counts = self._settled_counts()
            shown = [(queue, message) for queue in counts for message in self._browse(queue)]
            if self._settled_counts() == counts:
                found = Counter(queue for queue, _ in shown)
                assert found == +Counter(counts), f"{found} are shown, {counts} are counted"
                return shown
            assert time.monotonic() < until, f"messages move for ever: {counts}"

    def _browse(self, queue: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        after: str | None = ""
        while after is not None:
            answer = self._broker.get(f"queues/{queue}/messages", limit=1000, after=after)
            messages += answer["messages"]
            after = answer["next"]
        return messages

    def _send_to_dla(self, *more: str) -> Undertaker:
        counts = self._settled_counts()
        undertaker = Undertaker(self._ledger, self._broker.port)
        for queue in ("DLQ", "ExpiryQueue", *more):
            undertaker.empty(queue, counts.get(queue, 0))
        undertaker.leave()
        return undertaker

    def audit(self) -> None:
        """Audit the ledger by the real command, beside the running broker."""
        broker = self._broker
        command = [sys.executable, "-m", "broker", "audit", "ledger", "--compare", "--format", "json"]
        command += ["--priority", "normal"]  # the test waits for the audit, not for the broker
        command += ["--config", str(broker.config), "--data", str(broker.data)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=AUDIT_S, check=False)
        said = f"{done.stdout}\n{done.stderr}\n({broker.directory})"
        assert done.returncode == 0, f"the ledger ends with status {done.returncode}: {said}"
        found = json.loads(done.stdout)
        assert found["verdict"] == "balanced", said
        summary = found["summary"]  # what was sent before the last segment began is trimmed by now, perhaps all of it
        assert summary["enqueued"] + summary["from before"] > 0, said

    def _drain(self) -> None:
        """Consume all messages."""
        counts = {
            _number(message): (message["redelivered"], message["failed_deliveries"]) for _, message in self._shown()
        }
        undertaker = self._send_to_dla(*QUEUES)
        for number, (redelivered, count) in counts.items():
            assert undertaker.redelivered[number] == redelivered, f"message {number}: {count} failures"
            assert redelivered or not count, f"message {number}: {count} failures"
        assert not any(self._settled_counts().values())

    def finish(self) -> Figures:
        """Consume the remaining messages, and balance the ledger."""
        self._drain()
        self._check()
        ledger, figures = self._ledger, self.figures
        assert not ledger.entries
        assert ledger.outcomes.total() == ledger.sent
        figures.sent, figures.confirmed = ledger.sent, ledger.sent - ledger.outcomes[Outcome.UNSENT]
        figures.consumed = ledger.outcomes[Outcome.CONSUMED]
        figures.dead, figures.expired = ledger.outcomes[Outcome.DEAD], ledger.outcomes[Outcome.EXPIRED]
        return figures


def rage(
    directory: Path, *, kills: int, seed: int, audit_every: int = 0, tell: Callable[[Figures], None] = lambda _: None
) -> Figures:
    """Run a whole storm, with an audit every `audit_every` kills (0: none), and one at the end.

    Raises AssertionError with what is wrong.
    """
    logging.getLogger("stomp.py").setLevel(logging.CRITICAL)  # it reports each lost connection with a traceback
    with running(directory, SETTINGS + (RETENTION if seed % 2 else "")) as broker:
        storm = Storm(broker, seed)
        for _ in range(kills):
            storm.round()
            tell(storm.figures)
            if audit_every and storm.figures.kills % audit_every == 0:
                storm.audit()
        storm.audit()
        return storm.finish()
