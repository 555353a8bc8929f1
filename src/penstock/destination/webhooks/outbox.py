"""The outbox: files with encoded events, written by tasks and read by whoever delivers.

A file holds events of one view in position order, as an Arrow stream. Nothing in it is of one
subscription: all that want the same format and filter read the same file.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.changelog.storage.contract import Storage
from penstock.changelog.storage.opened import open_storage
from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.webhooks.outbox_index import OutboxFile
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.objects.bucket import Owner

# A file is read whole by whoever delivers: small enough to hold some of them.
FILE_BYTES = 4 * 2**20
_SUFFIX = ".arrow"
_SOURCE = b"penstock.source"
_CHECK = "check-"
_MARK = "-driver"
_OURS = re.compile(r"(\d{8,})-(?:driver|[0-9a-f]{32}\.arrow)")

_NAME = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("part", pa.int64()),
        ("apart", pa.string()),
        ("op", _NAME),
        ("schema", _NAME),
        ("table", _NAME),
        ("lane_hash", pa.uint64()),
        ("value", pa.large_string()),
    ]
)
"""``apart`` tells events of one position apart: copied rows, and tables of one statement."""


_OUTBOX = Owner(
    "destination webhooks: the outbox",
    "destination.path",
    "destination.path_options",
    DestinationError,
    DestinationUnavailable,
)


def outbox_storage(path: str, pipeline: str, options: Mapping[str, str] | None = None) -> Storage:
    """``options`` are those of the client of an object store."""
    return open_storage(path, options, owner=_OUTBOX).child(pipeline)


def expect_usable(storage: Storage) -> None:
    """Write, list, read and remove a file of our own. Raises what the place says; nothing stays."""
    name, content = f"{_CHECK}{uuid.uuid4().hex}", b"written by penstock check"
    storage.write(name, content, durable=True)
    try:
        # The names of events come before it: a listing of them all may be long.
        if name not in dict(storage.list(after=_CHECK)) or storage.read_bytes(name) != content:
            raise DestinationError(
                f"destination webhooks: {storage.full(name)} was written, and cannot be read or "
                "listed",
                remedy="use a store that shows an object as soon as it was written",
            )
    finally:
        storage.delete(name)


def expect_answer(storage: Storage) -> None:
    """The same by a read alone, which costs next to nothing."""
    storage.read_bytes(_CHECK)


def prefix_of(driver: int) -> str:
    """What the names of a driver's files begin with."""
    return f"{driver:08}"


def mark_of(driver: int) -> str:
    """A file by which others see that they look where the driver does: the outbox's own name stands
    in it. It is there before anybody can know the driver's number.
    """
    return f"{prefix_of(driver)}{_MARK}"


def is_of(mark: bytes | None, outbox: str) -> bool:
    """Whether a mark, as it was read, is of the outbox of that name."""
    # An earlier Penstock wrote nothing into it.
    return mark is not None and mark in (b"", outbox.encode())


def is_taken(storage: Storage, files: Iterable[str], outbox: str) -> bool:
    """Whether a driver of another pipeline keeps its outbox here, by the marks among the files."""
    marks = (name for name in files if name.endswith(_MARK))
    # One that was removed meanwhile is of nobody any more.
    found = (storage.read_bytes(name) for name in marks)
    return any(mark is not None and not is_of(mark, outbox) for mark in found)


def files_by_driver(storage: Storage) -> dict[str, int]:
    """The outbox's files and marks, and the numbers of the drivers that they are of. What somebody
    else has put into the folder is not among them.
    """
    found = ((name, _OURS.fullmatch(name)) for name, _ in storage.list())
    return {name: int(match[1]) for name, match in found if match is not None}


def slim(events: pa.RecordBatch, apart: str | None = None, first: int = 0) -> pa.RecordBatch:
    """The columns of events that a delivery needs. ``apart`` is the chunk of copied rows, and
    ``first`` how many of its rows came before.
    """
    count = len(events)
    columns = {name: events.column(name) for name in SCHEMA.names if name != "apart"}
    if apart is not None:
        columns["part"] = pa.array(np.arange(first, first + count))
        columns["apart"] = pa.array([apart] * count, pa.string())
    else:
        columns["apart"] = _apart(events)
    return pa.RecordBatch.from_arrays(
        [columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names], schema=SCHEMA
    )


def _apart(events: pa.RecordBatch) -> pa.Array:
    """Statements about several tables have one position for all of them."""
    op = events.column("op")
    names = op.dictionary.to_pylist()
    if not {"truncate", "schema"} & set(names):
        return pa.array([""] * len(events), pa.string())
    found = [
        f"{zlib.crc32(f'{schema}.{table}'.encode()):08x}" if kind in ("truncate", "schema") else ""
        for kind, schema, table in zip(
            op.to_pylist(),
            events.column("schema").to_pylist(),
            events.column("table").to_pylist(),
            strict=True,
        )
    ]
    return pa.array(found, pa.string())


def message_id(source: str, commit_lsn: int, ordinal: int, part: int, apart: str) -> str:
    """The same for the same event, whenever it is sent: receivers know by it what they have.
    ``source`` is the tag of the source, whose positions another one may have, too.
    """
    begin = f"msg_{source}_{commit_lsn:x}" if source else f"msg_{commit_lsn:x}"
    if ordinal == READ_ORDINAL:
        return f"{begin}_r{apart}_{part}"
    return f"{begin}_{ordinal:x}_{part}" + (f"_{apart}" if apart else "")


@dataclass(frozen=True)
class OpenOutbox:
    """Where the tasks of one driver write: ``prefix`` is of that driver, ``source`` the tag of the
    source that events are of, ``name`` what the outbox's index calls it.
    """

    storage: Storage
    prefix: str = ""
    source: str = ""
    name: str = ""


class ViewFile:
    """Gathers the events of one view, and writes files of bounded size. One for each task."""

    def __init__(self, outbox: OpenOutbox, view: str) -> None:
        self._outbox = outbox
        self._view = view
        self._held: list[pa.RecordBatch] = []
        self._size = 0
        self.files: list[OutboxFile] = []

    def add(self, events: pa.RecordBatch) -> None:
        # Rows of one change set can be many: a file is to stay small.
        pieces = max(1, -(-events.nbytes // FILE_BYTES))
        step = max(1, -(-len(events) // pieces))
        for first in range(0, len(events), step):
            piece = events.slice(first, step)
            self._held.append(piece)
            self._size += piece.nbytes
            if self._size >= FILE_BYTES:
                self.finish()

    def finish(self) -> None:
        if not self._held:
            return
        data = _packed(self._held, self._outbox.source)
        rows = sum(map(len, self._held))
        name = f"{self._outbox.prefix}-{uuid.uuid4().hex}{_SUFFIX}"
        self._outbox.storage.write(name, data, durable=True)
        self.files.append(OutboxFile(self._view, name, rows, len(data)))
        self._held, self._size = [], 0


def _packed(batches: Sequence[pa.RecordBatch], source: str) -> bytes:
    table = pa.Table.from_batches(batches, SCHEMA).unify_dictionaries().combine_chunks()
    table = table.replace_schema_metadata({_SOURCE: source})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        for batch in table.to_batches():
            stream.write_batch(batch)
    content: bytes = sink.getvalue().to_pybytes()
    return content


Rows = npt.NDArray[np.int64]
Kind = tuple[str, str, str]
"""Operation, schema and table of events."""


@dataclass(frozen=True)
class OutboxSegment:
    """One file of the outbox in memory; ``rows_of`` has the rows of each kind."""

    number: int
    events: pa.Table
    rows_of: dict[Kind, Rows]

    @property
    def source(self) -> str:
        """The tag of the source that its events are of."""
        metadata: dict[bytes, bytes] = self.events.schema.metadata or {}
        return metadata.get(_SOURCE, b"").decode()

    @property
    def size(self) -> int:
        return int(self.events.nbytes)


def read_segment(storage: Storage, number: int, file: str) -> OutboxSegment | None:
    """None where the file is gone."""
    data = storage.read_bytes(file)
    if data is None:
        return None
    events = pa.ipc.open_stream(data).read_all().combine_chunks()
    return OutboxSegment(number, events, _rows_of(events))


def _rows_of(events: pa.Table) -> dict[Kind, Rows]:
    if not len(events):
        return {}
    columns = [events.column(name).combine_chunks() for name in ("op", "schema", "table")]
    code = np.zeros(len(events), np.int64)
    for column in columns:
        code = code * max(1, len(column.dictionary)) + np.asarray(column.indices)
    order = np.argsort(code, kind="stable")
    starts = np.flatnonzero(np.diff(code[order], prepend=code[order[0]] - 1))
    pieces = np.split(order, starts[1:])
    return {
        (
            columns[0][int(rows[0])].as_py(),
            columns[1][int(rows[0])].as_py(),
            columns[2][int(rows[0])].as_py(),
        ): rows
        for rows in pieces
    }
