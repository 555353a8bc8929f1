"""The columns of a target whose table is changed.

Rows keep their values wherever the source's rows do. Where the source wrote them anew they are
copied again after the change, so that what they hold here meanwhile does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import psycopg
from psycopg import errors, sql

from penstock.config.table_patterns import split_name
from penstock.destination.postgres.sessions.session import Connection, is_refusal, run, said
from penstock.destination.postgres.targets.alter_types import attempt
from penstock.destination.postgres.targets.create_table import type_sql, with_free_sequences
from penstock.model.array_text import first_element
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition

_SET_EXPRESSION = 170000
"""The first version that can give a generated column another expression."""


def drop_columns(conn: Connection, change: TableChange, target: TableDefinition) -> None:
    """Those that the source has no longer, and those that can only be made anew."""
    there = {column.name: column for column in target.columns}
    gone = [
        there[old.name]
        for old, new in change.columns
        if old and old.name in there and (new is None or _is_made_anew(conn, change, old, new))
    ]
    # What is generated needs what it is made from.
    for column in sorted(gone, key=lambda column: column.generated is None):
        _alter(conn, target, sql.SQL("DROP COLUMN {}").format(sql.Identifier(column.name)))


def rename_columns(conn: Connection, change: TableChange, target: TableDefinition) -> None:
    """All at once: a name may pass from one column to another."""
    there = {column.name for column in target.columns}
    renamed = {
        old.name: new.name
        for old, new in change.columns
        if old and new and old.name != new.name and old.name in there
    }
    rename = sql.SQL("RENAME COLUMN {} TO {}")
    for place, (old_name, new_name) in enumerate(list(renamed.items())):
        if new_name in renamed:
            between = f"penstock_renamed_{place}"
            action = rename.format(sql.Identifier(old_name), sql.Identifier(between))
            _alter(conn, target, action)
            renamed[between] = renamed.pop(old_name)
    for old_name, new_name in renamed.items():
        action = rename.format(sql.Identifier(old_name), sql.Identifier(new_name))
        _alter(conn, target, action)


class AlteredColumns:
    """Changes columns and adds them; drops and new names come before."""

    def __init__(
        self,
        conn: Connection,
        change: TableChange,
        after: TableDefinition,
        target: TableDefinition,
        empty: Callable[[], None],
    ) -> None:
        """``target`` is the table as it is over here now, ``empty`` takes all rows away."""
        self._conn = conn
        self._change = change
        self._after = after
        self._target = target
        self._empty = empty
        self._there = {column.name: column for column in target.columns}
        self.notes: list[str] = []
        """What the target has to go without."""

    def alter(self) -> None:
        kept = [
            (old, new)
            for old, new in self._change.columns
            if old and new and not _is_made_anew(self._conn, self._change, old, new)
        ]
        # A sequence that goes makes room for one of its name.
        for old, new in sorted(kept, key=lambda pair: pair[1].sequence is not None):
            self._alter_column(old, new)

    def add(self) -> None:
        """Those that are not there yet; a person may have added one."""
        new_columns = [
            new
            for old, new in self._change.columns
            if new
            and new.name not in self._there
            and (old is None or _is_made_anew(self._conn, self._change, old, new))
        ]
        # What is generated needs what it is made from.
        for column in sorted(new_columns, key=lambda column: column.generated is not None):
            if column.generated is None:
                self._add(column)
            else:
                self._add_generated(column)

    # -- columns that were there -------------------------------------------------------------------

    def _alter_column(self, old: ColumnDefinition, new: ColumnDefinition) -> None:
        found = self._there.get(new.name)
        if new.generated is None and old.generated is not None:
            # One that is not here has no values to keep, and this says so.
            if found is None or found.generated is not None:
                self._column(new, sql.SQL("DROP EXPRESSION"))
        elif found is None:
            return  # it could not be made when the table was
        elif new.generated is not None and not self._change.renamed.is_same(
            old.generated, new.generated
        ):
            # As the source's server wrote it.
            expression = sql.SQL(new.generated)
            self._column(new, sql.SQL("SET EXPRESSION AS ({})").format(expression))
        if found is None:
            return
        has_default = found.default is not None
        if self._has_other_type(old, new, found):
            if has_default:
                self._column(new, sql.SQL("DROP DEFAULT"))
                has_default = False
            if not self._change_type(new):
                self._make_anew(new)
                return
        if new.generated is None:
            self._alter_default(old, new, found, has_default=has_default)
        if new.not_null not in (old.not_null, found.not_null):
            if new.not_null:
                self._insist(lambda: self._column(new, sql.SQL("SET NOT NULL")))
            else:
                self._column(new, sql.SQL("DROP NOT NULL"))

    def _has_other_type(
        self, old: ColumnDefinition, new: ColumnDefinition, found: ColumnDefinition
    ) -> bool:
        """A type that was never the source's is somebody's choice: it stays."""
        before = (self._change.renamed.type(old.type), old.collation)
        after = (new.type, new.collation)
        return before != after and (found.type, found.collation) == before

    def _change_type(self, column: ColumnDefinition) -> bool:
        """False where no cast will do, and rows are copied again anyway."""
        name, kind = sql.Identifier(column.name), type_sql(column.type)
        casts = [
            sql.SQL(""),
            sql.SQL(" USING {}::{}").format(name, kind),
            sql.SQL(" USING {}::text::{}").format(name, kind),
        ]
        error: psycopg.Error | None = None
        for using in casts:
            action = sql.SQL("TYPE {}{}{}").format(kind, _collate(column), using)
            error = attempt(self._conn, self._statement(column, action))
            if error is None:
                return True
            if not isinstance(error, errors.DatatypeMismatch | errors.CannotCoerce) and not (
                self._change.is_rewrite and is_refusal(error)
            ):
                break
        if self._change.is_rewrite and not isinstance(error, errors.FeatureNotSupported):
            return False
        assert error is not None  # noqa: S101 (there is at least one way to try)
        raise error

    def _make_anew(self, column: ColumnDefinition) -> None:
        _alter(
            self._conn,
            self._target,
            sql.SQL("DROP COLUMN {}").format(sql.Identifier(column.name)),
        )
        self._add(column)

    def _alter_default(
        self,
        old: ColumnDefinition,
        new: ColumnDefinition,
        found: ColumnDefinition,
        *,
        has_default: bool,
    ) -> None:
        if old.identity and not new.identity and found.identity:
            self._column(new, sql.SQL("DROP IDENTITY IF EXISTS"))
        if new.identity:
            if not found.identity and not old.identity:
                if has_default:
                    self._column(new, sql.SQL("DROP DEFAULT"))
                if not found.not_null:
                    self._insist(lambda: self._column(new, sql.SQL("SET NOT NULL")))
                self._column(new, sql.SQL("ADD GENERATED BY DEFAULT AS IDENTITY"))
        elif new.sequence is not None and found.sequence is None:
            self._own_sequence(new)
        elif new.sequence is not None and found.sequence is not None:
            self._keep_sequence(old, new, found.sequence)
            if not has_default:
                named = with_free_sequences(self._only(new), set()).columns[0]
                self._set_default(named)
        elif not self._change.renamed.is_same(old.default, new.default) or (
            has_default != (found.default is not None)
        ):
            self._set_default(new)
        if found.sequence is not None and new.sequence is None and old.sequence is not None:
            # Owned by the column, and drawn from by nothing any more.
            gone = sql.SQL("DROP SEQUENCE {}").format(sql.Identifier(*split_name(found.sequence)))
            attempt(self._conn, gone)

    def _set_default(self, column: ColumnDefinition) -> None:
        if column.default is None:
            self._column(column, sql.SQL("DROP DEFAULT"))
            return
        # As the source's server wrote it.
        action = sql.SQL("SET DEFAULT {}").format(sql.SQL(column.default))
        error = attempt(self._conn, self._statement(column, action))
        if error is not None:
            self._column(column, sql.SQL("DROP DEFAULT"))
            self._note_default(column, error)

    def _keep_sequence(self, old: ColumnDefinition, new: ColumnDefinition, found: str) -> None:
        """A sequence that was renamed is renamed here as well, unless the name is taken."""
        if old.sequence is None or new.sequence is None:
            return
        wanted = split_name(new.sequence)[1]
        if split_name(old.sequence)[1] != wanted and split_name(found)[1] != wanted:
            statement = sql.SQL("ALTER SEQUENCE {} RENAME TO {}").format(
                sql.Identifier(*split_name(found)), sql.Identifier(wanted)
            )
            attempt(self._conn, statement)

    # -- columns that are new ----------------------------------------------------------------------

    def _add(self, column: ColumnDefinition) -> None:
        """Rows that are older get what they have in the source: never a default worked out anew,
        unless they are copied again.
        """
        parts: list[sql.Composable] = [sql.Identifier(column.name), type_sql(column.type)]
        parts.append(_collate(column))
        if column.identity:
            parts.append(sql.SQL("GENERATED BY DEFAULT AS IDENTITY"))
        not_null = [sql.SQL("NOT NULL")] if column.not_null else []
        value = first_element(column.missing)
        # A partitioned table does not say what its partitions' rows have: a constant, as here.
        is_worked_out = column.default is not None and (
            self._change.is_rewrite or column.not_null or bool(self._after.partitions)
        )
        if column.sequence is not None or column.identity:
            self._insist(lambda: self._add_column([*parts, *not_null]))
        elif value is not None:
            constant = sql.SQL("DEFAULT {}::{}").format(sql.Literal(value), type_sql(column.type))
            self._add_column([*parts, constant, *not_null])
        elif is_worked_out and self._may_add_default(column, parts, not_null):
            return
        else:
            self._insist(lambda: self._add_column([*parts, *not_null]))
        if column.sequence is not None:
            self._own_sequence(column)
        elif not column.identity and (value is not None or column.default is not None):
            self._set_default(column)

    def _may_add_default(
        self,
        column: ColumnDefinition,
        parts: list[sql.Composable],
        not_null: Iterable[sql.Composable],
    ) -> bool:
        """Add the column with its default, unless the destination does not know that."""
        default = sql.SQL("DEFAULT {}").format(sql.SQL(column.default or "NULL"))
        try:
            with self._conn.transaction():
                self._add_column([*parts, default, *not_null])
        except (psycopg.ProgrammingError, psycopg.NotSupportedError):
            return False
        return True

    def _add_generated(self, column: ColumnDefinition) -> None:
        kind = sql.SQL("STORED") if column.stored else sql.SQL("VIRTUAL")
        parts: list[sql.Composable] = [
            *(sql.Identifier(column.name), type_sql(column.type), _collate(column)),
            sql.SQL("GENERATED ALWAYS AS ({}) {}").format(sql.SQL(column.generated or ""), kind),
        ]
        parts += [sql.SQL("NOT NULL")] if column.not_null else []
        action = sql.SQL("ADD COLUMN {}").format(sql.SQL(" ").join(parts))
        error = attempt(self._conn, _statement(self._target, action))
        if error is None:
            return
        if column.published:
            raise error
        self.notes.append(
            f"{self._after.qualified_name}: column {column.name}, generated as {column.generated},"
            f" is left out: {said(error)}"
        )

    def _add_column(self, parts: Iterable[sql.Composable]) -> None:
        action = sql.SQL("ADD COLUMN {}").format(sql.SQL(" ").join(parts))
        _alter(self._conn, self._target, action)

    def _own_sequence(self, column: ColumnDefinition) -> None:
        """A sequence of its own, and the default that draws from it."""
        taken = self._conn.execute(
            "SELECT nspname::text, relname::text FROM pg_class"
            " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %s",
            [self._after.schema],
        )
        free = with_free_sequences(self._only(column), {(s, n) for s, n in taken}).columns[0]
        assert free.sequence is not None  # noqa: S101 (it had one)
        name = sql.Identifier(*split_name(free.sequence))
        kind = column.type.name if column.type.name in ("smallint", "integer") else "bigint"
        self._conn.execute(sql.SQL("CREATE SEQUENCE {} AS {}").format(name, sql.SQL(kind)))
        self._set_default(free)
        owner = sql.Identifier(self._after.schema, self._after.name, column.name)
        self._conn.execute(sql.SQL("ALTER SEQUENCE {} OWNED BY {}").format(name, owner))

    # -- what they share ---------------------------------------------------------------------------

    def _only(self, column: ColumnDefinition) -> TableDefinition:
        return replace(self._after, columns=(column,))

    def _insist(self, action: Callable[[], None]) -> None:
        """Rows that are in the way go where they are copied again anyway."""
        try:
            with self._conn.transaction():
                action()
        except psycopg.Error as error:
            if not (self._change.is_rewrite and is_refusal(error)):
                raise
            self._empty()
            action()

    def _note_default(self, column: ColumnDefinition, error: psycopg.Error) -> None:
        self.notes.append(
            f"{self._after.qualified_name}: column {column.name} goes without its default"
            f" {column.default}: {said(error)}"
        )

    def _statement(self, column: ColumnDefinition, action: sql.Composable) -> sql.Composed:
        altered = sql.SQL("ALTER COLUMN {} {}").format(sql.Identifier(column.name), action)
        return _statement(self._target, altered)

    def _column(self, column: ColumnDefinition, action: sql.Composable) -> None:
        run(self._conn, self._statement(column, action))


def _is_made_anew(
    conn: Connection, change: TableChange, old: ColumnDefinition, new: ColumnDefinition
) -> bool:
    """Whether nothing but DROP and ADD makes a generated column what it is to be."""
    if new.generated is None or change.renamed.is_same(old.generated, new.generated):
        return False
    return old.generated is None or conn.info.server_version < _SET_EXPRESSION


def _collate(column: ColumnDefinition) -> sql.Composable:
    if column.collation is None:
        return sql.SQL("")
    return sql.SQL(" COLLATE {}").format(sql.Identifier(*column.collation))


def _statement(target: TableDefinition, action: sql.Composable) -> sql.Composed:
    name = sql.Identifier(target.schema, target.name)
    return sql.SQL("ALTER TABLE {} {}").format(name, action)


def _alter(conn: Connection, target: TableDefinition, action: sql.Composable) -> None:
    run(conn, _statement(target, action))
