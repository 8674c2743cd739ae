"""Traces for OpenTelemetry (docs/monitoring.md, Traces), in the extra `[otel]`.

    tracer    gets events of messages from the engine; chooses those to trace, and notes them
    pending   a note, which waits to become a span
    spans     makes the span of a note: its name, parent, attributes
    export    the SDK's queue and thread, which makes and sends the spans

The parent of the broker's spans is the trace context that the sender gave the message.  It stays in the message
unchanged, so that nothing has to be remembered between spans, not even across a restart.
"""
