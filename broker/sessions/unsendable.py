"""Deliveries that a session cannot make: the protocol cannot express the message, or it is too large for the receiver.

A session finds this out while the engine delivers messages to it, when it must not call the engine.  So they are
collected until the tick ends.  Then they become dead letters: no consumer could ever get them from this queue through
this protocol.  Messages whose bodies cannot be read at the moment are delivered again a little later.
"""

from __future__ import annotations

from traceback import format_exception

from broker.engine import Consumer, Engine
from broker.engine.model.message import Message
from broker.sessions.convert import ConversionError, RenderingFailed
from broker.sessions.tick import Tick


class Unsendable:
    """The undeliverable messages of one connection."""

    __slots__ = ("_found", "_tick")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._found: list[tuple[Consumer, Message, ConversionError]] = []

    def add(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        """Record a delivery that cannot be made."""
        self._found.append((consumer, message, why))

    def forget(self) -> None:
        """Drop all: the connection is over, and its consumers' messages return to their queues."""
        self._found.clear()

    def dead_letter(self) -> list[Consumer]:
        """Make dead letters of all, and return their consumers.  Call when the tick is over."""
        if not self._found:
            return []
        self._tick.enter()
        found, self._found = self._found, []
        engine = self._tick.engine
        for consumer, message, why in found:
            report_render_fault(engine, message, why)
            if consumer.closed or message.id not in consumer.unacked:
                continue
            if why.passing:
                engine.consumers.postpone(consumer, message, str(why))
            else:
                self.give_up(consumer, message, why)
        return [each[0] for each in found]

    def give_up(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        """Make a dead letter of a message that is in delivery to a consumer."""
        self._tick.engine.consumers.undeliverable(consumer, message, str(why), why.reason)


def report_render_fault(engine: Engine, message: Message, why: ConversionError) -> None:
    """Log an error of the broker itself that occurred while a message was converted."""
    if isinstance(why, RenderingFailed):
        header = message.header
        trace = "".join(format_exception(why.__cause__))
        engine.report(
            "message.conversion_failed",
            message=message.id,
            address=header.address,
            protocol=header.format.name,
            error=str(why.__cause__),
            traceback=trace,
        )
