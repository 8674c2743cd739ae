"""The grammar of filters: the JMS SQL-92 subset as Artemis reads it (its selector grammar).

Rising precedence: OR; AND; `=` `<>` IS [NOT] NULL; `<` `<=` `>` `>=` [NOT] LIKE, BETWEEN, IN; `+` `-`; `*` `/` `%`;
unary `+`, `-` and NOT. NOT binds tightest: `NOT color = 'red'` is `(NOT color) = 'red'`, which is never true.

The parser is LALR: one pass, no recursion, so that no text can exhaust the stack. It makes each part's function as it
goes, and measures it: an expression is refused where it exceeds a limit, so that no function that recurses too deep is
ever called, and nobody waits for the rest. Its lexer reads names and keywords as
one token and distinguishes them afterwards, so that `INVOICE` is not read as `IN VOICE`. The two readings of `a-b`
(hyphenated_props:) differ only in the token for names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from broker.engine.filter import compile
from broker.engine.filter.compile import ArithmeticSign, Evaluate, OrderSign
from broker.engine.filter.errors import InvalidFilter
from broker.engine.filter.limits import DEPTH_MAX, NODES_MAX, NODES_PER_SEARCH, TEXT_CHARS_MAX
from broker.engine.filter.values import Judge, Value
from broker.engine.model.pattern import Pattern, Wild
from broker.engine.model.pattern import Token as PatternToken

_GRAMMAR: Final = r"""
start: any_of
?any_of: all_of | any_of _OR all_of                    -> either
?all_of: equality | all_of _AND equality               -> both
?equality: comparison
    | equality "=" comparison                          -> equal
    | equality "<>" comparison                         -> not_equal
    | equality _IS NULL                                -> is_null
    | equality _IS _NOT NULL                           -> is_not_null
?comparison: sum
    | comparison ORDER sum                             -> order
    | comparison _LIKE TEXT [_ESCAPE TEXT]             -> like
    | comparison _NOT _LIKE TEXT [_ESCAPE TEXT]        -> not_like
    | comparison _BETWEEN sum _AND sum                 -> between
    | comparison _NOT _BETWEEN sum _AND sum            -> not_between
    | comparison _IN "(" TEXT ("," TEXT)* ")"          -> among
    | comparison _NOT _IN "(" TEXT ("," TEXT)* ")"     -> not_among
?sum: product | sum ADD product                        -> arithmetic
?product: unary | product MULTIPLY unary               -> arithmetic
?unary: primary
    | ADD unary                                        -> signed
    | _NOT unary                                       -> negation
?primary: "(" any_of ")"                               -> nested
    | TEXT                                             -> text
    | DECIMAL                                          -> decimal
    | OCTAL                                            -> octal
    | HEX                                              -> hexadecimal
    | DOUBLE                                           -> double
    | BOOLEAN                                          -> boolean
    | NULL                                             -> null
    | NAME                                             -> name
    | QUOTED_NAME                                      -> quoted_name

%declare _OR _AND _NOT _IS _LIKE _ESCAPE _BETWEEN _IN BOOLEAN NULL

NAME: /[A-Za-z_$][A-Za-z0-9_$HYPHEN]*/
QUOTED_NAME: /"(?:""|[^"])*"/
TEXT: /'(?:''|[^'])*'/
DOUBLE.3: /[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+/
HEX.2: /0[xX][0-9a-fA-F]+/
OCTAL: /0[0-7]*/
DECIMAL: /[1-9][0-9]*[lL]?/
ORDER: /<(?!>)=?|>=?/
ADD: /[+-]/
MULTIPLY: /[*\/%]/
LINE_COMMENT.4: /--[^\n\r]*/
BLOCK_COMMENT.4: /\/\*(?s:.*?)\*\//
SPACE: /[ \t\n\r\f]+/
%ignore LINE_COMMENT
%ignore BLOCK_COMMENT
%ignore SPACE
"""

_KEYWORDS: Final = {
    **{word: f"_{word}" for word in ("OR", "AND", "NOT", "IS", "LIKE", "ESCAPE", "BETWEEN", "IN")},
    "TRUE": "BOOLEAN",
    "FALSE": "BOOLEAN",
    "NULL": "NULL",
}
_WILDS: Final[dict[str, Wild]] = {"%": Wild.RUN, "_": Wild.ONE}
_UNSUPPORTED: Final = frozenset({"XPATH", "XQUERY"})
_INTEGER_MAX: Final = 1 << 63  # one more than a long holds, because the sign of the least long is an operator


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """A part of a filter, and the function that it became.

    position: 0-based offset in the text; depth: levels of nesting; nodes: parts, itself included.
    """

    position: int
    depth: int
    nodes: int
    evaluate: Evaluate

    def __post_init__(self) -> None:
        """Raises _Fault if it is too large."""
        if self.depth > DEPTH_MAX:
            raise _Fault(self.position, f"nested more than {DEPTH_MAX} levels deep")
        if self.nodes > NODES_MAX:
            raise _Fault(self.position, f"more than {NODES_MAX} operators, names and constants")


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Expression):
    value: Value


@dataclass(frozen=True, slots=True, eq=False)
class Property(Expression):
    name: str


@dataclass(frozen=True, slots=True, eq=False)
class Truth(Expression):
    """An expression that is true, false or unknown: the operands of AND, OR and NOT, and a whole filter."""

    evaluate: Judge


@dataclass(frozen=True, slots=True, eq=False)
class Chain(Truth):
    """Operands of one OR (`deciding` is True) or of one AND, as far as they were read."""

    deciding: bool
    judges: list[Judge]


@dataclass(frozen=True, slots=True, eq=False)
class TruthConstant(Truth):
    """TRUE, FALSE and NULL."""

    value: bool | None


_E = TypeVar("_E", bound=Expression)


class _Fault(Exception):
    def __init__(self, position: int, reason: str) -> None:
        super().__init__(reason)
        self.position = position
        self.reason = reason


def _place(token: Token) -> int:
    assert token.start_pos is not None, "the lexer gives every token its place"
    return token.start_pos


def _keyword(token: Token) -> Token:
    word = token.upper()
    if word in _UNSUPPORTED:
        raise _Fault(_place(token), f"{word} is not supported: a filter reads properties, not the body")
    kind = _KEYWORDS.get(word)
    return token if kind is None else Token.new_borrow_pos(kind, str(token), token)


def _unquoted(token: Token) -> str:
    quote = token[0]
    return token[1:-1].replace(quote * 2, quote)


def _integer(token: Token, digits: str, base: int) -> Constant:
    value = int(digits, base)
    if value > _INTEGER_MAX:
        raise _Fault(_place(token), "an integer beyond 64 bits")
    return _constant(token, value)


def _constant(token: Token, value: Value) -> Constant:
    return Constant(_place(token), 1, 1, compile.constant(value), value)


def _property(token: Token, name: str) -> Property:
    return Property(_place(token), 1, 1, compile.named(name), name)


def _truth_constant(token: Token, value: bool | None) -> TruthConstant:
    return TruthConstant(_place(token), 1, 1, compile.truth_constant(value), value)


def _truth(part: Expression) -> Truth:
    """The part as a condition: a property counts as one; a text, a number or a sum does not."""
    if isinstance(part, Truth):
        return part
    if isinstance(part, Property):
        return Truth(part.position, part.depth, part.nodes, compile.truth_of(part.name))
    raise _Fault(part.position, "a condition is expected here, not a value")


def _comparable(part: Expression) -> Expression:
    if isinstance(part, TruthConstant) and part.value is None:
        raise _Fault(part.position, "NULL cannot be compared: use IS NULL")
    return part


def _orderable(part: Expression) -> Expression:
    if isinstance(part, Truth):
        raise _Fault(part.position, "conditions have no order: only numbers can be compared like this")
    if isinstance(part, Constant) and isinstance(part.value, str):
        raise _Fault(part.position, "texts have no order: only numbers can be compared like this")
    return part


def _measure(*operands: Expression) -> tuple[int, int, int]:
    """Position, depth and number of nodes of a part with these operands."""
    depth = max(operand.depth for operand in operands)
    return operands[0].position, depth + 1, sum(operand.nodes for operand in operands) + 1


def like_pattern(text: str, escape: str | None) -> Pattern:
    """The pattern of a LIKE. The escape character escapes `%`, `_` and itself; before anything else it means itself."""
    tokens: list[PatternToken] = []
    places = iter(range(len(text)))
    for place in places:
        if text[place] == escape and text[place + 1 : place + 2] in ("%", "_", escape):
            tokens.append(text[next(places)])
        else:
            tokens.append(_WILDS.get(text[place], text[place]))
    return Pattern(tokens)


def _not(part: Truth) -> Truth:
    return Truth(*_measure(part), compile.negation(part.evaluate))


def _chain(deciding: bool, left: Expression, right: Expression) -> Chain:
    """AND or OR. A chain is one node, so that a long chain is not a deep one."""
    first, last = _truth(left), _truth(right)
    if isinstance(first, Chain) and first.deciding is deciding:
        first.judges.append(last.evaluate)
        return replace(first, depth=max(first.depth, last.depth + 1), nodes=first.nodes + last.nodes)
    judges = [first.evaluate, last.evaluate]
    return Chain(*_measure(first, last), compile.first_of(deciding, judges), deciding, judges)


@v_args(inline=True)
class _Builder(Transformer[Token, Expression]):
    """Makes the functions, with one method for each rule. Raises _Fault for errors beyond the grammar."""

    def __init__(self, *, convert: bool) -> None:
        super().__init__()
        self._convert = convert

    def start(self, part: Expression) -> Truth:
        return _truth(part)

    def either(self, left: Expression, right: Expression) -> Truth:
        return _chain(True, left, right)

    def both(self, left: Expression, right: Expression) -> Truth:
        return _chain(False, left, right)

    def equal(self, left: Expression, right: Expression) -> Truth:
        if isinstance(_comparable(left), TruthConstant) and isinstance(right, Constant):
            raise _Fault(right.position, "TRUE and FALSE cannot be compared with a text or a number")
        _comparable(right)
        text = right.value if isinstance(right, Constant) and isinstance(right.value, str) else None
        if isinstance(left, Property) and text is not None and not self._convert:
            return Truth(*_measure(left, right), compile.equals_text(left.name, text))
        return Truth(*_measure(left, right), compile.equal(left.evaluate, right.evaluate, convert=self._convert))

    def not_equal(self, left: Expression, right: Expression) -> Truth:
        return _not(self.equal(left, right))

    def is_null(self, operand: Expression, _: Token) -> Truth:
        return Truth(*_measure(operand), compile.is_null(operand.evaluate))

    def is_not_null(self, operand: Expression, null: Token) -> Truth:
        return _not(self.is_null(operand, null))

    def order(self, left: Expression, sign: Token, right: Expression) -> Truth:
        low, high = _orderable(left).evaluate, _orderable(right).evaluate
        judge = compile.order(cast(OrderSign, str(sign)), low, high, convert=self._convert)
        return Truth(*_measure(left, right), judge)

    def like(self, operand: Expression, pattern: Token, escape: Token | None = None) -> Truth:
        mark = None if escape is None else _unquoted(escape)
        if escape is not None and len(mark or "") != 1:
            raise _Fault(_place(escape), "ESCAPE takes one character")
        compiled = like_pattern(_unquoted(pattern), mark)
        position, depth, nodes = _measure(operand)
        nodes += compiled.searches * NODES_PER_SEARCH
        return Truth(position, depth, nodes, compile.like(operand.evaluate, compiled.matches))

    def not_like(self, operand: Expression, pattern: Token, escape: Token | None = None) -> Truth:
        return _not(self.like(operand, pattern, escape))

    def between(self, operand: Expression, low: Expression, high: Expression, *, inside: bool = True) -> Truth:
        parts = [_orderable(operand), _orderable(low), _orderable(high)]
        judge = compile.between(*[part.evaluate for part in parts], inside=inside, convert=self._convert)
        return Truth(*_measure(*parts), judge)

    def not_between(self, operand: Expression, low: Expression, high: Expression) -> Truth:
        return self.between(operand, low, high, inside=False)

    def among(self, operand: Expression, *options: Token, inside: bool = True) -> Truth:
        if not isinstance(operand, Property):
            raise _Fault(operand.position, "IN needs a name on its left")
        judge = compile.among(operand.name, frozenset(map(_unquoted, options)), inside=inside)
        return Truth(*_measure(operand), judge)

    def not_among(self, operand: Expression, *options: Token) -> Truth:
        return self.among(operand, *options, inside=False)

    def arithmetic(self, left: Expression, sign: Token, right: Expression) -> Expression:
        operator = cast(ArithmeticSign, str(sign))
        evaluate = compile.arithmetic(operator, left.evaluate, right.evaluate, convert=self._convert)
        return Expression(*_measure(left, right), evaluate)

    def signed(self, sign: Token, operand: Expression) -> Expression:
        if sign == "+":
            return self.nested(operand)
        return Expression(*_measure(operand), compile.negative(operand.evaluate))

    def negation(self, operand: Expression) -> Truth:
        return _not(_truth(operand))

    def nested(self, part: _E) -> _E:
        """Parentheses (and a plus) add no node, but a level: (((...))) is as deep as it looks."""
        return replace(part, depth=part.depth + 1)

    def text(self, token: Token) -> Constant:
        return _constant(token, _unquoted(token))

    def decimal(self, token: Token) -> Constant:
        return _integer(token, token.rstrip("lL"), 10)

    def octal(self, token: Token) -> Constant:
        return _integer(token, str(token), 8)

    def hexadecimal(self, token: Token) -> Constant:
        return _integer(token, token[2:], 16)

    def double(self, token: Token) -> Constant:
        return _constant(token, float(token))

    def boolean(self, token: Token) -> TruthConstant:
        return _truth_constant(token, token.upper() == "TRUE")

    def null(self, token: Token) -> TruthConstant:
        return _truth_constant(token, None)

    def name(self, token: Token) -> Property:
        return _property(token, str(token))

    def quoted_name(self, token: Token) -> Property:
        return _property(token, _unquoted(token))


@functools.cache
def _parser(hyphenated: bool, convert: bool) -> Lark:
    """Built once in a process: 30 ms each (`build`)."""
    callbacks: dict[str, Callable[[Token], Token]] = {"NAME": _keyword}
    grammar = _GRAMMAR.replace("HYPHEN", "-" if hyphenated else "")
    return Lark(
        grammar,
        parser="lalr",
        lexer="basic",
        transformer=_Builder(convert=convert),
        lexer_callbacks=callbacks,
        maybe_placeholders=False,
    )


def build() -> None:
    """Build the parsers of all combinations of options: any client may ask for any of them."""
    for hyphenated in (False, True):
        for convert in (False, True):
            _parser(hyphenated, convert)


_UNREADABLE: Final = {
    "'": "a text is not closed by '",
    '"': 'a name is not closed by "',
    "!": "'!' is not an operator: use <> or NOT",
}


def _unreadable(fault: UnexpectedCharacters, text: str) -> _Fault:
    place = cast(int, fault.pos_in_stream)  # always set by the lexer; the library declares it as None
    character = text[place]
    other = f'unexpected {character!r}: put names with characters other than letters, digits, _ and $ in "quotes"'
    return _Fault(place, _UNREADABLE.get(character, other))


def _unexpected(fault: UnexpectedToken, text: str) -> _Fault:
    if fault.token.type == "$END":
        return _Fault(len(text), "the expression ends too early")
    place = _place(fault.token)
    if text[place - 1 : place + 1] == "/*":
        return _Fault(place - 1, "a comment is not closed by */")
    return _Fault(place, f"unexpected {str(fault.token)!r}")


def _parsed(text: str, hyphenated: bool, convert: bool) -> Truth:
    try:
        return cast(Truth, _parser(hyphenated, convert).parse(text))
    except UnexpectedCharacters as fault:
        raise _unreadable(fault, text) from None
    except UnexpectedToken as fault:
        raise _unexpected(fault, text) from None


def parse(text: str, start: int, *, hyphenated: bool, convert: bool) -> Truth:
    """The expression that begins at `start` of `text`.

    Raises InvalidFilter: syntax, unsupported, or over a limit.
    """
    if len(text) > TEXT_CHARS_MAX:
        raise InvalidFilter(text, TEXT_CHARS_MAX, f"longer than {TEXT_CHARS_MAX} characters")
    try:
        return _parsed(text[start:], hyphenated, convert)
    except _Fault as fault:
        raise InvalidFilter(text, start + fault.position, fault.reason) from None
