"""A message's trail as the API shows it."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from broker.management.models.base import Shown, model_of
from store.trail.steps import Trail
from store.trail.text import sentence

StepName = Literal["stored", "copied", "delivering", "in-flight", "returned", "scheduled", "died", "expired", "left"]


class StepShown(Shown):
    """One record of the journal about the message.  Fields that the record does not have are 0 or empty."""

    kind: StepName = Field(
        description=(
            "stored on queues, copied forward in the journal, delivering to a consumer, in flight to a session's "
            "client, returned by it, scheduled, died, expired, left a queue."
        )
    )
    told: str = Field(description="The step as a sentence.")
    message: int = Field(description="The id that the message had at this step.")
    time: int
    position: int = Field(description="The record's place in the order of the journal.")
    segment: int
    offset: int = Field(description="The record's first byte in its segment.")
    queues: list[str] = Field(description="The queues that took it, or the queue of the record.")
    protocol: str
    address: str = Field(description="The address it was stored for; of a death, the address it had been sent to.")
    size: int
    user: str = Field(description="The sender's.")
    client: str = Field(description="The client id of the sender for a stored message, else of the last consumer.")
    remote: str
    reason: str = Field(description="Why it died or left.")
    text: str = Field(description="What the consumer or the broker said when it died.")
    attempts: int = Field(description="Failed deliveries so far.")
    redelivered: bool
    first_failure: int
    consumers: int = Field(description="Consumers on the queue when it expired.")
    consumer_id: int
    packet_id: int
    sent: int = Field(description="When the broker first accepted it.")
    expiration: int
    scheduled: int = Field(description="The earliest time of its delivery.")
    new_id: int = Field(description="The id of the message that it became.")
    old_id: int = Field(description="The id of the message that it was before.")
    actor: str = Field(description="Who moved, retried or removed it: user or token, operator, address.")
    task: int = Field(description="The task by which that was done; 0: by none.")


class PlaceShown(Shown):
    """A queue that holds the message now, and its id there."""

    message: int
    queue: str


class TrailShown(Shown):
    """Everything that the journal records about a message, under all the ids it had."""

    ids: list[int] = Field(description="Its ids, oldest first.")
    steps: list[StepShown] = Field(description="In the order of the journal.")
    places: list[PlaceShown]
    ended: str = Field(description="Why it left its last queue, if it is on none; empty: unknown.")
    problems: list[str] = Field(description="What the journal no longer has, and what is damaged, in sentences.")
    segments: int = Field(description="Segments of the journal, including kept ones.")
    opened: int = Field(description="How many of them were searched.")


def trail_shown(trail: Trail) -> TrailShown:
    """A trail as a model."""
    steps = [
        model_of(StepShown, step, told=sentence(step), kind=step.kind.value, queues=list(step.queues))
        for step in trail.steps
    ]
    return model_of(TrailShown, trail, steps=steps, places=[model_of(PlaceShown, place) for place in trail.places])
