"""Messages made before the clock starts: all different, and cheap to send.

A *lap* is 10,000 SEND frames joined into one buffer. Every frame carries the mark `~~~~~~` where the number of the lap
belongs (in its `seq` header, its tag, and its receipt header if it has one). The buffer is split once at the marks;
`number.join(pieces)` then makes the next lap in one C call, so that stamping costs some 0.05 us a message.

    SEND                                  sequence number = lap * 10,000 + index, the same number
    destination:/queue/bench.03           in the header and in the tag; the destination is
    persistent:true                       number % destinations, so consecutive messages never
    seq:0000120003                        share one
    colour:... weight:...                 one to four properties of its own
    content-length:97                     in half of the messages

    <random letters>#0000120003           the tag: last 11 bytes of the body
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

LAP: Final = 10_000  # messages; a power of ten, so that lap and index are digits side by side
MARK: Final = b"~~~~~~"  # six digits of lap number: 10^10 messages before it overflows
TAG_BYTES: Final = 11  # "#" and ten digits
NUMBER_BYTES: Final = 10

_ALPHABET: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;-_"
_PROPERTIES: Final = ("colour", "weight", "region", "customer", "trace-id", "tenant", "source", "shelf")


@dataclass(frozen=True, slots=True)
class FrameTemplate:
    """What the messages look like. Sizes are bytes of body, drawn evenly from [size_min, size_max]."""

    size_min: int = 50
    size_max: int = 150
    destinations: int = 16
    prefix: str = "/queue/bench."
    durable: bool = False
    receipt_every: int = 0  # messages between two receipts; 0: only the last message asks for one
    seed: int = 1
    delivered: str = ""  # the prefix that receivers see, where it is another

    def __post_init__(self) -> None:
        if not TAG_BYTES <= self.size_min <= self.size_max:
            raise ValueError(f"sizes must satisfy {TAG_BYTES} <= min <= max, not {self.size_min}..{self.size_max}")
        if self.destinations < 1 or LAP % self.destinations:
            raise ValueError(f"destinations must divide {LAP} evenly (1, 2, 4, 5, 8, 10, 16, ...): {self.destinations}")
        if self.receipt_every < 0 or (self.receipt_every and LAP % self.receipt_every):
            raise ValueError(f"receipt-every must divide {LAP} evenly or be 0, not {self.receipt_every}")

    def destination(self, number: int) -> str:
        return f"{self.prefix}{number:02d}"

    def lanes(self, producers: int) -> int:
        """Messages that keep their order when message n is sent by producer n % producers: n, n + lanes, ...

        Raises ValueError if some producers have other destinations than others.
        """
        lanes = max(producers, self.destinations)
        if lanes % producers or lanes % self.destinations:
            raise ValueError(f"{producers} producers do not share {self.destinations} destinations evenly")
        return lanes


@dataclass(slots=True)
class Message:
    """One prebuilt message; `properties` are header lines without their newline, `mark` still in place of the lap."""

    destination: bytes
    properties: list[bytes]
    body: bytes
    measured: bool  # carries content-length

    def frame(self, extra: list[bytes]) -> bytes:
        lines = [b"SEND", b"destination:" + self.destination, *extra, *self.properties]
        if self.measured:
            lines.append(b"content-length:%d" % len(self.body))
        return b"\n".join(lines) + b"\n\n" + self.body + b"\0"


@dataclass(slots=True)
class Pool:
    """The frames of one lap, ready to be stamped.

    offsets: LAP + 1 byte positions; message i of a lap is lap[offsets[i]:offsets[i + 1]].
    """

    shape: FrameTemplate
    messages: list[Message] = field(init=False)
    offsets: list[int] = field(init=False)
    _pieces: list[bytes] = field(init=False)

    def __post_init__(self) -> None:
        chance = random.Random(self.shape.seed)
        self.messages = [self._message(chance, index) for index in range(LAP)]
        frames = [message.frame(self._control(index)) for index, message in enumerate(self.messages)]
        self.offsets = [0]
        for frame in frames:
            self.offsets.append(self.offsets[-1] + len(frame))
        self._pieces = b"".join(frames).split(MARK)

    def lap(self, number: int) -> bytes:
        """All frames of lap `number`."""
        return _digits(number).join(self._pieces)

    def last(self, number: int, receipt: bytes) -> bytes:
        """Message `number` alone, asking for `receipt`: it ends a run."""
        frame = self.messages[number % LAP].frame([*self._durability(), b"receipt:" + receipt])
        return frame.replace(MARK, _digits(number // LAP))

    def difference(self, number: int, frame: bytes) -> str | None:
        """What of message `number` the broker changed in this MESSAGE frame (whole, NUL excluded); None: nothing."""
        message = self.messages[number % LAP]
        lap = _digits(number // LAP)
        head, _, body = frame.partition(b"\n\n")
        if body != message.body.replace(MARK, lap):
            return f"body is {body!r}"
        lines = head.split(b"\n")
        destination = message.destination
        if self.shape.delivered:
            destination = destination.replace(self.shape.prefix.encode(), self.shape.delivered.encode())
        wanted = [b"destination:" + destination, *message.properties]
        missing = [line for line in (want.replace(MARK, lap) for want in wanted) if line not in lines]
        return f"headers {missing!r} are not in {lines!r}" if missing else None

    def _durability(self) -> list[bytes]:
        return [b"persistent:true"] if self.shape.durable else []

    def _control(self, index: int) -> list[bytes]:
        every = self.shape.receipt_every
        asks = every and index % every == every - 1
        return [*self._durability(), b"receipt:" + MARK + b"%04d" % index] if asks else self._durability()

    def _message(self, chance: random.Random, index: int) -> Message:
        number = MARK + b"%04d" % index
        size = chance.randint(self.shape.size_min, self.shape.size_max)
        text = "".join(chance.choices(_ALPHABET, k=size - TAG_BYTES))
        names = chance.sample(_PROPERTIES, chance.randint(1, 4))
        return Message(
            destination=self.shape.destination(index % self.shape.destinations).encode(),
            properties=[b"seq:" + number, *(f"{name}:{chance.getrandbits(32)}".encode() for name in names)],
            body=text.encode() + b"#" + number,
            measured=chance.random() < 0.5,
        )


def _digits(lap: int) -> bytes:
    digits = b"%06d" % lap
    assert len(digits) == len(MARK), "more laps than the mark has digits"
    return digits
