"""Uploads in pieces of large bodies for messages to import.

An upload ends when its message is on a queue, when it is abandoned, or when no piece has arrived for a minute; its file
is deleted then.
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.engine import LargeBody
from broker.engine.model.errors import AlreadyInUse, NotFound
from broker.management.ports import Broker

#: Uploads at once: each writes a file.
UPLOADS_MAX: Final = 8

#: Seconds without a piece after which an upload is abandoned: twice what a call may take.
IDLE_SECONDS_MAX: Final = 60.0


class _Coming:
    """One upload; `body` is set once it is complete, and durable if requested."""

    def __init__(self, broker: Broker, *, durable: bool) -> None:
        self.body: LargeBody | None = None
        self.writing = False
        self.ended = False
        self.timer: asyncio.TimerHandle | None = None
        self._engine = broker.engine
        self._changed = asyncio.Event()
        self._upload = self._engine.uploads.begin(self._changed.set, durable=durable)

    @property
    def nbytes(self) -> int:
        """Bytes received."""
        return self._upload.nbytes

    async def write(self, data: bytes, *, last: bool) -> None:
        """Write the next piece; return when another one may be sent, or the body is complete.

        Raises DiskFull; NotFound if the upload is abandoned meanwhile.
        """
        upload, uploads = self._upload, self._engine.uploads
        uploads.write(upload, data, last=last)
        while not upload.refusal and (upload.reference is None if last else not uploads.may_go_on(upload)):
            self._changed.clear()
            await self._changed.wait()
            if self.ended:
                raise NotFound("the upload was abandoned while its disk was slow")
        if last or upload.refusal:
            self.body = self._engine.uploads.finished(upload)

    def rest(self) -> None:
        """Stop the time without a piece."""
        if self.timer is not None:
            self.timer.cancel()

    def give_up(self) -> None:
        """End the upload: its body is in use or not needed."""
        self.rest()
        self.ended = True
        self._changed.set()
        if self.body is None:
            self._engine.uploads.abort(self._upload)
        self.body = None  # unless a message uses it, its file is deleted


class BodyUploads:
    """The uploads of one broker, by their ids."""

    def __init__(self, broker: Broker, *, idle_seconds_max: float = IDLE_SECONDS_MAX) -> None:
        self._broker = broker
        self._idle_seconds_max = idle_seconds_max
        self._coming: dict[str, _Coming] = {}

    async def write(self, id: str, offset: int, data: bytes, *, durable: bool, last: bool) -> int:
        """Write the next piece, the first at offset 0, and return the bytes received; call within a tick.

        Raises NotFound, AlreadyInUse, DiskFull.
        """
        coming = self._find(id) if offset or id in self._coming else self._begin(id, durable=durable)
        if coming.writing or coming.body is not None or coming.nbytes != offset:
            raise AlreadyInUse(f"upload {id} has {coming.nbytes} bytes: it cannot take a piece at byte {offset} now")
        coming.writing = True
        coming.rest()
        try:
            await coming.write(data, last=last)
        except BaseException:
            if not coming.ended:
                self._broker.tick.enter()
                self.end(id)
            raise
        finally:
            coming.writing = False
        self._restart_timer(id, coming)
        return coming.nbytes

    def _begin(self, id: str, *, durable: bool) -> _Coming:
        if len(self._coming) >= UPLOADS_MAX:
            raise AlreadyInUse(f"{UPLOADS_MAX} bodies are being uploaded: wait until one is done")
        coming = self._coming[id] = _Coming(self._broker, durable=durable)
        self._restart_timer(id, coming)
        return coming

    def body(self, id: str) -> LargeBody:
        """The body of a complete upload, and restart the time it waits for its message.  Raises NotFound."""
        coming = self._find(id)
        body = coming.body
        if body is None:
            raise NotFound(f"upload {id} is not complete")
        self._restart_timer(id, coming)
        return body

    def end(self, id: str) -> int:
        """End an upload, used or not; call within a tick.  Return the bytes received; 0 if it does not exist."""
        coming = self._coming.pop(id, None)
        if coming is None:
            return 0
        coming.give_up()
        return coming.nbytes

    def _find(self, id: str) -> _Coming:
        coming = self._coming.get(id)
        if coming is None:
            seconds = f"{self._idle_seconds_max:.0f} s"
            raise NotFound(f"upload {id} does not exist: it has ended, or no piece arrived for {seconds}")
        return coming

    def _restart_timer(self, id: str, coming: _Coming) -> None:
        coming.rest()
        coming.timer = asyncio.get_running_loop().call_later(self._idle_seconds_max, self._idle, id)

    def _idle(self, id: str) -> None:
        self._broker.tick.enter()
        self.end(id)
