"""The errors of a filter: in its text (reported to its sender), or for one message (which then does not match)."""

from __future__ import annotations

from broker.engine.model.errors import InvalidSelector
from broker.engine.model.names import format_name


class InvalidFilter(InvalidSelector):
    """A filter's text is not an expression of the language, uses what is not supported, or is too large.

    text: the filter without surrounding space; position: 0-based offset in it of the fault; reason: a clause.
    """

    def __init__(self, text: str, position: int, reason: str) -> None:
        self.text = text
        self.position = position
        self.reason = reason
        super().__init__(f"invalid filter: {reason} (character {position + 1} of {format_name(text)})")


class EvaluationError(Exception):
    """An expression has no value for a message, such as text where a number is needed: the message does not match."""
