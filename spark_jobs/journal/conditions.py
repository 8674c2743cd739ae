"""Conditions on columns: which rows of a query the decoder need not make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

#: What a condition can ask of a column's values, by its operator.
OPERATORS: Final[dict[str, Callable[[pa.Array, Any], pa.Array]]] = {
    "in": lambda values, among: pc.is_in(values, pa.array(among, values.type)),
    "is not null": lambda values, _: pc.is_valid(values),
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`column operator value`."""

    column: str
    operator: str
    value: Any = None

    def holds(self, values: pa.Array) -> pa.Array:
        """For which values of the column it is true."""
        return OPERATORS[self.operator](values, self.value)
