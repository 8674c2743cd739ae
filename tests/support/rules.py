"""Rules for dead letters in the format of the configuration."""

from __future__ import annotations

from broker.config import RuleSection


def sections(*rules: dict[str, object]) -> tuple[RuleSection, ...]:
    """Return the sections of rules, keys as in the file; the name defaults to the action and the position."""
    return tuple(
        RuleSection.model_validate({"name": f"{rule['action']}-{number}", **rule})
        for number, rule in enumerate(rules, start=1)
    )
