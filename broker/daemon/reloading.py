"""Reloads the configuration: reads it on a thread, and applies what can be changed while the broker serves.

That is addresses, queues, diverts, settings, rules for dead letters, security and the log level.  An inconsistent
configuration is refused as a whole.  A queue whose configuration contradicts the existing queue is left as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from broker.config import Config, ConfigError, Reload, rules_of
from broker.daemon.server import Server
from broker.daemon.systemd import Notifier
from broker.daemon.wiring import Broker, declare, settings_table
from broker.engine.model.errors import EngineError
from broker.engine.model.settings_match import SettingsTable
from broker.log import Log
from broker.security.reload import BrokerSecurity, Prepared
from broker.security.users_file import UnusableFile
from broker.sessions.tick import described


@dataclass(frozen=True, slots=True)
class _Found:
    """What was read and checked.  `wanted`: the part of `config` that can be applied, with the rest of the present."""

    config: Config
    wanted: Config
    settings: SettingsTable
    prepared: Prepared


def _read(read: Reload, present: Config, security: BrokerSecurity) -> _Found:
    """Raises ConfigError, UnusableFile, ValueError, OSError."""
    config = read()
    wanted = present.with_reloaded(config)
    return _Found(config, wanted, settings_table(wanted), security.prepare(wanted))


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
        """Apply nothing more, as the broker is stopping; returns whether a reload was not applied."""
        self._stopped = True
        return self._reading

    def _apply(self, found: _Found | BaseException) -> None:
        """Apply what was read, within a tick, and tell the service manager."""
        self._reading = False
        if self._stopped:
            return
        try:
            if isinstance(found, _Found):
                self._change(found)
            elif isinstance(found, ConfigError | UnusableFile | ValueError | OSError):
                self._log("reload.refused", error=str(found))
            else:
                raise found
        except BaseException as error:
            self._log("reload.failed", error=described(error))
            self._broker.tick.failed(None, error)
        finally:
            self._notifier.ready()
        if self._again:
            self._again = False
            self()

    def _change(self, found: _Found) -> None:
        engine, wanted = self._broker.engine, found.wanted
        changed, needing = self.config.changed_sections(found.config), self.config.needs_restart(found.config)
        engine.configuration.change_settings(found.settings)
        self._server.security.apply(found.prepared)
        self._server.expel()
        self._log.set_level(found.config.log.level)
        self.config = wanted
        declare(engine, wanted, self._undeclared)
        if "dead-letter-rules" in changed:
            engine.dead_letter_rules.use(rules_of(wanted))
        self._log("reload.done", changed=", ".join(sorted(changed)), restart_needed_for=", ".join(needing))

    def _undeclared(self, error: EngineError) -> None:
        self._log("reload.undeclared", error=str(error))
