"""Assembles a broker's parts, from the configuration to an engine with its journal.

Nothing here listens, signals or sleeps; simulations assemble the same parts around a simulated disk and clock.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, NamedTuple

from broker import __version__, clock
from broker.config import AmqpAcceptor, Config, StompAcceptor, rules_of
from broker.config.addresses import Queue as QueueSection
from broker.daemon.descriptors import bodies_open_max, limit
from broker.engine import (
    DECLARE_COST,
    Configuration,
    DiskWatch,
    Divert,
    Engine,
    JumpDetectingClock,
    LongWork,
    Restored,
)
from broker.engine.model.attributes import FIELDS, PLAIN, RequestedAttributes
from broker.engine.model.errors import EngineError
from broker.engine.model.limits import Limits
from broker.engine.model.message import Format, RoutingType
from broker.engine.model.report import Report
from broker.engine.model.settings_match import SettingsTable
from broker.security.policy import allot, permission_table
from broker.sessions.amqp.format import AmqpFormat
from broker.sessions.mqtt.format import MqttFormat
from broker.sessions.stomp.format import StompFormat
from broker.sessions.tick import Tick
from store.bodies import BodyStore
from store.decode import RawRecord
from store.files import Files, OsFiles
from store.journal import Journal, JournalLimits
from store.log import FileLog, Log, LogSettings
from store.pages import Pages
from store.recovery import Recovery, Verdict
from store.retention import RetentionSettings
from store.writer import Writer

#: The selector of a topics route: only messages that no link has brought here, so none travels in a loop.
PUBLISHED_HERE: Final = "AMQHops = 0"

#: The attributes of queues made for links: plain, whatever the settings of their address say, so that each message
#: stays until it has been passed on.  Operators can still disable them.
PASSED_ON: Final[RequestedAttributes] = {name: getattr(PLAIN, name) for name in FIELDS if name != "enabled"}

#: Retention counts whole days, rounded up.
DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class Broker:
    """A broker without sockets."""

    log: Log
    writer: Writer
    journal: Journal
    engine: Engine
    tick: Tick
    disk: DiskWatch


@dataclass(frozen=True, slots=True)
class Environment:
    """The environment of the parts: the disk, clocks (ms, seconds), random numbers, and where to report events.

    `cpu_us`: see `broker.clock.ThreadCpu`; always 0: it does not matter.
    """

    files: Files
    wall_ms: Callable[[], int]
    monotonic: Callable[[], float]
    random: Random
    report: Report
    memory_bytes: int
    fatal: Callable[[BaseException], None] = lambda _: None
    cpu_us: Callable[[int], int] = lambda enough: 0


def this_machine(report: Report) -> Environment:
    """Return the environment of a real broker: its disk, clocks and random numbers."""
    return Environment(
        files=OsFiles(),
        wall_ms=clock.wall_ms,
        monotonic=clock.monotonic_seconds,
        random=clock.chance(),
        report=report,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        cpu_us=clock.ThreadCpu(),
    )


def configured_limits(config: Config, memory_bytes: int) -> Limits:
    """Return the engine's limits: those that are settings as configured, the others with their defaults."""
    return Limits(
        addresses_max=config.limits.addresses_max,
        global_size_max=config.broker.global_size_max(memory_bytes),
        expiry_scan_period=config.broker.message_expiry_scan_period,
        reaper_period=config.broker.address_queue_scan_period,
        transaction_timeout=config.broker.transaction_timeout,
        selector_terms_max=config.limits.selector_terms_per_connection_max,
        transaction_bytes_max=config.limits.transaction_bytes_max,
        open_transactions_bytes_max=config.limits.open_transactions_bytes_max,
        compact_min_files=config.journal.compact_min_files,
        compact_percentage=config.journal.compact_percentage,
    )


def file_log(config: Config, outside: Environment, *, elsewhere: BodyStore | None = None) -> FileLog:
    """Return the log in the data directory; with `elsewhere`, a copy of a log that is durable there."""
    retention = config.journal.retention
    settings = LogSettings(
        segment_bytes=config.journal.segment_size,
        slow_sync_ms=config.journal.slow_sync_warning,
        open_bodies_max=bodies_open_max(limit()),
        retention=RetentionSettings(
            enabled=retention.enabled,
            age_days=-1 if retention.max_age < 0 else -(-retention.max_age // DAY_MS),
            bytes_max=retention.max_bytes,
        ),
    )
    return FileLog(
        outside.files,
        f"{config.broker.data_directory}/journal",
        settings,
        now=outside.wall_ms,
        monotonic=outside.monotonic,
        on_slow_sync=lambda seconds: outside.report("journal.slow_sync", milliseconds=int(seconds * 1000)),
        synced=elsewhere is None,
        elsewhere=elsewhere,
    )


def assemble(
    config: Config,
    outside: Environment,
    make_writer: Callable[[Log], Writer],
    wake: Callable[[], None],
    limits: Limits | None = None,
    log: Log | None = None,
) -> Broker:
    """Make and connect the parts; nothing is read or written yet.

    `limits`: those of the configuration by default; `log`: the files of the data directory by default.
    """
    log = log or file_log(config, outside)
    writer = make_writer(log)
    journal = Journal(
        log,
        writer,
        now=outside.wall_ms,
        new_broker_id=lambda: outside.random.getrandbits(128).to_bytes(16, "big"),
        limits=JournalLimits(reserve_bytes=config.journal.reserve, retry_ms=config.journal.full_retry_interval),
        about={"software": f"bartleby/{__version__}"},
    )
    steady = JumpDetectingClock(outside.wall_ms, outside.monotonic)
    engine = Engine(
        journal,
        settings_table(config),
        Pages(outside.files, log.directory, log.path),
        clock=steady,
        cpu=outside.cpu_us,
        random=outside.random,
        report=outside.report,
        formats=formats(config),
        limits=limits or configured_limits(config, outside.memory_bytes),
    )
    steady.follow = engine.ticks.clock_jumped
    engine.security.change(permission_table(config))
    allot(config, engine.quotas)
    engine.retained.messages_max = config.limits.retained_messages_max
    engine.retained.bytes_max = config.limits.retained_bytes_max
    disk = engine.watch_disk(
        lambda: outside.files.space(log.directory),
        usage_max=config.broker.max_disk_usage,
        free_min=config.broker.min_disk_free,
        period=config.broker.disk_scan_period,
    )
    return Broker(log, writer, journal, engine, Tick(engine, wake, outside.fatal), disk)


def formats(config: Config | None = None) -> list[Format]:
    """Return the message formats of this version, with the prefixes of destinations in use."""
    acceptors = () if config is None else config.acceptors.values()
    stomp = _prefixes(each for each in acceptors if isinstance(each, StompAcceptor))
    amqp = _prefixes(each for each in acceptors if isinstance(each, AmqpAcceptor))
    return [StompFormat(stomp), AmqpFormat(amqp), MqttFormat()]


def _prefixes(acceptors: Iterable[StompAcceptor | AmqpAcceptor]) -> tuple[tuple[str, RoutingType], ...]:
    """Return the prefixes of all acceptors and their routing types, the longest first: one may begin with another."""
    found: dict[str, RoutingType] = {}
    for each in acceptors:
        found |= dict.fromkeys(each.multicast_prefixes, RoutingType.MULTICAST)
        found |= dict.fromkeys(each.anycast_prefixes, RoutingType.ANYCAST)
    return tuple(sorted(found.items(), key=lambda item: (-len(item[0]), item[0])))


def settings_table(config: Config) -> SettingsTable:
    """Return the configured address settings.  Raises InvalidMatch."""
    wildcards = config.wildcard_addresses
    return SettingsTable(
        config.setting_matches(),
        config.setting_defaults(),
        syntax=wildcards.syntax(),
        literal_markers=wildcards.literal_match_markers,
    )


def recover(parts: Broker, config: Config, *, serves: bool = True) -> tuple[Verdict, Restored]:
    """Read the journal into the engine, begin a new segment, make what the configuration declares.

    A broker that `serves` applies its rules; a command that works on a stopped broker does not.

    Raises JournalError (damage, no room, a failing disk), UnknownFormat, EngineError (a declaration contradicts the
    journal).
    """
    recovery = Recovery(parts.log)
    restored = restore(parts, recovery)
    begin(parts, config, serves=serves)
    return recovery.verdict, restored


def restore(parts: Broker, recovery: Recovery) -> Restored:
    """Read the journal into the engine, and set its clock when done.  Raises JournalError, UnknownFormat."""
    engine = parts.engine
    parts.journal.recover(recovery)
    engine.ticks.begin()

    def records() -> Iterator[RawRecord]:
        yield from parts.journal.replay()
        engine.ticks.begin()

    return engine.restore(records())


def _refuse(error: EngineError) -> None:
    raise error


def begin(
    parts: Broker, config: Config, *, serves: bool = True, refused: Callable[[EngineError], None] = _refuse
) -> None:
    """Continue from the restored state; see `recover`, and `declare` for `refused`."""
    engine = parts.engine
    parts.journal.start()
    engine.finish_restore()
    declare(parts.engine, config, refused)
    if serves:
        engine.configuration.report_settings()
        engine.dead_letter_rules.use(rules_of(config))
    parts.tick.end()


class Declarations:
    """What a configuration declares: the names of addresses, queues and diverts, and the resources of its links."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.linked = list(_of_links(config))
        remote = [each for each in self.linked if each.remote]
        self.addresses = {*config.addresses, *[each.address for each in self.linked], *[each.remote for each in remote]}
        self.queues = {name for section in config.addresses.values() for name in section.queues}
        self.queues.update([each.queue for each in self.linked])
        self.diverts = {*config.diverts, *[each.divert for each in remote]}
        self.transmission = {each.queue for each in remote}


def declare(engine: Engine, config: Config, refused: Callable[[EngineError], None] = _refuse) -> None:
    """The same as `declaring`, at once."""
    for _ in declaring(engine, Declarations(config), refused):
        pass


def declaring(engine: Engine, wanted: Declarations, refused: Callable[[EngineError], None] = _refuse) -> LongWork:
    """Make missing addresses, queues and diverts of the configuration; delete those that were removed from it, if
    permitted.  `refused` is called with the error of each that cannot be made; unless given, it is raised.
    """

    def attempt(make: Callable[[], object]) -> int:
        try:
            make()
        except EngineError as error:
            refused(error)
        return DECLARE_COST

    configuration, config = engine.configuration, wanted.config
    yield from configuration.delete_undeclared(addresses=wanted.addresses, queues=wanted.queues, diverts=wanted.diverts)
    for divert_name, divert in config.diverts.items():
        yield attempt(partial(configuration.declare_divert, divert.divert(divert_name)))
    for name, section in config.addresses.items():
        types = set(section.all_routing_types)
        yield attempt(partial(configuration.declare, name, types))
        for queue_name, queue in section.queues.items():
            yield attempt(partial(_declare_queue, configuration, name, types, queue_name, queue))
    configuration.set_transmission_queues(wanted.transmission)
    for each in wanted.linked:
        yield attempt(partial(each.declare, engine))
    yield from engine.watchers.apply_settings()


def _declare_queue(
    configuration: Configuration, address: str, types: set[RoutingType], name: str, queue: QueueSection
) -> None:
    configuration.declare_queue(
        configuration.declare(address, types),
        name,
        queue.routing_type,
        durable=queue.durable,
        selector=queue.filter,
        requested=queue.requested(),
    )


class _OfLink(NamedTuple):
    """The local queue and address of a link's route; `remote`: the local address that stands for a remote queue."""

    link: str
    queue: str
    address: str
    routing_type: RoutingType
    remote: str = ""

    @property
    def divert(self) -> str:
        """The divert from the remote queue's address to the transmission queue."""
        return f"link.{self.link}.{self.remote}"

    def declare(self, engine: Engine) -> None:
        """Make what is missing; any existing queue can serve as transmission queue.  Raises EngineError."""
        queue = engine.queues.get(self.queue) if self.remote else None
        if queue is None:
            address = engine.configuration.declare(self.address, {self.routing_type})
            selector = "" if self.remote else PUBLISHED_HERE
            queue = engine.configuration.declare_queue(
                address, self.queue, self.routing_type, durable=True, selector=selector, requested=PASSED_ON
            )
        if self.remote:
            engine.configuration.declare(self.remote, {RoutingType.ANYCAST})
            divert = Divert(self.divert, self.remote, (queue.address.name,), exclusive=True, configured=True)
            engine.configuration.declare_divert(divert)


def _of_links(config: Config) -> Iterator[_OfLink]:
    for name, link in config.links.items():
        for remote_name, remote in link.remote_queues.items():
            queue = remote.waits_on(name)
            yield _OfLink(name, queue, queue, RoutingType.ANYCAST, remote_name)
        for route, topics in link.topics.items():
            yield _OfLink(name, f"link.{name}.{route}", topics.address, RoutingType.MULTICAST)
