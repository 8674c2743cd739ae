"""A message that comes in parts: its body goes to a file, and it is published when that is whole.

none      begin -> coming
coming    write -> coming: not read while more than PENDING_BYTES_MAX wait for the disk
          write the last part -> whole: not read until the file is durable
          the disk refuses -> done with why; the parts that still come are for nobody
whole     durable, or refused -> done, read on, and proceed with what follows
any       abandon -> none: the file goes
"""

from __future__ import annotations

from collections.abc import Callable

from broker.engine import PENDING_BYTES_LOW, PENDING_BYTES_MAX, Engine, LargeBody, Upload
from broker.engine.model.errors import EngineError
from broker.sessions.reading import Reading


class Uploading:
    """The body that is coming in, if any.

    `done` is told of it when it is whole and durable, or why it never will be; then, if all parts have come, `proceed`.
    """

    def __init__(
        self,
        engine: Engine,
        reading: Reading,
        done: Callable[[LargeBody | EngineError], None],
        proceed: Callable[[], None],
    ) -> None:
        self.whole = False  # the last part has come, and nothing else is looked at
        self._engine = engine
        self._reading = reading
        self._done = done
        self._proceed = proceed
        self._upload: Upload | None = None

    @property
    def _slow_disk(self) -> str:
        """Why the connection is not read: others of it may have the same reason."""
        return f"disk {id(self)}"

    @property
    def coming(self) -> bool:
        """Whether there is one that has not been refused."""
        return self._upload is not None

    def begin(self, *, durable: bool) -> None:
        """Parts will come.  Raises DiskFull."""
        transport = self._reading.transport
        self._upload = self._engine.uploads.begin(self._changed, durable=durable, transport=transport)

    def write(self, data: bytes, *, last: bool) -> None:
        """The next part."""
        upload = self._upload
        assert upload is not None, "it has begun, and was not refused"
        self.whole = last
        self._engine.uploads.write(upload, data, last=last)
        if last or upload.pending > PENDING_BYTES_MAX:
            self._reading.stop(self._slow_disk)

    def _changed(self) -> None:
        upload = self._upload
        if upload is None:
            return  # given up, while more of it was on its way to the disk
        if upload.reference is None and not upload.refusal:
            if upload.pending <= PENDING_BYTES_LOW and not self.whole:
                self._reading.go(self._slow_disk)
            return
        self._upload = None
        result: LargeBody | EngineError
        try:
            result = self._engine.uploads.finished(upload)
        except EngineError as refusal:
            result = refusal
        self._done(result)
        self._go_on()

    def _go_on(self) -> None:
        self._reading.go(self._slow_disk)
        if self.whole:
            self.whole = False
            self._proceed()

    def abandon(self) -> None:
        """The message was aborted, or its sender is gone."""
        upload, self._upload = self._upload, None
        if upload is not None:
            self._engine.uploads.abort(upload)
            self._go_on()
