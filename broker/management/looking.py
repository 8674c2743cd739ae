"""Looking at messages on a queue: some of them, from one on; and one's whole body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import Response, StreamingResponse

from broker.engine import PIECE_BYTES, Engine, Queue, Stream, Unreadable
from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message

#: Messages that are looked at together, beyond those that are asked for.
LOOKED_AT_ONCE: Final = 1_000

#: What a browser is told of a body: it is to be saved, whatever it holds.
_DOWNLOAD: Final = {"content-disposition": 'attachment; filename="message-{id}.bin"'}

Found = list[tuple[Message, str]]


def matching(
    engine: Engine, queue: Queue, after: int, most: int, looked_at_max: int, fits: Callable[[Message], bool] | None
) -> tuple[Found, int | None]:
    """Messages with ids above `after` that fit, at most so many, with where each is; call within a tick.

    The number is the id up to which was looked, None: to the end.  With `fits`, at most so many are looked at.  Raises
    NotReadable.
    """
    found: Found = []
    left = most if fits is None else looked_at_max
    while left:
        once = min(most + 1 if fits is None else LOOKED_AT_ONCE, left + 1)
        looked = engine.messages.page(queue, after, once)
        more = len(looked) == once
        for message, state in looked[: once - 1]:
            after = message.id
            left -= 1
            if fits is None or fits(message):
                found.append((message, state))
                if len(found) == most:
                    return found, after if more or message is not looked[-1][0] else None
        if not more:
            return found, None
    return found, after


def whole_body(message: Message) -> Response:
    """The body of a message, all of it, without its protocol's encoding.  Raises NotReadable.

    Of an AMQP body that is large and has several sections, only the first one's beginning is left out.
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
