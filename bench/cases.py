"""The cases, their rounds, and the order in which they run.

Within a round every case is run on every broker before the next round begins: what the machine does meanwhile meets
all of them alike, and ratios are taken round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from bench import amqp_generator, mqtt_load
from bench.amqp_messages import AmqpPool
from bench.brokers import Broker
from bench.consumer import AckMode
from bench.generator import Load, Outcome, drain, fill, run
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
RECOVERY: Final = "recovery"
IDLE: Final = "mqtt-idle"
LOADED: Final = (NONDURABLE, DURABLE, STRICT, AMQP_NONDURABLE, AMQP_DURABLE, QOS_0, QOS_1, *FAN_OUTS)
NAMES: Final = (*(case.name for case in LOADED), RECOVERY, IDLE)
#: The protocol of each case.
PROTOCOLS: Final = {case.name: case.protocol for case in LOADED} | {RECOVERY: "stomp", IDLE: "mqtt"}


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

    def __post_init__(self) -> None:
        if min(self.rounds, self.recovery_messages, self.idle_connections, self.idle_rate) < 1:
            raise ValueError("rounds, recovery-messages, idle-connections and idle-rate must be at least 1")
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
class Recovery:
    """A start on `messages` durable messages after SIGKILL; all of them were received afterwards."""

    broker: str
    messages: int
    fill_s: float
    ready_s: float
    drain_s: float


def measure(plan: Plan, brokers: Sequence[Broker], say: Say, optional: Collection[str] = ()) -> list[Row]:
    """Runs the loaded cases of the plan; a broker of these names that is not installed is left out.

    Raises BrokerFailed, NotAvailable.
    """
    cases = [case for case in LOADED if case.name in plan.cases]
    rows: list[Row] = []
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.stop)
        if not cases:
            return rows
        brokers = [broker for broker in brokers if _started(broker, say, optional=broker.name in optional)]
        for broker in brokers:
            _warm_up(plan, [case for case in cases if case.protocol in broker.protocols], broker, say)
        for number in range(1, plan.rounds + 1):
            for case in cases:
                rows += [
                    _round(plan, case, broker, number, say)
                    for broker in brokers
                    if case.protocol in broker.protocols and (not case.strict or broker.strict_prefix is not None)
                ]
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
        outcome = _run(plan, case, broker, replace(plan.load, messages=None, seconds=seconds))
        say(f"{broker.name}: warmed up with {outcome.messages:,} messages of {case.name}")


def _round(plan: Plan, case: Case, broker: Broker, number: int, say: Say) -> Row:
    outcome = _run(plan, case, broker, plan.load)
    cpu = "" if outcome.broker_us is None else f", {outcome.broker_us:.1f} us"
    say(f"round {number}: {case.name} on {broker.name}: {outcome.rate:,.0f}/s{cpu}")
    return Row(case.name, broker.name, number, outcome)


def _run(plan: Plan, case: Case, broker: Broker, load: Load) -> Outcome:
    target = broker.target(case.protocol)
    if case.protocol == "mqtt":
        return mqtt_load.run(target, _mqtt_pool(plan.shape, int(case.durable)), load, case.subscribers)
    if case.protocol == "amqp":
        pool = _amqp_pool(replace(plan.shape, durable=case.durable))
        return amqp_generator.run(target, pool, replace(load, ack="client", ack_every=plan.ack_every))
    if plan.subscription_headers:
        target = replace(target, subscription_headers=plan.subscription_headers)
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
