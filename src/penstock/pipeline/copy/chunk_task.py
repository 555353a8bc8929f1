"""What copies chunks, on an executor or in a worker: straight from source to destination."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from penstock.destination.contract import ChunkReceipt
from penstock.failpoints import failpoint
from penstock.metrics.written import CopyResult, Written
from penstock.model.error_transport import error_from_text, error_to_text
from penstock.model.errors import SnapshotGone, TableRefused, TableRewritten
from penstock.pipeline.run.engine import TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.transform.step import Step, filtered_by

LASTING = (SnapshotGone, TableRewritten, TableRefused)
"""What another attempt of the same task would only meet again."""


class ChunkTask:
    """Copies chunks one after another. Pickled to the executors."""

    def __init__(
        self,
        open_chunk: OpenChunk,
        tables: Mapping[int, TableToCopy],
        steps: Sequence[Step],
    ) -> None:
        self._steps = steps
        self._open_chunk = open_chunk
        self._tables = tables

    def run(self, chunks: Sequence[Chunk], written: Written) -> bytes:
        """What ``copy_result`` reads; ``written`` is told what was done. Errors that would last are
        in the result, all others are raised.
        """
        try:
            receipts = [self._copy(chunk, self._tables[chunk.table]) for chunk in chunks]
        except LASTING as error:
            return error_to_text(error).encode()
        written.filtered += filtered_by(self._steps)
        written.resent += sum(receipt.resent for receipt in receipts)
        written.unroutable += sum(receipt.unroutable for receipt in receipts)
        return json.dumps([[r.rows, r.bytes, r.content.hex()] for r in receipts]).encode()

    def _copy(self, chunk: Chunk, table: TableToCopy) -> ChunkReceipt:
        failpoint("copy.read")
        rows = self._open_chunk(table.table, chunk, table.where)
        for step in self._steps:
            rows = step.copied(rows)
        receipt = table.writer.write(rows)
        failpoint("copy.written")
        return receipt


def copy_result(result: bytes, written: Written) -> CopyResult:
    """What a task that copies gave back. Raises what it met, if that would last."""
    if error := error_from_text(result.decode()):
        raise error
    receipts = [
        ChunkReceipt(rows, size, bytes.fromhex(content))
        for rows, size, content in json.loads(result)
    ]
    return CopyResult(receipts, written)
