"""Bodies that are uploaded piece by piece, to be those of messages that are imported.

An upload ends when its message is on a queue, when it is given up, or when nothing has come for a minute: its file goes
then.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.engine import PENDING_BYTES_LOW, LargeBody
from broker.engine.model.errors import AlreadyInUse, NotFound
from broker.management.ports import Broker

#: Uploads at once: each is a file that is written.
UPLOADS_MAX: Final = 8

#: Seconds without a piece after which an upload is given up: twice what a call may take.
IDLE_SECONDS_MAX: Final = 60.0


class _Coming:
    """One upload; `body`: once it is whole, and durable if that was asked."""

    def __init__(self, broker: Broker, *, durable: bool) -> None:
        self.body: LargeBody | None = None
        self.writing = False
        self.timer: asyncio.TimerHandle | None = None
        self._engine = broker.engine
        self._changed = asyncio.Event()
        self._upload = self._engine.uploads.begin(self._changed.set, durable=durable)

    @property
    def nbytes(self) -> int:
        """Bytes that have come."""
        return self._upload.nbytes

    async def write(self, data: bytes, *, last: bool) -> None:
        """The next piece; returns when another one may come, or the body is whole.  Raises DiskFull."""
        upload = self._upload
        self._engine.uploads.write(upload, data, last=last)
        while not upload.refusal and (upload.reference is None if last else upload.pending > PENDING_BYTES_LOW):
            self._changed.clear()
            await self._changed.wait()
        if last or upload.refusal:
            self.body = self._engine.uploads.finished(upload)

    def give_up(self) -> None:
        """It is not needed."""
        if self.timer is not None:
            self.timer.cancel()
        if self.body is None:
            self._engine.uploads.abort(self._upload)
        self.body = None  # unless a message has it, its file goes


class BodyUploads:
    """The uploads of one broker, by their ids."""

    def __init__(self, broker: Broker, *, idle_seconds_max: float = IDLE_SECONDS_MAX) -> None:
        self._broker = broker
        self._idle_seconds_max = idle_seconds_max
        self._coming: dict[str, _Coming] = {}

    async def write(self, id: str, offset: int, data: bytes, *, durable: bool, last: bool) -> int:
        """The next piece, the first at offset 0; call within a tick.  How many bytes have come.

        Raises NotFound, AlreadyInUse, DiskFull.
        """
        coming = self._find(id) if offset or id in self._coming else self._begin(id, durable=durable)
        if coming.writing or coming.body is not None or coming.nbytes != offset:
            raise AlreadyInUse(f"upload {id} has {coming.nbytes} bytes, and takes no piece from byte {offset} on now")
        coming.writing = True
        try:
            await coming.write(data, last=last)
        except BaseException:
            self.end(id)
            raise
        finally:
            coming.writing = False
        self._watch(id, coming)
        return coming.nbytes

    def _begin(self, id: str, *, durable: bool) -> _Coming:
        if len(self._coming) >= UPLOADS_MAX:
            raise AlreadyInUse(f"{UPLOADS_MAX} bodies are being uploaded: wait until one is done")
        coming = self._coming[id] = _Coming(self._broker, durable=durable)
        self._watch(id, coming)
        return coming

    def body(self, id: str) -> LargeBody:
        """The body of one that is whole, which waits for its message from now on.  Raises NotFound."""
        coming = self._find(id)
        body = coming.body
        if body is None:
            raise NotFound(f"upload {id} is not whole")
        self._watch(id, coming)
        return body

    def end(self, id: str) -> int:
        """Its message has it, or nobody needs it; call within a tick.  How many bytes had come; 0 if there is none."""
        coming = self._coming.pop(id, None)
        if coming is None:
            return 0
        coming.give_up()
        return coming.nbytes

    def _find(self, id: str) -> _Coming:
        coming = self._coming.get(id)
        if coming is None:
            seconds = f"{self._idle_seconds_max:.0f} s"
            raise NotFound(f"upload {id} does not exist: it is over, or nothing came for {seconds}")
        return coming

    def _watch(self, id: str, coming: _Coming) -> None:
        if coming.timer is not None:
            coming.timer.cancel()
        coming.timer = asyncio.get_running_loop().call_later(self._idle_seconds_max, self._idle, id)

    def _idle(self, id: str) -> None:
        self._broker.tick.enter()
        self.end(id)
