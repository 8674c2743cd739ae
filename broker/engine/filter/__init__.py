"""Filters (selectors): compile once, match every message."""

from broker.engine.filter.errors import InvalidFilter
from broker.engine.filter.filter import Filter, compile_filter, prepare
from broker.engine.filter.values import Properties, Value

__all__ = ["Filter", "InvalidFilter", "Properties", "Value", "compile_filter", "prepare"]

#: An exception of this package has changed nothing in the broker (`broker.sessions.tick`).
ONLY_READS = True
