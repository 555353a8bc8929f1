"""The executors' side of ``files``: changes and copied rows into the staging folder."""

from __future__ import annotations

import json
from collections.abc import Iterable

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.files.manifest import files_to_json
from penstock.destination.files.ndjson_encoding import NdjsonEncoding
from penstock.destination.files.options import FilesOptions
from penstock.destination.files.parquet_encoding import ParquetEncoding
from penstock.destination.files.rows import Encoding, parts
from penstock.destination.files.staging import Staging
from penstock.destination.files.tree import Tree
from penstock.failpoints import failpoint
from penstock.model.table_rows import ChunkReader


class FilesWriter(TaskWriter):
    """Writes a task's changes into the staging folder; the receipt says where they are to go."""

    def __init__(self, tree: Tree, pipeline: str, options: FilesOptions) -> None:
        self._tree = tree
        self._pipeline = pipeline
        self._options = options

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        encoding = _encoding(self._options)
        staging = _staging(self._tree, self._pipeline, self._options)
        try:
            for run in changes:
                for part in parts(run, encoding):
                    with self._tree.explained():
                        staging.write(part, encoding.suffix)
            with self._tree.explained():
                files = staging.finish()
        except BaseException:
            staging.abandon()
            raise
        failpoint("files.staged")
        return json.dumps(files_to_json(files)).encode()


class FilesChunkWriter(ChunkWriter):
    """Writes a chunk into one file in the staging folder, piece by piece; none if it is empty."""

    def __init__(self, tree: Tree, pipeline: str, options: FilesOptions) -> None:
        self._tree = tree
        self._pipeline = pipeline
        self._options = options

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        encoding = _encoding(self._options)
        staging = _staging(self._tree, self._pipeline, self._options)
        try:
            for data in encoding.copied(rows):
                with self._tree.explained():
                    staging.write_copied(data, rows, encoding.suffix)
            with self._tree.explained():
                files = staging.finish()
        except BaseException:
            staging.abandon()
            raise
        failpoint("files.staged")
        return ChunkReceipt(
            sum(file.rows for file in files),
            sum(file.bytes for file in files),
            json.dumps(files_to_json(files)).encode(),
        )


def _encoding(options: FilesOptions) -> Encoding:
    return ParquetEncoding() if options.format == "parquet" else NdjsonEncoding()


def _staging(tree: Tree, pipeline: str, options: FilesOptions) -> Staging:
    with tree.explained():
        return Staging(tree, pipeline, options.compression)
