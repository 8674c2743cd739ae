"""The benchmark's messages as AMQP transfers, made before the clock starts.

They are those of `messages.Pool`: the same properties, bodies, sizes and numbers. A lap is one buffer of 10,000
TRANSFER frames, one message a frame; what differs from lap to lap is stamped into it by numpy, for all of them at once:

    size | 2 0 0 0 | transfer | list: handle, delivery-id, tag, format 0, settled | payload
                                 |            |            |
                                 |            |            the delivery-id again
                                 |            the number of the message
                                 number % destinations
    payload: header (durable), properties (message-id), application-properties (seq and others), data

and the six digits of the lap's number in the message-id, the property `seq` and the tag at the end of the body.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.messages import LAP, MARK, FrameTemplate, Message, Pool
from protocols.amqp.encode import encode
from protocols.amqp.message import DATA, encode_application_properties, encode_section
from protocols.amqp.message import Message as Encoded
from protocols.amqp.performatives import Header, Properties

_HEAD: Final = b"\x02\x00\x00\x00\x00\x53\x14\xc0%c\x05\x52%c\x70"  # up to the delivery-id
#: Where in each frame these are.
DELIVERY_ID_AT: Final = 4 + len(_HEAD % (0, 0))
DELIVERY_TAG_AT: Final = DELIVERY_ID_AT + 6


class AmqpPool:
    """The frames of one lap. offsets: LAP + 1 positions; message i of a lap is lap[offsets[i]:offsets[i + 1]]."""

    def __init__(self, shape: FrameTemplate) -> None:
        self.shape = shape
        self.messages = Pool(shape).messages
        frames = [self._frame(index, message) for index, message in enumerate(self.messages)]
        self.offsets = [0, *accumulate(len(frame) for frame in frames)]
        lap = b"".join(frames)
        self._lap = np.frombuffer(lap, np.uint8).copy()
        starts = np.array(self.offsets[:-1])
        self._ids = [starts + at for at in (DELIVERY_ID_AT, DELIVERY_TAG_AT)]
        self._marks = np.array(list(_places(lap)))

    def lap(self, number: int) -> bytes:
        """All frames of lap `number`."""
        ids = np.arange(number * LAP, (number + 1) * LAP, dtype=">u4").view(np.uint8).reshape(LAP, 4)
        for places in self._ids:
            _put(self._lap, places, ids)
        _put(self._lap, self._marks, np.frombuffer(b"%06d" % number, np.uint8))
        return self._lap.tobytes()

    def difference(self, number: int, payload: bytes) -> str | None:
        """What of message `number` the broker changed in this payload; None: nothing."""
        message, lap = self.messages[number % LAP], b"%06d" % (number // LAP)
        found = Encoded(payload)
        body = b"".join(bytes(part) for part in found.body()[1] if isinstance(part, bytes))
        if body != message.body.replace(MARK, lap):
            return f"body is {body!r}"
        properties = found.application_properties
        if properties != (wanted := _properties(message, lap)):
            return f"application properties are {properties!r}, not {wanted!r}"
        if found.properties.message_id != wanted["seq"]:
            return f"the message-id is {found.properties.message_id!r}"
        if found.header.durable != self.shape.durable:
            return f"durable is {found.header.durable}"
        return None

    def _frame(self, index: int, message: Message) -> bytes:
        properties = _properties(message, MARK)
        payload = encode(Header(self.shape.durable)) + encode(Properties(str(properties["seq"])))
        payload += encode_application_properties(dict(properties)) + encode_section(DATA, message.body)
        rest = bytes(4) + b"\xa0\x04" + bytes(4) + b"\x43" + (b"\x42" if self.shape.durable else b"\x41")
        head = _HEAD % (4 + len(rest), index % self.shape.destinations)
        frame = head + rest + payload
        return (4 + len(frame)).to_bytes(4) + frame


def _properties(message: Message, lap: bytes) -> dict[str, str]:
    pairs = [line.replace(MARK, lap).decode().split(":", 1) for line in message.properties]
    return dict(pairs)


def _put(lap: npt.NDArray[np.uint8], places: npt.NDArray[np.int64], values: npt.NDArray[np.uint8]) -> None:
    """Write values, or rows of them, at each of these places."""
    for at in range(values.shape[-1]):
        lap[places + at] = values[..., at]


def _places(lap: bytes) -> list[int]:
    found = []
    at = lap.find(MARK)
    while at >= 0:
        found.append(at)
        at = lap.find(MARK, at + len(MARK))
    return found
