"""The contract suite on `files`, in both formats, in a folder and in an object store."""

from __future__ import annotations

import gzip
import json
import shutil
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pyarrow.parquet as pq
import pytest

from penstock.destination.contract import Destination
from penstock.destination.files.committed_files import list_files, list_names
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.options import FilesOptions
from penstock.destination.files.tree import FILES
from penstock.model.lsn import Position
from penstock.model.table_schema import TableSchema
from penstock.objects.bucket import Bucket
from penstock.testing import (
    Adapter,
    DestinationContract,
    MemoryChange,
    Row,
    TableName,
    change_from_json,
    in_commit_order,
    parse_lines,
)
from tests.objects_server import ObjectServer
from tests.queue_events import without_departures

PIPELINE = "shop.lake"  # as one of several destinations has it


class FilesAdapter(Adapter):
    """What is told of schema changes lies beside the rows: tests/unit/test_schema_event.py."""

    format: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        return [change_from_json(event) for event in parse_lines(file.read_bytes())]


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


class ObjectsAdapter(ParquetFilesAdapter):
    """Brings the objects into a folder, to be looked at as files are."""

    def __init__(self, folder: Path, server: ObjectServer) -> None:
        super().__init__(folder)
        self.url, self.options = server.place(), server.options

    def make(self) -> Destination:
        options = FilesOptions.model_validate(
            {"path": self.url, "options": self.options, "format": self.format}
        )
        return FilesDestination(options, PIPELINE)

    def _files(self) -> list[Path]:
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        bucket = Bucket(self.url, self.options, FILES)
        for each in bucket.list():
            file = self.folder / each.name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bucket.get(each.name))
        listed = list_names(self.url, PIPELINE, options=self.options)
        assert [self.folder / name for name in listed] == super()._files()
        return super()._files()


class MixedAdapter(NdjsonFilesAdapter):
    """All tables in one stream of files, in the events of queues."""

    def make(self) -> Destination:
        given = {"path": str(self.folder), "layout": "bifrost", "format": "ndjson"}
        return FilesDestination(FilesOptions.model_validate(given), PIPELINE)

    def _files(self) -> list[Path]:
        found = self.folder.glob("**/*.gz")
        return sorted(path for path in found if "_penstock" not in path.parts)

    def _changes(self, file: Path) -> list[MemoryChange]:
        lines = parse_lines(gzip.decompress(file.read_bytes()))
        return [change_from_json(event) for event in without_departures(lines)]


class TestFiles(DestinationContract):
    @pytest.fixture(params=["parquet", "ndjson", "objects", "bifrost"])
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Adapter:
        if request.param == "objects":
            return ObjectsAdapter(tmp_path, request.getfixturevalue("object_server"))
        kinds: dict[str, type[FilesAdapter]] = {
            "parquet": ParquetFilesAdapter,
            "ndjson": NdjsonFilesAdapter,
            "bifrost": MixedAdapter,
        }
        return kinds[request.param](tmp_path)
