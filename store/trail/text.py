"""Renders the steps of a message's trail as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from store.counted import counted
from store.trail.steps import StepKind, TrailStep

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def sentence(step: TrailStep) -> str:
    """A step as a sentence."""
    return _SENTENCES[step.kind](step)


def unknown_sentence(id: int, next_id: int, problems: Sequence[str] = ()) -> str:
    """Why nothing is known of a message; ids from `next_id` on were never used, `problems` are the trail's."""
    if id >= next_id:
        return f"there never was a message {id}: ids count from 1, and this broker's have come to {next_id - 1} so far"
    found = (
        f"the journal knows nothing of message {id}: it was not durable, or it has left and the journal has dropped "
        "its records, or this is not the id of a message: queues, addresses and tasks have ids too"
    )
    return "; ".join([found, *problems])


def _stored(step: TrailStep) -> str:
    verb = "stored" if step.kind is StepKind.STORED else "copied forward"
    parts = [f"{verb} on {step.address}, {counted(step.size, 'byte')}"]
    if step.protocol:
        parts[0] += f" by {step.protocol}"
    if step.user:
        parts.append(f"from {step.user}")
    if step.old_id:
        parts.append(f"it was {step.old_id} before")
    if step.scheduled:
        parts.append(f"not before {_time(step.scheduled)}")
    if step.expiration:
        parts.append(f"expires {_time(step.expiration)}")
    return "; ".join(parts)


def _time(ms: int) -> str:
    return (_EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds")


def _scheduled(step: TrailStep) -> str:
    return f"waits until {_time(step.scheduled)}" if step.scheduled else "waits no longer"


def _left(step: TrailStep) -> str:
    by = f" in task {step.task} of {step.actor}" if step.actor else ""
    return f"left: {step.reason}{by}"


def _died(step: TrailStep) -> str:
    said = f"died after {counted(step.attempts, 'delivery', 'deliveries')}: {step.reason}"
    if step.text:
        said += f" ({step.text})"
    if step.client or step.remote:
        said += f", last held by {step.client or step.remote}"
    return f"{said}; {_successor(step)}"


def _expired(step: TrailStep) -> str:
    return f"expired ({_time(step.expiration)}), {counted(step.consumers, 'consumer')} on the queue; {_successor(step)}"


def _successor(step: TrailStep) -> str:
    return f"lives on as {step.new_id}" if step.new_id else "nothing is left of it"


_SENTENCES: Final[Mapping[StepKind, Callable[[TrailStep], str]]] = {
    StepKind.STORED: _stored,
    StepKind.COPIED: _stored,
    StepKind.LEFT: _left,
    StepKind.RETURNED: lambda step: f"came back, failed {counted(step.attempts, 'time')} so far",
    StepKind.DELIVERING: lambda step: f"about to leave for consumer {step.consumer_id}",
    StepKind.SCHEDULED: _scheduled,
    StepKind.IN_FLIGHT: lambda step: f"about to leave for {step.client} as packet {step.packet_id}",
    StepKind.DIED: _died,
    StepKind.EXPIRED: _expired,
}
