"""Rows on their way into staging tables, or to the driver."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import psycopg
import pyarrow as pa
from psycopg import sql

from penstock.decode.copy_text import copy_lines
from penstock.decode.text_bytes import text_bytes
from penstock.destination.postgres.merging.dead_letters import Letter, refusal, stage_letter
from penstock.destination.postgres.merging.halving import refused_rows
from penstock.destination.postgres.sessions.session import Connection, copy_in, is_refusal, said
from penstock.destination.postgres.staging.handover import HandedFile
from penstock.destination.postgres.staging.receipt import Part
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import Mask, StagedRows, key_text
from penstock.model.lsn import Position

# Rows that are encoded at a time: bounds what stands twice in memory.
_CHUNK_ROWS = 50_000

Key = tuple[int, int]
"""A table and a part."""


@dataclass(frozen=True)
class Load:
    """What goes into one staging table, or is handed over: some rows, whose lines may be known
    already.
    """

    stage: Stage
    part: int
    rows: StagedRows
    first: int
    last: int
    lines: pa.Array | None
    is_handed: bool = False

    @property
    def key(self) -> Key:
        return self.stage.oid, self.part

    def staged(self) -> Load:
        """The same for the staging table, if it was not."""
        return replace(self, lines=None, is_handed=False) if self.is_handed else self

    def hand_over(self, file: HandedFile) -> Part:
        lines = (text_bytes(some) for _, some in self.chunks())
        handed = file.add(*self.rows.positions(self.first, self.last), lines)
        return Part(self.stage.oid, self.part, handed=handed)

    @property
    def statement(self) -> bytes:
        columns = sql.SQL(", ").join(map(sql.Identifier, ("part", *self.rows.names)))
        copy = sql.SQL("COPY {} ({}) FROM STDIN").format(self.stage.staging_id, columns)
        return copy.as_bytes(None)

    def chunks(self) -> Iterator[tuple[int, pa.Array]]:
        """Its lines, so many at a time, and the number of the first of them."""
        if self.lines is not None:
            yield self.first, self.lines.slice(self.first, self.last - self.first)
            return
        for first in range(self.first, self.last, _CHUNK_ROWS):
            last = min(first + _CHUNK_ROWS, self.last)
            yield first, lines_of(None if self.is_handed else self.part, self.rows, first, last)


class StagingLoader:
    """Copies rows into staging tables; those that the server refuses are found one by one."""

    def __init__(self, conn: Connection, loads: Sequence[Load], letters_of: str | None) -> None:
        self._conn = conn
        self._loads = loads
        self._letters_of = letters_of

    def run(self) -> list[Part]:
        sizes = [0] * len(self._loads)

        def data(number: int, load: Load) -> Iterator[memoryview]:
            for _, lines in load.chunks():
                found = text_bytes(lines)
                sizes[number] += len(found)
                yield found

        try:
            copy_in(
                self._conn,
                [(load.statement, data(number, load)) for number, load in enumerate(self._loads)],
            )
        except psycopg.Error as error:
            if not is_refusal(error):
                raise
            return [self._one_by_one(load) for load in self._loads]
        return [
            _part(load, np.ones(load.last - load.first, bool), size)
            for load, size in zip(self._loads, sizes, strict=True)
        ]

    def _one_by_one(self, load: Load) -> Part:
        """Copy what can be copied, and find the rows that cannot."""
        kept = np.ones(load.last - load.first, bool)
        size = 0

        def copy(first: int, last: int) -> None:
            nonlocal size
            data = text_bytes(lines.slice(first, last - first))
            copy_in(self._conn, [(load.statement, iter([data]))])
            size += len(data)

        for start, lines in load.chunks():
            for row, error in refused_rows(0, len(lines), copy):
                self._refuse(load, start + row, error)
                kept[start + row - load.first] = False
        return _part(load, kept, size)

    def _refuse(self, load: Load, row: int, error: psycopg.Error) -> None:
        rows, stage, position = load.rows, load.stage, Position(*load.rows.position(row))
        values = rows.values(stage, row)
        if self._letters_of is None:
            raise refusal(stage, key_text(stage, values), position, said(error)) from error
        letter = Letter(
            rows.op_name(row),
            values,
            position,
            error.sqlstate or "",
            said(error),
            rows.times(row),
        )
        stage_letter(self._conn, self._letters_of, stage, load.part, letter)


def _part(load: Load, kept: Mask, size: int) -> Part:
    return load.rows.part(load.stage.oid, load.part, slice(load.first, load.last), kept, size)


def lines_of(part: int | None, rows: StagedRows, first: int, last: int) -> pa.Array:
    """Lines for the staging table; without a part for the target."""
    if part is None:
        return copy_lines(rows.target_columns(first, last), last - first)
    return copy_lines([str(part), *rows.columns(first, last)], last - first)
