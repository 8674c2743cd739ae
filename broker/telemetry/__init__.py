"""Traces for OpenTelemetry (docs/monitoring.md, Traces), in the extra `[otel]`.

    tracer    told by the engine of what happens to messages; picks those that are traced, and notes it
    spans     the span of what was noted: its name, parent, attributes
    export    the SDK's queue and thread, in which spans are made and sent

The broker's spans have the context that the sender gave the message as their parent.  It stays with the message as it
came, so that nothing has to be remembered between two spans, across a restart either.
"""
