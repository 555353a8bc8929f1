"""The bytes of a segment: an Arrow IPC file. docs/segment_format.md is its written form."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import xxhash

from penstock.changelog.segment_name import SegmentName
from penstock.model.errors import CorruptSegment
from penstock.model.table_schema import TableSchema

FORMAT_VERSION = 1
ENCODING = "pgoutput/1 text"
_COMPRESSION = "lz4"

SCHEMA = pa.schema(
    [
        pa.field("lsn", pa.uint64(), nullable=False),
        pa.field("commit_lsn", pa.uint64(), nullable=False),
        pa.field("ordinal", pa.uint32(), nullable=False),
        pa.field("xid", pa.uint32(), nullable=False),
        pa.field("commit_ts", pa.timestamp("us", "UTC"), nullable=False),
        pa.field("op", pa.uint8(), nullable=False),
        pa.field("relation_id", pa.uint32(), nullable=False),
        pa.field("schema_version", pa.int32(), nullable=False),
        pa.field("origin", pa.int16(), nullable=False),
        pa.field("payload", pa.binary(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Segment:
    """The rows of a segment and the definitions that they need.

    ``schema_version`` of a row is an index into ``tables`` (-1: the row belongs to none); that of
    a Truncate is the index of its first relation's definition, and those of its other relations
    follow there in the order of the message. ``origin`` is an index into
    ``origins`` (-1: the transaction began on this server).
    """

    rows: pa.RecordBatch
    tables: tuple[TableSchema, ...]
    origins: tuple[str, ...] = ()
    source: str = ""
    """Where the source stands with this segment, in the source's own words: for who goes on."""


def without_rows(source: str = "") -> Segment:
    """Says how far the log is, and nothing else."""
    return Segment(pa.RecordBatch.from_pylist([], SCHEMA), (), source=source)


def place(tables: list[TableSchema], wanted: list[TableSchema]) -> int:
    """Where ``wanted`` stands in ``tables`` as a run; added at the end where it does not yet.

    -1 where nothing is wanted.
    """
    if not wanted:
        return -1
    for at in range(len(tables) - len(wanted) + 1):
        if tables[at : at + len(wanted)] == wanted:
            return at
    tables.extend(wanted)
    return len(tables) - len(wanted)


def encode_segment(segment: Segment, *, compressed: bool = False) -> tuple[pa.Buffer, int]:
    """The file's bytes and their checksum."""
    metadata = {
        b"penstock.format": str(FORMAT_VERSION).encode(),
        b"penstock.encoding": ENCODING.encode(),
        b"penstock.tables": f"[{_BETWEEN.join(t.json_text for t in segment.tables)}]".encode(),
        b"penstock.origins": json.dumps(segment.origins).encode(),
    }
    if segment.source:
        metadata[b"penstock.source"] = segment.source.encode()
    sink = pa.BufferOutputStream()
    how = pa.ipc.IpcWriteOptions(compression=_COMPRESSION if compressed else None)
    with pa.ipc.new_file(sink, SCHEMA.with_metadata(metadata), options=how) as writer:
        writer.write_batch(segment.rows.replace_schema_metadata(metadata))
    data = sink.getvalue()
    return data, checksum(data)


def checksum(data: pa.Buffer) -> int:
    return xxhash.xxh3_64_intdigest(memoryview(data))


def decode_segment(data: pa.Buffer, name: SegmentName, path: str) -> Segment:
    """The segment in ``data``, after checking that it is what was written under ``name``."""
    if checksum(data) != name.checksum:
        raise CorruptSegment(
            f"segment {path} is torn, truncated or altered: its {data.size} bytes do not match the "
            "checksum in its name",
            remedy="restore the file from a backup; or, with `confirm: destination`, delete the "
            "change log folder: Postgres sends again what the destination does not hold yet",
        )
    try:
        with pa.ipc.open_file(pa.BufferReader(data)) as reader:
            metadata = reader.schema.metadata or {}
            version = int(metadata.get(b"penstock.format", b"0"))
            if version != FORMAT_VERSION:
                raise CorruptSegment(
                    f"segment {path} has format version {version}; this Penstock reads "
                    f"version {FORMAT_VERSION}",
                    remedy="read it with the Penstock version that wrote it",
                )
            encoding = metadata.get(b"penstock.encoding", b"").decode()
            if encoding != ENCODING:
                raise CorruptSegment(
                    f"segment {path} holds changes as {encoding!r}; this Penstock reads "
                    f"{ENCODING!r}",
                    remedy="read it with the Penstock version that wrote it",
                )
            rows = reader.get_batch(0)
        tables = _read_tables(metadata[b"penstock.tables"].decode())
        origins = tuple(json.loads(metadata[b"penstock.origins"]))
        source = metadata.get(b"penstock.source", b"").decode()
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptSegment(
            f"segment {path} is not a change log segment: {error}",
            remedy="remove the file if something else than Penstock put it there",
        ) from error
    if rows.num_rows != name.rows or rows.schema.remove_metadata() != SCHEMA:
        raise CorruptSegment(
            f"segment {path} holds {rows.num_rows} rows where its name says {name.rows}, or other "
            "columns than the format has: the file was renamed or made by another program",
            remedy="give the file its name back, or restore it from a backup",
        )
    return Segment(rows.replace_schema_metadata(None), tables, origins, source)


# A JSON list whose items can be told apart without parsing: JSON text holds no raw line feed.
_BETWEEN = ",\n"


def _read_tables(text: str) -> tuple[TableSchema, ...]:
    if text[:1] != "[" or text[-1:] != "]":
        raise ValueError("its table definitions are no list")
    return tuple(map(_read_table, text[1:-1].split(_BETWEEN))) if text != "[]" else ()


@lru_cache(maxsize=8192)
def _read_table(text: str) -> TableSchema:
    """Segment after segment brings the same definitions: read each once."""
    return TableSchema.from_json(json.loads(text))
