"""The cases, their rounds, and the order in which they run.

Within a round every case is run on every broker before the next round begins: what the machine does meanwhile meets
all of them alike, and ratios are taken round by round.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from bench import amqp_generator, instructions, latency, mqtt_load
from bench.amqp_messages import AmqpPool
from bench.brokers import Broker
from bench.consumer import AckMode
from bench.generator import Load, Outcome, Target, drain, fill, run
from bench.latency import Latency
from bench.messages import FrameTemplate, Pool
from bench.mqtt_idle import Idle
from bench.mqtt_idle import measure as measure_idle
from bench.mqtt_messages import MqttPool
from tests.support.process import NotAvailable

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    """durable: for AMQP, unsettled deliveries, else settled ones; for MQTT, QoS 1 to a session that outlives its
    connection, else QoS 0 to clean ones."""

    name: str
    durable: bool
    strict: bool = False
    protocol: str = "stomp"
    subscribers: int = 1


NONDURABLE: Final = Case("stomp-nondurable", durable=False)
DURABLE: Final = Case("stomp-durable", durable=True)
STRICT: Final = Case("stomp-strict", durable=True, strict=True)
AMQP_NONDURABLE: Final = Case("amqp-nondurable", durable=False, protocol="amqp")
AMQP_DURABLE: Final = Case("amqp-durable", durable=True, protocol="amqp")
QOS_0: Final = Case("mqtt-qos0", durable=False, protocol="mqtt")
QOS_1: Final = Case("mqtt-qos1", durable=True, protocol="mqtt")
FAN_OUTS: Final = tuple(
    Case(f"mqtt-fanout-{count}", durable=False, protocol="mqtt", subscribers=count) for count in (1, 100, 1000)
)


@dataclass(frozen=True, slots=True)
class Paced:
    """A case at a fixed rate (`latency`), messages a second; its broker is warmed up as for `warm`."""

    name: str
    rate: int
    warm: Case

    @property
    def protocol(self) -> str:
        """Which."""
        return self.warm.protocol


PACED_STOMP: Final = Paced("latency-stomp-2000", 2_000, DURABLE)
PACED_STOMP_FAST: Final = Paced("latency-stomp-10000", 10_000, DURABLE)
PACED_MQTT: Final = Paced("latency-mqtt-5000", 5_000, QOS_1)
PACED: Final = (PACED_STOMP, PACED_STOMP_FAST, PACED_MQTT)
RECOVERY: Final = "recovery"
IDLE: Final = "mqtt-idle"
LOADED: Final = (NONDURABLE, DURABLE, STRICT, AMQP_NONDURABLE, AMQP_DURABLE, QOS_0, QOS_1, *FAN_OUTS)
NAMES: Final = (*(case.name for case in LOADED), *(case.name for case in PACED), RECOVERY, IDLE)
#: The protocol of each case.
PROTOCOLS: Final = {
    **{case.name: case.protocol for case in LOADED},
    **{case.name: case.protocol for case in PACED},
    RECOVERY: "stomp",
    IDLE: "mqtt",
}
#: A broker that compiles while it runs is warm once this many times the highest throughput so far is not reached, or
#: after so many turns of warming up.
RISING: Final = 1.05
WARM_UPS_MAX: Final = 6


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `ack` and `ack_every` apply to durable cases; the non-durable one uses auto."""

    cases: tuple[str, ...] = NAMES
    rounds: int = 3
    shape: FrameTemplate = field(default_factory=FrameTemplate)
    load: Load = field(default_factory=Load)
    ack: AckMode = "client"
    ack_every: int = 1
    subscription_headers: tuple[str, ...] = ()  # in place of the broker's own, if any
    warm_up_s: float | None = None  # in place of the broker's own
    recovery_messages: int = 1_000_000
    idle_connections: int = 10_000
    idle_rate: int = 1_000  # connections a second
    paced_s: float = 10.0  # seconds of a round at a fixed rate

    def __post_init__(self) -> None:
        if min(self.rounds, self.recovery_messages, self.idle_connections, self.idle_rate) < 1:
            raise ValueError("rounds, recovery-messages, idle-connections and idle-rate must be at least 1")
        if self.paced_s <= 0:
            raise ValueError("paced-duration must be more than 0")
        if self.ack == "auto":
            raise ValueError("the durable cases need ack client or client-individual")
        replace(self.load, ack=self.ack, ack_every=self.ack_every)


@dataclass(frozen=True, slots=True)
class Row:
    """One round of one case on one broker."""

    case: str
    broker: str
    round: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class PacedRow:
    """One round of one case at a fixed rate on one broker."""

    case: str
    broker: str
    round: int
    outcome: Latency


@dataclass(frozen=True, slots=True)
class Rows:
    """All rounds."""

    loaded: list[Row] = field(default_factory=list)
    paced: list[PacedRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Recovery:
    """A start on `messages` durable messages after SIGKILL; all of them were received afterwards."""

    broker: str
    messages: int
    fill_s: float
    ready_s: float
    drain_s: float


def measure(
    plan: Plan, brokers: Sequence[Broker], say: Say, optional: Collection[str] = (), data: Path | None = None
) -> Rows:
    """Runs the loaded and the paced cases of the plan; a broker of these names that is not installed is left out.

    The disk of the paced ones is that of `data`.  Raises BrokerFailed, NotAvailable.
    """
    cases = [case for case in LOADED if case.name in plan.cases]
    paced = [case for case in PACED if case.name in plan.cases]
    rows = Rows()
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.stop)
        if not cases and not paced:
            return rows
        brokers = [broker for broker in brokers if _started(broker, say, optional=broker.name in optional)]
        for broker in brokers:
            warm = [case for case in (*cases, *(one.warm for one in paced)) if case.protocol in broker.protocols]
            _warm_up(plan, warm, broker, say)
        counting = not instructions.why_not()
        for number in range(1, plan.rounds + 1):
            turn = brokers if number % 2 else brokers[::-1]
            for case in cases:
                rows.loaded.extend(
                    _round(plan, case, broker, number, say, counting=counting)
                    for broker in turn
                    if case.protocol in broker.protocols and (not case.strict or broker.strict_prefix is not None)
                )
            for one in paced:
                speaking = [broker for broker in turn if one.protocol in broker.protocols]
                rows.paced.extend(_paced_round(plan, one, broker, number, say, data) for broker in speaking)
    return rows


def _started(broker: Broker, say: Say, *, optional: bool) -> bool:
    try:
        say(f"{broker.name}: ready in {broker.start():.1f} s")
    except NotAvailable as missing:
        if not optional:
            raise
        say(f"{broker.name}: left out: {missing}")
        return False
    return True


def recover(plan: Plan, broker: Broker, say: Say) -> Recovery:
    """Fills a fresh broker, kills it, times its start, and receives everything. Raises BrokerFailed, NotAvailable."""
    count = plan.recovery_messages
    pool = Pool(replace(plan.shape, durable=True))
    load = replace(plan.load, ack="client", ack_every=100)
    try:
        broker.start()
        fill_s = fill(broker.target("stomp"), pool, count)
        say(f"{broker.name}: {count:,} durable messages confirmed in {fill_s:.1f} s; SIGKILL")
        broker.kill()
        ready_s = broker.start()
        say(f"{broker.name}: ready in {ready_s:.2f} s")
        drain_s = drain(broker.target("stomp"), pool, count, load)
        say(f"{broker.name}: all received in {drain_s:.1f} s, each once and in order")
    finally:
        broker.stop()
    return Recovery(broker.name, count, fill_s, ready_s, drain_s)


def idle(plan: Plan, broker: Broker, say: Say) -> Idle:
    """Opens connections to a fresh broker that do nothing.  Raises BrokerFailed, NotAvailable."""
    try:
        broker.start()
        found = measure_idle(broker.name, broker.target("mqtt"), plan.idle_connections, plan.idle_rate)
        say(f"{broker.name}: {found.connections:,} idle connections, {found.memory / 1024:.1f} KiB each")
    finally:
        broker.stop()
    return found


def _warm_up(plan: Plan, cases: Sequence[Case], broker: Broker, say: Say) -> None:
    seconds = broker.warm_up_s if plan.warm_up_s is None else plan.warm_up_s
    if seconds <= 0:
        return
    for protocol, durable in sorted({(case.protocol, case.durable) for case in cases}):
        case = next(case for case in LOADED if (case.protocol, case.durable) == (protocol, durable))
        messages, rates = 0, [0.0]
        for _ in range(WARM_UPS_MAX if broker.compiles else 1):
            outcome = _run(plan, case, broker, replace(plan.load, messages=None, seconds=seconds))
            messages += outcome.messages
            rates.append(outcome.rate)
            if outcome.rate < RISING * max(rates[:-1]):
                break
        say(f"{broker.name}: warmed up with {messages:,} messages of {case.name}, at last {rates[-1]:,.0f}/s")


def _round(plan: Plan, case: Case, broker: Broker, number: int, say: Say, *, counting: bool) -> Row:
    pids = broker.target(case.protocol).pids
    counter = instructions.Counting(pids()) if counting and pids is not None else None
    try:
        if counter is not None:
            counter.begin()
        outcome = _run(plan, case, broker, plan.load)
    except BaseException:
        if counter is not None:
            counter.close()
        raise
    if counter is not None:
        outcome = replace(outcome, instructions=counter.end())
    cpu = "" if outcome.broker_us is None else f", {outcome.broker_us:.1f} us"
    each = "" if outcome.instructions_each is None else f", {outcome.instructions_each:,.0f} instructions"
    say(f"round {number}: {case.name} on {broker.name}: {outcome.rate:,.0f}/s{cpu}{each}")
    return Row(case.name, broker.name, number, outcome)


def _paced_round(plan: Plan, case: Paced, broker: Broker, number: int, say: Say, data: Path | None) -> PacedRow:
    directory = data or Path(tempfile.gettempdir())
    target = _with_headers(plan, broker.target(case.protocol))
    outcome = latency.run(target, case.protocol, case.rate, plan.paced_s, directory)
    say(f"round {number}: {case.name} on {broker.name}: {outcome.latency} ms, the disk alone {outcome.disk} ms")
    return PacedRow(case.name, broker.name, number, outcome)


def _with_headers(plan: Plan, target: Target) -> Target:
    return replace(target, subscription_headers=plan.subscription_headers) if plan.subscription_headers else target


def _run(plan: Plan, case: Case, broker: Broker, load: Load) -> Outcome:
    target = broker.target(case.protocol)
    if case.protocol == "mqtt":
        return mqtt_load.run(target, _mqtt_pool(plan.shape, int(case.durable)), load, case.subscribers)
    if case.protocol == "amqp":
        pool = _amqp_pool(replace(plan.shape, durable=case.durable))
        return amqp_generator.run(target, pool, replace(load, ack="client", ack_every=plan.ack_every))
    target = _with_headers(plan, target)
    if case.durable:
        load = replace(load, ack=plan.ack, ack_every=plan.ack_every)
    shape = replace(plan.shape, durable=case.durable)
    if case.strict:
        assert broker.strict_prefix is not None
        shape = replace(shape, prefix=broker.strict_prefix)
    return run(target, _pool(shape), load)


_pools: dict[FrameTemplate, Pool] = {}
_amqp_pools: dict[FrameTemplate, AmqpPool] = {}
_mqtt_pools: dict[tuple[FrameTemplate, int], MqttPool] = {}


def _pool(shape: FrameTemplate) -> Pool:
    if shape not in _pools:
        _pools[shape] = Pool(shape)
    return _pools[shape]


def _amqp_pool(shape: FrameTemplate) -> AmqpPool:
    if shape not in _amqp_pools:
        _amqp_pools[shape] = AmqpPool(shape)
    return _amqp_pools[shape]


def _mqtt_pool(shape: FrameTemplate, qos: int) -> MqttPool:
    if (shape, qos) not in _mqtt_pools:
        _mqtt_pools[shape, qos] = MqttPool(shape, qos)
    return _mqtt_pools[shape, qos]
