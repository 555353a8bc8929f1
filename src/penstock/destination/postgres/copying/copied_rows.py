"""Rows that were copied, on their way into the target: inside the caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import psycopg
from psycopg import sql

from penstock.decode.copy_text import Column, copy_lines
from penstock.decode.row_values import READ_ORDINAL
from penstock.decode.text_bytes import text_bytes
from penstock.destination.postgres.merging.dead_letters import Letter, write_letter
from penstock.destination.postgres.merging.halving import refused_rows
from penstock.destination.postgres.sessions.session import Connection, said
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.errors import TableRefused
from penstock.model.lsn import Frontier, Position, format_lsn
from penstock.model.table_rows import TableRows

# Columns of a history that copied rows have a value for.
_HISTORY = ("_op", "_commit_lsn", "_ordinal")
_WAITING = sql.Identifier("pg_temp", "penstock_copied")


class CopiedRows:
    """Adds rows to a target; ``over`` puts them in place of rows with the same key."""

    def __init__(self, conn: Connection, stage: Stage, names: Sequence[str], *, over: bool) -> None:
        """``names`` are the columns that come, in their order."""
        self._conn = conn
        self._stage = stage
        self._over = over
        self._columns = [*names, *(_HISTORY if stage.kind == "history" else ())]
        if over:
            conn.execute(
                sql.SQL(
                    "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
                ).format(_WAITING, self._names(), stage.target_id)
            )

    def add_raw(self, pieces: Iterable[bytes], *, binary: bool) -> tuple[int, int]:
        """What COPY TO STDOUT gave for these columns; returns how many rows and bytes it was."""
        size = 0
        with self._conn.cursor() as cursor:
            with cursor.copy(self._statement(binary=binary)) as copy:
                for piece in pieces:
                    copy.write(piece)
                    size += len(piece)
            rows = cursor.rowcount
        if self._over:
            self._put_over()
        return rows, size

    def add_texts(self, rows: TableRows, letters_of: str | None) -> int:
        """Rows as texts; returns their size in bytes.

        Those that are refused become letters of the pipeline ``letters_of``; without one psycopg's
        error comes through.
        """
        texts: list[Column] = list(rows.columns)
        if self._stage.kind == "history":
            texts += ["read", format_lsn(rows.snapshot.commit_lsn), str(READ_ORDINAL)]
        lines = copy_lines(texts, len(rows))

        def add(first: int, last: int) -> None:
            with self._conn.transaction():
                self._add_lines([text_bytes(lines.slice(first, last - first))])

        if letters_of is None:
            add(0, len(rows))
        else:
            for row, error in refused_rows(0, len(rows), add):
                self._write_letter(rows, row, error, letters_of)
        return len(text_bytes(lines))

    def _add_lines(self, pieces: Iterable[memoryview]) -> None:
        with self._conn.cursor() as cursor, cursor.copy(self._statement(binary=False)) as copy:
            for piece in pieces:
                copy.write(piece)
        if self._over:
            self._put_over()
            self._conn.execute(sql.SQL("TRUNCATE {}").format(_WAITING))

    def _statement(self, *, binary: bool) -> sql.Composed:
        table = _WAITING if self._over else self._stage.target_id
        # A table without columns has rows, too.
        names = sql.SQL(" ({})").format(self._names()) if self._columns else sql.SQL("")
        form = sql.SQL(" (FORMAT binary)" if binary else "")
        return sql.SQL("COPY {}{} FROM STDIN{}").format(table, names, form)

    def _put_over(self) -> None:
        for unique in self._stage.unique:
            self._remove_outdated(unique)
        key = [self._stage.columns[index].name for index in self._stage.key]
        others = [name for name in self._columns if name not in key]
        sets = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
        )
        self._conn.execute(
            sql.SQL(
                "INSERT INTO {target} ({names}) OVERRIDING SYSTEM VALUE SELECT {names} FROM {rows}"
                " ON CONFLICT ({key}) DO {action}"
            ).format(
                target=self._stage.target_id,
                names=self._names(),
                rows=_WAITING,
                key=sql.SQL(", ").join(map(sql.Identifier, key)),
                action=sql.SQL("UPDATE SET {}").format(sets) if others else sql.SQL("NOTHING"),
            )
        )

    def _remove_outdated(self, unique: Sequence[int]) -> None:
        """A row of another key that has what a new one takes is of an earlier time: it has changed
        since, and that change is still to come.
        """
        self._conn.execute(
            sql.SQL("DELETE FROM {} t USING {} s WHERE {} AND NOT ({})").format(
                self._stage.target_id, _WAITING, self._same(unique), self._same(self._stage.key)
            )
        )

    def _same(self, columns: Sequence[int]) -> sql.Composed:
        return sql.SQL(" AND ").join(
            sql.SQL("t.{0} = s.{0}").format(sql.Identifier(self._stage.columns[index].name))
            for index in columns
        )

    def _names(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self._columns))

    def _write_letter(
        self, rows: TableRows, row: int, error: psycopg.Error, letters_of: str
    ) -> None:
        values = {
            column.name: rows.columns[index][row].as_py()
            for index, column in enumerate(rows.table.columns)
        }
        letter = Letter(
            "read",
            values,
            Position(rows.snapshot.commit_lsn, READ_ORDINAL),
            error.sqlstate or "",
            said(error),
        )
        write_letter(self._conn, letters_of, self._stage, letter)


def copy_refusal(stage: Stage, what: str, at: Frontier, error: psycopg.Error) -> TableRefused:
    """The error that names the table, ``what`` part of it was refused, and why."""
    # The line and the column, which COPY knows; never the statement.
    where = error.diag.context or ""
    place = f" ({where.splitlines()[0]})" if where.startswith("COPY ") else ""
    return TableRefused(
        f"table {stage.source}: the destination refused a row of {what}, read at "
        f"{format_lsn(at.commit_lsn)}: {said(error)}{place}",
        remedy=f"mend the row or the target {'.'.join(stage.target)}, then run `penstock tables "
        f"retry` for {stage.source}; or set destination.dead_letter: true to go on without such "
        "rows",
        table=stage.oid,
    )
