"""Compiles a parsed filter to one Python closure, made once and called for every message.

Each part of the expression becomes a function from a message's properties to a value (True, False or None, "unknown",
for conditions). Everything known beforehand is decided here, not per message: the usual `name = 'text'` is one function
with one lookup and one comparison. Depth and size were bounded by the parser, so recursing over the parts is safe.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from broker.engine.filter import values
from broker.engine.filter.syntax import (
    AllOf,
    AnyOf,
    Arithmetic,
    Between,
    Constant,
    Equal,
    Expression,
    In,
    IsNull,
    Like,
    Negative,
    Not,
    Order,
    Property,
    Truth,
    TruthConstant,
    TruthOfProperty,
)
from broker.engine.filter.values import Judge, Number, Properties, Value

Evaluate: TypeAlias = Callable[[Properties], Value]

_COMPARE: Final[dict[str, Callable[[Number, Number], bool]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: Final[dict[str, Callable[[Number, Number], Number]]] = {
    "-": values.subtract,
    "*": values.multiply,
    "/": values.divide,
    "%": values.remainder,
}


class Compiler:
    """One filter being compiled."""

    def __init__(self, *, convert: bool) -> None:
        self._convert = convert

    def judge(self, part: Truth) -> Judge:
        """The condition as a function: True, False, or None for unknown."""
        return _JUDGES[type(part)](self, part)

    def evaluate(self, part: Expression) -> Evaluate:
        """The value as a function, which raises EvaluationError for a message without one."""
        if isinstance(part, Truth):
            return self.judge(part)
        return _EVALUATES[type(part)](self, part)

    def _constant(self, part: Constant) -> Evaluate:
        value = part.value
        return lambda properties: value

    def _property(self, part: Property) -> Evaluate:
        name = part.name
        return lambda properties: properties.get(name)

    def _negative(self, part: Negative) -> Evaluate:
        operand = self.evaluate(part.operand)
        negative = values.negative
        return lambda properties: negative(operand(properties))

    def _arithmetic(self, part: Arithmetic) -> Evaluate:
        left, right, convert = self.evaluate(part.left), self.evaluate(part.right), self._convert
        if part.sign == "+":
            plus = values.plus
            return lambda properties: plus(left(properties), right(properties), convert)
        arithmetic, calculate = values.arithmetic, _CALCULATE[part.sign]
        return lambda properties: arithmetic(calculate, left(properties), right(properties), convert)

    def _truth_constant(self, part: TruthConstant) -> Judge:
        value = part.value
        return lambda properties: value

    def _truth_of_property(self, part: TruthOfProperty) -> Judge:
        name = part.name

        def truth(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else value is True

        return truth

    def _not(self, part: Not) -> Judge:
        operand = self.judge(part.operand)

        def negation(properties: Properties) -> bool | None:
            truth = operand(properties)
            return None if truth is None else not truth

        return negation

    def _all_of(self, part: AllOf) -> Judge:
        return _first_of(False, [self.judge(operand) for operand in part.operands])

    def _any_of(self, part: AnyOf) -> Judge:
        return _first_of(True, [self.judge(operand) for operand in part.operands])

    def _equal(self, part: Equal) -> Judge:
        if not self._convert and isinstance(part.left, Property) and isinstance(part.right, Constant):
            value = part.right.value
            if isinstance(value, str):
                return self._equals_text(part.left, value)
        equal, convert = values.equal, self._convert
        left, right = self.evaluate(part.left), self.evaluate(part.right)
        return lambda properties: equal(left(properties), right(properties), convert)

    def _equals_text(self, part: Property, text: str) -> Judge:
        name = part.name

        def equals_text(properties: Properties) -> bool | None:
            value = properties.get(name)
            return None if value is None else value == text

        return equals_text

    def _is_null(self, part: IsNull) -> Judge:
        operand = self.evaluate(part.operand)
        return lambda properties: operand(properties) is None

    def _order(self, part: Order) -> Judge:
        ordered, compare, convert = values.ordered, _COMPARE[part.sign], self._convert
        left, right = self.evaluate(part.left), self.evaluate(part.right)
        return lambda properties: ordered(left(properties), right(properties), compare, convert)

    def _between(self, part: Between) -> Judge:
        ordered, convert, inside, decided = values.ordered, self._convert, part.inside, not part.inside
        operand, low, high = self.evaluate(part.operand), self.evaluate(part.low), self.evaluate(part.high)
        above, below = (operator.ge, operator.le) if inside else (operator.lt, operator.gt)

        def between(properties: Properties) -> bool | None:
            value = operand(properties)
            first = ordered(value, low(properties), above, convert)
            if first is decided:
                return decided
            second = ordered(value, high(properties), below, convert)
            if second is decided:
                return decided
            return None if first is None or second is None else inside

        return between

    def _like(self, part: Like) -> Judge:
        operand, matches = self.evaluate(part.operand), part.pattern.matches

        def like(properties: Properties) -> bool | None:
            value = operand(properties)
            return None if value is None else isinstance(value, str) and matches(value)

        return like

    def _in(self, part: In) -> Judge:
        name, options, inside = part.name, part.options, part.inside

        def among(properties: Properties) -> bool | None:
            value = properties.get(name)
            return (value in options) is inside if isinstance(value, str) else None

        return among


def _first_of(deciding: bool, judges: list[Judge]) -> Judge:
    """AND (decided by False) or OR (decided by True); undecided it is unknown if any operand was."""
    other = not deciding

    def first_of(properties: Properties) -> bool | None:
        result: bool | None = other
        for judge in judges:
            truth = judge(properties)
            if truth is deciding:
                return deciding
            if truth is None:
                result = None
        return result

    return first_of


_EVALUATES: Final[dict[type, Callable[[Compiler, Any], Evaluate]]] = {
    Constant: Compiler._constant,
    Property: Compiler._property,
    Negative: Compiler._negative,
    Arithmetic: Compiler._arithmetic,
}
_JUDGES: Final[dict[type, Callable[[Compiler, Any], Judge]]] = {
    TruthConstant: Compiler._truth_constant,
    TruthOfProperty: Compiler._truth_of_property,
    Not: Compiler._not,
    AllOf: Compiler._all_of,
    AnyOf: Compiler._any_of,
    Equal: Compiler._equal,
    IsNull: Compiler._is_null,
    Order: Compiler._order,
    Between: Compiler._between,
    Like: Compiler._like,
    In: Compiler._in,
}
