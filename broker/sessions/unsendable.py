"""Deliveries that a session cannot make: the protocol has no words for the message, or its receiver no room.

A session learns that while the engine hands it messages, when it must not call the engine; so they are kept until the
tick is over.  They are dead letters: nobody would ever be able to take them from this queue by this protocol.  Those
whose bodies cannot be read for now come again a little later.
"""

from __future__ import annotations

from traceback import format_exception

from broker.engine import Consumer, Engine
from broker.engine.model.message import Message
from broker.sessions.convert import ConversionError, RenderingFailed
from broker.sessions.tick import Tick


class Unsendable:
    """Those of one connection."""

    __slots__ = ("_found", "_tick")

    def __init__(self, tick: Tick) -> None:
        self._tick = tick
        self._found: list[tuple[Consumer, Message, ConversionError]] = []

    def add(self, consumer: Consumer, message: Message, why: ConversionError) -> None:
        """A delivery that cannot be made."""
        self._found.append((consumer, message, why))

    def forget(self) -> None:
        """The connection is over: what its consumers hold goes back."""
        self._found.clear()

    def dead_letter(self) -> list[Consumer]:
        """Make dead letters of them; whose they were.  Call when the tick is over."""
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
        """A message that its consumer, which holds it, will never get."""
        self._tick.engine.consumers.undeliverable(consumer, message, str(why), why.reason)


def report_render_fault(engine: Engine, message: Message, why: ConversionError) -> None:
    """Report an error of the broker's own, which a message has brought to light."""
    if isinstance(why, RenderingFailed):
        header = message.header
        trace = "".join(format_exception(why.__cause__))
        engine.report(
            "message.unrendered",
            message=message.id,
            address=header.address,
            protocol=header.format.name,
            error=str(why.__cause__),
            traceback=trace,
        )
