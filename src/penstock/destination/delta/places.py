"""Where Delta tables are: in a folder, or below a prefix of a bucket in S3."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds

from penstock.destination.delta.chunk_files import (
    BucketDeltaChunks,
    DeltaChunks,
    FolderDeltaChunks,
)
from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.families import durable
from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.model.errors import BatchAgain, DestinationError, DestinationUnavailable
from penstock.objects.bucket import Bucket, Owner

if TYPE_CHECKING:
    from deltalake import DeltaTable

_STORE_ERROR = "Generic S3 error"
# By the answer itself: names of tables and durations have such numbers, too.
_REFUSED = re.compile(
    r"status code: 40[0134]\b|<Code>(AccessDenied|InvalidAccessKeyId|NoSuchBucket)<"
)
_ARROW = re.compile(r"\s*\x1b\[\d+m↳\x1b\[0m\s*")
CONFIGURATION = {"delta.checkpointInterval": "20"}
"""What tables are made with. A batch reads the log of each table from the last checkpoint on."""
_LOG = "_delta_log/"
_PROBE = "_penstock_check"
_OWNER = Owner(
    "destination delta: the lake",
    "destination.path",
    "destination.path_options",
    DestinationError,
    DestinationUnavailable,
)


def is_away(error: Exception) -> bool:
    """Whether an object store does not answer, or not now. What it refuses it always will."""
    text = told(error)
    return _STORE_ERROR in text and not _REFUSED.search(text)


def told(error: Exception) -> str:
    """What delta-rs says, without what it adds for a terminal."""
    return " ".join(_ARROW.sub(": ", str(error)).split())


@dataclass(frozen=True)
class DeltaPlace(ABC):
    """A table, or what tables are below of."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def storage_options(self) -> dict[str, str] | None:
        """What delta-rs is told of the store. Never log them."""
        return None

    def below(self, *names: str) -> DeltaPlace:
        found = self
        for name in names:
            found = found.child(name)
        return found

    def of(self, target: Target) -> DeltaPlace:
        """Where a table is, by its names."""
        return self.below(folder_name(target.schema), folder_name(target.name))

    def found(self) -> DeltaTable | None:
        """The table as it is now; None where there is none. Not by ``is_deltatable``, which keeps
        all threads of the process waiting for the store.
        """
        errors = importlib.import_module("deltalake.exceptions")
        try:
            return self.table()
        except errors.TableNotFoundError:
            return None

    def table(self) -> DeltaTable:
        """The same of one that is there."""
        options = self.storage_options
        with self._answered():
            found: DeltaTable = delta_rs().DeltaTable(self.url, storage_options=options)
        return found

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Turns what delta-rs says of a store into errors that the pipeline can act on."""
        try:
            yield
        except OSError as error:
            if _STORE_ERROR not in str(error):
                raise
            kind = DestinationUnavailable if is_away(error) else DestinationError
            raise kind(
                f"destination delta: {self.url}: {told(error)}",
                remedy="check that the store can be reached, and the keys in "
                "destination.path_options",
            ) from error

    def create(self, **how: Any) -> None:
        """Make a table."""
        self.make_room()
        delta_rs().DeltaTable.create(
            self.url, storage_options=self.storage_options, configuration=CONFIGURATION, **how
        )

    @abstractmethod
    def child(self, name: str) -> DeltaPlace: ...

    @abstractmethod
    def expect_writable(self) -> None:
        """Raise DestinationError where commits would be lost or impossible."""

    @abstractmethod
    def make_room(self) -> None:
        """For what is put here."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether something is here that nothing else may take the place of."""

    @abstractmethod
    def remove(self) -> None:
        """With all that is below it."""

    @abstractmethod
    def move(self, other: DeltaPlace) -> bool:
        """Become another place, all at once; False where that cannot be."""

    @abstractmethod
    def datasets(self, table: DeltaTable, schema: pa.Schema) -> Iterator[ds.Dataset]:
        """What the table that is here holds, in parts. By pyarrow alone: delta-rs cannot be
        called by what it reads from, and has other types for texts.
        """

    def batches(self, table: DeltaTable, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The rows of these."""
        for each in self.datasets(table, schema):
            yield from each.to_batches()

    @abstractmethod
    def chunks(self, columns: tuple[str, ...]) -> DeltaChunks:
        """Where copied rows are put."""


@dataclass(frozen=True)
class FolderPlace(DeltaPlace):
    """A folder that the driver and all executors see."""

    @property
    def _path(self) -> Path:
        return Path(self.url)

    def child(self, name: str) -> FolderPlace:
        return FolderPlace(str(self._path / name))

    def expect_writable(self) -> None:
        durable.expect_writable("delta", self._path)

    def make_room(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def exists(self) -> bool:
        return self._path.exists()

    def remove(self) -> None:
        shutil.rmtree(self._path, ignore_errors=True)

    def move(self, other: DeltaPlace) -> bool:
        # Paths in a Delta table are relative to it.
        other.make_room()
        self._path.rename(other.url)
        return True

    def datasets(self, table: DeltaTable, schema: pa.Schema) -> Iterator[ds.Dataset]:
        files = [_local(uri) for uri in table.file_uris()]
        if files:
            yield ds.dataset(files, schema=schema, format="parquet")

    def chunks(self, columns: tuple[str, ...]) -> FolderDeltaChunks:
        return FolderDeltaChunks(self.url, columns)


@dataclass(frozen=True)
class BucketPlace(DeltaPlace):
    """A prefix of a bucket in S3. A version of a table is an object that is put where there is none
    (If-None-Match): of two writers one is refused, whatever the environment says of other ways.
    """

    options: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        return f"BucketPlace({self.url!r})"

    @property
    def storage_options(self) -> dict[str, str]:
        given = dict(self.options)
        found = {f"aws_{name}": value for name, value in given.items()}
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL", "")
        is_plain = endpoint.startswith("http://")
        return {
            **found,
            "aws_conditional_put": "etag",
            "aws_s3_allow_unsafe_rename": "false",
            **({"aws_allow_http": "true"} if is_plain else {}),
        }

    @cached_property
    def bucket(self) -> Bucket:
        return Bucket(self.url, dict(self.options), _OWNER)

    def child(self, name: str) -> BucketPlace:
        return BucketPlace(f"{self.url}/{name}", self.options)

    def expect_writable(self) -> None:
        """By two objects of one name, of which the store must refuse the second. The name is new:
        others may look at the same time.
        """
        name = f"{_PROBE}-{uuid.uuid4().hex}"
        self.bucket.create(name, b"first")
        is_replaced = self.bucket.create(name, b"second")
        self.bucket.delete(name)
        if is_replaced:
            raise DestinationError(
                f"destination delta: the store of {self.url} replaces an object that was to be put "
                "there only if there is none; commits to Delta tables would be lost",
                remedy="use a store that heeds If-None-Match, as S3 does",
            )

    def make_room(self) -> None:
        """A prefix is there as soon as something is below it."""

    def exists(self) -> bool:
        """A table. Files without a log keep nobody away: who carried rows here may have died."""
        return bool(self.bucket.list(_LOG))

    def remove(self) -> None:
        """First the log: what is left of it is no table."""
        names = [each.name for each in self.bucket.list()]
        self.bucket.delete(*(name for name in names if name.startswith(_LOG)))
        self.bucket.delete(*(name for name in names if not name.startswith(_LOG)))

    def move(self, other: DeltaPlace) -> bool:
        return False

    def datasets(self, table: DeltaTable, schema: pa.Schema) -> Iterator[ds.Dataset]:
        """A file at a time, which is fetched first."""
        for uri in table.file_uris():
            name = unquote(uri).removeprefix(f"{self.url}/")
            with tempfile.TemporaryDirectory(prefix="penstock-delta-") as folder:
                file = Path(folder) / "rows.parquet"
                data = self.bucket.get(name)
                if data is None:
                    raise BatchAgain(f"destination delta: the file {uri} is gone")
                file.write_bytes(data)
                yield ds.dataset(file, schema=schema, format="parquet")

    def chunks(self, columns: tuple[str, ...]) -> BucketDeltaChunks:
        return BucketDeltaChunks(self.bucket, columns)


def _local(uri: str) -> str:
    """The path of a file of a table that is in a folder."""
    return unquote(urlsplit(uri).path) if uri.startswith("file://") else uri


def delta_place(path: str, options: Mapping[str, str]) -> DeltaPlace:
    """A place by the destination's options."""
    if "://" in path:
        return BucketPlace(path, tuple(sorted(options.items())))
    return FolderPlace(str(Path(path).absolute()))
