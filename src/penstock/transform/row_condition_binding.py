"""A row condition and a table's definition → a function over columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, reduce
from typing import Any

import pyarrow.compute as pc

from penstock.config import row_condition_tree as tree
from penstock.config.row_condition_tree import ConditionError, Node
from penstock.model.table_schema import TableSchema
from penstock.transform import row_condition_values as values
from penstock.transform.row_condition_operators import (
    NUMBERS,
    Bound,
    Columns,
    Run,
    as_type,
    check_comparable,
    column_piece,
    common_type,
    compared,
    compared_as,
    computed,
    constant_piece,
    literal_beside,
    named,
    operand,
)
from penstock.transform.row_condition_types import (
    BOOLEAN,
    INT4,
    TEXT,
    UNKNOWN,
    column_type,
    literal_type,
    literal_value,
)
from penstock.transform.row_condition_values import Value


@lru_cache(maxsize=1024)
def bind(condition: Node, table: TableSchema) -> Run:
    """What decides about rows of the table. Raises ConditionError."""
    return _Binder(table).condition(condition).run


class _Binder:
    def __init__(self, table: TableSchema) -> None:
        self._table = table
        self._kinds: dict[type[Node], Callable[[Any], Bound]] = {
            tree.ColumnName: self._column,
            tree.Literal: self._literal,
            tree.Call: self._call,
            tree.Arithmetic: self._arithmetic,
            tree.Negative: self._negative,
            tree.ByteOrder: self._byte_order,
            tree.Comparison: self._comparison,
            tree.InList: self._in_list,
            tree.Like: self._like,
            tree.IsNull: self._is_null,
            tree.IsTruth: self._is_truth,
            tree.Not: self._not,
            tree.Junction: self._junction,
        }

    def condition(self, node: Node) -> Bound:
        bound = self._bind(node)
        if bound.type.family not in ("boolean", "unknown"):
            raise ConditionError(f"true or false is needed here, not {named(bound.type)}", bound.at)
        return as_type(bound, BOOLEAN)

    def _bind(self, node: Node) -> Bound:
        return self._kinds[type(node)](node)

    # -- leaves

    def _column(self, node: tree.ColumnName) -> Bound:
        names = [column.name for column in self._table.columns]
        if node.name not in names:
            raise ConditionError(
                f"the table has no column {node.name}; it has {', '.join(names)}", node.at
            )
        number = names.index(node.name)
        return column_piece(column_type(self._table.columns[number]), number, node.at)

    def _literal(self, node: tree.Literal) -> Bound:
        kind = literal_type(node)
        bound = constant_piece(node, TEXT if kind is UNKNOWN else kind)
        return replace(bound, type=kind)

    # -- values

    def _call(self, node: tree.Call) -> Bound:
        arguments = [self._bind(argument) for argument in node.arguments]
        if node.function == "coalesce":
            common = common_type(arguments)
            runs = [as_type(argument, common).run for argument in arguments]
            return Bound(
                common, lambda c: reduce(values.first_known, (r(c) for r in runs)), node.at
            )
        if len(arguments) != 1:
            raise ConditionError(f"{node.function} takes one argument", node.at)
        (of,) = arguments
        if of.type.family == "bytea" and node.function == "length":
            run = of.run
            return Bound(INT4, lambda c: values.length(run(c), of_bytes=True), node.at)
        if of.type.family not in ("text", "bpchar", "unknown"):
            raise ConditionError(f"{node.function} takes a text, not {named(of.type)}", of.at)
        run = as_type(of, TEXT).run
        if node.function == "length":
            return Bound(INT4, lambda c: values.length(run(c), of_bytes=False), node.at)
        upper = node.function == "upper"
        kind = replace(TEXT, bytewise=of.type.bytewise)
        return Bound(kind, lambda c: values.in_case(run(c), upper), node.at)

    def _arithmetic(self, node: tree.Arithmetic) -> Bound:
        left, right = operand(self._bind(node.left)), operand(self._bind(node.right))
        if left.type is UNKNOWN and right.type is not UNKNOWN:
            left = as_type(left, literal_beside(right.type))
        elif right.type is UNKNOWN and left.type is not UNKNOWN:
            right = as_type(right, literal_beside(left.type))
        for side in (left, right):
            if side.type.family == "quotient":
                raise ConditionError(
                    "a quotient of numerics can be compared, not computed with: Postgres rounds "
                    "it; write a > b * 2 in the place of a / b > 2",
                    side.at,
                )
            if side.type.family not in NUMBERS:
                raise ConditionError(
                    f"{node.operator} takes numbers, not {named(side.type)}", side.at
                )
        return computed(node.operator, left, right, node.at)

    def _negative(self, node: tree.Negative) -> Bound:
        of = operand(self._bind(node.of))
        if of.literal is not None and of.literal.is_number and not of.literal.cast:
            text = of.literal.text or ""
            text = text[1:] if text.startswith("-") else f"-{text}"
            return self._literal(replace(of.literal, text=text))
        if of.type.family not in ("integer", "numeric", "float"):
            raise ConditionError(f"- takes a number, not {named(of.type)}", of.at)
        run = of.run
        if of.type.family == "numeric":
            return Bound(of.type, lambda c: _mapped(run(c), pc.negate), node.at)
        if of.type.family == "float":
            return Bound(of.type, lambda c: _mapped(run(c), lambda data: -data), node.at)
        zero = constant_piece(tree.Literal(node.at, "0", is_number=True), of.type)
        return computed("-", zero, of, node.at)

    def _byte_order(self, node: tree.ByteOrder) -> Bound:
        of = self._bind(node.of)
        if of.type.family not in ("text", "bpchar", "unknown"):
            raise ConditionError(f"COLLATE takes a text, not {named(of.type)}", of.at)
        of = as_type(of, TEXT if of.type is UNKNOWN else of.type)
        return replace(of, type=replace(of.type, bytewise=True))

    # -- truths

    def _comparison(self, node: tree.Comparison) -> Bound:
        left, right = self._bind(node.left), self._bind(node.right)
        run = compared(node.operator, left, right, node.at)
        return Bound(BOOLEAN, run, node.at)

    def _in_list(self, node: tree.InList) -> Bound:
        of = self._bind(node.of)
        items = [self._bind(item) for item in node.items]
        constants = [item for item in items if item.literal is not None]
        # As Postgres does: several constants take one type together with what they are compared to.
        if len(constants) > 1:
            of = as_type(of, common_type([of, *constants]))
        if len(constants) == len(items) and of.type.family not in ("float", "quotient", "unknown"):
            common = common_type([of, *constants])
            check_comparable(common, node.at)
            literals = [item.literal for item in constants if item.literal is not None]
            known = [literal_value(i, common) for i in literals if i.text is not None]
            has_null, run = len(known) < len(literals), compared_as(of, common)
            return Bound(BOOLEAN, lambda c: values.contained(run(c), known, has_null), node.at)
        if len(constants) > 1:
            items = [item if item.literal is None else as_type(item, of.type) for item in items]
        runs = [compared("=", of, item, node.at) for item in items]
        return Bound(BOOLEAN, lambda c: reduce(values.either, (r(c) for r in runs)), node.at)

    def _like(self, node: tree.Like) -> Bound:
        of = self._bind(node.of)
        if of.type.family not in ("text", "bpchar", "unknown"):
            raise ConditionError(f"LIKE takes a text, not {named(of.type)}", of.at)
        run = of.run
        expression = values.like_pattern(node.pattern, node.escape, node.ignore_case)
        if not node.ignore_case:
            return Bound(BOOLEAN, lambda c: values.like(run(c), expression), node.at)
        if set(node.pattern) & {"\u212a", "\u0130"}:
            raise ConditionError(
                "a letter of the pattern has an ASCII letter as its lower case", of.at
            )
        return Bound(
            BOOLEAN,
            lambda c: values.like(values.in_case(run(c), upper=False), expression),
            node.at,
        )

    def _is_null(self, node: tree.IsNull) -> Bound:
        of = self._bind(node.of)
        run, column = of.run, of.column
        if column is not None:
            return Bound(BOOLEAN, lambda c: values.from_presence(*c.text(column)), node.at)

        def is_null(columns: Columns) -> Value:
            value = run(columns)
            return values.truth(value.null, value.valid, value.odd)

        return Bound(BOOLEAN, is_null, node.at)

    def _is_truth(self, node: tree.IsTruth) -> Bound:
        run, wanted = self.condition(node.of).run, node.value

        def is_truth(columns: Columns) -> Value:
            value = run(columns)
            true = value.true if wanted else value.false
            return values.truth(true, ~true & ~value.odd, value.odd)

        return Bound(BOOLEAN, is_truth, node.at)

    def _not(self, node: tree.Not) -> Bound:
        run = self.condition(node.of).run
        return Bound(BOOLEAN, lambda c: values.opposite(run(c)), node.at)

    def _junction(self, node: tree.Junction) -> Bound:
        left, right = self.condition(node.left).run, self.condition(node.right).run
        join = values.both if node.is_and else values.either
        return Bound(BOOLEAN, lambda c: join(left(c), right(c)), node.at)


def _mapped(value: Value, work: Callable[[Any], Any]) -> Value:
    return Value(work(value.data), value.valid, value.odd)
