"""Reading messages on a queue without removing them: a page of them, or one's whole body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Final

from starlette.responses import Response, StreamingResponse

from broker.engine import PIECE_BYTES, Queue, Stream, Unreadable
from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message
from broker.management.ports import Broker

#: Messages read together: on disk, 10 ms of those that are as large as memory holds.
READ_AT_ONCE: Final = 64

#: Makes a browser save a body, whatever it holds.
_DOWNLOAD: Final = {"content-disposition": 'attachment; filename="message-{id}.bin"'}

Found = tuple[Message, str]


class Look:
    """Work (`in_turns`) that looks at the messages of a queue with ids above `after`, oldest first.

    It yields those that fit, each with its state, and None for the others.  It ends after `most` that fit, and with
    `fits` after `looked_at_max` in all.  `last` is the id of the last message looked at; None: the end was reached, or
    the queue is deleted.  A message that was yielded may have left its queue by the next turn.
    """

    def __init__(
        self,
        broker: Broker,
        queue: Queue,
        after: int,
        most: int,
        looked_at_max: int,
        fits: Callable[[Message], bool] | None,
    ) -> None:
        self.last: int | None = after
        self.looked_at = 0
        self.found = 0
        self._broker = broker
        self._queue = queue
        self._most = most
        self._looked_at_max = looked_at_max
        self._fits = fits

    def __iter__(self) -> Iterator[Found | None]:
        """Look at the next ones.  Raises NotReadable."""
        while self._left and self.last is not None:
            read, more = self._read(self.last)
            if not read:
                self.last = None
            for at, (message, state) in enumerate(read, 1):
                self.last = message.id if more or at < len(read) else None
                self.looked_at += 1
                if self._fits is None or self._fits(message):
                    self.found += 1
                    yield message, state
                else:
                    yield None
                if not self._left:
                    break

    @property
    def _left(self) -> int:
        """How many it may still look at."""
        left = self._most - self.found
        return left if self._fits is None else left and self._looked_at_max - self.looked_at

    def _read(self, after: int) -> tuple[list[Found], bool]:
        """The next messages, and whether there are more."""
        if self._queue.deleted:
            return [], False
        most = min(self._left, READ_AT_ONCE) + 1
        self._broker.tick.enter()
        read = self._broker.engine.messages.page(self._queue, after, most)
        return read[: most - 1], len(read) == most


def whole_body(message: Message) -> Response:
    """The whole body of a message, without its protocol's encoding.  Raises NotReadable.

    In a large AMQP body of several sections, only the header of the first section is left out.
    """
    headers = {name: value.format(id=message.id) for name, value in _DOWNLOAD.items()}
    body, content = message.body, message.header.format.content
    if isinstance(body, bytes):
        return Response(content(body), 200, headers, "application/octet-stream")
    stream = Stream(body)
    try:
        first = content(stream.read())
    except Unreadable as error:
        raise NotReadable(str(error)) from None
    headers["content-length"] = str(len(first) + stream.left)
    return StreamingResponse(_pieces(first, stream), 200, headers, "application/octet-stream")


async def _pieces(first: bytes, stream: Stream) -> AsyncIterator[bytes]:
    """A body in a file, piece by piece."""
    yield first
    while stream.left:
        yield stream.read(PIECE_BYTES)
