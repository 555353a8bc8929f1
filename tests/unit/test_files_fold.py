"""Folding files to final rows, against a model of the source."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.files.committed_files import list_files
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.folding import FoldedTable, fold, folded_source
from penstock.destination.files.options import FilesOptions
from penstock.model.errors import DestinationError
from penstock.model.table_schema import TableSchema
from penstock.model.watermarks import Watermarks
from penstock.pgoutput.messages import UNSET as UNKNOWN
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table

Format = Literal["parquet", "ndjson"]
KINDS = {
    "int8": ["0", "-1", "9007199254740993"],
    "text": ["", "x", 'a"b\\\n\t\x01', "日本", "null"],
    "timestamptz": ["infinity", "0044-03-15 00:00:00+00 BC", "294000-01-01 00:00:00+00"],
    "date": ["-infinity", "2026-01-02", "5874897-12-31"],
    "float8": ["NaN", "-0", "1e+300", "0.1", "-Infinity"],
    "numeric": ["1.50", "NaN", "1" * 60],
    "jsonb": ['{"a": [1, 2.0], "b": "\\n"}', '"text"', "true", "[]", "1.10"],
    "json": [f' {{ "a":{"1" * 5000} , "a":2 }} ', '"x"'],
    "bool": ["t", "f"],
    "_timestamp": ["{}", '{infinity,NULL,"2026-01-02 00:00:00"}', '{{"2026-01-02 00:00:00"}}'],
    "bytea": ["\\x", "\\x00ff"],
    "interval": ["1 mon", "-00:00:01"],
}
COLUMNS = tuple(Column(f"c {kind}", kind) for kind in KINDS)


class Model:
    """A table of a source: what it holds, and the stream of how it came to hold it."""

    def __init__(self, seed: int, identity: str) -> None:
        self.random = random.Random(seed)
        self.builder = ChangeBuilder()
        self.full = identity == "f"
        self.table = table("m", Column("id", "text", key=True), *COLUMNS, identity=identity)
        self.rows: list[list[str | None]] = []

    def value(self, kind: str) -> str | None:
        return None if self.random.random() < 0.2 else self.random.choice(KINDS[kind])

    def row(self, key: str) -> list[str | None]:
        return [key, *(self.value(kind) for kind in KINDS)]

    def key(self) -> str:
        if self.full:
            return str(self.random.randrange(3))
        taken = {row[0] for row in self.rows}
        return next(k for k in map(str, self.random.sample(range(1000), 900)) if k not in taken)

    def step(self) -> None:
        dice = self.random.random()
        if dice < 0.5 or not self.rows:
            alike = self.full and self.rows and self.random.random() < 0.4
            row = list(self.random.choice(self.rows)) if alike else self.row(self.key())
            self.builder.insert(self.table, *row)
            self.rows.append(row)
        elif dice < 0.85:
            self.update(self.random.randrange(len(self.rows)))
        elif dice < 0.99:
            old = self.rows.pop(self.random.randrange(len(self.rows)))
            if self.full:
                self.builder.delete(self.table, full=old)
            else:
                self.builder.delete(self.table, key=self.key_image(old))
        else:
            self.builder.truncate(self.table)
            self.rows.clear()

    def update(self, number: int) -> None:
        old = self.rows[number]
        moves = self.random.random() < 0.3
        new = self.row(self.key() if moves else str(old[0]))
        sent = list[object](new)
        for column in range(1, len(new)):
            if self.random.random() < 0.3:
                new[column] = old[column]
                sent[column] = None if old[column] is None else UNSET
        self.builder.update(
            self.table,
            *sent,  # type: ignore[arg-type]
            key=self.key_image(old) if moves and not self.full else None,
            full=old if self.full else None,
        )
        self.rows[number] = new

    def key_image(self, row: list[str | None]) -> list[str | None]:
        return [row[0], *[None] * (len(row) - 1)]

    def run(self, transactions: int) -> ChangeSet:
        for _ in range(transactions):
            with self.builder.transaction():
                for _ in range(self.random.randrange(1, 8)):
                    self.step()
        return self.builder.cut()

    def source(self, described: TableSchema, file_format: Format) -> FoldedTable:
        columns = zip(*self.rows, strict=True) if self.rows else [()] * len(self.table.columns)
        texts = [pa.array(list(column), pa.string()) for column in columns]
        return folded_source(described, texts, file_format)


def opened(path: Path, file_format: Format = "parquet") -> FilesDestination:
    destination = FilesDestination(FilesOptions(path=str(path), format=file_format), "shop")
    destination.open()
    return destination


@pytest.mark.parametrize("file_format", ["parquet", "ndjson"])
@pytest.mark.parametrize("identity", ["d", "f"])
@pytest.mark.parametrize("seed", range(3))
def test_files_fold_to_what_the_source_holds(
    tmp_path: Path, file_format: Format, identity: str, seed: int
) -> None:
    model = Model(seed, identity)
    destination = opened(tmp_path, file_format)
    most = 0
    for _ in range(3):
        tasks = [[model.run(10), model.run(10)], [model.run(10)]]
        receipts = [destination.writer().write(task) for task in tasks]
        destination.commit(receipts, Watermarks(model.builder.frontier))
        described = tasks[0][0].tables[0].table
        expected = model.source(described, file_format)
        assert fold(tmp_path, "shop", "public", "m") == expected
        assert len(expected) == len(model.rows)
        most = max(most, *expected.rows.values(), 0) if model.full else max(most, len(expected))
    # The workload left something to compare; without a key, rows that are alike.
    assert most > 1 if model.full else most > 10


def test_the_comparison_sees_a_difference(tmp_path: Path) -> None:
    model = Model(1, "d")
    destination = opened(tmp_path)
    changes = model.run(20)
    destination.commit([destination.writer().write([changes])], Watermarks(model.builder.frontier))
    described = changes.tables[0].table
    assert fold(tmp_path, "shop", "public", "m") == model.source(described, "parquet")
    for column, value in ((1, "5"), (3, "-infinity"), (5, "7")):
        before = model.rows[0][column]
        model.rows[0][column] = value
        assert before != value
        assert fold(tmp_path, "shop", "public", "m") != model.source(described, "parquet")
        model.rows[0][column] = before


ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))


def test_a_change_that_was_delivered_twice_is_found(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    changes = builder.cut()
    destination = opened(tmp_path)
    for _ in range(2):
        destination.commit([destination.writer().write([changes])], Watermarks(builder.frontier))
    assert len(list_files(tmp_path, "shop")) == 2
    with pytest.raises(DestinationError, match=r"two changes of public\.items stand at"):
        fold(tmp_path, "shop", "public", "items")


def test_a_column_that_nobody_sent_is_not_null(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "1", UNSET)
    destination = opened(tmp_path)
    destination.commit([destination.writer().write([builder.cut()])], Watermarks(builder.frontier))
    assert fold(tmp_path, "shop", "public", "items").rows == Counter([(1, UNKNOWN)])


def test_a_schema_change_and_a_change_of_identity(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    wider = table("items", *ITEMS.columns, Column("price", "int4"), identity="f")
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(ITEMS, "2", "b")
    first = builder.cut()
    with builder.transaction():
        builder.insert(wider, "3", "c", "7")
        builder.delete(wider, full=["3", "c", "7"])
        builder.insert(wider, "4", "d", None)
        builder.insert(wider, "4", "d", None)
    second = builder.cut()
    destination = opened(tmp_path)
    destination.commit([destination.writer().write([first, second])], Watermarks(builder.frontier))
    assert fold(tmp_path, "shop", "public", "items").rows == Counter(
        [(1, "a", UNKNOWN), (2, "b", UNKNOWN), (4, "d", None), (4, "d", None)]
    )


def test_a_table_that_was_never_seen(tmp_path: Path) -> None:
    opened(tmp_path)
    assert fold(tmp_path, "shop", "public", "none") == FoldedTable((), Counter())
