"""One adapter a destination: how the suite makes it, and reads back what it delivered."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from psycopg.rows import dict_row

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
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.model.lsn import Position, parse_lsn
from penstock.model.table_schema import TableSchema
from tests.contract.merge_model import FrozenRow, frozen

PIPELINE = "shop"


class Adapter(ABC):
    """A place for deliveries that outlives the Destination objects that ``make`` gives."""

    keeps: ClassVar[Literal["changes", "rows", "a count"]] = "changes"
    """What can be read back: every change, the rows that are left, or how many changes came."""
    keeps_messages: ClassVar[bool] = True
    follows_columns: ClassVar[bool] = True
    """False: a table whose columns change is refused."""
    chunk_stands_once: ClassVar[bool] = True
    """False: a chunk of copied rows that is committed twice is there twice."""
    chunk_waits_for_commit: ClassVar[bool] = True
    """False: a chunk is there, whole, once its writer is done."""
    chunk_is_sent: ClassVar[bool] = False
    """True: a chunk is there as often as it was written, whatever becomes of its receipts."""
    changes_keyless: ClassVar[bool] = True
    """False: a table without a key is refused when a row of it is changed."""
    keeps_all_order: ClassVar[bool] = True
    """False: order is kept lane by lane, and ``delivered`` puts changes in order itself."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        self.folder = folder
        self.database = database

    @abstractmethod
    def make(self) -> Destination: ...

    @abstractmethod
    def delivered(self) -> list[MemoryChange]:
        """What a reader finds, in the order in which it stands there."""

    def copied(self) -> list[MemoryChange]:
        """Copied rows of all tables, in any order."""
        raise NotImplementedError(f"{type(self).__name__} keeps {self.keeps}")

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        """The rows of a table, and how many of each."""
        raise NotImplementedError(f"{type(self).__name__} keeps {self.keeps}")

    def count(self) -> int:
        return len(self.delivered())

    def copied_count(self) -> int:
        return len(self.copied())

    def close(self) -> None:  # noqa: B027 (most hold nothing)
        """Let go of what the test has made."""


class MemoryAdapter(Adapter):
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        forget(PIPELINE)

    def make(self) -> Destination:
        return MemoryDestination(MemoryOptions(), PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        return memory_store(PIPELINE).changes

    def copied(self) -> list[MemoryChange]:
        return memory_store(PIPELINE).copied


class DiscardAdapter(Adapter):
    typed: ClassVar[bool] = False
    keeps = "a count"
    chunk_stands_once = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        self._made: list[DiscardDestination] = []

    def make(self) -> Destination:
        self._made.append(DiscardDestination(DiscardOptions(typed=self.typed), PIPELINE))
        return self._made[-1]

    def delivered(self) -> list[MemoryChange]:
        raise NotImplementedError("discard keeps nothing")

    def count(self) -> int:
        return sum(destination.changes for destination in self._made)

    def copied_count(self) -> int:
        return sum(destination.copied_rows for destination in self._made)


class TypedDiscardAdapter(DiscardAdapter):
    typed = True


class StdoutAdapter(Adapter):
    chunk_stands_once = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        # pytest puts its own sys.stdout in place between a fixture and its test.
        self._written = io.BytesIO()
        terminal = SimpleNamespace(stdout=SimpleNamespace(buffer=self._written))
        monkeypatch.setattr(stdout, "sys", terminal)

    def make(self) -> Destination:
        return StdoutDestination(StdoutOptions(), PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        return [from_line(line) for line in self._lines() if line["op"] != "read"]

    def copied(self) -> list[MemoryChange]:
        return [from_line(line) for line in self._lines() if line["op"] == "read"]

    def _lines(self) -> list[dict[str, Any]]:
        return _parse(self._written.getvalue())


class FilesAdapter(Adapter):
    format: ClassVar[str]

    def make(self) -> Destination:
        options = FilesOptions.model_validate({"path": str(self.folder), "format": self.format})
        return FilesDestination(options, PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        found = [change for file in self._files() for change in self._changes(file)]
        return in_commit_order(change for change in found if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        found = [change for file in self._files() for change in self._changes(file)]
        return [change for change in found if change.op == "read"]

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
        return [from_line(line) for line in _parse(file.read_bytes())]


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


class PostgresAdapter(Adapter):
    keeps_messages = False
    follows_columns = False
    chunk_waits_for_commit = False
    mode: ClassVar[str]

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = PostgresOptions.model_validate({"url": self.database, "mode": self.mode})
        self._made.append(PostgresDestination(options, PIPELINE))
        return self._made[-1]

    def close(self) -> None:
        for destination in self._made:
            destination.close()

    @contextmanager
    def _reader(self) -> Iterator[psycopg.Connection[dict[str, Any]]]:
        with psycopg.connect(self.database, row_factory=dict_row) as conn:
            conn.execute("SET timezone = 'UTC'")
            yield conn


class PostgresMergeAdapter(PostgresAdapter):
    mode = "merge"
    keeps = "rows"

    def delivered(self) -> list[MemoryChange]:
        raise NotImplementedError("mode merge keeps rows")

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        with self._reader() as conn:
            return Counter(map(frozen, _texts(conn, name)))


class PostgresAppendAdapter(PostgresAdapter):
    mode = "append"

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        with self._reader() as conn:
            histories = conn.execute(
                "SELECT relnamespace::regnamespace::text AS schema, nspname, relname FROM pg_class"
                " JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid ="
                " pg_class.oid WHERE attname = '_commit_lsn' AND relkind = 'r'"
            ).fetchall()
            found = []
            for table in histories:
                name = (table["nspname"], table["relname"])
                found += [_from_history(row, name) for row in _texts(conn, name)]
            return found


def _texts(conn: psycopg.Connection[dict[str, Any]], name: TableName) -> list[Row]:
    """All rows of a table as texts. Arrays as JSON, which is easier to read."""
    columns = [
        (row["attname"], row["is_array"])
        for row in conn.execute(
            "SELECT attname, typcategory = 'A' AS is_array FROM pg_attribute JOIN pg_type t"
            " ON t.oid = atttypid WHERE attrelid = to_regclass(%s) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            [sql.Identifier(*name).as_string(None)],
        )
    ]
    selected = sql.SQL(", ").join(
        sql.SQL("to_json({0})::text AS {0}" if is_array else "{0}::text").format(
            sql.Identifier(column)
        )
        for column, is_array in columns
    )
    # A table without columns has rows, too, and psycopg makes empty dicts of them.
    return conn.execute(
        sql.SQL("SELECT {} FROM {}").format(selected, sql.Identifier(*name))
    ).fetchall()


def _from_history(row: Row, name: TableName) -> MemoryChange:
    own = {column: row.pop(column) for column in list(row) if column in _HISTORY_COLUMNS}
    lsn, op, old = own["_commit_lsn"], own["_op"], own["_old"]
    assert lsn is not None
    assert op is not None
    position = Position(parse_lsn(lsn), int(own["_ordinal"] or 0))
    assert (own["_commit_time"] is None) == (op == "read")
    if op == "truncate":
        assert not any(row.values())
        return MemoryChange(position, op, (name,))
    identity = None if old is None else json.loads(old, parse_int=str, parse_float=str)
    if op == "delete":
        assert identity is not None
        assert {column: row[column] for column in identity} == identity
        return MemoryChange(position, op, (name,), None, identity)
    unset = json.loads(own["_unset"] or "[]")
    assert not any(row[column] for column in unset)
    new = {column: text for column, text in row.items() if column not in unset}
    return MemoryChange(position, op, (name,), new, identity)


_HISTORY_COLUMNS = (
    "_op",
    "_commit_lsn",
    "_ordinal",
    "_commit_time",
    "_xid",
    "_unset",
    "_old",
)


def _parse(data: bytes) -> list[dict[str, Any]]:
    # Numbers as they are written: the suite compares texts.
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line, parse_int=str, parse_float=str) for line in data.splitlines()]


def from_line(line: dict[str, Any]) -> MemoryChange:
    """A change from its JSON."""
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


def in_commit_order(changes: Iterable[MemoryChange]) -> list[MemoryChange]:
    """Changes of all tables' folders. A TRUNCATE is in the folder of each table that it names."""
    found: list[MemoryChange] = []
    for change in sorted(changes, key=lambda change: change.position):
        if found and change.op == "truncate" and found[-1].position == change.position:
            tables = {*found.pop().tables, *change.tables}
            found.append(MemoryChange(change.position, "truncate", tuple(sorted(tables))))
        else:
            found.append(change)
    return found
