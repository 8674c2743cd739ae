"""The operators of a filter on values (reference: Artemis selectors).

Rules:
1. None is a missing property, and "unknown" where a truth value is needed.
2. Numbers of different types are promoted: integer to double. Integers are 64-bit and wrap, like Java's long.
3. Values of different kinds are neither equal nor ordered: false, not unknown. Booleans are not numbers. Text, booleans
   and bytes have no order.
4. With `convert` (the prefix convert_string_expressions:) text opposite a number or a boolean is converted to one; text
   that cannot be is false in a comparison and an error in arithmetic.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from broker.engine.filter.errors import EvaluationError
from broker.engine.filter.limits import NUMBER_CHARS_MAX, TEXT_RESULT_CHARS_MAX

Value: TypeAlias = str | int | float | bool | bytes | None
Number: TypeAlias = int | float


class Properties(Protocol):
    """The properties of a message for a filter: a dict, or a view that looks up a header when asked for it."""

    def get(self, name: str, /) -> Value: ...


Judge: TypeAlias = Callable[[Properties], bool | None]

_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DECIMAL: Final = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_LONG_MIN: Final = -(1 << 63)
_LONG_MAX: Final = (1 << 63) - 1
_LONG_MASK: Final = (1 << 64) - 1


def equal(left: Value, right: Value, convert: bool) -> bool | None:
    """The `=`, with its quirk: unknown if only the left is missing, false if only the right is, true if both are."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if convert:
        left, right = _converted(left, right)
    if type(left) is bool and type(right) is bool:
        return left is right
    return _ordered(left, right, operator.eq)


def ordered(left: Value, right: Value, compare: Callable[[Number, Number], bool], convert: bool) -> bool | None:
    """`compare` of two numbers; unknown if either is missing, false if they have no order."""
    if left is None or right is None:
        return None
    if convert:
        left, right = _converted(left, right)
    return _ordered(left, right, compare)


def _ordered(left: Value, right: Value, compare: Callable[[Number, Number], bool]) -> bool:
    kinds = type(left), type(right)
    if kinds == (int, int):
        return compare(left, right)  # type: ignore[arg-type]
    if not (_is_number(left) and _is_number(right)):
        return False
    return compare(float(left), float(right))  # type: ignore[arg-type]


def _is_number(value: Value) -> bool:
    return type(value) is int or type(value) is float


def _converted(left: Value, right: Value) -> tuple[Value, Value]:
    """Convert text opposite a number or a boolean to one; text that cannot be stays text, and compares false."""
    if isinstance(left, str):
        return _spelled(left, right), right
    if isinstance(right, str):
        return left, _spelled(right, left)
    return left, right


def _spelled(text: str, like: Value) -> Value:
    if type(like) is bool:
        return text.lower() == "true"
    number = spelled_number(text) if _is_number(like) else None
    return text if number is None else number


def spelled_number(text: str) -> Number | None:
    """The number that a text spells in plain decimal; None if it spells none or an integer beyond 64 bits."""
    if len(text) > NUMBER_CHARS_MAX:
        return None
    if _INTEGER.fullmatch(text):
        value = int(text)
        return value if _LONG_MIN <= value <= _LONG_MAX else None
    return float(text) if _DECIMAL.fullmatch(text) else None


def arithmetic(calculate: Callable[[Number, Number], Number], left: Value, right: Value, convert: bool) -> Value:
    """`calculate` on two numbers; missing if either is missing. Raises EvaluationError for anything else."""
    if left is None or right is None:
        return None
    return calculate(_number(left, convert), _number(right, convert))


def plus(left: Value, right: Value, convert: bool) -> Value:
    """The `+`: text on the left is concatenated with whatever is on the right, even with `convert`; otherwise a sum."""
    if not isinstance(left, str) or right is None:
        return arithmetic(add, left, right, convert)
    joined = left + _text(right)
    if len(joined) > TEXT_RESULT_CHARS_MAX:
        raise EvaluationError(f"a text of more than {TEXT_RESULT_CHARS_MAX} characters")
    return joined


def negative(value: Value) -> Value:
    """The negative of a number; missing for everything else, even for numeric text."""
    if type(value) is int:
        return _wrapped(-value)
    return -value if type(value) is float else None


def _number(value: Value, convert: bool) -> Number:
    number = spelled_number(value) if convert and isinstance(value, str) else value
    if type(number) is int or type(number) is float:
        return number
    raise EvaluationError(f"a {type(value).__name__} where a number is expected")


def _text(value: Value) -> str:
    """As Java writes values: true, 1.5."""
    if type(value) is bool:
        return "true" if value else "false"
    if isinstance(value, bytes):
        raise EvaluationError("bytes where a text is expected")
    return str(value)


def add(left: Number, right: Number) -> Number:
    return _wrapped(left + right)


def subtract(left: Number, right: Number) -> Number:
    return _wrapped(left - right)


def multiply(left: Number, right: Number) -> Number:
    return _wrapped(left * right)


def divide(left: Number, right: Number) -> Number:
    """Always a double: 7 / 2 is 3.5; by zero it is infinite, and 0 / 0 not a number."""
    dividend, divisor = float(left), float(right)
    if divisor:
        return dividend / divisor
    if not dividend or math.isnan(dividend):
        return math.nan
    return math.copysign(math.inf, dividend) * math.copysign(1.0, divisor)


def remainder(left: Number, right: Number) -> Number:
    """Always a double, with the sign of the dividend; by zero, or of an infinite, it is not a number."""
    dividend, divisor = float(left), float(right)
    if not divisor or math.isinf(dividend):
        return math.nan
    return math.fmod(dividend, divisor)


def _wrapped(value: Number) -> Number:
    if type(value) is float or _LONG_MIN <= value <= _LONG_MAX:
        return value
    return (int(value) - _LONG_MIN & _LONG_MASK) + _LONG_MIN
