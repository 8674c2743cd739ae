"""Reading messages on a queue without removing them: a page of them, or one's whole body."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from starlette.responses import Response, StreamingResponse

from broker.engine import PIECE_BYTES, Engine, Queue, Stream, Unreadable
from broker.engine.model.errors import NotReadable
from broker.engine.model.message import Message

#: Messages examined together, if more than were requested.
LOOKED_AT_ONCE: Final = 1_000

#: Makes a browser save a body, whatever it holds.
_DOWNLOAD: Final = {"content-disposition": 'attachment; filename="message-{id}.bin"'}

Found = list[tuple[Message, str]]


def matching(
    engine: Engine, queue: Queue, after: int, most: int, looked_at_max: int, fits: Callable[[Message], bool] | None
) -> tuple[Found, int | None]:
    """Up to `most` matching messages with ids above `after`, each with its state; call within a tick.

    The number is the id of the last message examined, None: the end was reached.  With `fits`, at most `looked_at_max`
    messages are examined.  Raises NotReadable.
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
