"""The receiving half of a run: frames cut at their NUL, their tags checked, acknowledgements sent.

What is proved of every message, for some 0.3 us: it comes exactly once and in the order of its destination. The
messages of destination d are numbered d, d + n, d + 2n, ... (n destinations), so one list of expected numbers says at
once whether the next one is lost, repeated or out of order. With several producers, each of which has an order of its
own, there are more such lanes than destinations. One message a read is compared byte for byte besides.

Bodies and headers hold no NUL, so cutting at NUL is exact.
"""

from __future__ import annotations

from typing import Final, Literal

from bench.link import BrokerFailed, Link
from bench.messages import NUMBER_BYTES, Pool

AckMode = Literal["auto", "client", "client-individual"]
SETTLED: Final = b"settled"  # receipt of the last acknowledgement
CLOSED: Final = b"closed"  # receipt of the last UNSUBSCRIBE


class Consumer:
    """Receives messages 0, 1, 2, ... over one subscription a destination.

    received: messages so far. settled: the broker has confirmed the acknowledgement of the last one (or ack is auto).
    ack_every: messages of one destination to an acknowledgement; 1 with client-individual.
    """

    __slots__ = (
        "_acks", "_carry", "_last", "_link", "_out", "_pool", "_want",
        "ack", "ack_every", "acked", "closed", "received", "settled", "subscribed",
    )  # fmt: skip

    def __init__(
        self, link: Link, pool: Pool, ack: AckMode = "auto", ack_every: int = 1, *, producers: int = 1
    ) -> None:
        self._link = link
        self._pool = pool
        self._carry = b""
        self._out = b""
        self._want = list(range(pool.shape.lanes(producers)))
        self._last: dict[int, bytes] = {}  # lane -> newest frame not yet acknowledged
        self._acks: list[bytes] = []  # ids to acknowledge
        self.ack: AckMode = ack
        self.ack_every = ack_every
        self.acked = 0  # ACK frames sent
        self.received = 0
        self.subscribed = 0
        self.settled = ack == "auto"
        self.closed = False

    def subscribe(self, headers: tuple[str, ...]) -> None:
        """Asks for all destinations; `subscribed` counts the broker's receipts."""
        for number in range(self._pool.shape.destinations):
            destination = self._pool.shape.destination(number)
            lines = [f"id:{number}", f"destination:{destination}", f"ack:{self.ack}", f"receipt:sub-{number}", *headers]
            self._out += ("SUBSCRIBE\n" + "\n".join(lines) + "\n\n\0").encode()
        self.flush()

    def unsubscribe(self) -> None:
        """Ends all subscriptions; `closed` is set when the broker has answered. What comes after is too much."""
        for number in range(self._pool.shape.destinations):
            receipt = CLOSED if number == self._pool.shape.destinations - 1 else b"unsub"
            self._out += b"UNSUBSCRIBE\nid:%d\nreceipt:%b\n\n\0" % (number, receipt)
        self.flush()

    @property
    def destinations(self) -> int:
        return self._pool.shape.destinations

    def flush(self) -> None:
        """Sends what the socket takes of the frames that wait."""
        if self._out:
            self._out = self._out[self._link.send(self._out) :]

    def pump(self, total: int | None) -> int:
        """One read: checks and acknowledges what came; returns its bytes. Raises BrokerFailed when a check fails."""
        data = self._link.receive()
        if data:
            frames = data.split(b"\0")
            frames[0] = self._carry + frames[0]
            self._carry = frames.pop()
            if frames:
                self._take(frames)
                if self.ack != "auto":
                    self._acknowledge(final=self.received == total)
        self.flush()
        return len(data)

    def settle_early(self) -> None:
        """Acknowledges all that came: for a broker that waits for credit before ack_every is reached."""
        if self.ack != "auto" and not self.settled:
            self._gather()
            self._acknowledge(final=False)
            self.flush()

    def _take(self, frames: list[bytes]) -> None:
        try:
            numbers = [int(frame[-NUMBER_BYTES:]) for frame in frames]
        except ValueError:  # rare: not all of them are messages
            frames = self._control(frames)
            numbers = [int(frame[-NUMBER_BYTES:]) for frame in frames]
        if not frames:
            return
        if self.ack == "auto":
            self._check(numbers, frames)
        else:
            self._check_and_note(numbers, frames)
        self.received += len(frames)
        if difference := self._pool.difference(numbers[0], frames[0].lstrip(b"\n")):
            raise BrokerFailed(f"message {numbers[0]} was changed on its way: {difference}")

    def _check(self, numbers: list[int], frames: list[bytes]) -> None:
        want = self._want
        count = len(want)
        for number in numbers:
            destination = number % count
            if want[destination] != number:
                raise self._disorder(number, frames[numbers.index(number)])
            want[destination] = number + count

    def _check_and_note(self, numbers: list[int], frames: list[bytes]) -> None:
        want = self._want
        count = len(want)
        cycle = count * self.ack_every
        due = cycle - count  # numbers at or above it in their cycle are each ack_every-th of their destination
        last = self._last
        acks = self._acks
        for number, frame in zip(numbers, frames, strict=True):
            destination = number % count
            if want[destination] != number:
                raise self._disorder(number, frame)
            want[destination] = number + count
            if number % cycle >= due:
                acks.append(_ack_id(frame))
                last.pop(destination, None)
            else:
                last[destination] = frame

    def _acknowledge(self, *, final: bool) -> None:
        if final:
            self._gather()
        if not self._acks:
            return
        frames = [b"ACK\nid:%b\n\n\0" % ack for ack in self._acks]
        if final:
            frames[-1] = b"ACK\nid:%b\nreceipt:%b\n\n\0" % (self._acks[-1], SETTLED)
        self._out += b"".join(frames)
        self.acked += len(frames)
        self._acks.clear()

    def _gather(self) -> None:
        self._acks += [_ack_id(frame) for frame in self._last.values()]
        self._last.clear()

    def _control(self, frames: list[bytes]) -> list[bytes]:
        """Takes receipts out of `frames`; the rest are messages."""
        messages = []
        for frame in frames:
            kind = frame.lstrip(b"\r\n")
            if kind.startswith(b"MESSAGE"):
                messages.append(frame)
            elif kind.startswith(b"RECEIPT"):
                self.subscribed += b"receipt-id:sub-" in kind
                self.settled = self.settled or b"receipt-id:" + SETTLED in kind
                self.closed = self.closed or b"receipt-id:" + CLOSED in kind
            else:
                raise BrokerFailed(f"the consumer was told {kind.decode(errors='replace')}")
        return messages

    def _disorder(self, number: int, frame: bytes) -> BrokerFailed:
        count = len(self._want)
        want = self._want[number % count]
        fault = "is missing" if number > want else "comes again or out of order"
        culprit = want if number > want else number
        return BrokerFailed(
            f"message {culprit} {fault} (destination {number % count}, expected {want}, got {number}): {frame[:300]!r}"
        )


def _ack_id(frame: bytes) -> bytes:
    start = frame.find(b"\nack:") + 5
    if start < 5:
        raise BrokerFailed(f"MESSAGE without ack header: {frame[:300]!r}")
    return frame[start : frame.index(b"\n", start)]
