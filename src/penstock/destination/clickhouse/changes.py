"""Change tables (`mode: append`): how executors write them, and how their rows that are left read.

A change's row is told from others by its position, a copied row by its chunk and number. So what
comes again is the same row, of which the engine keeps one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.decode.changes import ChangeSet
from penstock.destination.clickhouse.names import literal, quoted
from penstock.destination.clickhouse.rows import ClickHouseRows
from penstock.destination.clickhouse.types import sql_type
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.families.change_tables.latest import MaxByLatest
from penstock.destination.families.change_tables.task_writer import (
    ChangeTableChunkWriter,
    change_rows,
)
from penstock.destination.families.staged_merge.receipt import StagedChunk
from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import numbered_ids
from penstock.model.table_rows import ChunkReader

_FLOATS = ("float4", "float8")


@dataclass(frozen=True)
class ClickHouseChanges(TaskWriter):
    """Writes every change of the tables that it knows. Its receipt is that of documents."""

    store: ClickHouseRows
    targets: Mapping[int, Target]

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        written: set[int] = set()
        unfit: dict[int, Counter[str]] = {}
        for run in changes:
            for found in change_rows(run, self.targets, self.store.typing):
                rows, target = found.table(), found.target
                self.store.append(target, rows, pa.repeat("", rows.num_rows))
                written.add(target.oid)
                unfit.setdefault(target.oid, Counter()).update(found.unfit)
        told = {"written": sorted(written), "emptied": [], "parked": {}, "unfit": unfit}
        return json.dumps(told).encode()


@dataclass(frozen=True)
class ClickHouseReads(ChunkWriter):
    """Writes copied rows as ``read``."""

    store: ClickHouseRows
    target: Target
    again: bool

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        chunk = _Chunk(self.store, self.target, rows.chunk)
        writer = ChangeTableChunkWriter(chunk, self.target, "", self.again, self.store.typing)
        receipt = writer.write(rows)
        unfit = StagedChunk.from_bytes(receipt.content).unfit
        content = json.dumps({self.target.oid: unfit}).encode()
        return ChunkReceipt(receipt.rows, receipt.bytes, content, resent=self.store.resent)


@dataclass(frozen=True)
class _Chunk(ChunkStage):
    """Where the rows of one chunk go: into the table at once."""

    store: ClickHouseRows
    target: Target
    chunk: str

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        first = 0
        for piece in pieces:
            ids = numbered_ids(f"#{self.chunk}.", np.arange(first, first + piece.num_rows))
            self.store.append(self.target, piece.drop_columns(["row"]), ids)
            first += piece.num_rows
        return self.chunk

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: rows stay."""


class ClickHouseLatest(MaxByLatest):
    """A value that is never null is a tuple."""

    wide = "Int128"

    def quoted(self, name: str) -> str:
        return quoted(name)

    def old_value(self, column: str, plain: str) -> str:
        """``_old`` holds numbers and truth values as JSON does, all else as texts of Postgres."""
        image, name = "coalesce(_old, '{}')", literal(column)
        text = (
            f"if(JSONType({image}, {name}) = 'String', JSONExtractString({image}, {name}),"
            f" JSONExtractRaw({image}, {name}))"
        )
        if plain == "bytea":
            return f"unhex(substring({text}, 3))"
        if plain == "timestamptz":
            text = f"replaceRegexpOne({text}, '\\\\+00$', '')"
        kind = sql_type(plain)
        return text if kind == "String" else f"accurateCastOrNull({text}, {literal(kind)})"

    def is_unset(self, column: str) -> str:
        return f"has(JSONExtract(coalesce(_unset, '[]'), 'Array(String)'), {literal(column)})"

    def identity(self, value: str, plain: str) -> Sequence[str]:
        """0 and -0 are one number and two rows."""
        return (f"toString({value})",) if plain in _FLOATS else (value,)

    def boxed(self, value: str) -> str:
        return f"tuple({value})"

    def unboxed(self, value: str, plain: str) -> str:
        return f"tupleElement({value}, 1)"
