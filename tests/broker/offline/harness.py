"""Directories of brokers that are stopped."""

from __future__ import annotations

from pathlib import Path

from broker.config import Config, load


def report(code: str, /, **fields: str | int) -> None:
    """Nobody asks."""


def config(directory: Path) -> Config:
    shipped = load(None, data=directory)
    journal = shipped.journal.model_copy(update={"segment_size": 64 << 10, "reserve": 4096})
    return shipped.model_copy(update={"journal": journal})


SESSION: dict[str, object] = {
    "protocol": "mqtt",
    "user": "alice",
    "expiry": 1,
    "disconnected": 0,
    "queued_max": -1,
    "drop_oldest": False,
    "will": None,
}


PART: dict[str, object] = {"filter": "a", "qos": 1, "no_local": False, "retain_as_published": False, "identifier": 0}
