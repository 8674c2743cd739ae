"""The cases, their rounds, and the order in which they run.

Within a round every case is run on every broker before the next round begins: what the machine does meanwhile meets
all of them alike, and ratios are taken round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from bench.brokers import Broker
from bench.consumer import AckMode
from bench.generator import Load, Outcome, drain, fill, run
from bench.messages import Pool, Shape

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    durable: bool
    strict: bool = False


NONDURABLE: Final = Case("stomp-nondurable", durable=False)
DURABLE: Final = Case("stomp-durable", durable=True)
STRICT: Final = Case("stomp-strict", durable=True, strict=True)
RECOVERY: Final = "recovery"
LOADED: Final = (NONDURABLE, DURABLE, STRICT)
NAMES: Final = (*(case.name for case in LOADED), RECOVERY)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to run. `ack` and `ack_every` apply to durable cases; the non-durable one uses auto."""

    cases: tuple[str, ...] = NAMES
    rounds: int = 3
    shape: Shape = field(default_factory=Shape)
    load: Load = field(default_factory=Load)
    ack: AckMode = "client"
    ack_every: int = 1
    subscription_headers: tuple[str, ...] = ()  # in place of the broker's own, if any
    warm_up_s: float | None = None  # in place of the broker's own
    recovery_messages: int = 1_000_000

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.recovery_messages < 1:
            raise ValueError("rounds and recovery-messages must be at least 1")
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


def measure(plan: Plan, brokers: Sequence[Broker], say: Say) -> list[Row]:
    """Runs the loaded cases of the plan. Raises BrokerFailed, NotAvailable."""
    cases = [case for case in LOADED if case.name in plan.cases]
    rows: list[Row] = []
    with ExitStack() as stack:
        for broker in brokers:
            stack.callback(broker.stop)
        if not cases:
            return rows
        for broker in brokers:
            say(f"{broker.name}: ready in {broker.start():.1f} s")
        for broker in brokers:
            _warm_up(plan, cases, broker, say)
        for number in range(1, plan.rounds + 1):
            for case in cases:
                rows += [
                    _round(plan, case, broker, number, say)
                    for broker in brokers
                    if not case.strict or broker.strict_prefix is not None
                ]
    return rows


def recover(plan: Plan, broker: Broker, say: Say) -> Recovery:
    """Fills a fresh broker, kills it, times its start, and receives everything. Raises BrokerFailed, NotAvailable."""
    count = plan.recovery_messages
    pool = Pool(replace(plan.shape, durable=True))
    load = replace(plan.load, ack="client", ack_every=100)
    try:
        broker.start()
        fill_s = fill(broker.target(), pool, count)
        say(f"{broker.name}: {count:,} durable messages confirmed in {fill_s:.1f} s; SIGKILL")
        broker.kill()
        ready_s = broker.start()
        say(f"{broker.name}: ready in {ready_s:.2f} s")
        drain_s = drain(broker.target(), pool, count, load)
        say(f"{broker.name}: all received in {drain_s:.1f} s, each once and in order")
    finally:
        broker.stop()
    return Recovery(broker.name, count, fill_s, ready_s, drain_s)


def _warm_up(plan: Plan, cases: Sequence[Case], broker: Broker, say: Say) -> None:
    seconds = broker.warm_up_s if plan.warm_up_s is None else plan.warm_up_s
    if seconds <= 0:
        return
    for durable in sorted({case.durable for case in cases}):
        case = DURABLE if durable else NONDURABLE
        outcome = _run(plan, case, broker, replace(plan.load, messages=None, seconds=seconds))
        say(f"{broker.name}: warmed up with {outcome.messages:,} messages of {case.name}")


def _round(plan: Plan, case: Case, broker: Broker, number: int, say: Say) -> Row:
    outcome = _run(plan, case, broker, plan.load)
    cpu = "" if outcome.broker_us is None else f", {outcome.broker_us:.1f} us"
    say(f"round {number}: {case.name} on {broker.name}: {outcome.rate:,.0f}/s{cpu}")
    return Row(case.name, broker.name, number, outcome)


def _run(plan: Plan, case: Case, broker: Broker, load: Load) -> Outcome:
    target = broker.target()
    if plan.subscription_headers:
        target = replace(target, subscription_headers=plan.subscription_headers)
    if case.durable:
        load = replace(load, ack=plan.ack, ack_every=plan.ack_every)
    shape = replace(plan.shape, durable=case.durable)
    if case.strict:
        assert broker.strict_prefix is not None
        shape = replace(shape, prefix=broker.strict_prefix)
    return run(target, _pool(shape), load)


_pools: dict[Shape, Pool] = {}


def _pool(shape: Shape) -> Pool:
    if shape not in _pools:
        _pools[shape] = Pool(shape)
    return _pools[shape]
