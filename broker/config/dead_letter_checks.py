"""Checks of the rules for dead letters."""

from __future__ import annotations

from collections.abc import Iterator

from broker.config.clash import Clash, checked, syntax_of
from broker.config.dead_letter_rules import RuleSection
from broker.config.model import Config
from broker.engine import RULES_MAX, Action, DeadLetterRule, compile_filter, unreached
from broker.engine.model.names import check_target
from broker.engine.model.row import kebab
from broker.engine.model.settings_match import matcher

SECTION = "dead-letter-rules"


def dead_letter_rule_problems(config: Config) -> Iterator[Clash]:
    """The problems in [[dead-letter-rules]]."""
    sections = config.dead_letter_rules
    if len(sections) > RULES_MAX:
        yield Clash((SECTION,), str(len(sections)), f"give at most {RULES_MAX} rules")
    names: set[str] = set()
    sound = True
    for section in sections:
        found = list(_problems(config, section))
        if section.name in names:
            fix = "this name appears twice: give each rule its own"
            found.append(Clash((f"{_key(section.name)}.name",), "", fix))
        names.add(section.name)
        sound = sound and not found
        yield from found
    if sound:
        yield from _unreached(rules_of(config))


def rules_of(config: Config) -> list[DeadLetterRule]:
    """The engine's rules.  Raises InvalidMatch, InvalidFilter."""
    wildcards = config.wildcard_addresses
    return [each.rule(syntax_of(config), wildcards.literal_match_markers) for each in config.dead_letter_rules]


def _problems(config: Config, section: RuleSection) -> Iterator[Clash]:
    key = _key(section.name)
    syntax = syntax_of(config)
    for name in section.without_effect():
        keys = (f"{key}.{kebab(name)}", f"{key}.action")
        yield Clash(keys, "", f"it has no effect with {section.action}: remove it")
    if section.action is Action.MOVE:
        fix = "name one address or queue"
        yield from checked(lambda name: check_target(name, syntax), f"{key}.to", section.to, fix)
    yield from checked(compile_filter, f"{key}.selector", section.selector, "correct the selector")
    markers = config.wildcard_addresses.literal_match_markers
    for name in ("queue", "origin_address", "origin_queue"):
        match = getattr(section, name)
        if match:
            yield from checked(
                lambda text: matcher(text, syntax=syntax, literal_markers=markers),
                f"{key}.{kebab(name)}",
                match,
                "correct it",
            )


def _unreached(rules: list[DeadLetterRule]) -> Iterator[Clash]:
    found = unreached(rules)
    if found is not None:
        rule, before = found
        fix = f"{_key(before.name)} matches every dead letter: put it last, or remove this rule"
        yield Clash((_key(rule.name), _key(before.name)), "", fix)


def _key(name: str) -> str:
    return f'{SECTION}["{name}"]'
