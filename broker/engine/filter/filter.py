"""Filters of queues and consumers, compiled to functions of a message's properties (JMS selectors, as Artemis's)."""

from __future__ import annotations

import functools
import logging
from typing import Final

from broker.engine.filter.errors import EvaluationError
from broker.engine.filter.limits import CACHE_FILTERS_MAX, NODES_PER_MICROSECOND
from broker.engine.filter.values import Judge, Properties

_CONVERT: Final = "convert_string_expressions:"
_HYPHENATED: Final = "hyphenated_props:"
_PREFIXES: Final = {prefix: (prefix, True) for prefix in (_CONVERT, _HYPHENATED)} | {
    f"no_{prefix}": (prefix, False) for prefix in (_CONVERT, _HYPHENATED)
}

logger = logging.getLogger(__name__)


class Filter:
    """A compiled filter. Its expression is immutable, so it can be shared; equal to another with the same text.

    text: as given, without surrounding space; nodes: its operators, names and constants; cost: of an evaluation, in
    microseconds, without reading the headers; failures: how often it failed.
    """

    __slots__ = ("_judge", "cost", "failures", "nodes", "text")

    def __init__(self, text: str, judge: Judge, nodes: int) -> None:
        self.text = text
        self.nodes = nodes
        self.cost = -(-nodes // NODES_PER_MICROSECOND)  # rounded up: there may be thousands
        self.failures = 0
        self._judge = judge

    def matches(self, properties: Properties) -> bool:
        """Whether the filter is true for these properties (unknown is not true); only its first failure is logged."""
        try:
            return self._judge(properties) is True
        except EvaluationError as failure:
            self.failures += 1
            if self.failures == 1:
                logger.warning("filter %r cannot be evaluated, so a message does not match: %s", self.text, failure)
            return False

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, Filter) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Filter({self.text!r})"


def compile_filter(text: str) -> Filter | None:
    """The filter for a text; None for a blank one, which filters nothing. Raises InvalidFilter."""
    text = text.strip()
    return _compiled(text) if text else None


@functools.lru_cache(maxsize=CACHE_FILTERS_MAX)
def _compiled(text: str) -> Filter:
    # Imported here: the parser and its grammar are a lot to load for the tools, which need none (`prepare`).
    from broker.engine.filter.grammar import parse

    start, options = _prefixes(text)
    parsed = parse(text, start, hyphenated=options[_HYPHENATED], convert=options[_CONVERT])
    return Filter(text, parsed.evaluate, parsed.nodes)


def prepare() -> None:
    """Load the parser and build its grammars, before there are clients: the first filter would stop them for 50 ms."""
    from broker.engine.filter.grammar import build

    build()


def _prefixes(text: str) -> tuple[int, dict[str, bool]]:
    """Where the expression begins, and the options of its prefixes; a later prefix overrides an earlier one."""
    start = 0
    options = {_CONVERT: False, _HYPHENATED: False}
    while prefix := next((prefix for prefix in _PREFIXES if text.startswith(prefix, start)), ""):
        option, on = _PREFIXES[prefix]
        options[option] = on
        start += len(prefix)
    return start, options
