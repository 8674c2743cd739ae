"""Putting the parts together: from the configuration to an engine with its journal, and sessions for its acceptors.

Nothing here listens, signals or sleeps; simulations assemble the same parts around a simulated disk and clock.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from broker import __version__
from broker.config import Config, StompAcceptor
from broker.engine.address import Address
from broker.engine.core import Report
from broker.engine.engine import Engine, Limits
from broker.engine.restore import Restored, restore
from broker.engine.settings_match import SettingsTable
from broker.sessions.stomp import Authenticate, StompSession
from broker.sessions.stomp_format import StompFormat
from broker.sessions.stomp_headers import Options, Prefixes
from broker.sessions.turn import Outlet, Turn
from protocols.stomp.limits import Limits as StompLimits
from store.files import Files
from store.journal import Journal, JournalLimits
from store.log import FileLog, LogSettings
from store.recovery import Verdict
from store.retention import RetentionSettings
from store.writer import Writer

#: Retention counts whole days: a part of one is a day.
DAY_MS: Final = 86_400_000


@dataclass(slots=True)
class Parts:
    """A broker without sockets."""

    log: FileLog
    writer: Writer
    journal: Journal
    engine: Engine
    turn: Turn


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the parts need from outside: the disk, time (ms, seconds), chance, and where to report."""

    files: Files
    wall_ms: Callable[[], int]
    monotonic: Callable[[], float]
    random: Random
    report: Report
    memory_bytes: int


def assemble(
    config: Config, outside: Surroundings, make_writer: Callable[[FileLog], Writer], wake: Callable[[], None]
) -> Parts:
    """The parts, connected; nothing is read or written yet."""
    retention = config.journal.retention
    settings = LogSettings(
        segment_bytes=config.journal.segment_size,
        slow_sync_ms=config.journal.slow_sync_warning,
        retention=RetentionSettings(
            enabled=retention.enabled,
            age_days=-1 if retention.max_age < 0 else -(-retention.max_age // DAY_MS),
            bytes_max=retention.max_bytes,
        ),
    )
    log = FileLog(
        outside.files,
        f"{config.broker.data_directory}/journal",
        settings,
        now=outside.wall_ms,
        monotonic=outside.monotonic,
        on_slow_sync=lambda seconds: outside.report("journal.slow_sync", milliseconds=int(seconds * 1000)),
    )
    writer = make_writer(log)
    journal = Journal(
        log,
        writer,
        now=outside.wall_ms,
        new_broker_id=lambda: outside.random.getrandbits(128).to_bytes(16, "big"),
        limits=JournalLimits(reserve_bytes=config.journal.reserve, retry_ms=config.journal.full_retry_interval),
        about={"software": f"bartleby/{__version__}"},
    )
    engine = Engine(
        journal,
        settings_table(config),
        clock=outside.wall_ms,
        random=outside.random,
        report=outside.report,
        formats=[StompFormat()],
        limits=Limits(
            global_size_max=config.broker.global_size_max(outside.memory_bytes),
            expiry_scan_period=config.broker.message_expiry_scan_period,
            reaper_period=config.broker.address_queue_scan_period,
            transaction_timeout=config.broker.transaction_timeout,
            transaction_bytes_max=config.limits.transaction_bytes_max,
        ),
    )
    return Parts(log, writer, journal, engine, Turn(engine, wake))


def settings_table(config: Config) -> SettingsTable:
    """The address settings of the configuration.  Raises InvalidMatch."""
    return SettingsTable(config.setting_matches(), config.setting_defaults())


def recover(parts: Parts, config: Config) -> tuple[Verdict, Restored]:
    """Read the journal into the engine, begin a new segment, make what the configuration declares.

    Raises JournalError (damage, no room, a disk that fails), UnknownFormat, EngineError (a declaration that
    contradicts the journal).
    """
    verdict = parts.journal.recover().verdict
    parts.engine.begin_tick()
    restored = restore(parts.engine.core, parts.engine.router, parts.journal.replay())
    parts.journal.start()
    declare(parts.engine, config)
    parts.turn.end()
    return verdict, restored


def declare(engine: Engine, config: Config) -> None:
    """Make the addresses and queues of the configuration that are missing.  Raises EngineError."""
    for name, section in config.addresses.items():
        address: Address = engine.declare(name, set(section.all_routing_types))
        for queue_name, queue in section.queues.items():
            engine.declare_queue(
                address,
                queue_name,
                queue.routing_type,
                durable=queue.durable,
                selector=queue.filter,
            )


def stomp_sessions(config: Config, turn: Turn, acceptor: StompAcceptor) -> Callable[[Outlet, int, str], StompSession]:
    """What makes the session of each connection to a STOMP acceptor."""
    limits = StompLimits(
        header_count_max=config.limits.header_count_max,
        header_line_bytes_max=config.limits.header_line_bytes_max,
        header_bytes_max=config.limits.header_bytes_max,
        body_bytes_max=config.limits.body_bytes_max,
        connect_bytes_max=config.limits.connect_bytes_max,
    )
    options = Options(
        server=f"bartleby/{__version__}",
        prefixes=Prefixes(acceptor.anycast_prefixes, acceptor.multicast_prefixes),
        window=acceptor.stomp_consumer_window_size,
        ttl=config.connection_ttl(acceptor),
        ttl_min=acceptor.connection_ttl_min,
        ttl_max=acceptor.connection_ttl_max,
        ttl_modifier=acceptor.heart_beat_to_connection_ttl_modifier,
        subscriptions_max=config.limits.subscriptions_per_connection_max,
        transactions_max=config.limits.transactions_per_connection_max,
    )
    authenticate = _authenticator(config)

    def make(outlet: Outlet, number: int, remote: str) -> StompSession:
        prefix = turn.engine.core.random.getrandbits(32)
        return StompSession(
            turn,
            outlet,
            options,
            limits,
            connection_id=f"{prefix:08x}-{number}",
            remote=remote,
            authenticate=authenticate,
        )

    return make


def _authenticator(config: Config) -> Authenticate | None:
    """Checks a login against the users of the configuration; None lets everybody in."""
    if not config.users:
        return None
    passwords = {name: user.password.get_secret_value().encode() for name, user in config.users.items()}

    def check(login: str, passcode: bytes) -> bool:
        # An unknown user costs the same comparison as a known one.
        known = passwords.get(login)
        right = hmac.compare_digest(known if known is not None else b"\0", passcode)
        return right and known is not None

    return check
