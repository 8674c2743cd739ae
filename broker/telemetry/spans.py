"""Spans that follow OpenTelemetry's conventions for messaging, as far as they cover brokers.

    operation     kind        what happened
    publish       SERVER      a message was accepted, until it was durable; or it was refused
    deliver       INTERNAL    it was sent to a consumer's connection
    ack           INTERNAL    its delivery was acknowledged
    return        INTERNAL    its delivery was returned
    dead-letter   INTERNAL    it became a dead letter
    expire        INTERNAL    it expired

No client's span has a parent among the broker's, since the broker does not change the context in the message.  So only
`publish`, whose parent is a client's span, has a kind that implies a remote peer.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from broker.engine.model.names import is_temporary
from broker.telemetry.pending import TEXT_CHARS_MAX, PendingSpan

_TYPES: Final = {"publish": "send", "ack": "settle", "return": "settle"}
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_FIELDS: Final = ("traceparent", "tracestate")
_NO_PARENT: Final = Context()


class _Ids(RandomIdGenerator):
    """Random ids, unless ids of a trace and of a span in it are given."""

    def __init__(self) -> None:
        self.given: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        """The given trace, or a new one."""
        return self.given[0] if self.given else super().generate_trace_id()

    def generate_span_id(self) -> int:
        """The given span, or a new one."""
        return self.given[1] if self.given else super().generate_span_id()


class _Ended(SpanProcessor):
    """Collects the spans that have ended."""

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the span."""
        self.spans.append(span)


class SpanMaker:
    """Makes spans from notes, in one thread.

    `salt` makes the ids of traces that begin in this broker differ from other brokers'.
    """

    def __init__(self, resource: Resource, salt: bytes) -> None:
        self._salt = salt
        self._ids = _Ids()
        self._ended = _Ended()
        provider = TracerProvider(
            sampler=ALWAYS_ON,
            resource=resource,
            shutdown_on_exit=False,
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attribute_length=TEXT_CHARS_MAX),
        )
        provider.add_span_processor(self._ended)
        self._tracer = provider.get_tracer("bartleby")

    def make(self, noted: PendingSpan) -> list[ReadableSpan]:
        """The span of a note; none if the trace context turns out to be invalid or not sampled."""
        parent = self._parent(noted)
        if parent is not None:
            self._make(noted, parent)
        made, self._ended.spans = self._ended.spans, []
        return made

    def _parent(self, noted: PendingSpan) -> Context | None:
        """The context of a span, without parent if it begins a trace; None: make no span."""
        self._ids.given = None
        if not noted.key:
            return context_of(noted)
        root = self._root(noted.key)
        if noted.operation == "publish":
            self._ids.given = root
            return _NO_PARENT
        flags = TraceFlags(TraceFlags.SAMPLED)
        return set_span_in_context(NonRecordingSpan(SpanContext(*root, is_remote=False, trace_flags=flags)), _NO_PARENT)

    def _root(self, key: int) -> tuple[int, int]:
        """The ids of the trace and the first span of a message that came without one: always the same for a message."""
        digest = blake2b(key.to_bytes(8, "big"), key=self._salt, digest_size=24).digest()
        return int.from_bytes(digest[:16], "big"), int.from_bytes(digest[16:], "big")

    def _make(self, noted: PendingSpan, parent: Context) -> None:
        operation = noted.operation
        address = noted.header.address
        span = self._tracer.start_span(
            operation if is_temporary(address) else f"{operation} {address}",
            parent,
            SpanKind.SERVER if operation == "publish" else SpanKind.INTERNAL,
            attributes=_attributes(noted),
            start_time=noted.start,
        )
        if noted.error_type:
            span.set_status(Status(StatusCode.ERROR, noted.error))
        span.end(noted.end)


def context_of(noted: PendingSpan) -> Context | None:
    """The trace context that came with a message, if there is one and it is sampled.

    In AMQP, message annotations take precedence over the sender's properties (W3C, Trace Context for AMQP).
    """
    format = noted.header.format
    properties = format.properties(noted.head)
    carrier = {}
    for prefix in ("m.", "") if format.name == "amqp" else ("",):
        carrier = {name: str(properties[prefix + name]) for name in _FIELDS if prefix + name in properties}
        if _FIELDS[0] in carrier:
            break
    context = _PROPAGATOR.extract(carrier, _NO_PARENT)
    found = get_current_span(context).get_span_context()
    return context if found.is_valid and found.trace_flags.sampled else None


def _attributes(noted: PendingSpan) -> dict[str, str | int | bool]:
    header = noted.header
    attributes: dict[str, str | int | bool] = {
        "messaging.system": "bartleby",
        "messaging.operation.name": noted.operation,
        "messaging.destination.name": header.address,
        "messaging.message.body.size": noted.body_bytes,
        "network.protocol.name": header.format.name,
    }
    if noted.id:  # refused messages have none
        attributes["messaging.message.id"] = str(noted.id)
    if noted.operation in _TYPES:
        attributes["messaging.operation.type"] = _TYPES[noted.operation]
    if noted.operation == "publish" and header.origin:
        attributes["messaging.client.id"] = header.origin
    if is_temporary(header.address):
        attributes["messaging.destination.temporary"] = True
    if noted.error_type:
        attributes["error.type"] = noted.error_type
    return attributes | noted.details
