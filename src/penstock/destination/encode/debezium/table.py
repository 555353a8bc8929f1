"""What is the same for all messages of one table: names, forms, key, schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from penstock.decode.types.text_column import MalformedTextError
from penstock.destination.encode.debezium import defaults as debezium_defaults
from penstock.destination.encode.debezium.form import Content, Form, base_type
from penstock.destination.encode.debezium.numbers import rescaled
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.debezium.schema import envelope_schema, field_schema, key_schema
from penstock.destination.encode.debezium.types import form_of
from penstock.model.errors import DecodeError
from penstock.model.table_definition import ColumnDefinition, TableDefinition
from penstock.model.table_schema import ColumnSchema, TableSchema
from penstock.transform.identity import identity_columns


@dataclass(frozen=True)
class ColumnForm:
    """``name`` is JSON; ``place`` names table and column to a person.

    ``absent`` is what stands where an old row does not hold the column.
    """

    name: str
    place: str
    form: Form
    optional: bool
    default: str | None

    def write(self, text: pa.Array) -> Content:
        """Postgres texts in the column's form. Raises DecodeError where one is malformed."""
        try:
            return self.form.write(text)
        except DecodeError as error:
            raise DecodeError(f"{self.place}: {error.message}", remedy=error.remedy) from None
        except (MalformedTextError, pa.ArrowInvalid) as error:
            raise DecodeError(
                f"{self.place}: a value is not what Postgres writes: {error}",
                remedy="The bytes were altered: inspect the log and resync the table.",
            ) from None

    @property
    def absent(self) -> str:
        if self.optional:
            return "null"
        return self.form.zero if self.default is None else self.default

    @property
    def unavailable(self) -> str:
        return self.form.unavailable or "null"


@dataclass(frozen=True)
class TableForm:
    """``key`` are places of columns, in the key's order. The heads and tails go around payloads."""

    columns: tuple[ColumnForm, ...]
    key: tuple[int, ...]
    key_head: str
    value_head: str
    tail: str


def table_form(
    table: TableSchema,
    options: DebeziumOptions,
    definition: TableDefinition | None,
    key: tuple[str, ...] | None,
) -> TableForm:
    """``key`` names the columns that identify rows; None where the stream alone tells them."""
    defined = {} if definition is None else {column.name: column for column in definition.columns}
    places = identity_columns(table, key)
    columns = tuple(
        _column(table, place, defined, definition, options, in_key=place in places)
        for place in range(len(table.columns))
    )
    if not options.schemas:
        return TableForm(columns, places, "", "", "")
    name = f"{options.server}.{table.qualified_name}"
    fields = [
        field_schema(form.form.schema, column.name, optional=form.optional, default=form.default)
        for form, column in zip(columns, table.columns, strict=True)
    ]
    return TableForm(
        columns,
        places,
        with_schema(key_schema(name, [fields[place] for place in places])),
        with_schema(envelope_schema(name, fields)),
        "}",
    )


def with_schema(schema: str) -> str:
    """What stands before a payload."""
    return f'{{"schema":{schema},"payload":'


def _column(
    table: TableSchema,
    place: int,
    defined: Mapping[str, ColumnDefinition],
    definition: TableDefinition | None,
    options: DebeziumOptions,
    *,
    in_key: bool,
) -> ColumnForm:
    column = table.columns[place]
    name = json.dumps(column.name, ensure_ascii=False)
    where = f"table {table.qualified_name}, column {column.name}"
    known = defined.get(column.name)
    if known is None or definition is None:
        form = form_of(column.type, column.typmod, options)
        return ColumnForm(name, where, form, not in_key, None)
    labels = next(
        (
            kind.labels
            for kind in definition.types
            if kind.kind == "enum"
            and (kind.schema, kind.name) == (known.type.schema, known.type.name)
        ),
        (),
    )
    form = form_of(column.type, column.typmod, options, labels)
    return ColumnForm(name, where, form, not known.not_null, _default(column, form, known))


def _default(column: ColumnSchema, form: Form, defined: ColumnDefinition) -> str | None:
    """The default as JSON, of the types for which Debezium names one."""
    sql = defined.default
    if form.computed is None or sql is None or debezium_defaults.is_null(sql):
        return None
    text = debezium_defaults.constant(sql)
    if text is None:
        return form.computed
    try:
        # The catalogue has it as it was written: 1 where the column would have 1.00.
        text = rescaled(text, *base_type(column.type, column.typmod))
        token: str = form.write(pa.array([text], pa.string())).tokens()[0].as_py()
    except (DecodeError, MalformedTextError, pa.ArrowInvalid):
        return form.computed  # a constant of another type, which is cast
    return token
