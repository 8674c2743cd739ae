"""A naive ledger: who has asked a broker for what, and what was confirmed; and whether another one may be as it is.

It knows nothing of ticks, entries, and queues in memory.  Where it cannot tell whether something was done, as a message
that is gone may have been taken away, it says so (None).
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Final

from broker.engine.model.message import DL_FIRST_QUEUE, Message
from tests.support.sim_broker import SimBroker

#: Where messages go that die or expire.
DEAD: Final = ("DLQ", "ExpiryQueue")

#: The unique part of a body.
BODY: Final = re.compile(rb"<\d+>")


@dataclass(eq=False, slots=True)
class Copy:
    """A message on one queue.  `certain`: it enters that, and nothing but `leaving` takes it from there."""

    body: bytes
    queue: str
    op: Op
    durable: bool = True
    certain: bool = True
    seen: bool = False
    delivered: bool = False  # since it was given back by a client that was content with it
    leaving: list[Op] = field(default_factory=list)


@dataclass(eq=False, slots=True)
class Op:
    """What a client has asked for, in one step: messages that it sends and that it takes away (or lets die).

    `lane`: those of one lane are done in order; `at`: when it was asked for; `asked`: not before a commit.
    """

    lane: str
    at: int
    asked: bool = True
    confirmed: bool = False
    refused: bool = False
    sends: list[Copy] = field(default_factory=list)
    takes: list[tuple[Copy, bool]] = field(default_factory=list)  # whether it dies
    creates: int = 0
    deletes: int = 0
    deleted: list[Copy] = field(default_factory=list)  # what was certainly on the queue that it deletes

    def __repr__(self) -> str:
        what = [*(f"+{c.body!r} on {c.queue}" for c in self.sends), *(f"-{c.body!r}" for c, _ in self.takes)]
        flags = [name for name in ("asked", "confirmed", "refused") if getattr(self, name)]
        return f"{self.lane}@{self.at} {' '.join(flags)}: {', '.join(what)} {self.creates or ''}/{self.deletes or ''}"


class Found:
    """What a recovered broker has: by body and the queue that it was sent to, where it is."""

    def __init__(self, broker: SimBroker) -> None:
        self.places: dict[tuple[bytes, str], list[str]] = defaultdict(list)
        self.ids = set(broker.engine.queues_by_id)
        for name, queue in broker.engine.queues.items():
            for message, _ in broker.engine.messages.browse(queue):
                origin = name
                if name in DEAD:
                    origin = str((message.header.annotations or {})[DL_FIRST_QUEUE])
                self.places[body_in(message), origin].append(name)

    def of(self, copy: Copy) -> str:
        """Where a message is, empty: nowhere."""
        places = self.places.get((copy.body, copy.queue), [])
        assert len(places) <= 1, f"{copy.body!r} of {copy.queue} is on {places}"
        return places[0] if places else ""


def body_in(message: Message) -> bytes:
    """The unique part of a body, whatever the protocol."""
    assert isinstance(message.body, bytes)
    found = BODY.search(message.body)
    assert found is not None
    return found[0]


class Ledger:
    """What was asked for and confirmed."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self.lanes: dict[str, list[Op]] = defaultdict(list)
        self.copies: dict[tuple[bytes, str], Copy] = {}
        self.number = 0

    def op(self, lane: str, *, asked: bool = True) -> Op:
        self.number += 1
        op = Op(lane, self.number)
        if asked:
            self.ask(op)
        else:
            op.asked = False
        return op

    def ask(self, op: Op) -> None:
        """From now on it may have happened."""
        op.asked = True
        self.number += 1
        op.at = self.number
        self.ops.append(op)
        self.lanes[op.lane].append(op)
        for copy, _ in op.takes:
            copy.leaving.append(op)

    def copy(self, op: Op, body: bytes, queue: str, *, durable: bool = True, certain: bool = True) -> Copy:
        copy = Copy(body, queue, op, durable, certain)
        op.sends.append(copy)
        self.copies[body, queue] = copy
        return copy

    def check(self, found: Found) -> None:
        """Compare a broker that has recovered."""
        for (body, queue), places in found.places.items():
            copy = self.copies.get((body, queue))
            assert copy is not None, f"{body!r} is on {places}, and was not sent to {queue}"
            assert copy.op.asked, f"{copy.op} is not committed, and {body!r} is there"
            assert copy.durable, f"{body!r} is not durable, and on {places}"
        for op in self.ops:
            self._check_op(found, op)
        for lane in self.lanes.values():
            lost: Op | None = None
            for op in lane:
                signs = [sent(found, copy) for copy in op.sends]
                done = True in signs or True in [taken(found, copy, op, dies=dies) for copy, dies in op.takes]
                assert lost is None or not done, f"{op} is done, and not {lost}, which came before"
                if False in signs and not op.refused:
                    lost = op

    def _check_op(self, found: Found, op: Op) -> None:
        signs = [sent(found, copy) for copy in op.sends]
        signs += [taken(found, copy, op, dies=dies) for copy, dies in op.takes]
        assert not (True in signs and False in signs), f"{op} is done in part: {signs}"
        if op.confirmed:
            assert False not in signs, f"{op} was confirmed, and is not done: {signs}"
        if op.refused:
            assert True not in signs, f"{op} was refused, and is done: {signs}"
        for copy in op.sends:
            assert not (copy.seen and sent(found, copy) is False), f"{copy.body!r} has been delivered, and is gone"
        if op.creates and op.confirmed and not [each for each in self.ops if each.deletes == op.creates]:
            assert op.creates in found.ids, f"the queue of {op} is not there"
        if op.deletes and op.deletes not in found.ids:
            still = [copy for copy in op.deleted if found.of(copy) == copy.queue]
            assert not still, f"{op} has deleted the queue, and {still} are still there"
        assert not (op.deletes and op.confirmed and op.deletes in found.ids), f"{op} was confirmed, the queue is there"


def sent(found: Found, copy: Copy) -> bool | None:
    """Whether a message was sent, as far as one can tell."""
    if not copy.durable:
        return None
    if found.of(copy):
        return True
    return None if copy.leaving or not copy.certain else False


def taken(found: Found, copy: Copy, op: Op, *, dies: bool) -> bool | None:
    """Whether an operation has taken a message away, as far as one can tell."""
    if not copy.durable:
        return None
    place = found.of(copy)
    if place == copy.queue:
        return False
    alone = copy.leaving == [op] and copy.certain
    return True if alone and place == ("DLQ" if dies else "") else None
