"""Random filters against an evaluator that knows nothing of the implementation.

The test grows an expression as nested tuples, writes it as text with no more parentheses than precedence demands, and
evaluates the tuples by the rules of the reference (Artemis semantics 4.1, 4.2), one line a rule. Where `p` is the
prefix convert_string_expressions:, numbers are read by `float` and `int` as they stand.
"""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.engine.filter import InvalidFilter, Value, compile_filter

Tree = tuple[Any, ...]


class NoAnswer(Exception):
    """The message does not match, whatever stands around."""


# -- growing ----------------------------------------------------------------------------------------------------------

NAMES = ["p", "q", "gone", "t-x"]
TEXTS = st.sampled_from(["", "a", "ab", "5", "5.5", "-1", "true", "it's", "x_y%"])
NUMBERS = st.one_of(
    st.integers(0, 9), st.sampled_from([(1 << 63) - 1, 1 << 53, 0.5, 5.5, 1e300]), st.floats(0, 100, width=16)
)
PROPERTIES = st.dictionaries(
    st.sampled_from(["p", "q", "t-x"]),
    st.one_of(TEXTS, NUMBERS, st.integers(-9, 9), st.booleans(), st.just(b"a"), st.none()),
)
PATTERN = st.text("a%_!x", max_size=4)

name = st.tuples(st.just("name"), st.sampled_from(NAMES))
text = st.tuples(st.just("constant"), TEXTS)
number = st.tuples(st.just("constant"), NUMBERS)


def _values(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("negative"), inner), st.tuples(st.sampled_from(["+", "-", "*", "/", "%"]), inner, inner)
    )


value = st.recursive(st.one_of(name, name, text, number), _values, max_leaves=4)
numeric = value.filter(lambda tree: not (tree[0] == "constant" and isinstance(tree[1], str)))
options = st.lists(TEXTS, min_size=1, max_size=3)
simple = st.one_of(
    name,
    st.tuples(st.just("truth"), st.sampled_from([True, False, None])),
    st.tuples(st.sampled_from(["=", "<>"]), value, value),
    st.tuples(st.sampled_from(["=", "<>"]), value, st.tuples(st.just("truth"), st.booleans())),
    st.tuples(st.sampled_from(["<", "<=", ">", ">="]), numeric, numeric),
    st.tuples(st.sampled_from(["IS NULL", "IS NOT NULL"]), value),
    st.tuples(st.sampled_from(["LIKE", "NOT LIKE"]), value, PATTERN, st.sampled_from([None, "!", "%"])),
    st.tuples(st.sampled_from(["IN", "NOT IN"]), name, options),
    st.tuples(st.sampled_from(["BETWEEN", "NOT BETWEEN"]), numeric, numeric, numeric),
)


def _conditions(inner: st.SearchStrategy[Tree]) -> st.SearchStrategy[Tree]:
    return st.one_of(
        st.tuples(st.just("NOT"), inner),
        st.tuples(st.sampled_from(["AND", "OR"]), st.lists(inner, min_size=2, max_size=3)),
        st.tuples(st.sampled_from(["=", "<>"]), inner.filter(lambda tree: tree != ("truth", None)), name),
    )


condition = st.recursive(simple, _conditions, max_leaves=6)

# -- writing ----------------------------------------------------------------------------------------------------------

LEVELS = {"OR": 0, "AND": 1, "=": 2, "<>": 2, "IS NULL": 2, "IS NOT NULL": 2, "<": 3, "<=": 3, ">": 3, ">=": 3}
LEVELS |= {"LIKE": 3, "NOT LIKE": 3, "IN": 3, "NOT IN": 3, "BETWEEN": 3, "NOT BETWEEN": 3}
LEVELS |= {"+": 4, "-": 4, "*": 5, "/": 5, "%": 5, "NOT": 6, "negative": 6, "constant": 7, "name": 7, "truth": 7}
ATOM = 7


def quoted(content: str) -> str:
    return "'" + content.replace("'", "''") + "'"


def write(tree: Tree, level: int = 0) -> str:
    own = LEVELS[tree[0]]
    written = _written(tree, own)
    return written if own >= level else f"({written})"


def _written(tree: Tree, own: int) -> str:
    match tree:
        case ("name", str(word)):
            return f'"{word}"' if "-" in word else word
        case ("constant", str(content)):
            return quoted(content)
        case ("constant", content):
            return repr(content)
        case ("truth", truth):
            return {True: "TRUE", False: "False", None: "null"}[truth]
        case ("NOT", operand):
            return f"NOT {write(operand, own)}"
        case ("negative", operand):
            return f"- {write(operand, own)}"
        case ("AND" | "OR" as word, list(operands)):
            return f" {word} ".join(write(operand, own + 1) for operand in operands)
        case ("IS NULL" | "IS NOT NULL" as word, operand):
            return f"{write(operand, own)} {word}"
        case ("LIKE" | "NOT LIKE" as word, operand, pattern, escape):
            end = "" if escape is None else f" ESCAPE {quoted(escape)}"
            return f"{write(operand, own)} {word} {quoted(pattern)}{end}"
        case ("IN" | "NOT IN" as word, operand, list(choices)):
            return f"{write(operand, ATOM)} {word} ({', '.join(map(quoted, choices))})"
        case ("BETWEEN" | "NOT BETWEEN" as word, operand, low, high):
            return f"{write(operand, own)} {word} {write(low, own + 1)} AND {write(high, own + 1)}"
        case (sign, left, right):
            return f"{write(left, own)} {sign} {write(right, own + 1)}"
    raise AssertionError(tree)


# -- evaluating -------------------------------------------------------------------------------------------------------


def is_number(content: Value) -> bool:
    return isinstance(content, int | float) and not isinstance(content, bool)


def kind(content: Value) -> str:
    return "number" if is_number(content) else type(content).__name__


def spelled(content: str) -> Value:
    try:
        parsed: Value = int(content) if re.fullmatch(r"-?\d+", content) else float(content)
    except ValueError:
        return content
    return parsed


class Naive:
    """Evaluates trees. `convert`: as with the prefix convert_string_expressions:."""

    def __init__(self, properties: Mapping[str, Value], convert: bool) -> None:
        self.properties = properties
        self.convert = convert

    def truth(self, tree: Tree) -> bool | None:
        content = self.value(tree)
        return None if content is None else content is True

    def value(self, tree: Tree) -> Value:
        match tree:
            case ("name", word):
                return self.properties.get(word)
            case ("constant" | "truth", content):
                return content  # type: ignore[no-any-return]
            case ("NOT", operand):
                return negated(self.truth(operand))
            case ("AND", list(operands)):
                return self.conjunction(operands)
            case ("OR", list(operands)):
                return negated(self.conjunction([("NOT", operand) for operand in operands]))
            case ("negative", operand):
                content = self.value(operand)
                return self.arithmetic("-", 0, content) if is_number(content) else None
            case ("+" | "-" | "*" | "/" | "%" as sign, left, right):
                return self.arithmetic(sign, self.value(left), self.value(right))
        return self.comparison(tree)

    def conjunction(self, operands: list[Tree]) -> bool | None:
        unknown = False
        for operand in operands:
            truth = self.truth(operand)
            if truth is False:
                return False
            unknown = unknown or truth is None
        return None if unknown else True

    def comparison(self, tree: Tree) -> bool | None:
        match tree:
            case ("=", left, right):
                return self.equal(self.value(left), self.value(right))
            case ("<>", left, right):
                return negated(self.equal(self.value(left), self.value(right)))
            case ("IS NULL", operand):
                return self.value(operand) is None
            case ("IS NOT NULL", operand):
                return self.value(operand) is not None
            case ("LIKE", operand, pattern, escape):
                content = self.value(operand)
                return None if content is None else isinstance(content, str) and like(content, pattern, escape)
            case ("NOT LIKE", *rest):
                return negated(self.comparison(("LIKE", *rest)))
            case ("IN", operand, choices):
                content = self.value(operand)
                return content in choices if isinstance(content, str) else None
            case ("NOT IN", *rest):
                return negated(self.comparison(("IN", *rest)))
            case ("BETWEEN", operand, low, high):
                return self.conjunction([(">=", operand, low), ("<=", operand, high)])
            case ("NOT BETWEEN", operand, low, high):
                return negated(self.conjunction([("NOT", ("<", operand, low)), ("NOT", (">", operand, high))]))
            case (sign, left, right):
                return self.ordered(sign, self.value(left), self.value(right))
        raise AssertionError(tree)

    def equal(self, left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None if right is not None else left is None
        left, right = self.alike(left, right)
        if kind(left) != kind(right) or isinstance(left, bytes):
            return False
        return promoted(left) == promoted(right) if float in (type(left), type(right)) else left == right

    def ordered(self, sign: str, left: Value, right: Value) -> bool | None:
        if left is None or right is None:
            return None
        left, right = self.alike(left, right)
        if not is_number(left) or not is_number(right):
            return False
        if float in (type(left), type(right)):
            left, right = promoted(left), promoted(right)
        assert isinstance(left, int | float)
        assert isinstance(right, int | float)
        return {"<": left < right, "<=": left <= right, ">": left > right, ">=": left >= right}[sign]

    def alike(self, left: Value, right: Value) -> tuple[Value, Value]:
        if not self.convert or isinstance(left, str) == isinstance(right, str):
            return left, right
        if isinstance(right, str):
            right, left = self.alike(right, left)
            return left, right
        assert isinstance(left, str)
        if isinstance(right, bool):
            return left.lower() == "true", right
        return (spelled(left) if is_number(right) else left), right

    def arithmetic(self, sign: str, left: Value, right: Value) -> Value:
        if left is None or right is None:
            return None
        if sign == "+" and isinstance(left, str):
            if isinstance(right, bytes):
                raise NoAnswer
            return left + (str(right).lower() if isinstance(right, bool) else str(right))
        if self.convert:
            left, right = (spelled(side) if isinstance(side, str) else side for side in (left, right))
        if not is_number(left) or not is_number(right):
            raise NoAnswer
        return calculated(sign, left, right)


def calculated(sign: str, left: Any, right: Any) -> Value:
    if sign in ("/", "%"):
        left, right = float(left), float(right)
        if right == 0:
            sided = math.copysign(1, left) * math.copysign(1, right)
            return math.nan if sign == "%" or left == 0 or math.isnan(left) else sided * math.inf
        if sign == "/":
            return float(left / right)
        return math.nan if math.isinf(left) else math.fmod(left, right)
    result = {"+": left + right, "-": left - right, "*": left * right}[sign]
    return result if isinstance(result, float) else ctypes.c_longlong(result).value


def promoted(content: Value) -> Value:
    return float(content) if isinstance(content, int) and not isinstance(content, bool) else content


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def like(content: str, pattern: str, escape: str | None) -> bool:
    """By a regular expression, which is safe on texts as short as these."""
    expression, i = "", 0
    while i < len(pattern):
        escaped = pattern[i] == escape and pattern[i + 1 : i + 2] in ("%", "_", escape)
        i += escaped
        wild = {"%": ".*", "_": "."}.get(pattern[i])
        expression += wild if wild is not None and not escaped else re.escape(pattern[i])
        i += 1
    return re.fullmatch(expression, content, re.DOTALL) is not None


def expected(tree: Tree, properties: Mapping[str, Value], convert: bool) -> bool:
    try:
        return Naive(properties, convert).truth(tree) is True
    except NoAnswer:
        return False


@settings(max_examples=400, deadline=None)
@given(tree=condition, properties=PROPERTIES, convert=st.booleans())
def test_filters_mean_what_the_rules_say(tree: Tree, properties: dict[str, Value], convert: bool) -> None:
    written = ("convert_string_expressions:" if convert else "") + write(tree)
    compiled = compile_filter(written)
    assert compiled is not None
    assert compiled.matches(properties) is expected(tree, properties, convert), written


FRAGMENTS = [
    *"()='\"<>+-*/%,!. \n",
    "NOT",
    "AND",
    "OR",
    "IN",
    "LIKE",
    "IS",
    "NULL",
    "BETWEEN",
    "ESCAPE",
    "TRUE",
    "p",
    "q",
]
FRAGMENTS += ["'x'", "--", "/*", "*/", "0x", "09", "1e9", "1L", "hyphenated_props:", "convert_string_expressions:", "é"]


@settings(max_examples=400, deadline=None)
@given(pieces=st.lists(st.sampled_from(FRAGMENTS), max_size=14), properties=PROPERTIES)
def test_any_text_is_a_filter_or_refused(pieces: list[str], properties: dict[str, Value]) -> None:
    for glue in ("", " "):
        text = glue.join(pieces)
        try:
            compiled = compile_filter(text)
            sound = compiled is None or compiled.matches(properties) in (True, False)
        except InvalidFilter as refused:
            sound = 0 <= refused.position <= len(text.strip())
        assert sound, text
