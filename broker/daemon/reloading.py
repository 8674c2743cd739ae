"""Reloads the configuration: reads it on a thread, and applies what can be changed while the broker serves.

That is addresses, queues, diverts, settings, rules for dead letters, security and the log level.  An inconsistent
configuration is refused as a whole.  A queue whose configuration contradicts the existing queue is left as it is.

Settings, addresses, queues and diverts change in steps, as there may be 100,000 queues.  A reload that was read
meanwhile is applied after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from broker.config import Config, ConfigError, Reload, rules_of
from broker.daemon.server import Server
from broker.daemon.systemd import Notifier
from broker.daemon.wiring import Broker, Declarations, declaring, settings_table
from broker.engine import DeadLetterRule, LongWork
from broker.engine.model.errors import EngineError
from broker.engine.model.settings_match import SettingsTable
from broker.log import Log
from broker.security.reload import BrokerSecurity, Prepared
from broker.security.users_file import UnusableFile
from broker.sessions.tick import described


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read and checked.  `wanted`: the part of `config` that can be applied, with the rest of the present.

    `changed`: the sections that differ from the present; `needing`: what needs a restart.
    """

    config: Config
    wanted: Config
    changed: list[str]
    needing: list[str]
    settings: SettingsTable
    prepared: Prepared
    declarations: Declarations
    rules: list[DeadLetterRule]


def _read(read: Reload, present: Config, security: BrokerSecurity) -> _Found:
    """Do all that only reads, as it may be much.  Raises ConfigError, UnusableFile, ValueError, OSError."""
    config = read()
    wanted = present.with_reloaded(config)
    return _Found(
        config,
        wanted,
        changed=sorted(present.changed_sections(config)),
        needing=present.needs_restart(config),
        settings=settings_table(wanted),
        prepared=security.prepare(wanted),
        declarations=Declarations(wanted),
        rules=rules_of(wanted),
    )


class Reloading:
    """Reloads one broker.  `config`: the configuration in force; `read` reads the configuration files again."""

    def __init__(
        self, config: Config, read: Reload, broker: Broker, server: Server, log: Log, notifier: Notifier
    ) -> None:
        self.config = config
        self._read = read
        self._broker = broker
        self._server = server
        self._log = log
        self._notifier = notifier
        self._reading = False  # a thread reads
        self._again = False  # as soon as that is done
        self._applying = 0  # reloads that have been read, and not applied to the end
        self._stopped = False

    def __call__(self) -> None:
        """Begin to reload, on a thread: a thousand users take a tenth of a second.

        If a reload is being read, another one follows it, since it may have read the files before they changed.
        """
        if self._reading:
            self._again = True
            return
        self._reading = True
        self._notifier.reloading()
        work = partial(_read, self._read, self.config, self._server.security)
        self._server.runner.run(work, self._apply)

    def stop(self) -> bool:
        """Apply nothing more, as the broker is stopping; returns whether a reload was not applied, or in part only."""
        self._stopped = True
        return self._reading or self._applying > 0

    def _apply(self, found: _Found | BaseException) -> None:
        """Begin to apply what was read, within a tick."""
        self._reading = False
        if self._stopped:
            return
        try:
            if isinstance(found, _Found):
                self._begin(found)
            elif isinstance(found, ConfigError | UnusableFile | ValueError | OSError):
                self._log("reload.refused", error=str(found))
                self._notifier.ready()
            else:
                raise found
        except BaseException as error:
            self._fail(error)
        if self._again:
            self._again = False
            self()

    def _begin(self, found: _Found) -> None:
        configuration = self._broker.engine.configuration
        self._server.security.apply(found.prepared)
        self._server.expel()
        self._log.set_level(found.config.log.level)
        configuration.change_settings(found.settings)
        self.config = found.wanted
        self._applying += 1
        configuration.begin(self._declare(found))

    def _declare(self, found: _Found) -> LongWork:
        """Declare what the configuration has, unless the broker is stopping, and tell the service manager."""
        engine = self._broker.engine
        try:
            for cost in declaring(engine, found.declarations, self._undeclared):
                yield cost
                if self._stopped:
                    return
            if "dead-letter-rules" in found.changed:
                engine.dead_letter_rules.use(found.rules)
        except Exception as error:
            self._fail(error)
        else:
            self._log("reload.done", changed=", ".join(found.changed), restart_needed_for=", ".join(found.needing))
            self._notifier.ready()
        self._applying -= 1

    def _fail(self, error: BaseException) -> None:
        self._log("reload.failed", error=described(error))
        self._broker.tick.failed(None, error)
        self._notifier.ready()

    def _undeclared(self, error: EngineError) -> None:
        self._log("reload.declaration_failed", error=str(error))
