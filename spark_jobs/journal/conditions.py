"""Conditions on columns: what a query's `where` lets the decoder leave out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc


def _compared(compare: Callable[[pa.Array, pa.Scalar], pa.Array]) -> Callable[[pa.Array, Any], pa.Array]:
    return lambda values, value: compare(values, pa.scalar(value, values.type))


#: What a condition can ask of a column's values, by its operator.
OPERATORS: Final[dict[str, Callable[[pa.Array, Any], pa.Array]]] = {
    "=": _compared(pc.equal),
    "<": _compared(pc.less),
    "<=": _compared(pc.less_equal),
    ">": _compared(pc.greater),
    ">=": _compared(pc.greater_equal),
    "in": lambda values, among: pc.is_in(values, pa.array(among, values.type)),
    "is null": lambda values, _: pc.is_null(values),
    "is not null": lambda values, _: pc.is_valid(values),
    "starts with": lambda values, text: pc.starts_with(values, text),
    "ends with": lambda values, text: pc.ends_with(values, text),
    "contains": lambda values, text: pc.match_substring(values, text),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator value`, or its opposite; a null holds neither, as in SQL."""

    column: str
    operator: str
    value: Any = None
    negated: bool = False

    def holds(self, values: pa.Array) -> pa.Array:
        """For which values of the column it is true."""
        found = OPERATORS[self.operator](values, self.value)
        if self.negated:
            found = pc.invert(found)
        if not self.operator.startswith("is"):
            found = pc.and_(found.fill_null(False), pc.is_valid(values))
        return found
