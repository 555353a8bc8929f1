"""Operators of row conditions: which types go together, as Postgres settles it, and what runs.

What has no type under these rules, or would depend on a session's settings, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from penstock.config.row_condition_tree import ConditionError, Literal
from penstock.decode.image import Mask
from penstock.decode.typed import TypedColumn
from penstock.transform import row_condition_values as values
from penstock.transform.row_condition_types import (
    FLOAT8,
    MOST_DIGITS,
    QUOTIENT,
    TEXT,
    TIMESTAMP,
    UNBOUNDED,
    UNBOUNDED_OPERAND,
    UNKNOWN,
    SqlType,
    literal_value,
    numeric,
)
from penstock.transform.row_condition_values import Value


class Columns(Protocol):
    """Some rows of a table. Masks say where a column was not sent; None: nowhere."""

    @property
    def count(self) -> int: ...

    def text(self, column: int) -> tuple[pa.Array, Mask | None]: ...

    def typed(self, column: int) -> tuple[TypedColumn, Mask | None]: ...


Run = Callable[[Columns], Value]

NUMBERS = frozenset({"integer", "numeric", "float", "quotient"})
_TEXTS = frozenset({"text", "bpchar"})
_EXACT = frozenset({"integer", "numeric"})
_RANK = {"integer": 0, "numeric": 1, "float": 2}


@dataclass(frozen=True)
class Bound:
    """A piece whose type is known. ``literal``: it is this constant, in whatever type suits."""

    type: SqlType
    run: Run
    at: int
    literal: Literal | None = None
    column: int | None = None


def named(kind: SqlType) -> str:
    return f"{'an' if kind.name[0] in 'aeiou' else 'a'} {kind.name}"


def column_piece(kind: SqlType, number: int, at: int) -> Bound:
    def run(columns: Columns) -> Value:
        typed, unset = columns.typed(number)
        return values.from_column(typed, unset, kind)

    return Bound(kind, run, at, column=number)


def constant_piece(literal: Literal, kind: SqlType) -> Bound:
    if kind.digits > MOST_DIGITS:
        # As a float it may do; as what it is, nothing can be said of it.
        return Bound(kind, lambda c: values.unknown(c.count), literal.at, literal=literal)
    scalar, is_null = literal_value(literal, kind), literal.text is None
    return Bound(
        kind, lambda c: values.constant(scalar, is_null, c.count), literal.at, literal=literal
    )


# -- types --------------------------------------------------------------------------------------


def common_type(pieces: list[Bound]) -> SqlType:
    """The type of values that take each other's place; numbers widen, and dates beside
    timestamps.
    """
    found = UNKNOWN
    for piece in pieces:
        found = _wider(found, piece.type, piece.at)
    return TEXT if found is UNKNOWN else found


def _wider(a: SqlType, b: SqlType, at: int) -> SqlType:
    if a == b or b is UNKNOWN:
        return a
    if a is UNKNOWN:
        return b
    if a.family in _RANK and b.family in _RANK:
        if a.family == b.family == "numeric":
            return _numeric(max(a.whole, b.whole), max(a.scale, b.scale), at)
        if {a.family, b.family} == {"integer", "numeric"}:
            exact, other = (a, b) if a.family == "numeric" else (b, a)
            return _numeric(max(exact.whole, _whole(other)), exact.scale, at)
        return max(a, b, key=lambda kind: (_RANK[kind.family], kind.bits))
    if a.family in _TEXTS and b.family in _TEXTS:
        return replace(TEXT if a.family != b.family else a, bytewise=a.bytewise or b.bytewise)
    if {a.family, b.family} == {"date", "timestamp"}:
        return TIMESTAMP
    raise ConditionError(f"{named(a)} does not go together with {named(b)}", at)


def _numeric(whole: int, scale: int, at: int) -> SqlType:
    if whole + scale > MOST_DIGITS:
        raise ConditionError(
            f"this needs numbers of {whole + scale} digits; {MOST_DIGITS} is the most", at
        )
    return numeric(whole, scale)


def _whole(integer: SqlType) -> int:
    return {16: 5, 32: 10, 64: 19}[integer.bits]


def literal_beside(kind: SqlType) -> SqlType:
    """What a literal in quotes is taken for beside this type."""
    return UNBOUNDED_OPERAND if kind.family == "numeric" else kind


def operand(bound: Bound) -> Bound:
    """For arithmetic, numerics of any length are taken up to fewer digits."""
    if bound.type is UNBOUNDED and bound.column is not None:
        return column_piece(UNBOUNDED_OPERAND, bound.column, bound.at)
    return bound


def as_type(bound: Bound, kind: SqlType) -> Bound:
    """The same value in a type that ``common_type`` found, or that a comparison takes."""
    if bound.type == kind:
        return bound
    if bound.literal is not None and (
        bound.type is UNKNOWN or (bound.type.family in _EXACT and kind.family not in _EXACT)
    ):
        return constant_piece(bound.literal, kind)
    run, convert = bound.run, _conversion(bound.type, kind)
    if convert is None:
        return replace(bound, type=kind)
    return Bound(kind, lambda c: convert(run(c)), bound.at)


def _conversion(a: SqlType, b: SqlType) -> Callable[[Value], Value] | None:
    if b.family == "numeric":
        return lambda value: values.to_decimal(value, b)
    if b.family in ("float", "quotient") and (a.family, a.bits) != (b.family, b.bits):
        return lambda value: values.to_float(value, b.bits)
    if (a.family, b.family) == ("date", "timestamp"):
        return values.to_timestamp
    if (a.family, b.family) == ("bpchar", "text"):
        return values.without_padding
    return None


# -- operators ----------------------------------------------------------------------------------


def computed(operator: str, left: Bound, right: Bound, at: int) -> Bound:
    families = {left.type.family, right.type.family}
    if families == {"integer"}:
        kind = max(left.type, right.type, key=lambda side: side.bits)
        a, b = left.run, right.run
        return Bound(kind, lambda c: values.integers(operator, a(c), b(c), kind.bits), at)
    if "float" in families:
        kind = left.type if left.type == right.type else FLOAT8
        a, b = as_type(left, kind).run, as_type(right, kind).run
        return Bound(kind, lambda c: values.floats(operator, a(c), b(c)), at)
    if operator == "/":
        a, b = as_type(left, QUOTIENT).run, as_type(right, QUOTIENT).run
        return Bound(QUOTIENT, lambda c: values.floats("/", a(c), b(c)), at)
    x, y = (
        side.type if side.type.family == "numeric" else numeric(_whole(side.type), 0)
        for side in (left, right)
    )
    if operator == "*":
        scale = x.scale + y.scale
        kind = _numeric(x.digits + y.digits + 1 - scale, scale, at)
    else:
        kind = _numeric(max(x.whole, y.whole) + 1, max(x.scale, y.scale), at)
    a, b = as_type(left, x).run, as_type(right, y).run
    return Bound(kind, lambda c: values.decimals(operator, a(c), b(c), kind), at)


def compared(operator: str, left: Bound, right: Bound, at: int) -> Run:
    kind = _comparable(left, right, at)
    check_comparable(kind, at)
    if operator not in ("=", "<>") and not operator.startswith("IS"):
        _check_order(kind, at)
    a, b = compared_as(left, kind), compared_as(right, kind)
    compare = values.compare_quotients if kind is QUOTIENT else values.compare
    if not operator.startswith("IS"):
        return lambda c: compare(operator, a(c), b(c))
    negated = "NOT" in operator

    def is_distinct(columns: Columns) -> Value:
        x, y = a(columns), b(columns)
        found = values.distinct(compare("=", x, y), x, y)
        return values.opposite(found) if negated else found

    return is_distinct


def compared_as(bound: Bound, kind: SqlType) -> Run:
    """Its value as comparisons in this type take it: those of char(n) do not see padding."""
    run = as_type(bound, kind).run
    return (lambda c: values.without_padding(run(c))) if kind.family == "bpchar" else run


def _comparable(left: Bound, right: Bound, at: int) -> SqlType:
    a, b = left.type, right.type
    families = {a.family, b.family}
    if families <= NUMBERS:
        if "quotient" in families:
            return QUOTIENT
        if "float" in families and a != b:
            return FLOAT8
    if "quotient" in families and UNKNOWN in (a, b):
        return QUOTIENT
    return common_type([left, replace(right, at=at)])


def check_comparable(kind: SqlType, at: int) -> None:
    if kind.family == "other":
        raise ConditionError(
            f"values of type {kind.name} cannot be compared in a condition, only asked for NULL", at
        )


def _check_order(kind: SqlType, at: int) -> None:
    if kind.family in _TEXTS and not kind.bytewise:
        raise ConditionError(
            "the order of texts depends on the database's collation; "
            'write column COLLATE "C" < ... for the order of their bytes',
            at,
        )
    if kind.family == "enum":
        raise ConditionError("the order of an enum's values is not known; use = or IN", at)
