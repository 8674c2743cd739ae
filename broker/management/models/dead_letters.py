"""Groups of dead letters as the API shows them."""

from __future__ import annotations

from pydantic import Field

from broker.engine import DeadLetterGroups
from broker.management.models.base import Shown, model_of


class GroupValues(Shown):
    """What the dead letters of a group have in common; null: they were not grouped by it."""

    queue: str | None = Field(description="The queue that holds them.")
    reason: str | None = Field(description="Why they last died; empty: they did not die, but were sent or moved there.")
    origin: str | None = Field(description="The queue where they last died; if they were on none, the address.")
    first_origin: str | None = Field(description="The queue or address where they first died.")
    words: str | None = Field(
        description="What the consumer or the broker said, without identifiers; empty if they expired."
    )
    link: str | None = Field(description="The link on which they died; empty: on none.")
    remote_address: str | None = Field(description="The address behind the link.")
    remote_broker: str | None = Field(description="The name of the broker behind the link.")
    hour: int | None = Field(description="The start of the UTC hour in which they last died; 0: they did not die.")


class DeathCount(Shown):
    """How many messages, and when the first and the last of them died or, if they did not die, were sent."""

    messages: int
    oldest: int
    newest: int


class GroupShown(DeathCount):
    """A group of dead letters."""

    group: GroupValues


class GroupList(Shown):
    """Dead letters by group, the largest group first."""

    queues: list[str] = Field(description="The queues that were searched.")
    groups: list[GroupShown]
    others: DeathCount = Field(description="The messages of all groups beyond the first 1,000.")
    total: DeathCount
    unreadable: int = Field(description="Messages on disk that cannot be read; they are in no group.")
    now: int = Field(description="The broker's time, to compute ages.")


def group_list(counted: DeadLetterGroups, now: int) -> GroupList:
    """The counted groups as a model."""
    return model_of(
        GroupList,
        counted,
        queues=list(counted.queues),
        groups=[
            model_of(GroupShown, count, group=model_of(GroupValues, group), messages=count.count)
            for group, count in counted.groups()
        ],
        others=model_of(DeathCount, counted.others, messages=counted.others.count),
        total=model_of(DeathCount, counted.total, messages=counted.total.count),
        now=now,
    )
