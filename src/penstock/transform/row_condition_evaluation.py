"""A row condition over some rows of a table: what it says of each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.config import row_condition_tree as tree
from penstock.config.row_condition_tree import ConditionError, Node
from penstock.decode.image import Mask, placed
from penstock.decode.typed import decode_text
from penstock.model.errors import DecodeError
from penstock.model.table_schema import TableSchema
from penstock.transform import row_condition_types as types
from penstock.transform import row_condition_values as values
from penstock.transform.row_condition_operators import (
    NUMBERS,
    TEXTS,
    Piece,
    as_type,
    check_comparable,
    common_type,
    compared,
    compared_as,
    computed,
    constant_piece,
)
from penstock.transform.row_condition_types import SqlType
from penstock.transform.row_condition_values import Value


@dataclass(frozen=True)
class Rows:
    """Some rows of a table. ``text`` gives a column, and where it was not sent; None: nowhere."""

    table: TableSchema
    count: int
    text: Callable[[int], tuple[pa.Array, Mask | None]]

    def column(self, number: int, kind: SqlType) -> Value:
        """A column in its type. Raises DecodeError."""
        texts, unset = self.text(number)
        definition = self.table.columns[number]
        try:
            typed = decode_text(texts, definition.type, definition.typmod)
        except DecodeError as error:
            raise placed(error, self.table, number) from None
        return values.from_column(typed, unset, kind)


def evaluate(condition: Node, rows: Rows) -> Value:
    """What a condition says of rows. Raises ConditionError where it does not suit their table,
    whether there are rows or not.
    """
    return _Evaluation(rows).truth(condition)


class _Evaluation:
    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._kinds: dict[type[Node], Callable[[Any], Piece]] = {
            tree.ColumnName: self._column,
            tree.Literal: self._literal,
            tree.Call: self._call,
            tree.Arithmetic: self._arithmetic,
            tree.Negative: self._negative,
            tree.ByteOrder: self._byte_order,
        }
        self._truths: dict[type[Node], Callable[[Any], Value]] = {
            tree.Comparison: lambda n: compared(
                n.operator, self._piece(n.left), self._piece(n.right), n.at
            ),
            tree.InList: self._in_list,
            tree.Like: self._like,
            tree.IsNull: self._is_null,
            tree.IsTruth: lambda n: values.is_truth(self.truth(n.of), n.value),
            tree.Not: lambda n: values.opposite(self.truth(n.of)),
            tree.Junction: lambda n: (values.both if n.is_and else values.either)(
                self.truth(n.left), self.truth(n.right)
            ),
        }

    def truth(self, node: Node) -> Value:
        piece = self._piece(node)
        if piece.type.family not in ("boolean", "unknown"):
            raise ConditionError(f"true or false is needed here, not {piece.type}", piece.at)
        return as_type(piece, types.BOOLEAN).value

    def _piece(self, node: Node) -> Piece:
        if (decide := self._truths.get(type(node))) is not None:
            return self._made(types.BOOLEAN, node, decide(node))
        return self._kinds[type(node)](node)

    def _made(self, kind: SqlType, node: Node, value: Value) -> Piece:
        return Piece(kind, node.at, lambda: value, self._rows.count)

    # -- leaves

    def _column(self, node: tree.ColumnName) -> Piece:
        names = [column.name for column in self._rows.table.columns]
        if node.name not in names:
            raise ConditionError(
                f"the table has no column {node.name}; it has {', '.join(names)}", node.at
            )
        number = names.index(node.name)
        kind = types.column_type(self._rows.table.columns[number])
        return self._column_as(kind, number, node.at)

    def _column_as(self, kind: SqlType, number: int, at: int) -> Piece:
        make = partial(self._rows.column, number, kind)
        return Piece(kind, at, make, self._rows.count, column=number)

    def _literal(self, node: tree.Literal) -> Piece:
        return constant_piece(node, types.literal_type(node), self._rows.count)

    # -- values

    def _call(self, node: tree.Call) -> Piece:
        pieces = [self._piece(argument) for argument in node.arguments]
        if node.function == "coalesce":
            common = common_type(pieces)
            found = reduce(values.first_known, (as_type(piece, common).value for piece in pieces))
            return self._made(common, node, found)
        if len(pieces) != 1:
            raise ConditionError(f"{node.function} takes one argument", node.at)
        (of,) = pieces
        if of.type.family == "bytea" and node.function == "length":
            return self._made(types.INT4, node, values.length(of.value))
        value = as_type(_text(of, node.function), types.TEXT).value
        if node.function == "length":
            return self._made(types.INT4, node, values.length(value))
        kind = replace(types.TEXT, bytewise=of.type.bytewise)
        return self._made(kind, node, values.in_case(value, node.function == "upper"))

    def _arithmetic(self, node: tree.Arithmetic) -> Piece:
        sides = [self._operand(node.left), self._operand(node.right)]
        for number, other in ((0, 1), (1, 0)):
            if sides[number].type is types.UNKNOWN and sides[other].type is not types.UNKNOWN:
                kind = sides[other].type
                kind = types.UNBOUNDED_OPERAND if kind.family == "numeric" else kind
                sides[number] = as_type(sides[number], kind)
        for side in sides:
            if side.type.family == "quotient":
                raise ConditionError(
                    "a quotient of numerics can be compared, not computed with: Postgres rounds "
                    "it; write a > b * 2 in the place of a / b > 2",
                    side.at,
                )
            if side.type.family not in NUMBERS:
                raise ConditionError(f"{node.operator} takes numbers, not {side.type}", side.at)
        kind, value = computed(node.operator, sides[0], sides[1])
        return self._made(kind, node, value)

    def _operand(self, node: Node) -> Piece:
        """For arithmetic, numerics of any length are taken up to fewer digits."""
        piece = self._piece(node)
        if piece.type is types.UNBOUNDED and piece.column is not None:
            return self._column_as(types.UNBOUNDED_OPERAND, piece.column, piece.at)
        return piece

    def _negative(self, node: tree.Negative) -> Piece:
        of = self._operand(node.of)
        if of.literal is not None and of.literal.is_number and not of.literal.cast:
            text = of.literal.text or ""
            text = text[1:] if text.startswith("-") else f"-{text}"
            return self._literal(replace(of.literal, text=text))
        if of.type.family not in ("integer", "numeric", "float"):
            raise ConditionError(f"- takes a number, not {of.type}", of.at)
        if of.type.family != "integer":
            return self._made(of.type, node, Value(pc.negate(of.value.data), of.value.odd))
        zero = constant_piece(tree.Literal(node.at, "0", is_number=True), of.type, of.count)
        kind, value = computed("-", zero, of)
        return self._made(kind, node, value)

    def _byte_order(self, node: tree.ByteOrder) -> Piece:
        of = _text(self._piece(node.of), "COLLATE")
        of = as_type(of, types.TEXT if of.type is types.UNKNOWN else of.type)
        return replace(of, type=replace(of.type, bytewise=True))

    # -- truths

    def _in_list(self, node: tree.InList) -> Value:
        of = self._piece(node.of)
        items = [self._piece(item) for item in node.items]
        constants = [item for item in items if item.literal is not None]
        # As Postgres does: several constants take one type together with what they are compared to.
        if len(constants) > 1:
            of = as_type(of, common_type([of, *constants]))
        if len(constants) == len(items) and of.type.family not in ("float", "quotient", "unknown"):
            common = common_type([of, *constants])
            check_comparable(common, node.at)
            literals = [item.literal for item in constants if item.literal is not None]
            known = [types.literal_value(i, common) for i in literals if i.text is not None]
            return values.contained(compared_as(of, common), known, len(known) < len(literals))
        if len(constants) > 1:
            items = [item if item.literal is None else as_type(item, of.type) for item in items]
        return reduce(values.either, (compared("=", of, item, node.at) for item in items))

    def _like(self, node: tree.Like) -> Value:
        of = _text(self._piece(node.of), "LIKE")
        if node.ignore_case and set(node.pattern) & {"\u212a", "\u0130"}:
            raise ConditionError(
                "a letter of the pattern has an ASCII letter as its lower case", of.at
            )
        return values.like(of.value, node.pattern, node.escape, node.ignore_case)

    def _is_null(self, node: tree.IsNull) -> Value:
        of = self._piece(node.of)
        if of.column is not None:
            # That needs no type, so that every column can be asked.
            return values.from_presence(*self._rows.text(of.column))
        return values.known(pa.array(of.value.null), of.value.odd)


def _text(piece: Piece, taker: str) -> Piece:
    if piece.type.family not in TEXTS | {"unknown"}:
        raise ConditionError(f"{taker} takes a text, not {piece.type}", piece.at)
    return piece
