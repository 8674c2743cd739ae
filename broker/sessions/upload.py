"""A message that arrives in parts: its body is written to a file, and published once that is complete.

none      begin -> coming
coming    write -> coming: reading stops while too much of it, or of all uploads, waits for the disk
          write the last part -> whole: reading stops until the file is durable
          the disk refuses -> `done` with the reason; the remaining parts are ignored
whole     durable, or refused -> `done`, resume reading, and `proceed`
any       abandon -> none: the file is deleted
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine import Engine, LargeBody, Upload
from broker.engine.model.errors import EngineError
from broker.sessions.base import without_calls
from broker.sessions.reading import Reading

#: Called with the body when it is complete and durable, or with the reason why it never will be.
Done = Callable[[LargeBody | EngineError], None]


def _ignore(result: LargeBody | EngineError) -> None:
    pass


def _nothing() -> None:
    pass


class Uploading:
    """The current upload of a connection or link, if any.  Only as long as there is one, it refers to these."""

    def __init__(self, engine: Engine, reading: Reading) -> None:
        self.whole = False  # the last part has arrived, and nothing that follows is processed yet
        self._engine = engine
        self._reading = reading
        self._done: Done = _ignore
        self._proceed: Callable[[], None] = _nothing
        self._upload: Upload | None = None

    @property
    def coming(self) -> bool:
        """Whether an upload is under way that has not been refused."""
        return self._upload is not None

    def begin(self, done: Done, proceed: Callable[[], None], *, durable: bool) -> None:
        """Begin an upload.  `done` is called first, then `proceed` if all parts have arrived.  Raises DiskFull."""
        transport = self._reading.transport
        self._upload = self._engine.uploads.begin(self._changed, durable=durable, transport=transport)
        self._done, self._proceed = done, proceed

    def write(self, data: bytes, *, last: bool) -> None:
        """Write the next part."""
        upload = self._upload
        assert upload is not None, "it has begun, and was not refused"
        self.whole = last
        self._engine.uploads.write(upload, data, last=last)
        if last or self._engine.uploads.too_fast(upload):
            self._reading.stop(self)  # others of its connection may wait, too

    def _changed(self) -> None:
        upload = self._upload
        if upload is None:
            return  # abandoned while parts were still being written
        if upload.reference is None and not upload.refusal:
            if not self.whole and self._engine.uploads.may_go_on(upload):
                self._reading.go(self)
            return
        self._upload = None
        result: LargeBody | EngineError
        try:
            result = self._engine.uploads.finished(upload)
        except EngineError as refusal:
            result = without_calls(refusal)
        self._done(result)
        self._go_on()

    def _go_on(self) -> None:
        proceed = self._proceed
        self._done, self._proceed = _ignore, _nothing
        self._reading.go(self)
        if self.whole:
            self.whole = False
            proceed()

    def abandon(self) -> None:
        """Delete the upload: the message was aborted, or its sender has disconnected."""
        upload, self._upload = self._upload, None
        if upload is not None:
            self._engine.uploads.abort(upload)
            self._go_on()
