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
        bring_objects(self.url, self.options, self.folder)
        listed = list_names(self.url, PIPELINE, options=self.options)
        assert [self.folder / name for name in listed] == super()._files()
        return super()._files()


class MixedAdapter(NdjsonFilesAdapter):
    """All tables in one stream of files, in the events of queues."""

    place: dict[str, Any]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place = {"path": str(folder)}

    def make(self) -> Destination:
        given = {**self.place, "layout": "bifrost", "format": self.format}
        return FilesDestination(FilesOptions.model_validate(given), PIPELINE)

    def _files(self) -> list[Path]:
        found = (path for path in self.folder.glob("**/*") if path.suffix in (".gz", ".parquet"))
        return sorted(path for path in found if "_penstock" not in path.parts)

    def _changes(self, file: Path) -> list[MemoryChange]:
        lines = parse_lines(gzip.decompress(file.read_bytes()))
        return [change_from_json(event) for event in without_departures(lines)]


class MixedObjectsAdapter(MixedAdapter):
    """The same, as Parquet in an object store."""

    format = "parquet"

    def __init__(self, folder: Path, server: ObjectServer) -> None:
        super().__init__(folder)
        self.place = {"path": server.place(), "options": server.options}

    def _files(self) -> list[Path]:
        bring_objects(self.place["path"], self.place["options"], self.folder)
        return super()._files()

    def _changes(self, file: Path) -> list[MemoryChange]:
        values = pq.ParquetFile(file).read(["value"]).column("value").to_pylist()
        lines = parse_lines("".join(f"{value}\n" for value in values).encode())
        return [change_from_json(event) for event in without_departures(lines)]


def bring_objects(url: str, options: dict[str, str], folder: Path) -> None:
    """Put what is in a bucket into a folder, and nothing else."""
    shutil.rmtree(folder)
    folder.mkdir()
    bucket = Bucket(url, options, FILES)
    for each in bucket.list():
        file = folder / each.name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bucket.get(each.name))


class TestFiles(DestinationContract):
    @pytest.fixture(
        params=[
            *("parquet", "ndjson", "objects", "bifrost"),
            pytest.param("bifrost objects", marks=pytest.mark.release),
        ]
    )
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Adapter:
        if request.param == "objects":
            return ObjectsAdapter(tmp_path, request.getfixturevalue("object_server"))
        if request.param == "bifrost objects":
            return MixedObjectsAdapter(tmp_path, request.getfixturevalue("object_server"))
        kinds: dict[str, type[FilesAdapter]] = {
            "parquet": ParquetFilesAdapter,
            "ndjson": NdjsonFilesAdapter,
            "bifrost": MixedAdapter,
        }
        return kinds[request.param](tmp_path)
