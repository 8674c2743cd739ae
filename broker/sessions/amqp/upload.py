"""A message that comes in portions over AMQP: its body goes to a file, and it is published when that is whole.

What comes before the body (header, annotations, properties) has to be within the first portion; it is kept in memory.
Body and footer go to the file as they come.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from broker.engine import PENDING_BYTES_LOW, PENDING_BYTES_MAX, Engine
from broker.engine.model.errors import EngineError
from broker.engine.model.message import Body
from broker.sessions.reading import Reading
from protocols.amqp.errors import DecodeError
from protocols.amqp.events import Portion

#: Why a connection is not read.
_SLOW_DISK: Final = "disk"


class Begun(Protocol):
    """What a link knows of a message whose first portion has come."""

    durable: bool
    body: bytes  # what of it came with the first portion

    def publish(self, body: Body) -> None:
        """The body is whole."""

    def refuse(self, error: EngineError | DecodeError) -> None:
        """It never will be."""


class Uploading:
    """The message that is coming in portions on one link, if any; `resume` lets the codec go on after its last one."""

    def __init__(self, engine: Engine, reading: Reading, resume: Callable[[], None]) -> None:
        self._engine = engine
        self._reading = reading
        self._resume = resume
        self._begun: Begun | None = None
        self._ended = False  # the last portion has come, and the codec waits

    def begin(self, begun: Begun, event: Portion) -> None:
        """The first portion, and what it says.  Raises DiskFull."""
        self._upload = self._engine.uploads.begin(
            self._changed, durable=begun.durable, transport=self._reading.transport
        )
        self._begun = begun
        self._write(begun.body, event)

    def more(self, event: Portion) -> None:
        """Another one; nothing happens if the message was refused before, but that the codec goes on."""
        if self._begun is not None:
            self._write(event.payload, event)
        elif event.last:
            self._resume()

    def _write(self, data: bytes, event: Portion) -> None:
        self._engine.uploads.write(self._upload, data, last=event.last)
        self._ended = event.last
        if event.last or self._upload.pending > PENDING_BYTES_MAX:
            self._reading.stop(_SLOW_DISK)

    def _changed(self) -> None:
        upload, begun = self._upload, self._begun
        if begun is None:
            return
        if upload.reference is None and not upload.refusal:
            if upload.pending <= PENDING_BYTES_LOW and not self._ended:
                self._reading.go(_SLOW_DISK)
            return
        self._begun = None
        try:
            begun.publish(self._engine.uploads.finished(upload))
        except (EngineError, DecodeError) as refusal:
            begun.refuse(refusal)
        self._go_on()

    def _go_on(self) -> None:
        self._reading.go(_SLOW_DISK)
        if self._ended:
            self._ended = False
            self._resume()

    def abandon(self) -> None:
        """The message was aborted, or its link is gone."""
        if self._begun is not None:
            self._begun = None
            self._engine.uploads.abort(self._upload)
            self._go_on()
