"""The syntax tree of a parsed filter. Each node has its position, its depth and its size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from broker.engine.filter.values import Value
from broker.engine.model.pattern import Pattern

OrderSign = Literal["<", "<=", ">", ">="]
ArithmeticSign = Literal["+", "-", "*", "/", "%"]


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """position: 0-based offset in the text; depth: levels of nesting; nodes: parts, itself included."""

    position: int
    depth: int
    nodes: int


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Property(Expression):
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Negative(Expression):
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Arithmetic(Expression):
    sign: ArithmeticSign
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Truth(Expression):
    """An expression that is true, false or unknown: the operands of AND, OR and NOT, and a whole filter."""


@dataclass(frozen=True, slots=True, eq=False)
class TruthConstant(Truth):
    """TRUE, FALSE and NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True, eq=False)
class TruthOfProperty(Truth):
    """A property where a truth value is needed: itself if it is a boolean, unknown if missing, else false."""

    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Not(Truth):
    operand: Truth


@dataclass(frozen=True, slots=True, eq=False)
class AllOf(Truth):
    """AND. A chain is one node, so that a long chain is not a deep one."""

    operands: tuple[Truth, ...]


@dataclass(frozen=True, slots=True, eq=False)
class AnyOf(Truth):
    """OR."""

    operands: tuple[Truth, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Equal(Truth):
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class IsNull(Truth):
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Order(Truth):
    sign: OrderSign
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True, eq=False)
class Between(Truth):
    """BETWEEN: a node of its own, not two comparisons, which would double the work at every level of nesting."""

    operand: Expression
    low: Expression
    high: Expression
    inside: bool  # False for NOT BETWEEN: below the one or above the other


@dataclass(frozen=True, slots=True, eq=False)
class Like(Truth):
    operand: Expression
    pattern: Pattern


@dataclass(frozen=True, slots=True, eq=False)
class In(Truth):
    name: str
    options: frozenset[str]
    inside: bool  # False for NOT IN
