"""Exports spans: through a bounded queue and a thread, both the SDK's, by OTLP over HTTP.

Whatever the receiver does, the event loop only adds to the queue, and not even that if it is full.  Lost spans are
counted, and reported once (`telemetry.losing`) until spans get through again (`telemetry.exporting`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from broker import __version__
from broker.config import TelemetrySection
from broker.engine.model.report import Report
from broker.telemetry.pending import PendingSpan
from broker.telemetry.spans import SpanMaker

#: Spans sent together: encoding this many holds the interpreter lock, and so the event loop, for some 5 ms.
BATCH_SPANS_MAX: Final = 64

#: Seconds for sending the last spans when the broker stops.
CLOSE_SECONDS_MAX: Final = 2.0

#: The SDK's logger: its messages about exports go into the broker's own events.
_LOGGER: Final = "opentelemetry"


class _LastWords(logging.Handler):
    """Keeps the SDK's last messages instead of logging a line for each batch: why it retried, and that it gave up."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._said: deque[str] = deque(maxlen=2)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message."""
        self._said.append(record.getMessage())

    @property
    def text(self) -> str:
        """The messages, in order."""
        return " ".join(self._said)


class _Exporter(SpanExporter):
    """Makes spans from notes, and passes them to another exporter; called only by the SDK's thread.

    It pauses after each span to leave the interpreter to the event loop, except while closing.
    """

    def __init__(self, maker: SpanMaker, to: SpanExporter, losses: Losses, pause_s: float) -> None:
        self.dequeued = 0  # notes taken out of the queue
        self.closing = Event()
        self._maker = maker
        self._to = to
        self._losses = losses
        self._pause_s = pause_s

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Send the spans, and note whether they arrived."""
        self.dequeued += len(spans)
        try:
            made = []
            for span in spans:
                assert isinstance(span, PendingSpan), "nothing else is in the queue"
                made += self._maker.make(span)
                self.closing.wait(self._pause_s)
            result = self._to.export(made) if made else SpanExportResult.SUCCESS
        except Exception as error:  # a bug of the broker or of the SDK
            self._losses.report("broker.error", error=f"telemetry: {type(error).__name__}: {error}")
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.FAILURE:
            self._losses.lose(len(spans))
        elif made:
            self._losses.got_through()
        return result

    def shutdown(self) -> None:
        """Stop sending."""
        self._to.shutdown()


class Losses:
    """Counts lost spans, and reports when losses begin and end.

    They end when a batch gets through and nothing was lost since the one before.
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
        """Count spans that could not be exported; without `why`, for the reason that the SDK logged."""
        with self._lock:
            self._lost += spans
            begins, self._losing, self._lost_lately = not self._losing, True, True
        if begins:
            self.report("telemetry.losing", endpoint=self._endpoint, error=why or self._words.text)

    def got_through(self) -> None:
        """Note that spans were exported."""
        with self._lock:
            ends, self._lost_lately = self._losing and not self._lost_lately, False
            if ends:
                self._losing, lost, self._lost = False, self._lost, 0
        if ends:
            self.report("telemetry.exporting", endpoint=self._endpoint, lost=lost)


class Export:
    """The export of spans to `endpoint`.  `salt`: at most 64 bytes, unique to this broker."""

    def __init__(
        self,
        section: TelemetrySection,
        *,
        name: str,
        salt: bytes,
        report: Report,
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

    def room(self) -> int:
        """How many more spans fit the queue."""
        return self._queue_max - self._offered + self._exporter.dequeued

    def offer(self, span: PendingSpan) -> None:
        """Queue a note, or lose it if the queue is full."""
        if self.room() <= 0:
            return self.lose(1)
        self._offered += 1
        self._processor.on_end(span)

    def lose(self, spans: int) -> None:
        """Count spans lost because the queue is full."""
        self._losses.lose(spans, f"{self._queue_max} spans wait already")

    def close(self) -> None:
        """Export what is left, for at most CLOSE_SECONDS_MAX."""
        self._exporter.closing.set()
        closing = Thread(target=self._processor.shutdown, name="telemetry-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS_MAX)
