"""Merges staged rows into a table, with the cheapest statements that they need."""

# ruff: noqa: S608 (names are quoted by the dialect, values stand in files)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.destination.families.kept_tables import Key
from penstock.destination.families.staged_merge.joined_rows import Mask, MergedRows
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import GIVEN, KEPT, Dialect, WarehouseFile
from penstock.destination.families.warehouse.session import WarehouseSession, one_each
from penstock.destination.families.warehouse.staged_rows import (
    GONE,
    NEW,
    PARTIAL,
    PUT,
    ROW,
    WarehouseRows,
    counted_rows,
    going_rows,
    mask_of,
    staged_rows,
    staged_type,
)
from penstock.model.errors import TableRefused

_WHOLE = "penstock_whole"


@dataclass(frozen=True)
class WarehouseMerge:
    """Merges into one table, inside of a transaction. ``put`` writes a file into the stage."""

    session: WarehouseSession
    dialect: Dialect
    target: Target
    put: Callable[[pa.Table], str]

    def apply(self, rows: MergedRows) -> Sequence[Key]:
        """The keys that were parked. Raises TableRefused where rows that change are not there."""
        if rows.emptied:
            self.session.run(self.dialect.delete_all(self._table))
        if not len(rows):
            return ()
        if rows.kind == "counted":
            self._count(rows)
            return ()
        return self._merge(rows)

    def load(self, rows: pa.Table, *, over: bool) -> None:
        """Add copied rows, in place of those with the same key where ``over``."""
        if rows.num_rows:
            self.load_file(self.put(rows), rows.column_names, over=over)

    def load_file(self, name: str, columns: Sequence[str], *, over: bool) -> None:
        """The same, of a file that has these columns."""
        file = self._file(name, columns)
        over = over and bool(self.target.key)
        if not over:
            self._load(file)
            return
        with self._relation(file) as staged:
            self._delete(staged, "c")
            self.session.run(self._insert(f"{staged} {GIVEN}"))

    def _load(self, file: WarehouseFile) -> None:
        if (direct := self.dialect.load_file(self.target, file)) is not None:
            self.session.run(direct)
            return
        with self._relation(file) as staged:
            self.session.run(self._insert(f"{staged} {GIVEN}"))

    # -- tables with a key -----------------------------------------------------------------------

    def _merge(self, rows: MergedRows) -> Sequence[Key]:
        is_parked: Mask = rows.op == PARK
        staged = staged_rows(rows)
        if not staged.rows.num_rows:
            return rows.parked(is_parked)
        if not staged.leaves:
            self.load(staged.rows, over=False)
            return ()
        is_replay = rows.kind == "replayed"
        with self._staged(staged) as relation:
            if staged.partial and is_replay:
                is_parked = is_parked | self._lacking(relation, len(rows.op))
            if self.dialect.has_merge:
                self._merge_at_once(relation, staged, is_replay=is_replay)
            else:
                self._leave_and_come(relation, staged, is_replay=is_replay)
        return rows.parked(is_parked)

    def _lacking(self, relation: str, count: int) -> Mask:
        """Which rows that are not known whole find none to keep values of."""
        found = self.session.rows(
            f"SELECT {GIVEN}.place FROM {relation} {GIVEN} WHERE {GIVEN}.op = '{PARTIAL}'"
            f" AND NOT EXISTS (SELECT 1 FROM {self._table} {KEPT} WHERE {self._same_key('b')})"
        )
        lacking = np.zeros(count, bool)
        lacking[[int(place) for (place,) in found]] = True
        return lacking

    def _leave_and_come(self, relation: str, staged: WarehouseRows, *, is_replay: bool) -> None:
        if staged.partial:
            picked = ", ".join(
                f"{value} AS c{index}" for index, value in enumerate(self._kept(staged))
            )
            self.session.run(
                f"CREATE TEMP TABLE {_WHOLE} AS SELECT {picked} FROM {relation} {GIVEN}"
                f" JOIN {self._table} {KEPT} ON {self._same_key('b')}"
                f" WHERE {GIVEN}.op = '{PARTIAL}'"
            )
        found = self._delete(relation, "b")
        if not is_replay and found != staged.leaves:
            raise self._not_there(staged.leaves - found)
        if staged.comes:
            comes = f"{GIVEN}.op IN ('{NEW}', '{PUT}')"
            self.session.run(self._insert(f"{relation} {GIVEN}", comes))
        if staged.partial:
            self.session.run(self._insert(f"{_WHOLE} {GIVEN}"))
            self.session.run(f"DROP TABLE {_WHOLE}")

    def _merge_at_once(self, relation: str, staged: WarehouseRows, *, is_replay: bool) -> None:
        """Rows are found by the key before; one that is new has none, so it is never found."""
        names = self.dialect.columns(self.target)
        kept = ", ".join(
            f"{name} = {value}" for name, value in zip(names, self._kept(staged), strict=True)
        )
        ops = f"{GIVEN}.op IN ('{NEW}', '{PUT}')" if is_replay else f"{GIVEN}.op = '{NEW}'"
        bounds = self.dialect.bounds(self.target, staged.rows)
        merge = (
            f"MERGE INTO {self._table} {KEPT} USING {relation} {GIVEN}"
            f" ON {self._same_key('b')}{bounds}"
            f" WHEN MATCHED AND {GIVEN}.op = '{GONE}' THEN DELETE"
            f" WHEN MATCHED THEN UPDATE SET {kept}"
            f" WHEN NOT MATCHED AND {ops} THEN INSERT ({', '.join(names)})"
            f" VALUES ({', '.join(self._values())})"
        )
        if is_replay:
            self.session.run(merge)
            return
        count = staged.rows.num_rows
        self.session.expect(merge, count, lambda found: self._not_there(count - found))

    def _kept(self, staged: WarehouseRows) -> list[str]:
        """The values of rows, of which those that are unset stay what they are."""
        names, there = self.dialect.columns(self.target), staged.rows.column_names
        found = []
        for index, value in enumerate(self._values()):
            word, bit = mask_of(index)
            if word in there and index not in self.target.key:
                unset = self.dialect.has_bit(f"{GIVEN}.{word}", bit)
                there_now = f"{KEPT}.{names[index]}"
                value = f"CASE WHEN {unset} THEN {there_now} ELSE {value} END"  # noqa: PLW2901
            found.append(value)
        return found

    # -- tables without a key --------------------------------------------------------------------

    def _count(self, rows: MergedRows) -> None:
        """Add first: of rows that are equal here some may come and others go. Of rows that are
        alike all go, and those that are left come back: no warehouse can tell one from the other.
        """
        count, there = rows.count, self._table
        added = counted_rows(rows, np.maximum(count, 0))
        if added.num_rows:
            file = self._file(self.put(added), added.column_names)
            self._load(file)
            if not self.dialect.reads_itself:
                there = self._with_rows(file)
        if not (count < 0).any():
            return
        going = going_rows(rows)
        left = np.minimum(count, 0)
        with self._staged(going) as relation:
            found = self.session.rows(
                f"SELECT {GIVEN}.place, COUNT(*) FROM {there} {KEPT} JOIN {relation} {GIVEN}"
                f" ON {self._same_row(KEPT, GIVEN)} GROUP BY {GIVEN}.place"
            )
            for place, alike in found:
                left[int(place)] += int(alike)
            if (left < 0).any():
                raise self._not_there(-int(left[left < 0].sum()))
            same = self._same_row(self.dialect.in_delete(self.target), relation)
            self.session.run(self.dialect.delete(self.target, relation, same))
        self.load(counted_rows(rows, left), over=False)

    # -- pieces of statements --------------------------------------------------------------------

    @property
    def _table(self) -> str:
        return self.dialect.table(self.target)

    @contextmanager
    def _staged(self, staged: WarehouseRows) -> Iterator[str]:
        name = self.put(staged.rows)
        with self._relation(self._file(name, staged.rows.column_names)) as relation:
            yield relation

    def _file(self, name: str, columns: Sequence[str]) -> WarehouseFile:
        types = self.dialect.types
        held = tuple((column, staged_type(column, self.target, types)) for column in columns)
        return WarehouseFile(name, held)

    @contextmanager
    def _relation(self, file: WarehouseFile) -> Iterator[str]:
        staged = self.dialect.staged(self.target, file)
        self.session.using(staged.relation, file.name)
        one_each(staged.make, self.session)
        yield staged.relation
        one_each(staged.drop, self.session)

    def _with_rows(self, file: WarehouseFile) -> str:
        """The rows of the table, and those of a file."""
        names, relation = self.dialect.columns(self.target), self.dialect.staged(self.target, file)
        listed = ", ".join(names)
        picked = ", ".join(
            f"{value} AS {name}" for value, name in zip(self._values(), names, strict=True)
        )
        added = f"SELECT {picked} FROM {relation.relation} {GIVEN}"
        return f"(SELECT {listed} FROM {self._table} UNION ALL {added})"

    def _insert(self, relation: str, where: str = "") -> str:
        names = ", ".join(self.dialect.columns(self.target))
        picked = f"INSERT INTO {self._table} ({names}) SELECT {', '.join(self._values())}"
        return f"{picked} FROM {relation}" + (f" WHERE {where}" if where else "")

    def _values(self) -> list[str]:
        types = self.dialect.types
        return [
            self.dialect.value(types.held_as(plain), f"{GIVEN}.c{index}")
            for index, plain in enumerate(self.target.types)
        ] or [f"{GIVEN}.{ROW}"]

    def _delete(self, relation: str, prefix: str) -> int:
        """Rows leave under the keys in these columns; a new one has none there."""
        same = self._same_key(prefix, self.dialect.in_delete(self.target), relation)
        return self.session.run(self.dialect.delete(self.target, relation, same))

    def _same_key(self, prefix: str, table: str = KEPT, rows: str = GIVEN) -> str:
        names, types = self.dialect.columns(self.target), self.dialect.types
        return " AND ".join(
            self.dialect.same(
                held,
                f"{table}.{names[index]}",
                self.dialect.value(held, f"{rows}.{prefix}{index}"),
            )
            for index in self.target.key
            for held in [types.held_as(self.target.types[index])]
        )

    def _same_row(self, table: str, rows: str) -> str:
        names, types = self.dialect.columns(self.target), self.dialect.types
        if not self.target.columns:
            return f"{table}.{names[0]} IS NULL AND {rows}.{ROW} IS NULL"
        return " AND ".join(
            self.dialect.same_or_null(
                held, f"{table}.{name}", self.dialect.value(held, f"{rows}.c{index}")
            )
            for index, name in enumerate(names)
            for held in [types.held_as(self.target.types[index])]
        )

    def _not_there(self, count: int) -> TableRefused:
        name = self.target.qualified_name
        return TableRefused(
            f"table {name}: {count} rows that change are not there: somebody else wrote to the "
            "warehouse's table",
            remedy=f"run `penstock tables resync` for {name}, which copies it anew",
            table=self.target.oid,
        )
