"""Mutants of a source: each is the source with one small fault in it.

A good test finds it.  What is changed, one at a time:

- a comparison (`<` to `<=`, `==` to `!=`, `in` to `not in` ...), `and` to `or`, a condition to its opposite;
- a number to the next one, True to False; `+` to `-`, `<<` to `>>`, `&` to `|` ...;
- `return x` to `return None`; `break` and `continue` to nothing;
- a statement that does something (a call, a raise, a change of an attribute or an item) to nothing.

Left alone is what cannot matter to a test: asserts (they are for faults of ours), annotations, decorators, docstrings
and other texts, what only type checkers see.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_COMPARED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_COMPUTED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One fault: bytes `start` to `end` of the source become `text`.  `line` is that of the statement, from 1 on."""

    line: int
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """The source with the fault in it."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def lines(self, source: bytes) -> tuple[str, str]:
        """What is changed, and to what, for people: with the rest of the lines."""
        begin = source.rfind(b"\n", 0, self.start) + 1
        end = self.end + len(source[self.end :].partition(b"\n")[0])
        more = len(self.text.encode()) - (self.end - self.start)
        return source[begin:end].decode().strip(), self.apply(source)[begin : end + more].decode().strip()


def mutants(source: bytes) -> list[Mutant]:
    """All mutants of a source, from its beginning on."""
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    return sorted(set(finder.found), key=lambda mutant: (mutant.start, mutant.end, mutant.text))


class _Finder(ast.NodeVisitor):
    """Walks over a source; the visitors of nodes that are changed note the mutants and walk on."""

    def __init__(self, source: bytes) -> None:
        self.found: list[Mutant] = []
        self._starts = [0]
        for line in source.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _note(self, node: ast.expr | ast.stmt, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._starts[node.lineno - 1] + node.col_offset
        end = self._starts[node.end_lineno - 1] + node.end_col_offset
        self.found.append(Mutant(node.lineno, start, end, text))

    def _become(self, node: ast.expr, new: ast.expr) -> None:
        self._note(node, f"({ast.unparse(ast.fix_missing_locations(new))})")

    # -- expressions -----------------------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        for at, op in enumerate(node.ops):
            ops = [*node.ops[:at], _COMPARED[type(op)](), *node.ops[at + 1 :]]
            self._become(node, ast.Compare(node.left, ops, node.comparators))
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._become(node, ast.BoolOp(other, node.values))
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._become(node, node.operand)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        other = _COMPUTED.get(type(node.op))
        if other is not None and not _is_type(node):
            self._become(node, ast.BinOp(node.left, other(), node.right))
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._note(node, repr(not node.value))
        elif isinstance(node.value, int | float):
            self._note(node, repr(node.value + 1))

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Texts for people; where the parts stand is not known before Python 3.12."""

    def _condition(self, test: ast.expr) -> None:
        """One that is no comparison: those have mutants of their own."""
        if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
            self._become(test, ast.UnaryOp(ast.Not(), test))

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for test in node.ifs:
            self._condition(test)
        self.generic_visit(node)

    # -- statements ------------------------------------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self._condition(node.test)
            self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node.test)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            self._note(node, "return None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self._note(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        if node.exc is None or not ast.unparse(node.exc).startswith("AssertionError"):
            self._note(node, "pass")
            self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        if ast.unparse(node.targets[0]) == "__slots__":
            return
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._note(node, "pass")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._note(node, "pass")
        other = _COMPUTED.get(type(node.op))
        if other is not None:
            self._note(node, ast.unparse(ast.AugAssign(node.target, other(), node.value)))
        self.generic_visit(node)

    def visit_Delete(self, node: ast.Delete) -> None:
        self._note(node, "pass")
        self.generic_visit(node)

    def visit_Continue(self, node: ast.Continue) -> None:
        self._note(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._note(node, "pass")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """Nothing: it is for faults of ours."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in [*node.args.defaults, *filter(None, node.args.kw_defaults)]:
            self.visit(default)
        for statement in node.body:
            self.visit(statement)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for statement in node.body:
            self.visit(statement)


def _is_type(node: ast.BinOp) -> bool:
    """Whether it is `A | B` of types, as isinstance and aliases have it: names that begin with a capital letter."""
    names = list(_names(node))
    return isinstance(node.op, ast.BitOr) and bool(names) and all(not name.isupper() for name in names)


def _names(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        name = each.attr if isinstance(each, ast.Attribute) else each.id if isinstance(each, ast.Name) else ""
        if name[:1].isupper():
            yield name
