"""Operators of row conditions: which types go together, as Postgres settles it, and what follows.

What has no type under these rules, or would depend on a session's settings, is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce

from penstock.config.row_condition_tree import ConditionError, Literal
from penstock.transform import row_condition_values as values
from penstock.transform.row_condition_types import (
    FLOAT8,
    MOST_DIGITS,
    QUOTIENT,
    TEXT,
    TIMESTAMP,
    UNKNOWN,
    SqlType,
    literal_value,
    numeric,
)
from penstock.transform.row_condition_values import Value

NUMBERS = frozenset({"integer", "numeric", "float", "quotient"})
TEXTS = frozenset({"text", "bpchar"})
_EXACT = frozenset({"integer", "numeric"})
_RANK = {"integer": 0, "numeric": 1, "float": 2}


@dataclass(frozen=True)
class Piece:
    """A piece of a condition: its type, where it stands, and its values for some rows, which are
    not made before somebody asks. ``literal``: it is this constant, in whatever type suits;
    ``column``: it is this one.
    """

    type: SqlType
    at: int
    make: Callable[[], Value]
    count: int
    literal: Literal | None = None
    column: int | None = None

    @cached_property
    def value(self) -> Value:
        return self.make()


def constant_piece(literal: Literal, kind: SqlType, count: int) -> Piece:
    if kind.digits > MOST_DIGITS:
        # As a float it may do; as what it is, nothing can be said of it.
        make = partial(values.nobody_knows, count)
    else:
        make = partial(values.constant, literal_value(literal, kind), count)
    return Piece(kind, literal.at, make, count, literal)


# -- types --------------------------------------------------------------------------------------


def common_type(pieces: Iterable[Piece]) -> SqlType:
    """The type of values that take each other's place; numbers widen, and dates beside
    timestamps.
    """
    found = reduce(lambda kind, piece: _wider(kind, piece.type, piece.at), pieces, UNKNOWN)
    return TEXT if found is UNKNOWN else found


def _wider(a: SqlType, b: SqlType, at: int) -> SqlType:
    if a == b or b is UNKNOWN:
        return a
    if a is UNKNOWN:
        return b
    families = {a.family, b.family}
    if families <= _EXACT and "numeric" in families:
        x, y = _as_numeric(a), _as_numeric(b)
        return _numeric(max(x.whole, y.whole), max(x.scale, y.scale), at)
    if families <= _RANK.keys():
        return max(a, b, key=lambda kind: (_RANK[kind.family], kind.bits))
    if families <= TEXTS:
        return replace(TEXT if len(families) > 1 else a, bytewise=a.bytewise or b.bytewise)
    if families == {"date", "timestamp"}:
        return TIMESTAMP
    raise ConditionError(f"{a} does not go together with {b}", at)


def _numeric(whole: int, scale: int, at: int) -> SqlType:
    if whole + scale > MOST_DIGITS:
        raise ConditionError(
            f"this needs numbers of {whole + scale} digits; {MOST_DIGITS} is the most", at
        )
    return numeric(whole, scale)


def _as_numeric(kind: SqlType) -> SqlType:
    return numeric({16: 5, 32: 10, 64: 19}[kind.bits], 0) if kind.family == "integer" else kind


def as_type(piece: Piece, kind: SqlType) -> Piece:
    """The same value in a type that ``common_type`` found, or that a comparison takes."""
    own = piece.type
    if own == kind:
        return piece
    if piece.literal is not None and (
        own is UNKNOWN or (own.family in _EXACT and kind.family not in _EXACT)
    ):
        return constant_piece(piece.literal, kind, piece.count)
    convert: Callable[[Value], Value] | None = None
    if kind.family == "numeric":
        convert = partial(values.to_decimal, kind=kind)
    elif kind.family in ("float", "quotient") and (own.family, own.bits) != (
        kind.family,
        kind.bits,
    ):
        convert = partial(values.to_float, kind=kind)
    elif (own.family, kind.family) == ("date", "timestamp"):
        convert = partial(values.to_timestamp, kind=kind)
    elif (own.family, kind.family) == ("bpchar", "text"):
        convert = values.without_padding
    if convert is None:
        return replace(piece, type=kind)
    return Piece(kind, piece.at, lambda: convert(piece.value), piece.count)


# -- operators ----------------------------------------------------------------------------------


def computed(operator: str, left: Piece, right: Piece) -> tuple[SqlType, Value]:
    """What ``+``, ``-``, ``*`` or ``/`` makes of two numbers, and its type."""
    families = {left.type.family, right.type.family}
    if families == {"integer"}:
        kind = max(left.type, right.type, key=lambda side: side.bits)
        return kind, values.integers(operator, left.value, right.value, kind.bits)
    if "float" in families or operator == "/":
        kind = left.type if left.type == right.type else FLOAT8
        kind = kind if "float" in families else QUOTIENT
        a, b = as_type(left, kind).value, as_type(right, kind).value
        return kind, values.floats(operator, a, b, kind)
    x, y = _as_numeric(left.type), _as_numeric(right.type)
    if operator == "*":
        scale = x.scale + y.scale
        kind = _numeric(x.digits + y.digits + 1 - scale, scale, left.at)
    else:
        kind = _numeric(max(x.whole, y.whole) + 1, max(x.scale, y.scale), left.at)
    return kind, values.decimals(operator, as_type(left, x).value, as_type(right, y).value, kind)


def compared(operator: str, left: Piece, right: Piece, at: int) -> Value:
    """What a comparison says, IS [NOT] DISTINCT FROM among them."""
    kind = _comparable(left, right, at)
    check_comparable(kind, at)
    is_distinct = operator.startswith("IS")
    if operator not in ("=", "<>") and not is_distinct:
        _check_order(kind, at)
    a, b = compared_as(left, kind), compared_as(right, kind)
    compare = values.compare_quotients if kind is QUOTIENT else values.compare
    if not is_distinct:
        return compare(operator, a, b)
    found = values.distinct(compare("=", a, b), a, b)
    return values.opposite(found) if "NOT" in operator else found


def compared_as(piece: Piece, kind: SqlType) -> Value:
    """Its value as comparisons in this type take it: those of char(n) do not see padding."""
    value = as_type(piece, kind).value
    return values.without_padding(value) if kind.family == "bpchar" else value


def _comparable(left: Piece, right: Piece, at: int) -> SqlType:
    a, b = left.type, right.type
    families = {a.family, b.family}
    if "quotient" in families and families <= NUMBERS | {"unknown"}:
        return QUOTIENT
    if "float" in families and families <= NUMBERS and a != b:
        return FLOAT8
    return common_type([left, replace(right, at=at)])


def check_comparable(kind: SqlType, at: int) -> None:
    if kind.family == "other":
        raise ConditionError(
            f"values of type {kind.name} cannot be compared in a condition, only asked for NULL", at
        )


def _check_order(kind: SqlType, at: int) -> None:
    if kind.family in TEXTS and not kind.bytewise:
        raise ConditionError(
            "the order of texts depends on the database's collation; "
            'write column COLLATE "C" < ... for the order of their bytes',
            at,
        )
    if kind.family == "enum":
        raise ConditionError("the order of an enum's values is not known; use = or IN", at)
