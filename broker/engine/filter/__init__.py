"""Filters (selectors): compile once, match every message."""

from broker.engine.filter.errors import InvalidFilter
from broker.engine.filter.filter import BROKER_NAMES, Filter, compile_filter
from broker.engine.filter.limits import FilterLimits
from broker.engine.filter.values import Properties, Value

__all__ = ["BROKER_NAMES", "Filter", "FilterLimits", "InvalidFilter", "Properties", "Value", "compile_filter"]
