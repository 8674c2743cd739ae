"""The functions that the parts of a filter become: made once, and called with the properties of every message.

The function of a condition returns True, False, or None for "unknown"; that of a value raises EvaluationError for a
message without one.  Everything known beforehand is decided here, not per message: the usual `name = 'text'` is one
function with one lookup and one comparison.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from broker.engine.filter import values
from broker.engine.filter.values import Judge, Number, Properties, Value

Evaluate: TypeAlias = Callable[[Properties], Value]
OrderSign = Literal["<", "<=", ">", ">="]
ArithmeticSign = Literal["+", "-", "*", "/", "%"]

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


def constant(value: Value) -> Evaluate:
    """A text or a number."""
    return lambda properties: value


def truth_constant(value: bool | None) -> Judge:
    """TRUE, FALSE or NULL."""
    return lambda properties: value


def named(name: str) -> Evaluate:
    """A property."""
    return lambda properties: properties.get(name)


def truth_of(name: str) -> Judge:
    """A property where a truth value is needed: itself if it is a boolean, unknown if missing, else false."""

    def truth(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value is True

    return truth


def negative(operand: Evaluate) -> Evaluate:
    """The unary minus."""
    negated = values.negative
    return lambda properties: negated(operand(properties))


def arithmetic(sign: ArithmeticSign, left: Evaluate, right: Evaluate, *, convert: bool) -> Evaluate:
    """A sum, difference, product, quotient or remainder."""
    if sign == "+":
        plus = values.plus
        return lambda properties: plus(left(properties), right(properties), convert)
    calculated, calculate = values.arithmetic, _CALCULATE[sign]
    return lambda properties: calculated(calculate, left(properties), right(properties), convert)


def negation(operand: Judge) -> Judge:
    """NOT."""

    def negated(properties: Properties) -> bool | None:
        truth = operand(properties)
        return None if truth is None else not truth

    return negated


def first_of(deciding: bool, judges: list[Judge]) -> Judge:
    """AND (decided by False) or OR (decided by True); undecided it is unknown if any operand was."""
    other = not deciding

    def decided(properties: Properties) -> bool | None:
        result: bool | None = other
        for judge in judges:
            truth = judge(properties)
            if truth is deciding:
                return deciding
            if truth is None:
                result = None
        return result

    return decided


def equal(left: Evaluate, right: Evaluate, *, convert: bool) -> Judge:
    """The `=`."""
    are_equal = values.equal
    return lambda properties: are_equal(left(properties), right(properties), convert)


def equals_text(name: str, text: str) -> Judge:
    """A property `=` a text, without conversion."""

    def equals(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return equals


def is_null(operand: Evaluate) -> Judge:
    """IS NULL."""
    return lambda properties: operand(properties) is None


def order(sign: OrderSign, left: Evaluate, right: Evaluate, *, convert: bool) -> Judge:
    """A comparison of numbers."""
    ordered, compare = values.ordered, _COMPARE[sign]
    return lambda properties: ordered(left(properties), right(properties), compare, convert)


def between(operand: Evaluate, low: Evaluate, high: Evaluate, *, inside: bool, convert: bool) -> Judge:
    """BETWEEN, or with `inside` False NOT BETWEEN: below the one or above the other.  The operand is evaluated once."""
    ordered, decided = values.ordered, not inside
    above, below = (operator.ge, operator.le) if inside else (operator.lt, operator.gt)

    def is_between(properties: Properties) -> bool | None:
        value = operand(properties)
        first = ordered(value, low(properties), above, convert)
        if first is decided:
            return decided
        second = ordered(value, high(properties), below, convert)
        if second is decided:
            return decided
        return None if first is None or second is None else inside

    return is_between


def like(operand: Evaluate, matches: Callable[[str], bool]) -> Judge:
    """LIKE."""

    def is_like(properties: Properties) -> bool | None:
        value = operand(properties)
        return None if value is None else isinstance(value, str) and matches(value)

    return is_like


def among(name: str, options: frozenset[str], *, inside: bool) -> Judge:
    """A property IN a list of texts, or with `inside` False NOT IN."""

    def is_among(properties: Properties) -> bool | None:
        value = properties.get(name)
        return (value in options) is inside if isinstance(value, str) else None

    return is_among
