"""The soak test: does anything grow?  Simulated months in seconds, or a real broker under load for any time.

Simulated: each hour messages arrive, are acknowledged, expire, fail and are redelivered, are scheduled; a durable
subscription and an MQTT session begin and end.  After each day every message has left again, so nothing may be more
than the day before: Python's objects, timers, segments, bytes on the disk.

Real: producers and consumers over STOMP on a broker with small segments; its resident memory, open files and journal
are measured every few seconds, and a line is fitted to the measurements after the warm-up.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.simulation.world import check_counters, small
from tests.support.daemon import DaemonProcess, running
from tests.support.links import Lost
from tests.support.mqtt_world import SimWorld
from tests.support.sim_broker import SimBroker, SimClient
from tests.support.stomp_client import ServerFrame, StompSocket
from tests.support.stomp_py import Client, connected

HOUR: Final = 3_600_000

#: Days until everything lasting exists: caches, the broker's own queues, segments to be cleaned.
WARM_UP_DAYS: Final = 2

#: More of Python's objects that are no growth: caches that are emptied when they have some hundred entries.
OBJECTS: Final = 2_500

_SETTINGS: Final[tuple[dict[str, object], ...]] = (
    {"match": "soak.failing", "redelivery-delay": 600_000, "max-delivery-attempts": 3, "dead-letter-address": "Dead"},
    {"match": "soak.brief", "expiry-address": "Late"},
)


@dataclass(slots=True)
class Day:
    """The resources in use at the end of a simulated day."""

    objects: int
    timers: int
    segments: int
    disk_bytes: int
    last_id: int


class _World(SimWorld):
    """MQTT clients of a broker with very small segments; they are forgotten after each day."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = SimBroker(small(*_SETTINGS, retained=False))

    def forget(self) -> None:
        """Drop what only the simulation stores."""
        self._carriers.clear()
        self.broker.forget()
        self.broker.files.history.clear()


class Months:
    """A simulated broker that is used for days."""

    def __init__(self) -> None:
        self.world = _World()
        self.broker: SimBroker = self.world.broker
        self.client: SimClient = self.broker.connect(**{"client-id": "soak"})
        for queue in ("soak.plain", "soak.failing", "Dead", "Late"):
            self.client.subscribe(f"/queue/{queue}", id=queue)
        self.sent = 0

    def day(self) -> Day:
        """Run 24 hours; returns the resources in use afterwards."""
        for hour in range(24):
            self._hour(hour)
        self.broker.advance(3 * HOUR)
        self._settle()
        assert all(queue.message_count == 0 for queue in self.broker.engine.queues.values())
        check_counters(self.broker)
        self.world.forget()
        gc.collect()
        state = self.broker.engine._state
        due = state.schedule
        return Day(
            objects=len(gc.get_objects()),
            timers=len(due.scheduled) + len(due.expiries) + len(due.alarms) + len(due.session_alarms),
            segments=len(state.journal.space.segments),
            disk_bytes=self.broker.files.used(),
            last_id=state.journal.allocate_ids(1),
        )

    def _hour(self, hour: int) -> None:
        now = self.broker.now
        for n in range(8):
            self._send("soak.plain", filler="x" * (n * 100))
        self._send("soak.failing")
        self._send("soak.brief", expires=str(now + HOUR // 2))
        self._send("soak.plain", AMQ_SCHEDULED_TIME=str(now + 2 * HOUR))
        if hour % 6 == 0:
            session = self.world.connect(f"session-{hour}", expiry=3 * 3_600)
            session.subscribe("soak/news", qos=1)
            session.drop()
            self.client.confirmed("/topic/soak.news", b"news")
        self._settle()
        self.broker.advance(HOUR)
        self._settle()

    def _send(self, queue: str, **headers: str) -> None:
        self.sent += 1
        self.client.confirmed(f"/queue/{queue}", b"%d" % self.sent, **headers)

    def _settle(self) -> None:
        """Acknowledge the messages that have arrived; failing ones are redelivered until they are dead."""
        while messages := self.client.messages():
            for message in messages:
                self._answer(message)

    def _answer(self, message: ServerFrame) -> None:
        if message.headers["subscription"] == "soak.failing":
            self.client.nack(message)
        else:
            self.client.ack(message)


def grown(days: list[Day]) -> list[str]:
    """Return what has grown after the warm-up, in sentences."""
    first, last = days[WARM_UP_DAYS], days[-1]
    wrong = []
    for name, slack in (("objects", OBJECTS), ("timers", 2), ("segments", 2), ("disk_bytes", 3 * (32 << 10))):
        before, after = getattr(first, name), getattr(last, name)
        if after > before + slack:
            wrong.append(f"{name}: {before} on day {WARM_UP_DAYS + 1}, {after} on day {len(days)}")
    return wrong


# -- a real broker -----------------------------------------------------------------------------------------------------

REAL: Final = """
[log]
level = "warning"

[journal]
segment-size = "4MiB"
reserve = "1MiB"

[limits]
body-bytes-max = "64KiB"
transaction-bytes-max = "256KiB"
"""


#: Connections opened and closed before any measurement: Python's collector visits the oldest objects so rarely that
#: memory grows for the first few thousand connections, and no further.
WARM_UP_CONNECTIONS: Final = 4_000


@dataclass(slots=True)
class Sample:
    """One measurement of the broker: seconds since the start, bytes, open files."""

    at: float
    rss: int
    files: int
    journal: int


@dataclass(slots=True)
class Soaked:
    """The measurements of a real soak."""

    samples: list[Sample] = field(default_factory=list)
    messages: int = 0

    def slope(self, warm_up_s: float) -> float:
        """Return the growth of resident memory in bytes an hour: least squares over the samples after the warm-up."""
        seen = [(sample.at, sample.rss) for sample in self.samples if sample.at >= warm_up_s]
        mean_at = sum(at for at, _ in seen) / len(seen)
        mean = sum(rss for _, rss in seen) / len(seen)
        spread = sum((at - mean_at) ** 2 for at, _ in seen)
        return 3600 * sum((at - mean_at) * (rss - mean) for at, rss in seen) / spread


def soak(directory: Path, seconds: float, *, look_s: float, tell: Callable[[Sample], None]) -> Soaked:
    """Use a broker for some seconds: messages through a queue, with a new connection for each hundred."""
    done = Soaked()
    with running(directory, REAL) as broker:
        for _ in range(WARM_UP_CONNECTIONS):
            with StompSocket(broker.port) as stranger:
                stranger.connect()
        begun = last = time.monotonic()
        while time.monotonic() - begun < seconds:
            with connected(broker.port) as client:
                done.messages += _pass(client)
            now = time.monotonic()
            if now - last >= look_s:
                last = now
                done.samples.append(_look(broker, now - begun))
                tell(done.samples[-1])
        assert broker.stop() == 0
    return done


def _pass(client: Client) -> int:
    count = 100
    client.subscribe("/queue/soak", "client-individual")
    for n in range(count):
        client.put("/queue/soak", f"{n} " + "x" * 1_000, {"persistent": "true"})
    for _ in range(count):
        try:
            client.ack(client.take())
        except Lost as lost:
            raise AssertionError("the broker hung up") from lost
    client.leave()
    return count


def _look(broker: DaemonProcess, at: float) -> Sample:
    journal = broker.data / "journal"
    size = sum(path.stat().st_size for path in journal.iterdir() if path.is_file())
    return Sample(at, broker.memory_bytes(), len(os.listdir(f"/proc/{broker.pid}/fd")), size)
