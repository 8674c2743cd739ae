"""Clashes: settings that contradict each other, or that break a rule of the engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from broker.config.explain import format_value
from broker.config.model import Config
from broker.engine import InvalidFilter
from broker.engine.model.errors import InvalidName
from broker.engine.model.names import DEFAULT_SYNTAX, WildcardSyntax
from broker.engine.model.settings_match import InvalidMatch


class Clash(NamedTuple):
    """All keys involved, first the one to change, whose value it is."""

    keys: tuple[str, ...]
    value: str
    fix: str


def checked(rule: Callable[[str], object], key: str, value: str, fix: str) -> Iterator[Clash]:
    """The clash of a name, a selector or a match with a rule of the engine, if there is one."""
    try:
        rule(value)
    except (InvalidName, InvalidFilter, InvalidMatch) as error:
        yield Clash((key,), format_value(value), f"{error}: {fix}")


def syntax_of(config: Config) -> WildcardSyntax:
    """The special characters of names; the defaults if those of the configuration contradict each other."""
    try:
        return config.wildcard_addresses.syntax()
    except ValueError:
        return DEFAULT_SYNTAX
