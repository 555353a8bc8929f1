"""The SQL that makes a table of the source again at the destination. No I/O.

Two steps: ``at_target`` says what the table is called and made of over there, still as a
definition, which can be compared with what a database holds; the others write it as SQL.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from psycopg import sql

from penstock.config.table_patterns import split_name
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)

Renamed = Mapping[tuple[str, str], tuple[str, str]]
"""Types by schema and name: what they are called in the source, and over there."""

_SEQUENCE_TYPES = ("smallint", "integer", "bigint")
_NAME_BYTES = 63

# A string or a quoted name, which are left alone, whatever they hold, or a qualified name. The
# server writes all in this form only, and nothing in a default, a check or a generated column's
# expression has two parts but such a name.
_TOKENS = re.compile(
    r"""E?'(?:[^']|'')*'
      | (?P<schema>"(?:[^"]|"")+"|[a-z_][a-z0-9_$]*) \. (?P<name>"(?:[^"]|"")+"|[a-z_][a-z0-9_$]*)
      | "(?:[^"]|"")+"
    """,
    re.VERBOSE,
)


def at_target(
    table: TableDefinition,
    names: TableNames,
    extensions: Mapping[str, str],
    *,
    virtual_columns: bool = True,
) -> TableDefinition:
    """The table as it should be at the destination.

    Columns that the stream never sends are not part of it, unless the destination computes them. An
    identity column is BY DEFAULT, since ALWAYS would refuse the source's values. ``extensions`` are
    the schemas of the extensions that the destination has; a type of an extension is looked for
    there. Without ``virtual_columns`` (before Postgres 18) such columns are stored.
    """
    schema, name = names.target(table.schema, table.name)
    renamed = _renamed(table, names, extensions)
    columns = []
    for column in table.columns:
        if column.ignored or (not column.published and column.generated is None):
            continue
        made = replace(
            column,
            type=_moved(column.type, renamed),
            default=_requalified(column.default, renamed),
            generated=_requalified(column.generated, renamed),
            identity="d" if column.identity else "",
            stored=column.stored or not virtual_columns,
        )
        if column.sequence is not None:
            # A sequence lies where the table lies that owns it.
            made = _with_sequence(made, schema, split_name(column.sequence)[1])
        columns.append(made)
    kept = {column.name for column in columns}
    return replace(
        table,
        schema=schema,
        name=name,
        columns=tuple(columns),
        primary_key=table.primary_key if kept.issuperset(table.primary_key) else (),
        types=tuple(_moved_definition(kind, renamed) for kind in table.types),
        indexes=tuple(
            replace(index, definition=_requalified(index.definition, renamed) or "")
            for index in table.indexes
        ),
        constraints=tuple(
            _moved_constraint(constraint, names, renamed) for constraint in table.constraints
        ),
    )


def with_free_sequences(table: TableDefinition, taken: set[tuple[str, str]]) -> TableDefinition:
    """The table with sequences whose names are nobody else's; their names are taken then."""
    columns = []
    for column in table.columns:
        made = column
        if column.sequence is not None:
            wanted = split_name(column.sequence)[1]
            name, number = wanted, 0
            while (table.schema, name) in taken:
                number += 1
                name = numbered_name(wanted, number)
            taken.add((table.schema, name))
            made = _with_sequence(column, table.schema, name)
        columns.append(made)
    return replace(table, columns=tuple(columns))


def numbered_name(name: str, number: int) -> str:
    """One like it, and not longer than the server takes: what is beyond that it leaves out."""
    room = _NAME_BYTES - len(str(number))
    return f"{name.encode()[:room].decode(errors='ignore')}{number}"


def create_schema(schema: str) -> sql.Composed:
    return sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema))


def create_type(kind: TypeDefinition, without: Collection[str] = ()) -> sql.Composed:
    """``without`` are parts of a domain to leave out: checks, or its default's SQL."""
    name = sql.Identifier(kind.schema, kind.name)
    if kind.kind == "enum":
        labels = sql.SQL(", ").join(map(sql.Literal, kind.labels))
        return sql.SQL("CREATE TYPE {} AS ENUM ({})").format(name, labels)
    if kind.kind == "composite":
        attributes = sql.SQL(", ").join(
            sql.SQL("{} {}").format(sql.Identifier(attribute), type_sql(type_name))
            for attribute, type_name in kind.attributes
        )
        return sql.SQL("CREATE TYPE {} AS ({})").format(name, attributes)
    assert kind.base is not None  # noqa: S101 (domains and ranges have one)
    if kind.kind == "range":
        options = [sql.SQL("subtype = {}").format(type_sql(kind.base))]
        if kind.collation:
            options.append(sql.SQL("collation = {}").format(sql.Identifier(*kind.collation)))
        multirange = sql.Identifier(kind.schema, kind.multirange)
        options.append(sql.SQL("multirange_type_name = {}").format(multirange))
        return sql.SQL("CREATE TYPE {} AS RANGE ({})").format(name, sql.SQL(", ").join(options))
    parts: list[sql.Composable] = [sql.SQL("CREATE DOMAIN"), name, sql.SQL("AS")]
    parts.append(type_sql(kind.base))
    if kind.collation:
        parts.append(sql.SQL("COLLATE {}").format(sql.Identifier(*kind.collation)))
    if kind.default is not None and kind.default not in without:
        parts.append(sql.SQL("DEFAULT {}").format(_written(kind.default)))
    if kind.not_null:
        parts.append(sql.SQL("NOT NULL"))
    parts += [_written(check) for check in kind.constraints if check not in without]
    return sql.SQL(" ").join(parts)


def create_table(table: TableDefinition, without: Collection[str] = ()) -> list[sql.Composed]:
    """The statements that make the table with its sequences, its primary key and, where rows are
    found by other columns, a unique index on those.

    ``without`` names columns whose expression has to be left out: a default goes, a generated
    column goes as a whole.
    """
    name = sql.Identifier(table.schema, table.name)
    columns = [
        replace(column, default=None) if column.name in without else column
        for column in table.columns
        if not (column.name in without and column.generated is not None)
    ]
    owned = [(column, column.sequence) for column in columns if column.sequence is not None]
    statements = [_create_sequence(column, sequence) for column, sequence in owned]
    lines = [_column(column) for column in columns]
    if table.primary_key:
        lines.append(primary_key(table))
    statements.append(
        sql.SQL("CREATE TABLE {} ({})").format(name, sql.SQL(", ").join(lines)),
    )
    statements += [
        sql.SQL("ALTER SEQUENCE {} OWNED BY {}").format(
            sql.Identifier(*split_name(sequence)),
            sql.Identifier(table.schema, table.name, column.name),
        )
        for column, sequence in owned
    ]
    if table.merge_key and set(table.merge_key) != set(table.primary_key):
        statements.append(create_key_index(table))
    return statements


def primary_key(table: TableDefinition) -> sql.Composed:
    return sql.SQL("PRIMARY KEY ({})").format(_names(table.primary_key))


def create_key_index(table: TableDefinition) -> sql.Composed:
    """A unique index on the columns by which rows are found."""
    return sql.SQL("CREATE UNIQUE INDEX ON {} ({})").format(
        sql.Identifier(table.schema, table.name), _names(table.merge_key)
    )


def type_sql(kind: TypeName) -> sql.Composed:
    """The type as SQL, with its schema where it is not the system's."""
    name: sql.Composable = (
        sql.Identifier(kind.schema, kind.name) if kind.is_user_defined else _written(kind.name)
    )
    return sql.Composed([name, _written(kind.modifier + ("[]" if kind.is_array else ""))])


def shown_type(kind: TypeName) -> str:
    """The same as text."""
    return type_sql(kind).as_string(None)


def _column(column: ColumnDefinition) -> sql.Composed:
    parts: list[sql.Composable] = [sql.Identifier(column.name), type_sql(column.type)]
    if column.collation is not None:
        parts.append(sql.SQL("COLLATE {}").format(sql.Identifier(*column.collation)))
    if column.generated is not None:
        kind = sql.SQL("STORED") if column.stored else sql.SQL("VIRTUAL")
        expression = _written(column.generated)
        parts.append(sql.SQL("GENERATED ALWAYS AS ({}) {}").format(expression, kind))
    elif column.identity:
        parts.append(sql.SQL("GENERATED BY DEFAULT AS IDENTITY"))
    elif column.default is not None:
        parts.append(sql.SQL("DEFAULT {}").format(_written(column.default)))
    if column.not_null:
        parts.append(sql.SQL("NOT NULL"))
    return sql.SQL(" ").join(parts)


def _create_sequence(column: ColumnDefinition, sequence: str) -> sql.Composed:
    kind = column.type.name if column.type.name in _SEQUENCE_TYPES else "bigint"
    return sql.SQL("CREATE SEQUENCE {} AS {}").format(
        sql.Identifier(*split_name(sequence)), _written(kind)
    )


def _with_sequence(column: ColumnDefinition, schema: str, name: str) -> ColumnDefinition:
    """The column with a sequence of another name, and a default that takes values of that one."""
    assert column.sequence is not None  # noqa: S101 (only such columns come here)
    assert column.default is not None  # noqa: S101 (a sequence counts as owned through its use)
    if split_name(column.sequence) == (schema, name):
        return column
    sequence = _quoted(schema, name)
    default = column.default.replace(_regclass(column.sequence), _regclass(sequence))
    return replace(column, sequence=sequence, default=default)


def _regclass(name: str) -> str:
    literal = name.replace("'", "''")
    return f"'{literal}'::regclass"


def _names(names: Iterable[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))


def _written(text: str) -> sql.SQL:
    """SQL that a server wrote: nobody else can put anything into it."""
    return sql.SQL(text)


def _renamed(
    table: TableDefinition, names: TableNames, extensions: Mapping[str, str]
) -> dict[tuple[str, str], tuple[str, str]]:
    renamed = {}
    for kind in table.types:
        for name in (kind.name, kind.multirange):
            renamed[kind.schema, name] = (names.schema(kind.schema), name)
    for used in used_types(table):
        if used.extension:
            schema = extensions.get(used.extension, used.schema)
        else:
            schema = names.schema(used.schema)
        renamed[used.schema, used.name] = (schema, used.name)
    return renamed


def used_types(table: TableDefinition) -> list[TypeName]:
    """Every type that is not the system's and that the table or one of its types names."""
    used = [column.type for column in table.columns]
    for kind in table.types:
        used += [type_name for _attribute, type_name in kind.attributes]
        used += [kind.base] if kind.base is not None else []
    return [type_name for type_name in used if type_name.is_user_defined]


def _moved(kind: TypeName, renamed: Renamed) -> TypeName:
    schema, name = renamed.get((kind.schema, kind.name), (kind.schema, kind.name))
    return replace(kind, schema=schema, name=name) if kind.is_user_defined else kind


def _moved_definition(kind: TypeDefinition, renamed: Renamed) -> TypeDefinition:
    schema, name = renamed[kind.schema, kind.name]
    return replace(
        kind,
        schema=schema,
        name=name,
        attributes=tuple((key, _moved(used, renamed)) for key, used in kind.attributes),
        base=None if kind.base is None else _moved(kind.base, renamed),
        constraints=tuple(_requalified(check, renamed) or "" for check in kind.constraints),
        default=_requalified(kind.default, renamed),
    )


def _moved_constraint(
    constraint: ConstraintDefinition, names: TableNames, renamed: Renamed
) -> ConstraintDefinition:
    references = constraint.references
    if references is not None:
        target = names.target(*references)
        renamed = {**renamed, references: target}
        references = target
    definition = _requalified(constraint.definition, renamed) or ""
    return replace(constraint, definition=definition, references=references)


def _requalified(expression: str | None, renamed: Renamed) -> str | None:
    """The expression with the types' new names. Functions keep theirs: they are not ours to make,
    and stand at the destination where somebody put them.
    """

    def replaced(match: re.Match[str]) -> str:
        if match["schema"] is None:
            return match[0]
        found = (_unquoted(match["schema"]), _unquoted(match["name"]))
        target = renamed.get(found, found)
        return match[0] if target == found else _quoted(*target)

    return None if expression is None else _TOKENS.sub(replaced, expression)


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name


def _quoted(schema: str, name: str) -> str:
    return sql.Identifier(schema, name).as_string(None)
