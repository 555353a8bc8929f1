"""Makes and changes tables of a warehouse."""

# ruff: noqa: S608 (names are quoted by the dialect)

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import Dialect
from penstock.destination.families.warehouse.session import WarehouseSession, one_each
from penstock.model.array_text import first_element
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition

_SWAPPED = "penstock_swapped"
_NO_DEFAULT = ("json", "bytea")

Columns = Sequence[tuple[str, str]]
"""Names and types."""
Tables = dict[tuple[str, str], Columns]


def warehouse_tables(session: WarehouseSession, dialect: Dialect) -> Tables:
    """All tables that are there, by schema and name."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for schema, name, column, kind in session.rows(dialect.tables_query()):
        found.setdefault((schema, name), []).append((column, kind))
    return dict(found)


def create_table(
    session: WarehouseSession, dialect: Dialect, target: Target, there: Tables
) -> None:
    """Make a table, or take the one that is there if it has the same columns. Raises TableRefused
    where it is another, or the warehouse could not hold it.
    """
    expect_possible(dialect, target)
    found = there.get((dialect.named(target.schema), dialect.named(target.name)))
    if found is not None:
        wanted = {
            dialect.named(name): dialect.spelled(dialect.types.held_as(plain))
            for name, plain in zip(target.columns, target.types, strict=True)
        }
        if dict(found) == wanted or not wanted:
            return
        raise TableRefused(
            f"table {target.qualified_name} is there already, with other columns: "
            f"{', '.join(f'{name} {kind}' for name, kind in found)}; wanted are "
            f"{', '.join(f'{name} {kind}' for name, kind in wanted.items())}",
            remedy=f"drop or rename it, then run `penstock tables retry` for "
            f"{target.qualified_name}",
            table=target.oid,
        )
    session.run(dialect.create_schema(target.schema))
    session.run(dialect.create_table(target, dialect.table(target)))


def expect_possible(dialect: Dialect, target: Target) -> None:
    """Raise TableRefused for a table that the warehouse could not hold."""
    if len(set(map(dialect.named, target.columns))) < len(target.columns):
        raise TableRefused(
            f"table {target.qualified_name} has columns whose names are the same to "
            f"{dialect.name}, which knows no case",
            remedy="leave one of them out by the pipeline's filter, or rename it at the source",
            table=target.oid,
        )
    if (why := dialect.lacks(target)) is not None:
        raise TableRefused(
            f"table {target.qualified_name}: {why}",
            remedy="leave it out by the pipeline's filter, or rename it at the source",
            table=target.oid,
        )
    for index in target.key:
        if dialect.types.held_as(target.types[index]) == "json":
            raise TableRefused(
                f"table {target.qualified_name}: {target.columns[index]}, of type "
                f"{target.types[index]}, is part of the key, and {dialect.name} cannot tell "
                "documents apart",
                remedy="leave the table out, or give it another key (REPLICA IDENTITY USING INDEX)",
                table=target.oid,
            )


@dataclass(frozen=True)
class Retyping:
    """One change of a table's columns: those that stay, by the name that they had, and new ones."""

    kept: dict[str, str]
    new: dict[str, ColumnDefinition]

    @classmethod
    def of(cls, change: TableChange, before: Target, after: Target) -> Retyping:
        kept, new = dict[str, str](), dict[str, ColumnDefinition]()
        for old, column in change.columns:
            if column is None or column.name not in after.columns:
                continue
            if old is not None and old.name in before.columns:
                kept[old.name] = column.name
            else:
                new[column.name] = column
        return cls(kept, new)


class WarehouseAlteration:
    """Lets a table follow a schema change.

    Names change in place, and so do columns that come and go. For all else the rows go into a new
    table, which takes the place of the old one.
    """

    def __init__(
        self, dialect: Dialect, change: TableChange, before: Target, after: Target,
        typing: ColumnTyping,
    ) -> None:  # fmt: skip
        self._dialect = dialect
        self._before = before
        self._after = after
        self._typing = typing
        self._columns = Retyping.of(change, before, after)
        self._old = self._held(before)
        self._wanted = self._held(after)

    def run(self, session: WarehouseSession) -> None:
        """Raises TableRefused where the warehouse could not hold what the table becomes."""
        expect_possible(self._dialect, self._after)
        one_each(self.statements(), session)

    def statements(self) -> list[str]:
        """In their order."""
        return self._change() if self._is_in_place() else self._swap()

    def resume(
        self,
        session: WarehouseSession,
        run: Callable[[str], None],
        there: Tables,
        marks: Sequence[str],
    ) -> None:
        """The same where each statement is committed for itself: what is there tells which of them
        were done before a crash, and nothing is done twice. Where names are exchanged they tell
        nothing: a table that was made anew has a mark, which no other change has: it gets the first
        of ``marks``, and may have any of them. ``run`` executes a statement, unless another driver
        took over.
        """
        dialect = self._dialect
        expect_possible(dialect, self._after)
        if (
            self._is_renamed
            and self._found(self._before, there)
            and self._found(self._after, there)
        ):
            self._expect_own(session, marks)
            run(dialect.drop_table(dialect.table(self._before)))
            return
        if self._is_done(session, there, marks):
            return
        if self._is_in_place() and not self._is_exchanged:
            name = self._before if self._found(self._before, there) else self._after
            for step in self._steps(name, {each for each, _ in self._found(name, there)}):
                run(step)
            return
        query = f"SELECT {', '.join(self._picked())} FROM {dialect.table(self._before)}"
        run(dialect.create_schema(self._after.schema))
        if not dialect.replaces_all:
            self._exchange(session, run, query, marks)
            return
        run(dialect.replace_table(self._after, query, marks[0]))
        if self._is_renamed:
            run(dialect.drop_table(dialect.table(self._before)))

    def _exchange(
        self,
        session: WarehouseSession,
        run: Callable[[str], None],
        query: str,
        marks: Sequence[str],
    ) -> None:
        """By way of a table with another name. It has the mark as soon as it is there: whoever
        finds it after a crash goes on from it.
        """
        dialect = self._dialect
        other = replace(self._after, name=f"{_SWAPPED}_{self._after.oid}")
        if not self._is_marked(other, session, marks):
            run(dialect.drop_table(dialect.table(other)))
            run(dialect.replace_table(other, query, marks[0]))
        run(dialect.drop_table(dialect.table(self._before)))
        run(dialect.rename_table(other.schema, other.name, self._after.name))

    def _expect_own(self, session: WarehouseSession, marks: Sequence[str]) -> None:
        """Raise TableRefused where the table of the new name was not made by this very change."""
        if not self._is_marked(self._after, session, marks):
            raise TableRefused(
                f"table {self._before.qualified_name} cannot become {self._after.qualified_name}: "
                f"{self._dialect.name} has a table {self._after.name} already",
                remedy="drop or rename that one, then run `penstock tables retry` for "
                f"{self._after.qualified_name}",
                table=self._after.oid,
            )

    def may_be_done(self, there: Tables) -> bool:
        """Whether the table does not look as it did before the change, and in no other way."""
        return self._is_there(self._after, there) or not self._is_there(self._before, there)

    def _is_marked(self, target: Target, session: WarehouseSession, marks: Sequence[str]) -> bool:
        found = session.rows(self._dialect.mark_query(target))
        return len(found) == 1 and found[0][0] in marks

    def _is_done(self, session: WarehouseSession, there: Tables, marks: Sequence[str]) -> bool:
        if self._is_exchanged:
            return self._is_marked(self._after, session, marks)
        # Whether older rows have got their values the columns do not tell.
        is_filled = self._is_in_place() and any(
            self._filled(name, column) is not None for name, column in self._columns.new.items()
        )
        return self._is_there(self._after, there) and not is_filled

    @property
    def _is_renamed(self) -> bool:
        return self._dialect.table(self._before) != self._dialect.table(self._after)

    @property
    def _is_exchanged(self) -> bool:
        """Whether a name is taken that another column had: then names do not tell what was done."""
        named = self._dialect.named
        renamed = {new for old, new in self._columns.kept.items() if named(old) != named(new)}
        taken = {*map(named, renamed), *map(named, self._columns.new)}
        return bool(taken & {*map(named, self._before.columns)})

    def _found(self, target: Target, there: Tables) -> Columns:
        return there.get((self._dialect.named(target.schema), self._dialect.named(target.name)), ())

    def _is_there(self, target: Target, there: Tables) -> bool:
        return bool(target.columns) and dict(self._found(target, there)) == {
            self._dialect.named(name): self._dialect.spelled(held)
            for name, held in self._held(target).items()
        }

    def _steps(self, current: Target, names: set[str]) -> list[str]:
        """Those of ``_change`` that are not done yet, in a table that has these columns."""
        dialect, table = self._dialect, self._dialect.table(current)
        kept, quoted, named = self._columns.kept, dialect.quoted, dialect.named
        found = [
            f"ALTER TABLE {table} DROP COLUMN {quoted(name)}"
            for name in self._before.columns
            if name not in kept and named(name) in names
        ]
        found += [
            f"ALTER TABLE {table} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
            for old, new in kept.items()
            if named(old) != named(new) and named(old) in names
        ]
        for old, new in kept.items():
            if self._old[old] != self._wanted[new]:
                found.append(dialect.widened(table, new, self._old[old], self._wanted[new]) or "")
        for name, column in self._columns.new.items():
            kind = dialect.sql_type(self._wanted[name])
            if named(name) not in names:
                found.append(f"ALTER TABLE {table} ADD COLUMN {quoted(name)} {kind}")
            # Whether that was done before nothing tells; the same once more changes nothing.
            if (value := self._filled(name, column)) is not None:
                found.append(f"UPDATE {table} SET {quoted(name)} = {value} WHERE TRUE")
        if self._is_renamed and current is self._before:
            found.append(dialect.rename_table(current.schema, self._before.name, self._after.name))
        return found

    def _added(self, table: str, name: str, column: ColumnDefinition) -> str:
        value = self._filled(name, column)
        kind = self._dialect.sql_type(self._wanted[name])
        default = "" if value is None else f" DEFAULT {value}"
        return f"ALTER TABLE {table} ADD COLUMN {self._dialect.quoted(name)} {kind}{default}"

    def _held(self, target: Target) -> dict[str, str]:
        types = self._dialect.types
        return {
            name: types.held_as(plain)
            for name, plain in zip(target.columns, target.types, strict=True)
        }

    def _is_in_place(self) -> bool:
        table = self._dialect.table(self._before)
        fits = all(
            self._old[old] == self._wanted[new]
            or self._dialect.widened(table, new, self._old[old], self._wanted[new])
            for old, new in self._columns.kept.items()
        )
        filled = [name for name, column in self._columns.new.items() if column.missing is not None]
        has_defaults = all(self._wanted[name] not in _NO_DEFAULT for name in filled)
        is_same_schema = self._before.schema == self._after.schema
        kept = self._columns.kept
        has_bound = all(
            kept.get(name) == name for name in self._dialect.bound_columns(self._before)
        )
        return bool(fits and has_defaults and is_same_schema and has_bound and kept)

    def _change(self) -> list[str]:
        dialect, table = self._dialect, self._dialect.table(self._before)
        kept, quoted = self._columns.kept, dialect.quoted
        found = [
            f"ALTER TABLE {table} DROP COLUMN {quoted(name)}"
            for name in self._before.columns
            if name not in kept
        ]
        # Names may be exchanged: all of them are left before any is taken.
        renamed = {
            old: new for old, new in kept.items() if dialect.named(old) != dialect.named(new)
        }
        steps = [(old, f"penstock_{number}") for number, old in enumerate(renamed)]
        steps += [(f"penstock_{number}", new) for number, new in enumerate(renamed.values())]
        found += [
            f"ALTER TABLE {table} RENAME COLUMN {quoted(old)} TO {quoted(new)}"
            for old, new in steps
        ]
        for old, new in kept.items():
            if self._old[old] != self._wanted[new]:
                found.append(dialect.widened(table, new, self._old[old], self._wanted[new]) or "")
        found += [self._added(table, name, column) for name, column in self._columns.new.items()]
        if dialect.named(self._before.name) != dialect.named(self._after.name):
            schema = self._before.schema
            found.append(dialect.rename_table(schema, self._before.name, self._after.name))
        return found

    def _picked(self) -> list[str]:
        """The columns of the new table, from the rows of the old one."""
        dialect, after = self._dialect, self._after
        kept = {new: old for old, new in self._columns.kept.items()}
        picked = []
        for name in after.columns:
            value = None
            if name in kept:
                held = self._old[kept[name]], self._wanted[name]
                column = dialect.quoted(kept[name])
                value = column if held[0] == held[1] else dialect.cast(*held, column)
            else:
                value = self._filled(name, self._columns.new[name])
            picked.append(value or f"CAST(NULL AS {dialect.sql_type(self._wanted[name])})")
        if not picked:
            picked = [f"CAST(NULL AS {dialect.sql_type('bool')})"]
        return picked

    def _swap(self) -> list[str]:
        dialect, after = self._dialect, self._after
        swapped = f"{dialect.quoted(after.schema)}.{dialect.quoted(_SWAPPED)}"
        filled = f"INSERT INTO {swapped} ({', '.join(dialect.columns(after))})"
        return [
            dialect.create_schema(after.schema),
            dialect.drop_table(swapped),
            dialect.create_table(after, swapped),
            f"{filled} SELECT {', '.join(self._picked())} FROM {dialect.table(self._before)}",
            dialect.drop_table(dialect.table(self._before)),
            dialect.rename_table(after.schema, _SWAPPED, after.name),
        ]

    def _filled(self, name: str, column: ColumnDefinition) -> str | None:
        """What rows have that are older than the column, as an expression."""
        text = first_element(column.missing)
        if text is None:
            return None
        index, texts = self._after.columns.index(name), pa.array([text], pa.string())
        values, _ = self._typing.column(self._after, index, texts, RowPlaces())
        if values[0].as_py() is None:
            return None
        return self._dialect.constant(self._wanted[name], values[0].as_py())
