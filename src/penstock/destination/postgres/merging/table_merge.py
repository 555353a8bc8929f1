"""How the staged rows of one table come into its target, inside the driver's transaction.

``quick`` runs the cheapest statements that are right if nothing is odd, and raises where something
is. ``thorough`` is for what is odd: rows that exchange the values of a unique index, rows that are
not where they should be, rows that the target refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import sql

from penstock.destination.postgres.copying import replay_sql
from penstock.destination.postgres.merging import (
    compose_sql,
    counted_sql,
    merge_sql,
    sql_pieces,
    thorough_sql,
)
from penstock.destination.postgres.merging.dead_letters import (
    Letter,
    refusal,
    tables_refusals,
    target_refusal,
    write_letter,
)
from penstock.destination.postgres.merging.halving import refused_rows
from penstock.destination.postgres.sessions.session import (
    Connection,
    is_passing,
    is_refusal,
    said,
)
from penstock.destination.postgres.staging.receipt import Part, total
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import key_text, known_columns, op_name
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position

_NO_DATA = "P0002"


class Odd(Exception):
    """The quick way does not fit what the batch holds."""


def is_odd(error: Exception) -> bool:
    """Whether the thorough way is the answer to what the quick one raised."""
    return isinstance(error, Odd) or (isinstance(error, psycopg.Error) and not is_passing(error))


@dataclass(frozen=True)
class _Counts:
    inserts: int
    updates: int
    rekeys: int
    deletes: int
    incomplete: int


Make = Callable[..., sql_pieces.Statement]


# Building a statement costs more than many a statement takes, and batches repeat them.
@lru_cache(maxsize=20_000)
def _statement(make: Make, stage: Stage, *arguments: Any, **options: Any) -> str:
    return make(stage, *arguments, **options).as_string(None)


class TableMerge:
    """Merges the parts of one table. What goes wrong is for the caller's savepoint to undo."""

    def __init__(
        self,
        conn: Connection,
        pipeline: str,
        stage: Stage,
        parts: Sequence[Part],
        *,
        strict: bool,
        replayed: bool = False,
    ) -> None:
        """``replayed``: the rows come over copied ones, staged as ReplayedRows are."""
        self._conn = conn
        self._stage = stage
        self._parts = parts
        self._strict = strict and not replayed
        self._replayed = replayed
        self._numbers = {"parts": [part.part for part in parts], "pipeline": pipeline}

    # -- the quick way ---------------------------------------------------------------------------

    def quick(self) -> None:
        """Merge; raises Odd, or psycopg's error, where that is not enough."""
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """The same in steps: between two of them what was sent to the server must be answered.

        So the statements of many tables can travel together.
        """
        if self._stage.kind == "keyed" and self._replayed:
            yield from self._quick_replayed()
        elif self._stage.kind == "keyed":
            yield from self._quick_keyed()
        elif self._stage.kind == "counted":
            yield from self._quick_counted()
        else:
            yield from self._only_inserts()

    @property
    def is_only_inserts(self) -> bool:
        """Then the statement itself tells whether all staged rows were there."""
        if self._stage.kind == "counted":
            return False
        return total(self._parts, "inserts") == total(self._parts, "rows")

    def _only_inserts(self) -> Iterator[None]:
        added = self._send(merge_sql.insert, "I")
        yield
        if added.rowcount != total(self._parts, "inserts"):
            raise Odd

    def _quick_keyed(self) -> Iterator[None]:
        if self.is_only_inserts:
            yield from self._only_inserts()
            return
        counts = self._expected()
        if self._compose():
            found = self._send(merge_sql.count_ops)
            yield
            counts = _Counts(*(found.fetchone() or (0, 0, 0, 0, 0)))
        if counts.rekeys and self._stage.extras:
            raise Odd
        if counts.rekeys and counts.incomplete:
            self._send(merge_sql.complete, only_rekeys=True)
            unmatched = self._send(merge_sql.unmatched, incomplete=True)
            yield
            if unmatched.fetchone() is not None:
                raise Odd
        gone = changed = None
        if counts.deletes or counts.rekeys:
            gone = self._send(merge_sql.delete, rekeys=bool(counts.rekeys))
        if counts.updates and len(self._stage.columns) > len(self._stage.key):
            changed = self._send(merge_sql.update, incomplete=bool(counts.incomplete))
        elif counts.updates:
            # Nothing but a key: there is nothing to change, but the row has to be there.
            raise Odd
        if counts.inserts or counts.rekeys:
            self._send(merge_sql.insert, "IK")
        yield
        if changed is not None and changed.rowcount != counts.updates:
            raise Odd
        if self._strict and gone is not None and gone.rowcount != counts.deletes + counts.rekeys:
            raise Odd

    def _quick_replayed(self) -> Iterator[None]:
        """No row is expected to be there, and none to be missing."""
        self._compose()
        self._complete_replayed()
        if total(self._parts, "deletes"):
            self._send(merge_sql.delete, rekeys=False)
        if total(self._parts, "updates"):
            for unique in self._stage.unique:
                self._send(replay_sql.delete_outdated, unique)
            self._send(replay_sql.upsert)
        yield

    def _complete_replayed(self) -> None:
        """Make rows whole from what stands under their key; park what cannot be made whole."""
        if total(self._parts, "incomplete"):
            self._send(merge_sql.complete, only_rekeys=False)
        if total(self._parts, "incomplete") or total(self._parts, "rekeys"):
            self._send(replay_sql.park)
            self._send(replay_sql.forget_parked)

    def _expected(self) -> _Counts:
        names = ("inserts", "updates", "rekeys", "deletes", "incomplete")
        return _Counts(*(total(self._parts, name) for name in names))

    def _compose(self) -> bool:
        """Join what several parts hold of one row; whether there was anything to join."""
        parts = self._parts
        pairs = [
            {"earlier": earlier, "later": part.part}
            for index, part in enumerate(parts)
            if part.updates + part.rekeys + part.deletes
            and (earlier := [p.part for p in parts[:index] if p.inserts + p.updates + p.rekeys])
        ]
        if not pairs:
            return False
        with self._hashing():
            if total(parts, "rekeys") or total(parts, "incomplete"):
                for pair in pairs:
                    self._conn.execute(_statement(compose_sql.compose, self._stage), pair)
            else:
                self._send(compose_sql.compose_plain)
        if total(parts, "rekeys"):
            self._send(compose_sql.tidy_composed)
        return True

    def _quick_counted(self) -> Iterator[None]:
        self._sum_counts()
        if total(self._parts, "deletes"):
            wanted = self._send(counted_sql.count_counts)
            with self._hashing():
                removed = self._send(counted_sql.remove_counted)
            yield
            if self._strict and removed.rowcount != (wanted.fetchone() or (0, 0))[1]:
                raise Odd
        if total(self._parts, "inserts"):
            self._send(merge_sql.insert)

    def _sum_counts(self) -> None:
        if len(self._parts) > 1 and total(self._parts, "deletes"):
            with self._hashing():
                self._send(counted_sql.sum_counts)

    # -- the thorough way ------------------------------------------------------------------------

    def thorough(self, letters_of: str | None) -> int:
        """Merge whatever it takes; returns how many rows became dead letters.

        Raises TableRefused, which names the row, unless letters are wanted (by the pipeline of
        that name); also where the table as a whole is at fault.
        """
        # A key that is no value of the target's type, for one, or a right that is missing.
        with tables_refusals(self._conn, self._stage, self._last_position):
            return self._thorough(letters_of)

    def refused(self, error: psycopg.Error) -> TableRefused:
        """What to tell of the table where it is at fault as a whole."""
        return target_refusal(self._conn.info.user, self._stage, self._last_position(), error)

    def _thorough(self, letters_of: str | None) -> int:
        missing = 0
        if self._stage.kind == "keyed":
            missing = self._clear_way(letters_of)
        elif self._stage.kind == "counted":
            self._clear_counted()
        rows = self._rows(thorough_sql.row_ids)

        def insert(first: int, last: int) -> None:
            with self._conn.transaction():
                self._insert_rows(rows[first:last])

        # All of them first: a row that is put back must not take the place of one still to come.
        refused = list(refused_rows(0, len(rows), insert))
        for row, cause in refused:
            self._refuse(rows[row], cause, letters_of)
        if self._stage.kind == "keyed":
            self._conn.execute(sql.SQL("DROP TABLE {}").format(thorough_sql.BEFORE))
        return missing + len(refused)

    def _clear_way(self, letters_of: str | None) -> int:
        """Make every staged row whole, and take every row that it replaces out of the target.

        Returns how many became letters, since the row that they change is missing.
        """
        self._compose()
        missing: list[str] = []
        if self._replayed:
            self._complete_replayed()
            for unique in self._stage.unique:
                self._send(replay_sql.delete_outdated, unique)
        else:
            self._send(merge_sql.complete, only_rekeys=False)
            missing = self._rows(merge_sql.unmatched, incomplete=not self._strict)
        for row in missing:
            self._refuse_missing(row, letters_of)
        self._send(thorough_sql.save_before)
        self._send(merge_sql.delete, rekeys=True, updates=True)
        if not self._strict:
            self._send(thorough_sql.save_in_the_way)
            self._send(thorough_sql.delete_in_the_way)
        return len(missing)

    def _clear_counted(self) -> None:
        self._sum_counts()
        wanted = (self._send(counted_sql.count_counts).fetchone() or (0, 0))[1]
        with self._hashing():
            removed = self._send(counted_sql.remove_counted).rowcount
        if self._strict and removed != wanted:
            raise refusal(
                self._stage,
                "the values of a deleted row",
                self._last_position(),
                f"{wanted - removed} of {wanted} rows to be removed are not in the destination",
            )

    def _insert_rows(self, rows: Sequence[str]) -> None:
        # Updates were cleared out of the way, too: they are put back as they are now.
        parameters = {**self._numbers, "rows": list(rows)}
        for kept in (False, True) if self._stage.extras else (None,):
            statement = _statement(merge_sql.insert, self._stage, "IUK", some_rows=True, kept=kept)
            self._conn.execute(statement, parameters)

    def _refuse(self, row: str, error: psycopg.Error, letters_of: str | None) -> None:
        letter = self._letter(row, error.sqlstate or "", said(error))
        if letters_of is None:
            raise refusal(
                self._stage, key_text(self._stage, letter.values), letter.position, letter.cause
            ) from error
        if self._stage.kind == "keyed":
            self._put_back(row)
        write_letter(self._conn, letters_of, self._stage, letter)

    def _put_back(self, row: str) -> None:
        """The row as it was before, unless something else has taken its place."""
        statement = _statement(thorough_sql.restore_before, self._stage)
        try:
            with self._conn.transaction():
                self._conn.execute(statement, {"row": row})
        except psycopg.Error as error:
            if not is_refusal(error):
                raise

    def _refuse_missing(self, row: str, letters_of: str | None) -> None:
        letter = self._letter(row, _NO_DATA, "")
        why = f"{letter.op}: the destination has no such row"
        if not self._strict:
            why += ", and the change holds only a part of it: large values that did not change are "
            why += "not sent"
        if letters_of is None:
            key = key_text(self._stage, letter.values)
            raise refusal(self._stage, key, letter.position, why)
        write_letter(self._conn, letters_of, self._stage, replace(letter, cause=why))
        self._conn.execute(_statement(thorough_sql.forget_row, self._stage), {"row": row})

    def _letter(self, row: str, sqlstate: str, cause: str) -> Letter:
        """A staged row as far as it is known."""
        stage = self._stage
        found = self._conn.execute(
            _statement(thorough_sql.staged_row, stage), {"row": row}
        ).fetchone()
        commit_lsn, ordinal, times, unset, op, *texts = found or (0, 0, 1, None, "I")
        known = known_columns(stage, op, [number - 1 for number in unset or ()])
        return Letter(
            op_name(op) if len(op) == 1 else op,
            {stage.columns[index].name: texts[index] for index in known},
            Position(commit_lsn, ordinal),
            sqlstate,
            cause,
            times,
        )

    def _last_position(self) -> Position:
        row = self._conn.execute(
            sql.SQL(
                "SELECT commit_lsn, ordinal FROM {} WHERE part = ANY(%(parts)s)"
                " ORDER BY 1 DESC, 2 DESC LIMIT 1"
            ).format(self._stage.staging_id),
            self._numbers,
        ).fetchone()
        return Position(*(row or (0, 0)))

    # -- statements ------------------------------------------------------------------------------

    @contextmanager
    def _hashing(self) -> Iterator[None]:
        """Keep the planner from nested loops where neither side has an index.

        It knows nothing of staging tables, which are never analysed, and takes them for tiny.
        """
        self._conn.execute("SET LOCAL enable_nestloop = off")
        yield
        self._conn.execute("SET LOCAL enable_nestloop = on")

    def _send(self, make: Make, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        return self._conn.execute(
            _statement(make, self._stage, *arguments, **options), self._numbers
        )

    def _rows(self, make: Make, **options: Any) -> list[str]:
        """The ctids of the staged rows that a statement finds."""
        statement = _statement(make, self._stage, **options)
        return [row for (row,) in self._conn.execute(statement, self._numbers)]
