"""Why a message died: the broker's annotations, and what the reason means."""

from __future__ import annotations

from dataclasses import dataclass

from broker.console.reasons import reason
from broker.engine.model.message import (
    DL_ATTEMPTS,
    DL_CLIENT,
    DL_CLIENT_ADDRESS,
    DL_COUNT,
    DL_FIRST_ADDRESS,
    DL_FIRST_QUEUE,
    DL_FIRST_REASON,
    DL_FIRST_TIME,
    DL_LINK,
    DL_REASON,
    DL_REMOTE_ADDRESS,
    DL_REMOTE_BROKER,
    DL_TEXT,
    DL_TIME,
    ORIG_ADDRESS,
    ORIG_QUEUE,
    Annotations,
    Message,
)
from broker.reasons.reason import Kind, Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """The last death of a message; `deaths`: how many there were, `first_...`: the first of several.

    `about` explains the reason, None for a word that the broker does not use.  Times in ms since the epoch.
    """

    reason: str
    about: Reason | None
    words: str
    time: int
    attempts: int
    deaths: int
    queue: str
    client: str
    remote: str
    link: str
    remote_address: str
    remote_broker: str
    first_queue: str
    first_reason: str
    first_time: int


def death_of(message: Message) -> Death | None:
    """The annotations about a message's death; None: it did not die."""
    notes = message.header.annotations or {}
    word = notes.get(DL_REASON)
    if not isinstance(word, str):
        return None

    def text(name: str) -> str:
        return str(notes.get(name, ""))

    def number(name: str) -> int:
        value = notes.get(name, 0)
        return value if isinstance(value, int) else 0

    return Death(
        reason=word,
        about=reason(Kind.DEAD_LETTER, word),
        words=text(DL_TEXT),
        time=number(DL_TIME),
        attempts=number(DL_ATTEMPTS),
        deaths=number(DL_COUNT),
        queue=_place(notes),
        client=text(DL_CLIENT),
        remote=text(DL_CLIENT_ADDRESS),
        link=text(DL_LINK),
        remote_address=text(DL_REMOTE_ADDRESS),
        remote_broker=text(DL_REMOTE_BROKER),
        first_queue=text(DL_FIRST_QUEUE),
        first_reason=text(DL_FIRST_REASON),
        first_time=number(DL_FIRST_TIME),
    )


def _place(notes: Annotations) -> str:
    """Where it last died, as far as annotated: a later move overwrites the origin, but not the first death."""
    queue, address = (DL_FIRST_QUEUE, DL_FIRST_ADDRESS) if notes.get(DL_COUNT) == 1 else (ORIG_QUEUE, ORIG_ADDRESS)
    return str(notes.get(queue) or notes.get(address, ""))
