"""Records what clients know of each message they sent: the ledger that a broker is checked against after a crash.

A message's entry only ever grows: sent, confirmed, delivered, acknowledged, confirmed again.  From it follows where the
message must be, may be, and must not be.  A message that is on no queue after a restart is struck out: only its outcome
is counted, and it must never appear again.  So the ledger is as large as the broker's queues, however long the storm.
"""

from __future__ import annotations

import threading
import zlib
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import Final


class Kind(Enum):
    """The fate of a message, unless a crash intervenes."""

    PLAIN = "acknowledged at once"
    LAZY = "acknowledged when it comes for the third time"
    POISON = "refused until it is dead"
    REJECTED = "dead-lettered at the first refusal"
    BRIEF = "expires soon"
    PAIR = "one of two that are sent in a transaction"


#: How often each kind is sent.
WEIGHTS: Final = {Kind.PLAIN: 60, Kind.LAZY: 15, Kind.POISON: 4, Kind.REJECTED: 4, Kind.BRIEF: 7, Kind.PAIR: 10}

QUEUES: Final = ("storm.loose", "storm.strict")

ATTEMPTS: Final = 4

#: How many refusals make a message a dead letter.
DEADLY: Final = {Kind.POISON: ATTEMPTS, Kind.REJECTED: 1}


class Outcome(Enum):
    """The outcome of a message."""

    CONSUMED = "acknowledged by its consumer, or at the end of the storm"
    DEAD = "taken from the dead letters"
    EXPIRED = "taken from the expired"
    UNSENT = "never confirmed to its sender"


@dataclass(slots=True)
class Entry:
    """One message."""

    number: int
    kind: Kind
    queue: str
    body: bytes = field(repr=False)
    partner: int = 0  # the other message of its transaction
    confirmed: bool = False  # its receipt, or that of its COMMIT, has arrived
    deliveries: int = 0  # how often it reached the consumer
    reached: bool = False  # whether it did since the broker's last start
    acked: bool = False  # an ACK for it was sent
    gone: bool = False  # ... and confirmed
    buried: bool = False  # it was consumed from the dead-letter or expiry queue, and that was confirmed
    nacks: int = 0  # confirmed ones
    silent: bool = False  # refused by a client that gave no reason
    stored: bool = False  # it was there after a restart


@dataclass(slots=True)
class Ledger:
    """The messages that may be on a queue, by number.  The clients' threads write to it, one lock for all."""

    random: Random
    entries: dict[int, Entry] = field(default_factory=dict)
    lock: threading.Condition = field(default_factory=threading.Condition)
    receipts: int = 0
    sent: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)  # of the messages struck out

    def new(self) -> list[Entry]:
        """Make the next message to send, or the next two."""
        kind = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        queue = self.random.choice(QUEUES)
        with self.lock:
            made = [self._enter(kind, queue) for _ in range(2 if kind is Kind.PAIR else 1)]
            if kind is Kind.PAIR:
                made[0].partner, made[1].partner = made[1].number, made[0].number
        return made

    def new_single(self) -> Entry:
        """Make the next message to send, for a client that has neither transactions nor times to live."""
        kinds = [kind for kind in WEIGHTS if kind not in (Kind.PAIR, Kind.BRIEF)]
        with self.lock:
            kind = self.random.choices(kinds, [WEIGHTS[kind] for kind in kinds])[0]
            return self._enter(kind, self.random.choice(QUEUES))

    def _enter(self, kind: Kind, queue: str) -> Entry:
        self.sent = number = self.sent + 1
        filling = self.random.randbytes(self.random.choice((10, 100, 1_000, 10_000)))
        entry = self.entries[number] = Entry(number, kind, queue, b"%d\0" % number + filling)
        return entry

    def of(self, body: bytes) -> Entry:
        """Return the message with this body, byte for byte."""
        number = int(body.partition(b"\0")[0])
        assert number in self.entries, f"message {number} was delivered, and {self._unknown(number)}"
        entry = self.entries[number]
        assert zlib.crc32(entry.body) == zlib.crc32(body), f"message {entry.number} has another body"
        return entry

    def confirm(self, receipt: str) -> None:
        """Record a receipt: `what:number[,number]`."""
        what, _, numbers = receipt.partition(":")
        with self.lock:
            for number in map(int, numbers.split(",")):
                entry = self.entries[number]
                if what == "send":
                    entry.confirmed = True
                elif what == "ack":
                    entry.gone = True
                elif what == "nack":
                    entry.nacks += 1
                elif what == "bury":
                    entry.buried = True
            self.receipts += 1
            self.lock.notify_all()

    def await_receipts(self, number: int, seconds: float) -> None:
        """Wait until that many more receipts have arrived, or for `seconds`."""
        with self.lock:
            wanted = self.receipts + number
            self.lock.wait_for(lambda: self.receipts >= wanted, seconds)

    def restarted(self) -> None:
        """Note a restart of the broker: no message has reached a consumer since."""
        for entry in self.entries.values():
            entry.reached = False

    def check(self, found: dict[int, list[str]]) -> list[str]:
        """Return what is wrong with the places of the messages: `found` has the queues of each number."""
        strangers = found.keys() - self.entries.keys()
        wrong = [f"message {number} is on {found[number]}, and {self._unknown(number)}" for number in strangers]
        for number, entry in self.entries.items():
            places = found.get(number, [])
            problem = self._problem(entry, places, found)
            if problem:
                wrong.append(f"message {number}: {problem}; it is on {places or 'no queue'}: {entry}")
        return wrong

    def _problem(self, entry: Entry, places: list[str], found: dict[int, list[str]]) -> str:
        over = entry.gone or entry.buried
        if len(places) > 1:
            return "there more than once"
        if over and places:
            return "back although its end was confirmed"
        if (entry.confirmed or entry.stored) and not places and not over and not entry.acked:
            return "lost although its receipt had arrived, or a restart had found it"
        if places and places[0] in QUEUES and entry.nacks >= DEADLY.get(entry.kind, entry.nacks + 1):
            return "not with the dead although its last refusal was confirmed"
        if entry.partner and not entry.confirmed:
            other = self.entries[entry.partner]
            if self._existed(entry, places) != self._existed(other, found.get(other.number, [])):
                return f"half a transaction, {other.number} is the other half"
        return ""

    def _unknown(self, number: int) -> str:
        return "was on no queue after an earlier restart" if number <= self.sent else "was never sent"

    def strike_out(self, found: dict[int, list[str]]) -> None:
        """Strike out the messages that are on no queue after a restart; call this after a good `check`."""
        for number in self.entries.keys() - found.keys():
            self.outcomes[self._outcome(self.entries.pop(number))] += 1
        for entry in self.entries.values():
            entry.stored = True
            entry.partner = 0  # the transaction was whole, or is not the first that lost its other half since

    @staticmethod
    def _outcome(entry: Entry) -> Outcome:
        if not entry.confirmed:
            return Outcome.UNSENT
        if entry.buried and entry.kind in DEADLY:
            return Outcome.DEAD
        return Outcome.EXPIRED if entry.buried and entry.kind is Kind.BRIEF else Outcome.CONSUMED

    @staticmethod
    def _existed(entry: Entry, places: list[str]) -> bool:
        return bool(places) or entry.deliveries > 0
