"""Traces for OpenTelemetry, if the configuration names an endpoint."""

from __future__ import annotations

from collections.abc import Callable

from broker import clock
from broker.config import Config
from broker.engine import Engine
from broker.engine.model.report import Report


def start_tracing(config: Config, engine: Engine, report: Report) -> Callable[[], None]:
    """Trace messages from now on, if configured.  Call the returned function to send the last spans and stop."""
    if not config.telemetry.endpoint:
        return lambda: None
    from broker.telemetry.export import Telemetry  # of an extra

    salt = engine.journal.broker_id
    telemetry = Telemetry(config.telemetry, name=config.broker.name, salt=salt, report=report, wall_ns=clock.wall_ns)
    engine.trace(telemetry.tracer)
    return telemetry.close
