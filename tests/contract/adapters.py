"""One adapter a destination: how the suite makes it, and reads back what it delivered."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from penstock.destination import stdout
from penstock.destination.contract import Destination
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.destination.files import FilesDestination, FilesOptions, list_files
from penstock.destination.memory import (
    MemoryChange,
    MemoryDestination,
    MemoryOptions,
    Row,
    TableName,
    forget,
    memory_store,
)
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.lsn import Position, parse_lsn
from penstock.table_schema import TableSchema

PIPELINE = "shop"


class Adapter(ABC):
    """A place for deliveries that outlives the Destination objects that ``make`` gives."""

    keeps: ClassVar[bool] = True
    """False: nothing can be read back; the suite then counts."""
    chunk_stands_once: ClassVar[bool] = True
    """False: a chunk of copied rows that is written twice is there twice."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder

    @abstractmethod
    def make(self) -> Destination: ...

    @abstractmethod
    def delivered(self) -> list[MemoryChange]:
        """What a reader finds, in the order in which it stands there."""

    @abstractmethod
    def copied(self, table: TableSchema) -> list[Row]: ...

    def count(self) -> int:
        return len(self.delivered())


class MemoryAdapter(Adapter):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        forget(PIPELINE)

    def make(self) -> Destination:
        return MemoryDestination(MemoryOptions(), PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        return memory_store(PIPELINE).changes

    def copied(self, table: TableSchema) -> list[Row]:
        return [row for rows in memory_store(PIPELINE).copied.values() for row in rows]


class DiscardAdapter(Adapter):
    keeps = False
    chunk_stands_once = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self._made: list[DiscardDestination] = []

    def make(self) -> Destination:
        self._made.append(DiscardDestination(DiscardOptions(), PIPELINE))
        return self._made[-1]

    def delivered(self) -> list[MemoryChange]:
        raise NotImplementedError("discard keeps nothing")

    def copied(self, table: TableSchema) -> list[Row]:
        raise NotImplementedError("discard keeps nothing")

    def count(self) -> int:
        return sum(destination.changes for destination in self._made)


class StdoutAdapter(Adapter):
    chunk_stands_once = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        # pytest puts its own sys.stdout in place between a fixture and its test.
        self._written = io.BytesIO()
        terminal = SimpleNamespace(stdout=SimpleNamespace(buffer=self._written))
        monkeypatch.setattr(stdout, "sys", terminal)

    def make(self) -> Destination:
        return StdoutDestination(StdoutOptions(), PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        return [_from_line(line) for line in self._lines() if line["op"] != "read"]

    def copied(self, table: TableSchema) -> list[Row]:
        return [line["new"] for line in self._lines() if line["op"] == "read"]

    def _lines(self) -> list[dict[str, Any]]:
        return _parse(self._written.getvalue())


class FilesAdapter(Adapter):
    format: ClassVar[str]

    def make(self) -> Destination:
        options = FilesOptions.model_validate({"path": str(self.folder), "format": self.format})
        return FilesDestination(options, PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        found = [change for file in self._files() for change in self._changes(file)]
        return _in_commit_order(change for change in found if change.op != "read")

    def copied(self, table: TableSchema) -> list[Row]:
        found = [change for file in self._files() for change in self._changes(file)]
        return [change.new for change in found if change.op == "read" and change.new is not None]

    def _files(self) -> list[Path]:
        """What somebody finds who knows nothing of manifests: the two must be the same."""
        plain = sorted(path for path in self.folder.glob("*/commit_date=*/*") if path.is_file())
        assert plain == list_files(self.folder, PIPELINE)
        return plain

    @abstractmethod
    def _changes(self, file: Path) -> list[MemoryChange]: ...


class NdjsonFilesAdapter(FilesAdapter):
    format = "ndjson"

    def _changes(self, file: Path) -> list[MemoryChange]:
        return [_from_line(line) for line in _parse(file.read_bytes())]


class ParquetFilesAdapter(FilesAdapter):
    format = "parquet"

    def _changes(self, file: Path) -> list[MemoryChange]:
        data = pq.ParquetFile(file)
        table = next(
            (
                TableSchema.from_json(json.loads(path.read_text()))
                for path in self.folder.glob("_penstock/*/schemas/*.json")
                if "_schema_version" in data.schema_arrow.names
                and path.stem == data.read(["_schema_version"])[0][0].as_py()
            ),
            None,
        )
        return [_from_parquet(row, table) for row in data.read().to_pylist()]


ADAPTERS: dict[str, type[Adapter]] = {
    "memory": MemoryAdapter,
    "discard": DiscardAdapter,
    "stdout": StdoutAdapter,
    "files-parquet": ParquetFilesAdapter,
    "files-ndjson": NdjsonFilesAdapter,
}


def _parse(data: bytes) -> list[dict[str, Any]]:
    # Numbers as they are written: the suite compares texts.
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line, parse_int=str, parse_float=str) for line in data.splitlines()]


def _from_line(line: dict[str, Any]) -> MemoryChange:
    position = Position(parse_lsn(line["position"]["commit_lsn"]), int(line["position"]["ordinal"]))
    if line["op"] == "message":
        assert line["encoding"] == "utf-8"
        content = line["content"].encode()
        return MemoryChange(position, "message", (), prefix=line["prefix"], content=content)
    if line["op"] == "truncate":
        tables = tuple((table["schema"], table["table"]) for table in line["tables"])
        return MemoryChange(position, "truncate", tables)
    new = line["new"]
    assert new is None or not set(new) & set(line["unset"])
    return MemoryChange(position, line["op"], ((line["schema"], line["table"]),), new, line["old"])


def _from_parquet(row: dict[str, Any], table: TableSchema | None) -> MemoryChange:
    position, op = Position(row["_commit_lsn"], row["_ordinal"]), row["_op"]
    if op == "message":
        return MemoryChange(position, op, (), prefix=row["prefix"], content=row["content"])
    assert table is not None
    tables: tuple[TableName, ...] = ((table.schema, table.name),)
    texts: Row = {
        column.name: None if row[column.name] is None else str(row[column.name])
        for column in table.columns
    }
    if op == "truncate":
        assert not any(texts.values())
        return MemoryChange(position, op, tables)
    if op == "delete":
        keys = {column.name for column in table.columns if column.is_key}
        old = {name: text for name, text in texts.items() if name in keys}
        return MemoryChange(position, op, tables, None, old)
    new = {name: text for name, text in texts.items() if name not in row["_unset"]}
    return MemoryChange(
        position, op, tables, new, None if row["_old"] is None else dict(row["_old"])
    )


def _in_commit_order(changes: Iterable[MemoryChange]) -> list[MemoryChange]:
    """Changes of all tables' folders. A TRUNCATE is in the folder of each table that it names."""
    found: list[MemoryChange] = []
    for change in sorted(changes, key=lambda change: change.position):
        if found and change.op == "truncate" and found[-1].position == change.position:
            tables = {*found.pop().tables, *change.tables}
            found.append(MemoryChange(change.position, "truncate", tuple(sorted(tables))))
        else:
            found.append(change)
    return found
