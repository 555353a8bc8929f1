"""``stdout``: every change as a line of JSON on standard output. For eyes, pipes and debugging."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.destination.contract import (
    Capabilities,
    ChunkReceipt,
    ChunkWriter,
    DestinationOptions,
    Receipt,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.families.append import AppendDestination
from penstock.model.errors import DestinationError
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader
from penstock.model.watermarks import Watermarks

if TYPE_CHECKING:
    from penstock.decode.changes import ChangeSet


class StdoutOptions(DestinationOptions):
    """It has none."""


class StdoutWriter(TaskWriter):
    """Encodes on the executor; the lines travel in the receipt."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        from penstock.decode.text_bytes import text_bytes
        from penstock.destination.encode.ndjson import encode_changes

        return b"".join(text_bytes(encode_changes(part).text) for part in changes)


class StdoutChunkWriter(ChunkWriter):
    """The same for copied rows."""

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        from penstock.decode.text_bytes import text_bytes
        from penstock.destination.encode.ndjson import read_lines

        count = 0
        pieces = []
        for piece in rows.texts():
            count += len(piece)
            pieces.append(text_bytes(read_lines(piece).text))
        lines = b"".join(pieces)
        return ChunkReceipt(count, len(lines), lines)


class StdoutDestination(AppendDestination):
    """Writes lines in commit order. What was written before a crash is written again."""

    name = "stdout"
    options_model = StdoutOptions
    uses_stdout = True
    capabilities = Capabilities(
        mode="append", exactly_once=False, remembers=False, atomic=False, batch_age=0.2
    )

    def __init__(self, options: StdoutOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        # Chunks are committed beside batches: the lines of one must not run into the other's.
        self._printing = threading.Lock()

    def open(self) -> None:
        """There is nothing to repair, and no way to fence another writer of a terminal."""

    def committed(self) -> Watermarks | None:
        return None

    def writer(self) -> StdoutWriter:
        return StdoutWriter()

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        with self._printing:
            _write(receipts)

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        from penstock.destination.encode.schema_event import schema_events

        return [line for _, line in schema_events(change)]

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> StdoutChunkWriter:
        return StdoutChunkWriter()

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        """A chunk that is committed twice is there twice: what is printed cannot be taken back."""
        with self._printing:
            _write(receipt.content for receipt in receipts)


def _write(pieces: Iterable[bytes]) -> None:
    try:
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        _silence()
        raise DestinationError(
            "destination stdout: the program that read the output has closed the pipe",
            remedy="start the pipeline again with a reader that stays; nothing is confirmed that "
            "was not written",
        ) from None
    except OSError as error:
        raise DestinationError(
            f"destination stdout: standard output cannot be written: {error.strerror}",
            remedy="free the disk or fix the file that standard output goes to, and start again",
        ) from error


def _silence() -> None:
    """Python flushes standard output once more at its end, and would complain about the pipe."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
