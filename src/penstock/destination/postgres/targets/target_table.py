"""The tables at the destination: made where they are missing, compared where they exist."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import psycopg
from psycopg import sql

from penstock.config.table_patterns import split_name
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    run,
    said,
)
from penstock.destination.postgres.targets.create_table import (
    at_target,
    create_schema,
    create_table,
    create_type,
    shown_type,
    used_types,
    with_free_sequences,
)
from penstock.destination.postgres.targets.table_differences import (
    table_differences,
    type_differences,
)
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.destination.postgres.targets.target_keys import shared_keys, unique_columns
from penstock.model.errors import DestinationError
from penstock.model.table_definition import Announced, TableDefinition, TypeDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import definitions_of, qualified_names, types_of

Types = dict[tuple[str, str], TypeDefinition]
"""By schema and name."""

_OTHER_RELATIONS = {
    "v": "a view",
    "m": "a materialised view",
    "f": "a foreign table",
    "S": "a sequence",
    "c": "a composite type",
}


@dataclass(frozen=True)
class TargetColumn:
    """A column that the source's table has, too. ``type`` is SQL, qualified where not built in.

    ``is_user_defined`` is True for everything outside pg_catalog, arrays of it included.
    """

    name: str
    type: str
    is_user_defined: bool
    is_generated: bool
    not_null: bool


@dataclass(frozen=True)
class TargetTable:
    """A table of the source and where its rows go.

    ``columns`` are in the source's order; neither columns that only the target has are among them
    nor those that the stream never sends. ``merge_key`` is empty where rows are told apart by all
    their values. ``sequences`` are (column, qualified sequence) that local inserts would draw from.
    ``oid`` is the target's own. ``unique`` are columns that no two rows share, neither here nor in
    the source, beside the merge key; only of targets that we did not make. ``notes`` say what could
    not be made as it is in the source. ``left_out`` are columns of the source that are not
    delivered; ``announced`` says how the stream announces the others.
    """

    source_oid: int
    source_schema: str
    source_name: str
    schema: str
    name: str
    columns: tuple[TargetColumn, ...]
    merge_key: tuple[str, ...] = ()
    sequences: tuple[tuple[str, str], ...] = ()
    created: bool = False
    notes: tuple[str, ...] = ()
    oid: int = 0
    unique: tuple[tuple[str, ...], ...] = ()
    left_out: tuple[str, ...] = ()
    announced: tuple[Announced, ...] = ()

    @property
    def source_qualified_name(self) -> str:
        return f"{self.source_schema}.{self.source_name}"

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"


_RELATIONS = """
SELECT n.nspname, c.relname, c.relkind::text
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
"""

_TYPE_EXISTS = """
SELECT n.nspname, t.typname
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_type t ON t.typnamespace = n.oid AND t.typname = wanted.name
"""

_OWNED_SEQUENCES = """
SELECT d.refobjid::bigint, a.attname::text, format('%%I.%%I', n.nspname, s.relname)
  FROM pg_depend d
  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_attribute a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid
 WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass
   AND d.refobjid = ANY (%s::oid[]) AND d.deptype IN ('a', 'i')
 ORDER BY d.refobjid, a.attnum, s.relname
"""


def ensure_targets(
    conn: Connection,
    definitions: Sequence[TableDefinition],
    names: TableNames,
    created: Mapping[int, int] | None = None,
) -> list[TargetTable]:
    """The targets of these tables, in this order, inside the caller's transaction.

    What is missing is created: schemas, types, tables. What exists is compared. One
    DestinationError lists every difference of every table; nothing has been created or written
    then. Raises ConfigError where the mapping itself does not work out.

    ``created`` are tables (by oid in the source) whose targets (by their own) we made before: they
    may lack the key while they are copied.
    """
    names.check(definitions)
    with destination_errors("preparing tables"), qualified_names(conn):
        return _Preparation(conn, definitions, names, created or {}).targets()


def wanted_targets(
    conn: Connection, definitions: Sequence[TableDefinition], names: TableNames
) -> list[TableDefinition]:
    """The tables as they should be in this database."""
    extensions: dict[str, str] = dict(
        conn.execute(
            "SELECT extname, nspname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace"
        ).fetchall()
    )
    virtual = conn.info.server_version >= 180000
    return [at_target(table, names, extensions, virtual_columns=virtual) for table in definitions]


def expected_target(source: TableDefinition, wanted: TableDefinition) -> TargetTable:
    """The target of a table as it will be when it is what is ``wanted``."""
    return _target_table(source, wanted, wanted, {})


class _Preparation:
    """One call of ``ensure_targets``: what was wanted, found and made."""

    def __init__(
        self,
        conn: Connection,
        definitions: Sequence[TableDefinition],
        names: TableNames,
        created: Mapping[int, int],
    ) -> None:
        self._conn = conn
        self._sources = definitions
        self._created = created
        self._problems: list[str] = []
        self._notes: dict[int, list[str]] = {table.oid: [] for table in definitions}
        self._wanted = wanted_targets(conn, definitions, names)

    def targets(self) -> list[TargetTable]:
        relations = self._relations((table.schema, table.name) for table in self._wanted)
        missing = [t for t in self._wanted if (t.schema, t.name) not in relations]
        there = types_of(self._conn)
        self._compare_types(there)
        if missing:
            self._create_schemas(missing)
            self._create_types(missing, there)
            self._create_tables(missing)
        self._problems += [
            f"{table.qualified_name} is {_OTHER_RELATIONS.get(kind, 'no table')} at the"
            " destination, and only tables can be written; map the table to another name"
            for table in self._wanted
            if (kind := relations.get((table.schema, table.name), "r")) not in ("r", "p")
        ]
        targets = self._compare({table.oid for table in missing})
        if self._problems:
            raise DestinationError(
                "The destination does not fit the source; nothing was written:\n"
                + "\n".join(f"- {problem}" for problem in self._problems),
                remedy="Change what the lines name, or drop those tables: Penstock creates what is"
                " missing.",
            )
        return targets

    def _relations(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
        rows = self._conn.execute(_RELATIONS, _unzipped(names))
        return {(schema, name): kind for schema, name, kind in rows}

    def _create_schemas(self, tables: Sequence[TableDefinition]) -> None:
        wanted = {table.schema for table in tables}
        wanted |= {kind.schema for table in tables for kind in table.types}
        # Asked first: IF NOT EXISTS alone needs the right to create one even if it is there.
        there = self._conn.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname = ANY (%s)", [list(wanted)]
        )
        for schema in sorted(wanted - {name for (name,) in there}):
            self._conn.execute(create_schema(schema))

    def _compare_types(self, there: Types) -> None:
        wanted = {(kind.schema, kind.name): kind for t in self._wanted for kind in t.types}
        for key, kind in wanted.items():
            if key in there:
                self._problems += type_differences(kind, there[key])

    def _create_types(self, tables: Sequence[TableDefinition], there: Types) -> None:
        known = set(there)
        for table in tables:
            for kind in table.types:
                if (kind.schema, kind.name) not in known:
                    self._create_type(kind, table.oid)
                known |= {(kind.schema, kind.name), (kind.schema, kind.multirange)}
        self._refuse_missing_types(tables, known)

    def _create_type(self, kind: TypeDefinition, table: int) -> None:
        optional = [*kind.constraints, *([] if kind.default is None else [kind.default])]
        error, left_out = self._create(lambda without: [create_type(kind, without)], optional)
        if error is not None:
            self._problems.append(
                f"the type {kind.qualified_name} could not be created: {said(error)}"
            )
        self._notes[table] += [
            f"the domain {kind.qualified_name} goes without {part}: {said(why)}"
            for part, why in left_out.items()
        ]

    def _refuse_missing_types(
        self, tables: Sequence[TableDefinition], known: set[tuple[str, str]]
    ) -> None:
        """Types that we do not create: of extensions, written in C, or the row type of a table."""
        used = {
            (kind.schema, kind.name): (kind, table)
            for table in tables
            for kind in used_types(table)
            if (kind.schema, kind.name) not in known
        }
        there = {tuple(row) for row in self._conn.execute(_TYPE_EXISTS, _unzipped(used))}
        for key, (kind, table) in used.items():
            if key not in there:
                remedy = (
                    f"CREATE EXTENSION {kind.extension} there"
                    if kind.extension
                    else "create it there"
                )
                self._problems.append(
                    f"{table.qualified_name} needs the type {kind.schema}.{kind.name}, which is"
                    f" missing at the destination; {remedy}"
                )

    def _create_tables(self, tables: Sequence[TableDefinition]) -> None:
        taken = set(
            self._relations(
                split_name(column.sequence)
                for table in tables
                for column in table.columns
                if column.sequence is not None
            )
        )
        if self._problems:
            return  # types are missing, which says it all
        for table in tables:
            self._create_table(with_free_sequences(table, taken))

    def _create_table(self, table: TableDefinition) -> None:
        optional = {
            column.name: column
            for column in table.columns
            if column.sequence is None
            and (column.default is not None or column.generated is not None)
        }
        error, left_out = self._create(lambda without: create_table(table, without), list(optional))
        if error is not None:
            self._problems.append(f"{table.qualified_name} could not be created: {said(error)}")
        for name, why in left_out.items():
            column = optional[name]
            if column.generated is None:
                what = f"column {name} goes without its default {column.default}"
            elif not column.published:
                what = f"column {name}, generated as {column.generated}, is left out"
            else:
                self._problems.append(
                    f"{table.qualified_name}: column {name}, generated as {column.generated}, could"
                    f" not be created: {said(why)}"
                )
                continue
            self._notes[table.oid].append(f"{what}: {said(why)}")

    def _create(
        self, statements: Callable[[Collection[str]], list[sql.Composed]], optional: list[str]
    ) -> tuple[psycopg.Error | None, dict[str, psycopg.Error]]:
        """Run the statements with as many of the optional parts as the destination can hold.

        Returns the error where not even the bare thing can be made, and why parts were left out.
        """
        error = self._attempt(statements(()))
        if error is None:
            return None, {}
        if not optional or self._attempt(statements(optional), keep=False) is not None:
            return error, {}
        left_out = {}
        for part in optional:
            others = [other for other in optional if other != part]
            if (why := self._attempt(statements(others), keep=False)) is not None:
                left_out[part] = why
        return self._attempt(statements(list(left_out))), left_out

    def _attempt(
        self, statements: Sequence[sql.Composed], *, keep: bool = True
    ) -> psycopg.Error | None:
        try:
            with self._conn.transaction(force_rollback=not keep):
                for statement in statements:
                    run(self._conn, statement)
        except (psycopg.DataError, psycopg.NotSupportedError, psycopg.ProgrammingError) as error:
            return error
        return None

    def _compare(self, created: set[int]) -> list[TargetTable]:
        found = {
            (table.schema, table.name): table
            for table in definitions_of(
                self._conn, [TableName(table.schema, table.name) for table in self._wanted]
            )
        }
        oids = [table.oid for table in found.values()]
        unique = unique_columns(self._conn, oids)
        sequences: dict[int, dict[str, str]] = {}
        for oid, column, sequence in self._conn.execute(_OWNED_SEQUENCES, [oids]):
            sequences.setdefault(oid, {})[column] = sequence
        targets = []
        for source, wanted in zip(self._sources, self._wanted, strict=True):
            target = found.get((wanted.schema, wanted.name))
            if target is None:
                continue  # a problem was noted when it was not made, or no table
            keys = unique.get(target.oid, [])
            is_ours = source.oid in created or self._created.get(source.oid) == target.oid
            if is_ours:
                keys = [*keys, frozenset(wanted.merge_key)]
            differences = table_differences(wanted, target, keys)
            self._problems += [f"{wanted.qualified_name}: {text}" for text in differences]
            targets.append(
                replace(
                    _target_table(source, wanted, target, sequences.get(target.oid, {})),
                    created=source.oid in created,
                    notes=tuple(self._notes[source.oid]),
                    unique=() if is_ours else shared_keys(wanted, keys),
                )
            )
        return targets


def _target_table(
    source: TableDefinition,
    wanted: TableDefinition,
    target: TableDefinition,
    sequences: dict[str, str],
) -> TargetTable:
    there = {column.name: column for column in target.columns}
    names = [column.name for column in wanted.columns if column.name in there]
    return TargetTable(
        source_oid=source.oid,
        source_schema=source.schema,
        source_name=source.name,
        schema=target.schema,
        name=target.name,
        columns=tuple(
            TargetColumn(
                name=name,
                type=shown_type(there[name].type),
                is_user_defined=there[name].type.is_user_defined,
                is_generated=there[name].generated is not None,
                not_null=there[name].not_null,
            )
            for name in names
        ),
        merge_key=wanted.merge_key,
        oid=target.oid,
        left_out=tuple(c.name for c in source.columns if not c.is_delivered),
        announced=source.announced,
        sequences=tuple((name, sequences[name]) for name in names if name in sequences),
    )


def _unzipped(names: Iterable[tuple[str, str]]) -> list[Any]:
    pairs = list(names)
    return [[schema for schema, _ in pairs], [name for _, name in pairs]]
