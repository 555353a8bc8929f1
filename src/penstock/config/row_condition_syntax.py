"""The text of a row condition → its tree: what SQL it may be made of. sqlglot reads the text.

Whatever is not known here is refused: nothing is guessed, and nothing of the text is evaluated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel, SqlglotError

from penstock.config import row_condition_tree as tree
from penstock.config.row_condition_tree import ConditionError, Node


def parse_condition(text: str) -> Node:
    """The tree of a condition. Raises ConditionError for what is no SQL or not supported."""
    try:
        parsed = sqlglot.parse(text, read="postgres")
        if len(parsed) != 1 or parsed[0] is None:
            raise ConditionError("it is not one SQL expression", 1)
        return _Reader(text).read(parsed[0], 1)
    except SqlglotError as error:
        raise ConditionError(*_complaint(error, text)) from None
    except RecursionError:
        raise ConditionError("it is nested too deeply", 1) from None


def _complaint(error: SqlglotError, text: str) -> tuple[str, int]:
    details: list[Any] = getattr(error, "errors", [])
    if not details or not details[0].get("line"):
        return "it is not an SQL expression", 1
    first = details[0]
    lines = text.split("\n")[: first["line"] - 1]
    # It gives the column of a token's end.
    at = sum(len(line) + 1 for line in lines) + first["col"] - len(first["highlight"] or "") + 1
    near = first["highlight"] or "the end"
    return f"it is not an SQL expression: something is wrong at {near}", max(at, 1)


_COMPARISONS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
    exp.NullSafeEQ: "IS NOT DISTINCT FROM", exp.NullSafeNEQ: "IS DISTINCT FROM",
}  # fmt: skip
_ARITHMETIC: dict[type[exp.Expr], str] = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/",
}  # fmt: skip
_FUNCTIONS = (exp.Lower, exp.Upper, exp.Length, exp.Coalesce)
# What of an expression we know the meaning of; one that holds anything else is refused. SYMMETRIC,
# for one, is an argument of BETWEEN.
_KNOWN_ARGUMENTS = frozenset(
    {"this", "expression", "expressions", "is_string", "low", "high", "to", "negate"}
)
# Marks that say how sqlglot would write an expression in other dialects, not what it means.
_WITHOUT_MEANING = frozenset({"typed", "safe", "quoted", "_type"})
# What Postgres would not take beside another of its kind without parentheses.
_PREDICATES = (
    *_COMPARISONS, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.Escape,
    exp.Not, exp.And, exp.Or,
)  # fmt: skip


_MOST_DEPTH = 100


class _Reader:
    """sqlglot's tree → ours."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._depth = 0
        self._kinds: dict[type[exp.Expr], Callable[[Any, int], Node]] = {
            exp.And: self._junction,
            exp.Or: self._junction,
            exp.Not: lambda e, at: tree.Not(at, self.read(e.this, at)),
            exp.Paren: lambda e, at: self.read(e.this, at),
            exp.Is: self._is,
            exp.In: self._in,
            exp.Between: self._between,
            exp.Like: self._like,
            exp.ILike: self._like,
            exp.Escape: self._escape,
            exp.Column: self._column,
            exp.Literal: lambda e, at: tree.Literal(at, e.this, not e.is_string),
            exp.Boolean: lambda e, at: tree.Literal(
                at, "true" if e.this else "false", cast="boolean"
            ),
            exp.Null: lambda _e, at: tree.Literal(at, None),
            exp.Neg: lambda e, at: tree.Negative(at, self._operand(e.this, at)),
            exp.Cast: self._cast,
            exp.Collate: self._collate,
            **dict.fromkeys((*_COMPARISONS, *_ARITHMETIC), self._of_two),
            **dict.fromkeys(_FUNCTIONS, self._call),
        }

    def read(self, expression: exp.Expr, at: int) -> Node:
        """``at`` is where the expression around it begins, for those that have no place."""
        at = _place(expression, at)
        reader = self._kinds.get(type(expression))
        if reader is None or _others(expression):
            raise ConditionError(f"{_shown(expression)} is not supported", at)
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise ConditionError("it is nested too deeply", at)
        node = reader(expression, at)
        self._depth -= 1
        return tree.Not(at, node) if expression.args.get("negate") else node

    def _operand(self, expression: exp.Expr, at: int) -> Node:
        """Of an operator that binds tighter than predicates do."""
        if isinstance(expression, _PREDICATES):
            raise ConditionError(
                f"{_shown(expression)} needs parentheses where it is part of another comparison",
                _place(expression, at),
            )
        return self.read(expression, at)

    def _junction(self, e: exp.Connector, at: int) -> Node:
        """A chain of any length becomes a tree of little depth."""
        chain: list[exp.Expr] = []
        rest: exp.Expr = e
        while type(rest) is type(e) and not _others(rest):
            chain.append(rest.args["expression"])
            rest = rest.this
        pieces = [self.read(piece, at) for piece in (rest, *reversed(chain))]
        while len(pieces) > 1:
            pairs = zip(pieces[::2], pieces[1::2], strict=False)
            odd = pieces[len(pieces) // 2 * 2 :]
            pieces = [tree.Junction(a.at, isinstance(e, exp.And), a, b) for a, b in pairs] + odd
        return pieces[0]

    def _of_two(self, e: exp.Binary, at: int) -> Node:
        sides = self._operand(e.left, at), self._operand(e.right, at)
        if type(e) in _ARITHMETIC:
            return tree.Arithmetic(at, _ARITHMETIC[type(e)], *sides)
        return tree.Comparison(at, _COMPARISONS[type(e)], *sides)

    def _is(self, e: exp.Is, at: int) -> Node:
        of = self._operand(e.this, at)
        if isinstance(e.expression, exp.Null):
            return tree.IsNull(at, of)
        if isinstance(e.expression, exp.Boolean):
            return tree.IsTruth(at, of, bool(e.expression.this))
        raise ConditionError(f"{_shown(e)} is not supported", at)

    def _in(self, e: exp.In, at: int) -> Node:
        if not e.expressions:
            raise ConditionError("IN takes a list of values in parentheses", at)
        items = tuple(self._operand(item, at) for item in e.expressions)
        return tree.InList(at, self._operand(e.this, at), items)

    def _between(self, e: exp.Between, at: int) -> Node:
        of = self._operand(e.this, at)
        low = tree.Comparison(at, ">=", of, self._operand(e.args["low"], at))
        high = tree.Comparison(at, "<=", of, self._operand(e.args["high"], at))
        return tree.Junction(at, True, low, high)

    def _like(self, e: exp.Like | exp.ILike, at: int, escape: str = "\\") -> Node:
        if not isinstance(e.expression, exp.Literal) or not e.expression.is_string:
            raise ConditionError("LIKE and ILIKE take one pattern in quotes", at)
        of, pattern = self._operand(e.this, at), e.expression.this
        if escape and pattern.replace(escape * 2, "").endswith(escape):
            raise ConditionError("the pattern ends with its escape character", at)
        return tree.Like(at, of, pattern, escape, isinstance(e, exp.ILike))

    def _escape(self, e: exp.Escape, at: int) -> Node:
        escape, like = e.expression, e.this
        if not isinstance(like, exp.Like | exp.ILike) or not isinstance(escape, exp.Literal):
            raise ConditionError(f"{_shown(e)} is not supported", at)
        if len(escape.this) > 1:
            raise ConditionError("ESCAPE takes one character", at)
        found = self._like(like, at, escape.this)
        return tree.Not(at, found) if like.args.get("negate") else found

    def _column(self, e: exp.Column, at: int) -> Node:
        name = e.this
        if not isinstance(name, exp.Identifier):
            raise ConditionError(f"{_shown(e)}: write the name of a column alone", at)
        return tree.ColumnName(at, name.name if name.quoted else name.name.lower())

    def _cast(self, e: exp.Cast, at: int) -> Node:
        of, kind = e.this, e.to
        sign = ""
        if isinstance(of, exp.Paren) and isinstance(of.this, exp.Neg):
            of, sign = of.this.this, "-"
        if not isinstance(of, exp.Literal):
            raise ConditionError("only a literal can be cast", at)
        if kind.expressions or kind.args.get("nested"):
            raise ConditionError(f"a cast to {kind.sql('postgres')} is not supported", at)
        name = kind.args.get("kind")
        if isinstance(name, exp.Dot):
            name = name.expression
        if isinstance(name, exp.Identifier):
            spelled = name.name if name.quoted else name.name.lower()
        else:
            spelled = kind.sql("postgres").lower()
        return tree.Literal(at, sign + of.this, not of.is_string, spelled)

    def _collate(self, e: exp.Collate, at: int) -> Node:
        if e.expression.name != "C":
            raise ConditionError('COLLATE is supported with "C" alone', at)
        return tree.ByteOrder(at, self._operand(e.this, at))

    def _call(self, e: exp.Func, at: int) -> Node:
        function = type(e).__name__.lower()
        # sqlglot takes other names for the same functions, too.
        written = self._text[at - 1 : at - 1 + len(function)].lower()
        if written != function:
            raise ConditionError(f"{_shown(e)} is not supported", at)
        arguments = tuple(self.read(argument, at) for argument in (e.this, *e.expressions))
        return tree.Call(at, function, arguments)


def _others(expression: exp.Expr) -> bool:
    """Whether it holds something that we do not know the meaning of."""
    held = {name for name, value in expression.args.items() if value}
    return bool(held - _KNOWN_ARGUMENTS - _WITHOUT_MEANING)


def _place(expression: exp.Expr, at: int) -> int:
    """Where the expression begins: the first of its pieces that has a place."""
    starts = [piece.meta["start"] + 1 for piece in expression.walk() if "start" in piece.meta]
    return min(starts, default=at)


def _shown(expression: exp.Expr) -> str:
    text = expression.sql("postgres", unsupported_level=ErrorLevel.IGNORE)
    return text if len(text) <= 40 else text[:37] + "..."
