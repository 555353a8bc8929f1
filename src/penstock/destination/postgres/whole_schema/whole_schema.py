"""`schema: full`: what the source's database has, made around the copy of its tables.

What comes before the rows is made in one transaction with the record of it (record.py), so that a
crash leaves all of it or nothing. Keys and indexes of followed tables come with each table
(archived_indexes.py). The rest comes in a second transaction when all tables hold their rows; then
materialized views are filled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import psycopg
from psycopg import sql

from penstock.destination.postgres.options import FullSchemaOptions
from penstock.destination.postgres.sessions.session import (
    Connection,
    destination_errors,
    is_passing,
    said,
)
from penstock.destination.postgres.targets import target_record
from penstock.destination.postgres.targets.target_table import TargetTable
from penstock.destination.postgres.whole_schema import record
from penstock.destination.postgres.whole_schema.archived_indexes import ArchivedIndexes
from penstock.destination.postgres.whole_schema.follow import follow_changes, schema_changes
from penstock.destination.postgres.whole_schema.kinds import comes_after, wanted_entries
from penstock.destination.postgres.whole_schema.record import IdentityColumn, SchemaRecord
from penstock.destination.postgres.whole_schema.roles import make_roles
from penstock.destination.postgres.whole_schema.scripts import Scripts, attempt, restore
from penstock.destination.postgres.whole_schema.sequence_values import set_sequences
from penstock.destination.protocols import Unrestored
from penstock.failpoints import failpoint
from penstock.model.table_definition import TableDefinition
from penstock.source.postgres.whole_schema.archive import Entry, read_entries
from penstock.source.schema_dump import SchemaDump, SequenceValue

_log = logging.getLogger(__name__)

# As pg_restore has it: functions may name what is not there yet.
_SETTINGS = (
    "SET LOCAL check_function_bodies = off",
    "SET LOCAL client_min_messages = warning",
    "SET LOCAL search_path = ''",
)

_TABLES = """
SELECT n.nspname::text, c.relname::text, c.oid::bigint
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
"""

_ALWAYS = """
SELECT n.nspname::text, c.relname::text, a.attname::text
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attidentity = 'a'
 ORDER BY 1, 2, 3
"""

_RELATIONS = """
SELECT n.nspname::text, c.relname::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'S')
"""

_FOREIGN_KEYS = """
SELECT n.nspname::text, t.relname::text, c.conname::text
  FROM pg_constraint c
  JOIN pg_class t ON t.oid = c.conrelid
  JOIN pg_namespace n ON n.oid = t.relnamespace
 WHERE c.contype = 'f'
"""

# What fires, or is checked, while rows are applied.
_FIRING = ("TRIGGER", "EVENT TRIGGER", "FK CONSTRAINT")


class WholeSchema:
    """One pipeline's. ``hold`` keeps commits off, and raises Fenced where another driver has taken
    over; ``triggers_are_off`` tells whether a session's writes fire none.
    """

    def __init__(
        self,
        connect: Callable[[], Connection],
        pipeline: str,
        options: FullSchemaOptions,
        hold: Callable[[Connection], None],
        triggers_are_off: Callable[[Connection], bool],
    ) -> None:
        self._connect = connect
        self._pipeline = pipeline
        self._options = options
        self._hold = hold
        self._triggers_are_off = triggers_are_off
        self._known: SchemaRecord | None = None
        self._indexes: ArchivedIndexes | None = None
        self._read: tuple[SchemaDump, list[Entry]] | None = None

    # -- around the copy -------------------------------------------------------------------------

    def has_schema(self) -> bool:
        return self._record() is not None

    def is_whole(self) -> bool:
        known = self._record()
        return known is not None and known.phase == "whole"

    def before(self, dump: SchemaDump, tables: Sequence[TableDefinition]) -> None:
        """Make what comes before the rows, unless that was done."""
        entries = [each for each in self._wanted(dump) if not comes_after(each)]
        with self._transaction("making the schema") as conn:
            if record.read_record(conn, self._pipeline) is not None:
                return
            refused = make_roles(conn, dump.facts.roles)
            there = set(_tables(conn, tables))
            with self._scripts(dump) as scripts:
                refused += restore(conn, scripts, entries)
            made = [table for table in tables if (table.schema, table.name) not in there]
            targets = _made_targets(conn, made)
            target_record.record_targets(conn, self._pipeline, targets, is_new=True)
            always = _take_values(conn, [target.oid for target in targets])
            refused += [Unrestored("large objects", "", text) for text in dump.facts.uncopied]
            record.add_record(conn, self._pipeline, dump, always, refused)
            failpoint("postgres.schema_before")
        _tell(refused)
        _log.info("made %s objects before the rows", len(entries), extra={"event": "schema_before"})

    def after(self, *, followed: bool) -> None:
        """Make what comes after the rows, unless that was done."""
        with self._transaction("completing the schema") as conn:
            known = record.read_record(conn, self._pipeline)
            if known is not None and known.phase == "before":
                refused = self._complete(conn, known, followed=followed)
                record.add_unrestored(conn, self._pipeline, refused)
                record.set_phase(conn, self._pipeline, "after")
                failpoint("postgres.schema_after")
                _tell(refused)
        if known is not None and known.phase != "whole":
            self._fill_views(known)
        self._known = None

    def _complete(
        self, conn: Connection, known: SchemaRecord, *, followed: bool
    ) -> list[Unrestored]:
        entries = [each for each in self._wanted(known.dump) if comes_after(each)]
        refused: list[Unrestored] = []
        if followed and not self._triggers_are_off(conn):
            entries, refused = _without_firing(entries)
        entries = self._missing(conn, known, entries)
        with self._scripts(known.dump) as scripts:
            refused += restore(conn, scripts, entries)
        if not followed:
            for column in known.always:
                statement = _set_identity(column, "ALWAYS")
                if (error := _attempt(conn, statement)) is not None:
                    title = f"identity of {column.schema}.{column.table}.{column.column}"
                    refused.append(Unrestored(title, statement.as_string(None), said(error)))
        return refused

    def _missing(
        self, conn: Connection, known: SchemaRecord, entries: Sequence[Entry]
    ) -> list[Entry]:
        """Those that did not come with their tables, and not those of tables that still lack rows:
        they come with these.
        """
        indexes = self._archived(known)
        records = target_record.read_records(conn, self._pipeline)
        later = {
            entry.id
            for table, found in records.items()
            if not found.complete
            for entry in indexes.of(table)
        }
        foreign_keys = {tuple(row) for row in conn.execute(_FOREIGN_KEYS)}
        named = known.dump.facts.foreign_keys
        return [
            entry
            for entry in indexes.missing(conn, [e for e in entries if e.id not in later])
            if entry.kind != "FK CONSTRAINT" or named.get(entry.oid) not in foreign_keys
        ]

    def _fill_views(self, known: SchemaRecord) -> None:
        populated = set(known.dump.facts.populated)
        views = [
            entry
            for entry in self._wanted(known.dump)
            if entry.kind == "MATERIALIZED VIEW" and (entry.schema, entry.name) in populated
        ]
        refused = []
        for view in views:
            with self._transaction("filling a materialized view", holds=False) as conn:
                error = _attempt(conn, _refresh(view))
            if error is not None:
                refused.append(_unfilled(view, error))
        with self._transaction("completing the schema") as conn:
            record.add_unrestored(conn, self._pipeline, refused)
            record.set_phase(conn, self._pipeline, "whole")
        _tell(refused)
        _log.info("the schema is whole", extra={"event": "schema_whole"})

    def follow(self, dump: SchemaDump) -> bool:
        """Make what has changed at the source since the schema was taken, and list what cannot
        be. Changes of followed tables come with their rows. Whether something was made.
        """
        with self._transaction("following the schema") as conn:
            known = record.read_record(conn, self._pipeline)
            if known is None:
                return False
            before, now = self._wanted(known.dump), self._wanted(dump)
            if known.phase == "before":
                # The rest is yet to come.
                before = [entry for entry in before if not comes_after(entry)]
                now = [entry for entry in now if not comes_after(entry)]
            refused: list[Unrestored] = []
            if not self._triggers_are_off(conn):
                before, known_ones = _without_firing(before)
                now, refused = _without_firing(now)
                refused = [each for each in refused if each not in known_ones]
            lacking = record.read_unrestored(conn, self._pipeline)
            changes = schema_changes(
                before,
                now,
                followed=target_record.read_records(conn, self._pipeline).keys(),
                there={(schema, name) for schema, name in conn.execute(_RELATIONS)},
                missing={e.title: e.is_older for e in lacking},
                owners=self._options.owner,
            )
            with self._scripts(dump) as scripts:
                made, unmade = follow_changes(conn, scripts, before, now, changes)
            refused += unmade
            titles = {entry.title for entry, _ in changes.made} - {e.title for e in refused}
            titles |= {entry.title for entry in made}
            refused += self._filled(conn, dump, made)
            record.replace_dump(conn, self._pipeline, dump, refused, titles)
        self._known = self._indexes = None
        _tell(refused)
        for title in sorted(titles):
            _log.info("followed at the destination: %s", title, extra={"event": "schema_followed"})
        return bool(titles)

    def _filled(
        self, conn: Connection, dump: SchemaDump, made: Sequence[Entry]
    ) -> list[Unrestored]:
        refused = []
        for entry in made:
            if (entry.schema, entry.name) in dump.facts.populated:
                statement = _refresh(entry)
                if (error := _attempt(conn, statement)) is not None:
                    refused.append(_unfilled(entry, error))
        return refused

    # -- with each table -------------------------------------------------------------------------

    def make_key(self, conn: Connection, table: TableDefinition) -> None:
        """What rows are found by, as the source has it. What is refused is told by who makes it
        otherwise.
        """
        if (known := self._record()) is not None:
            indexes = self._archived(known)
            indexes.make(conn, self._pipeline, table, indexes.key_of(table))

    def make_indexes(self, conn: Connection, table: TableDefinition, target: int) -> list[str]:
        """All other indexes and unique constraints of a table; what could not be made. Checks that
        came with the table are recorded as made.
        """
        known = self._record()
        if known is None:
            return []
        indexes = self._archived(known)
        conn.execute(
            "INSERT INTO penstock.target_object SELECT %s, %s, 'constraint', conname, conname"
            " FROM pg_constraint WHERE conrelid = %s::oid AND contype = 'c'"
            " ON CONFLICT DO NOTHING",
            [self._pipeline, table.oid, target],
        )
        return indexes.make(conn, self._pipeline, table, indexes.named(table))

    def comment(self, conn: Connection, table: TableDefinition) -> None:
        """Constraints and indexes that went before a copy have lost their comments."""
        known = self._record()
        if known is None:
            return
        indexes = {entry.id for entry in self._archived(known).of(table.oid)}
        ends = (f" ON {table.name}", f" ON {sql.Identifier(table.name).as_string(None)}")
        for entry in self._wanted(known.dump):
            if entry.kind == "COMMENT" and (
                not indexes.isdisjoint(entry.needs)
                or (
                    entry.schema == table.schema
                    and entry.name.startswith("CONSTRAINT ")
                    and entry.name.endswith(ends)
                )
            ):
                # Of one that is gone by now there is nothing to say.
                attempt(conn, entry.statement)

    # -- for people, and by and by ---------------------------------------------------------------

    def set_sequences(self, values: Sequence[SequenceValue]) -> None:
        if self._options.takes("sequences"):
            with self._transaction("setting sequences", holds=False) as conn:
                set_sequences(conn, values)

    def unrestored(self) -> list[Unrestored]:
        with self._transaction("reading what is missing", holds=False) as conn:
            return record.read_unrestored(conn, self._pipeline)

    # -- what they share -------------------------------------------------------------------------

    def _wanted(self, dump: SchemaDump) -> list[Entry]:
        if self._read is None or self._read[0] is not dump:
            self._read = dump, wanted_entries(read_entries(dump.archive), self._options)
        return self._read[1]

    def _scripts(self, dump: SchemaDump) -> Scripts:
        return Scripts(
            dump.archive,
            programs=self._options.programs,
            owner=self._options.owner,
            privileges=self._options.privileges,
        )

    def _record(self) -> SchemaRecord | None:
        if self._known is None:
            with self._transaction("reading the schema's record", holds=False) as conn:
                self._known = record.read_record(conn, self._pipeline)
        return self._known

    def _archived(self, known: SchemaRecord) -> ArchivedIndexes:
        if self._indexes is None:
            entries = self._wanted(known.dump)
            self._indexes = ArchivedIndexes(entries, known.dump.facts)
        return self._indexes

    @contextmanager
    def _transaction(self, action: str, *, holds: bool = True) -> Iterator[Connection]:
        """A transaction of a session of its own, which scripts may leave with other settings."""
        conn = self._connect()
        try:
            with destination_errors(action), conn.transaction():
                if holds:
                    self._hold(conn)
                for setting in _SETTINGS:
                    conn.execute(setting)
                yield conn
        finally:
            conn.close()


def _without_firing(entries: Sequence[Entry]) -> tuple[list[Entry], list[Unrestored]]:
    """What can be made while triggers stay on, and the rest."""
    why = "it would act while rows are applied, since the role may not switch triggers off"
    return [entry for entry in entries if entry.kind not in _FIRING], [
        Unrestored(entry.title, entry.shown, why) for entry in entries if entry.kind in _FIRING
    ]


def _refresh(view: Entry) -> sql.Composed:
    name = sql.Identifier(view.schema, view.name)
    return sql.SQL("REFRESH MATERIALIZED VIEW {}").format(name)


def _unfilled(view: Entry, error: psycopg.Error) -> Unrestored:
    return Unrestored(f"rows of {view.title}", _refresh(view).as_string(None), said(error))


def _tell(refused: Sequence[Unrestored]) -> None:
    for each in refused:
        _log.warning("not restored: %s; %s", each, each.statement, extra={"event": "not_restored"})


def _tables(conn: Connection, tables: Collection[TableDefinition]) -> dict[tuple[str, str], int]:
    rows = conn.execute(_TABLES, [[t.schema for t in tables], [t.name for t in tables]])
    return {(schema, name): oid for schema, name, oid in rows}


def _made_targets(conn: Connection, tables: Sequence[TableDefinition]) -> list[TargetTable]:
    there = _tables(conn, tables)
    return [
        TargetTable(
            table.oid,
            table.schema,
            table.name,
            table.schema,
            table.name,
            columns=(),
            created=True,
            oid=there[table.schema, table.name],
        )
        for table in tables
        if (table.schema, table.name) in there
    ]


def _take_values(conn: Connection, targets: Sequence[int]) -> list[IdentityColumn]:
    """Let identity columns that are ALWAYS take values of the source."""
    columns = [IdentityColumn(*row) for row in conn.execute(_ALWAYS, [list(targets)])]
    for column in columns:
        conn.execute(_set_identity(column, "BY DEFAULT"))
    return columns


def _set_identity(column: IdentityColumn, how: str) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} ALTER COLUMN {} SET GENERATED {}").format(
        sql.Identifier(column.schema, column.table), sql.Identifier(column.column), sql.SQL(how)
    )


def _attempt(conn: Connection, statement: sql.Composed) -> psycopg.Error | None:
    try:
        with conn.transaction():
            conn.execute(statement)
    except psycopg.Error as error:
        if is_passing(error):
            raise
        return error
    return None
