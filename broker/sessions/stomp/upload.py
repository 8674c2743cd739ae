"""A SEND whose body is too large for memory: it goes to a file part by part, and is published when that is whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.engine import PENDING_BYTES_LOW, PENDING_BYTES_MAX, Engine
from broker.engine.model.errors import EngineError
from broker.sessions.reading import Reading
from broker.sessions.stomp.headers import refused
from broker.sessions.stomp.send import Sends
from protocols.stomp.errors import StompError
from protocols.stomp.frames import Begun, Part

#: Why a connection is not read.
_SLOW_DISK: Final = "disk"


class LargeSend:
    """The one of a connection that is coming in, if any.  `done` is told of its end: its frame, and what was wrong."""

    def __init__(
        self, engine: Engine, sends: Sends, reading: Reading, done: Callable[[Begun, StompError | None], None]
    ) -> None:
        self._engine = engine
        self._sends = sends
        self._reading = reading
        self._done = done
        self._frame: Begun | None = None

    @property
    def coming(self) -> bool:
        """Whether one is."""
        return self._frame is not None

    def begin(self, frame: Begun) -> None:
        """The head of a SEND.  Raises StompError, EngineError: whoever may not send learns it before the body."""
        durable = self._sends.check(frame)
        self._upload = self._engine.uploads.begin(self._changed, durable=durable, transport=self._reading.transport)
        self._frame = frame

    def part(self, part: Part) -> None:
        """More of its body."""
        if self._frame is None:
            return  # refused, and the connection is about to end
        self._engine.uploads.write(self._upload, part.body, last=part.last)
        if part.last or self._upload.pending > PENDING_BYTES_MAX:
            self._reading.stop(_SLOW_DISK)

    def _changed(self) -> None:
        upload, frame = self._upload, self._frame
        if frame is None:
            return  # refused, while more of it was on its way to the disk
        if upload.reference is None and not upload.refusal:
            if upload.pending <= PENDING_BYTES_LOW:
                self._reading.go(_SLOW_DISK)
            return
        self._frame = None
        failure: StompError | None = None
        try:
            self._sends.add_large(frame, self._engine.uploads.finished(upload))
        except StompError as wrong:
            failure = wrong
        except EngineError as refusal:
            failure = refused("SEND", refusal, frame.headers)
        self._reading.go(_SLOW_DISK)
        self._done(frame, failure)

    def abandon(self) -> None:
        """The connection ends."""
        if self._frame is not None:
            self._frame = None
            self._engine.uploads.abort(self._upload)
