"""The way of spans out of the broker: a bounded queue and a thread, both the SDK's, and OTLP over HTTP.

Whatever the receiver does, the event loop only adds to the queue, and not even that if it is full.  What is lost is
counted, and told once (`telemetry.losing`) until spans get through again (`telemetry.exporting`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from threading import Event, Lock, Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from broker import __version__
from broker.config import TelemetrySection
from broker.engine.model.report import Report
from broker.telemetry.spans import SpanMaker
from broker.telemetry.tracer import MessageTracer, PendingSpan

#: Spans that are sent at once: to encode so many keeps the interpreter from the event loop for some 5 ms.
BATCH_SPANS_MAX: Final = 64

#: How long the last spans may take when the broker stops, in seconds.
CLOSE_SECONDS_MAX: Final = 2.0

#: The loggers of the SDK: what they say of an export goes into the broker's own events.
_LOGGER: Final = "opentelemetry"


class _LastWords(logging.Handler):
    """Keeps what the SDK has last said, instead of a line for each batch: why it tried again, and that it gave up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: deque[str] = deque(maxlen=2)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep what it says."""
        self._said.append(record.getMessage())

    @property
    def text(self) -> str:
        """In its order."""
        return " ".join(self._said)


class _Exporter(SpanExporter):
    """Makes spans of what was noted, and hands them to another exporter; called by the SDK's thread only.

    It pauses after each span, so that the event loop has the interpreter, but not at the end.
    """

    def __init__(self, maker: SpanMaker, to: SpanExporter, losses: Losses, pause_s: float) -> None:
        self.taken = 0  # out of the queue
        self.closing = Event()
        self._maker = maker
        self._to = to
        self._losses = losses
        self._pause_s = pause_s

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans, and note whether they arrived."""
        self.taken += len(spans)
        try:
            made = []
            for span in spans:
                assert isinstance(span, PendingSpan), "nothing else is in the queue"
                made += self._maker.make(span)
                self.closing.wait(self._pause_s)
            result = self._to.export(made) if made else SpanExportResult.SUCCESS
        except Exception as error:  # of the broker's own, or of the SDK's
            self._losses.report("broker.error", error=f"telemetry: {type(error).__name__}: {error}")
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.FAILURE:
            self._losses.lose(len(spans))
        elif made:
            self._losses.got_through()
        return result

    def shutdown(self) -> None:
        """Send no more."""
        self._to.shutdown()


class Losses:
    """Counts spans that were lost, and tells when that begins and when it is over.

    It is over when a batch gets through and nothing was lost since the one before.
    """

    def __init__(self, report: Report, endpoint: str) -> None:
        self.report = report
        self._endpoint = endpoint
        self._words = _LastWords()
        self._lock = Lock()  # the event loop and the SDK's thread lose spans
        self._lost = 0
        self._losing = self._lost_lately = False
        logger = logging.getLogger(_LOGGER)
        logger.handlers = [self._words]
        logger.propagate = False

    def lose(self, spans: int, why: str = "") -> None:
        """So many could not be exported; without `why`, for the reason that the SDK has told."""
        with self._lock:
            self._lost += spans
            begins, self._losing, self._lost_lately = not self._losing, True, True
        if begins:
            self.report("telemetry.losing", endpoint=self._endpoint, error=why or self._words.text)

    def got_through(self) -> None:
        """Some were exported."""
        with self._lock:
            ends, self._lost_lately = self._losing and not self._lost_lately, False
            if ends:
                self._losing, lost, self._lost = False, self._lost, 0
        if ends:
            self.report("telemetry.exporting", endpoint=self._endpoint, lost=lost)


class Telemetry:
    """What is traced, on its way to `endpoint`.  `salt`: at most 64 bytes that other brokers do not have."""

    def __init__(
        self,
        section: TelemetrySection,
        *,
        name: str,
        salt: bytes,
        report: Report,
        wall_ns: Callable[[], int],
        to: SpanExporter | None = None,
    ) -> None:
        resource = Resource.create({SERVICE_NAME: name, SERVICE_VERSION: __version__})
        timeout = section.export_timeout / 1000
        self._losses = Losses(report, section.endpoint)
        self._queue_max = section.queue_max
        self._exporter = _Exporter(
            SpanMaker(resource, salt),
            to if to is not None else OTLPSpanExporter(section.endpoint, timeout=timeout),
            self._losses,
            1 / section.spans_per_second_max,
        )
        self._processor = BatchSpanProcessor(
            self._exporter,
            max_queue_size=section.queue_max,
            schedule_delay_millis=section.export_interval,
            max_export_batch_size=min(BATCH_SPANS_MAX, section.queue_max),
        )
        self._offered = 0
        self.tracer = MessageTracer(self, report, wall_ns, ratio=section.sample_ratio)

    # -- the queue -------------------------------------------------------------------------------------------------

    def room(self) -> int:
        """How many more spans may wait."""
        return self._queue_max - self._offered + self._exporter.taken

    def offer(self, span: PendingSpan) -> None:
        """Let a span wait to be made."""
        if self.room() <= 0:
            return self.lose(1)
        self._offered += 1
        self._processor.on_end(span)

    def lose(self, spans: int) -> None:
        """Count spans that are lost."""
        self._losses.lose(spans, f"{self._queue_max} spans wait already")

    # -- the end ---------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Export what is left, for at most CLOSE_SECONDS_MAX."""
        self._exporter.closing.set()
        closing = Thread(target=self._processor.shutdown, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS_MAX)
