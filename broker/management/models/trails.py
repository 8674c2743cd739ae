"""A message's trail as the API has it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Literal

from pydantic import Field

from broker.management.models.base import Shown
from store.trail import Trail, TrailStep
from store.trail_text import told

StepName = Literal["stored", "copied", "delivering", "in-flight", "returned", "scheduled", "died", "expired", "left"]


class StepShown(Shown):
    """One record of the journal about the message.  What a record does not say is 0 or empty."""

    kind: StepName = Field(
        description=(
            "stored on queues, copied forward in the journal, delivering to a consumer, in flight to a session's "
            "client, returned by it, scheduled, died, expired, left a queue."
        )
    )
    told: str = Field(description="The step in a sentence.")
    message: int = Field(description="The id that the message had.")
    time: int
    position: int = Field(description="The record's place in the order of the journal.")
    segment: int
    offset: int = Field(description="The record's first byte in its segment.")
    queues: list[str] = Field(description="Those that took it, or the one that the record is about.")
    protocol: str
    address: str = Field(description="Where it was stored; of a death, where it had been sent.")
    size: int
    user: str = Field(description="The sender's.")
    client: str = Field(description="Of a stored message the sender's, else the last consumer's.")
    remote: str
    reason: str = Field(description="Why it died or left.")
    text: str = Field(description="What was said when it died.")
    attempts: int = Field(description="Failed deliveries so far.")
    redelivered: bool
    first_failure: int
    consumers: int = Field(description="Consumers on the queue when it expired.")
    consumer_id: int
    packet_id: int
    sent: int = Field(description="When the broker first took it.")
    expiration: int
    scheduled: int = Field(description="Until when it waits.")
    new_id: int = Field(description="The message that it became.")
    old_id: int = Field(description="The message that it was before.")


class PlaceShown(Shown):
    """Where the message is now, under which id."""

    message: int
    queue: str


class TrailShown(Shown):
    """All that the journal knows of a message, under all the ids that it had."""

    ids: list[int] = Field(description="Oldest first.")
    steps: list[StepShown] = Field(description="In the order of the journal.")
    places: list[PlaceShown]
    ended: str = Field(description="Why it left its last queue, if it is on none; empty: the journal does not say.")
    problems: list[str] = Field(description="What the journal no longer has, and damage, in sentences.")
    segments: int = Field(description="Segments of the journal, kept ones too.")
    opened: int = Field(description="How many of them were searched.")


def trail_shown(trail: Trail) -> TrailShown:
    """All of it."""
    return TrailShown(
        ids=trail.ids,
        steps=[_step(step) for step in trail.steps],
        places=[PlaceShown(message=place.message, queue=place.queue) for place in trail.places],
        ended=trail.ended,
        problems=trail.problems,
        segments=trail.segments,
        opened=trail.opened,
    )


def _step(step: TrailStep) -> StepShown:
    fields = asdict(step) | {"kind": step.kind.value, "queues": list(step.queues)}
    return StepShown(told=told(step), **fields)
