"""A simulated broker whose spans stay in memory."""

from __future__ import annotations

from typing import Any

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import format_span_id

from broker.config import TelemetrySection
from broker.engine.model.row import kebab
from broker.telemetry.export import Export
from broker.telemetry.tracer import MessageTracer
from tests.simulation.world import small
from tests.support.sim_broker import SimBroker

TRACE_ID = 0x0AF7651916CD43DD8448EB211C80319C
SPAN_ID = 0xB7AD6B7169203331

#: What a sender's library says of a message that is traced, and of one that is not.
SAMPLED = f"00-{TRACE_ID:032x}-{SPAN_ID:016x}-01"
UNSAMPLED = SAMPLED[:-2] + "00"


def telemetry(broker: SimBroker, to: SpanExporter, **settings: Any) -> Export:
    """What traces the messages of a broker; `settings` are those of [telemetry].

    Spans go when so many have gathered as are sent at once, or at the end: no test waits for them.
    """
    given = {"endpoint": "http://receiver.example/v1/traces", "export-interval": "1h"}
    section = TelemetrySection.model_validate({**given, **{kebab(name): value for name, value in settings.items()}})
    export = Export(
        section,
        name="orders-broker",
        salt=broker.engine.journal.broker_id,
        report=broker._report,
        to=to,
    )
    tracer = MessageTracer(export, broker._report, lambda: broker.now * 1_000_000, ratio=section.sample_ratio)
    broker.engine.trace(tracer)
    return export


class Traced:
    """One run of a broker, and the spans that it made."""

    def __init__(self, broker: SimBroker | None = None, **settings: Any) -> None:
        self.broker = broker or SimBroker(small())
        self._memory = InMemorySpanExporter()
        self._telemetry = telemetry(self.broker, self._memory, **settings)

    def spans(self) -> list[ReadableSpan]:
        """All spans of this run, in their order.  No more are made."""
        self._telemetry.close()
        return list(self._memory.get_finished_spans())


def names(spans: list[ReadableSpan]) -> list[str]:
    """Their names."""
    return [span.name for span in spans]


def parent(span: ReadableSpan) -> str:
    """The id of a span's parent, empty without one."""
    return "" if span.parent is None else format_span_id(span.parent.span_id)
