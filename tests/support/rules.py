"""Rules for dead letters in the format of the configuration."""

from __future__ import annotations

from broker.config import RuleSection


def sections(*rules: dict[str, object]) -> tuple[RuleSection, ...]:
    """The sections of rules, keys as in the file; one without a name is called by its action and its place."""
    return tuple(
        RuleSection.model_validate({"name": f"{rule['action']}-{number}", **rule})
        for number, rule in enumerate(rules, start=1)
    )
