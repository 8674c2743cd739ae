"""Reasons and codes as the API shows them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from broker.management.models.base import Shown
from broker.reasons.reason import Kind, Reason

KindName = Literal["dead-letter", "removal", "stays", "error", "http", "amqp", "mqtt", "stomp", "log", "exit", "ibm-mq"]

assert set(KindName.__args__) == {each.value for each in Kind}  # type: ignore[attr-defined]


class ReasonShown(Shown):
    """A word that Bartleby uses, what it means, and what to do."""

    kind: KindName
    word: str
    number: int | None = Field(description="Its number in the protocol, over HTTP its status; null: it has none.")
    title: str | None = Field(description="Of a problem of the management API, its title.")
    return_code: int | None = Field(description="Of an MQTT reason code, the return code in CONNACK before MQTT 5.")
    level: str | None = Field(description="Of a log event, its level.")
    meaning: str
    action: str = Field(description="What to do.")
    see: list[str] = Field(description="What is sent to clients for it, or its causes, as KIND WORD.")


class ReasonList(Shown):
    """Reasons, by kind."""

    reasons: list[ReasonShown]


def reasons_shown(reasons: list[Reason]) -> ReasonList:
    """Some reasons."""
    return ReasonList(reasons=[ReasonShown.model_validate(reason.view()) for reason in reasons])
