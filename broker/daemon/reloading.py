"""Reloads the configuration: applies what can be changed while the broker serves.

That is addresses, queues, diverts, settings, rules for dead letters, security and the log level.  An inconsistent
configuration is refused as a whole.  A queue whose configuration contradicts the existing queue is left as it is.
"""

from __future__ import annotations

from broker.config import Config, ConfigError, Reload, rules_of
from broker.daemon.server import Server
from broker.daemon.systemd import Notifier
from broker.daemon.wiring import Broker, declare, settings_table
from broker.engine.model.errors import EngineError
from broker.log import Log
from broker.security.users_file import UnusableFile
from broker.sessions.tick import described


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

    def __call__(self) -> None:
        """Reload, and tell the service manager."""
        tick = self._broker.tick
        self._notifier.reloading()
        tick.enter()
        try:
            self._reload()
        except BaseException as error:
            self._log("reload.failed", error=described(error))
            tick.failed(None, error)
        finally:
            self._notifier.ready()

    def _reload(self) -> None:
        engine, security = self._broker.engine, self._server.security
        try:
            config = self._read()
            wanted = self.config.with_reloaded(config)
            settings = settings_table(wanted)
            prepared = security.prepare(wanted)
        except (ConfigError, UnusableFile, ValueError, OSError) as error:
            self._log("reload.refused", error=str(error))
            return
        changed, needing = self.config.changed_sections(config), self.config.needs_restart(config)
        self._broker.tick.enter()
        engine.configuration.change_settings(settings)
        security.apply(prepared)
        self._server.expel()
        self._log.set_level(config.log.level)
        self.config = wanted
        declare(engine, wanted, self._undeclared)
        if "dead-letter-rules" in changed:
            engine.dead_letter_rules.use(rules_of(wanted))
        self._log("reload.done", changed=", ".join(sorted(changed)), restart_needed_for=", ".join(needing))

    def _undeclared(self, error: EngineError) -> None:
        self._log("reload.undeclared", error=str(error))
