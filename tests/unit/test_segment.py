"""A segment's bytes: what was written comes back, and any damage is noticed."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import (
    SCHEMA,
    Segment,
    checksum,
    decode_segment,
    encode_segment,
    place,
)
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.writer import LogWriter
from penstock.model.errors import CorruptSegment
from penstock.source.postgres.capture.assemble import Assembler
from tests.stream_model import START, VERSIONS, build, describe

PLAN: list[tuple[object, ...]] = [
    ("transaction", "elsewhere", [("insert", table, (b"1", b"x", None)) for table in (0, 1, 2)])
]


def made() -> Segment:
    assembler = Assembler(START, describe)
    assembler.add(build(PLAN).messages())
    return assembler.cut().segment


SEGMENT = made()
DATA, DIGEST = encode_segment(SEGMENT)
NAME = SegmentName(1, 1, 0, 1, 2, SEGMENT.rows.num_rows, False, DIGEST)


def decode(
    data: bytes | pa.Buffer, *, rows: int = NAME.rows, checksum: int = NAME.checksum
) -> Segment:
    name = NAME._replace(rows=rows, checksum=checksum)
    return decode_segment(pa.py_buffer(data), name, "log/segments/this")


def test_what_was_written_comes_back() -> None:
    found = decode(DATA)
    assert found.rows == SEGMENT.rows
    assert found.rows.schema == SCHEMA
    assert (found.tables, found.origins) == (SEGMENT.tables, ("elsewhere",))


def test_what_was_written_compressed_comes_back() -> None:
    many = Segment(pa.concat_batches([SEGMENT.rows] * 1000), SEGMENT.tables, SEGMENT.origins)
    data, digest = encode_segment(many, compressed=True)
    assert data.size < many.rows.nbytes / 10
    assert decode(data, rows=many.rows.num_rows, checksum=digest).rows == many.rows


def test_a_segment_may_hold_no_rows() -> None:
    empty = Segment(SEGMENT.rows.slice(0, 0), ())
    data, digest = encode_segment(empty)
    assert decode(data, rows=0, checksum=digest).rows.num_rows == 0


def test_the_same_segment_has_the_same_bytes() -> None:
    assert encode_segment(made()) == (DATA, DIGEST)


@settings(max_examples=200)
@given(st.integers(0, DATA.size - 1))
@example(0)
@example(DATA.size - 1)
def test_a_truncated_file_is_noticed(size: int) -> None:
    with pytest.raises(CorruptSegment, match="log/segments/this is torn") as found:
        decode(DATA.to_pybytes()[:size])
    assert f"{size} bytes" in found.value.message
    assert found.value.remedy


@settings(max_examples=200)
@given(st.integers(0, DATA.size - 1), st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    altered = bytearray(DATA.to_pybytes())
    altered[at] ^= 1 << bit
    with pytest.raises(CorruptSegment, match="torn, truncated or altered"):
        decode(bytes(altered))


@settings(max_examples=100)
@given(st.integers(0, DATA.size), st.binary(min_size=1, max_size=9))
def test_inserted_bytes_are_noticed(at: int, more: bytes) -> None:
    data = DATA.to_pybytes()
    with pytest.raises(CorruptSegment):
        decode(data[:at] + more + data[at:])


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=200), st.binary(max_size=90).map(lambda b: b"ARROW1\0\0" + b)))
def test_a_file_that_is_no_segment_is_refused_whatever_its_checksum(data: bytes) -> None:
    with pytest.raises(CorruptSegment, match="not a change log segment"):
        decode(data, checksum=checksum(pa.py_buffer(data)))


def arrow_file(schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch.replace_schema_metadata(schema.metadata))
    return sink.getvalue()


GOOD = {
    "penstock.format": "1",
    "penstock.encoding": "pgoutput/1 text",
    "penstock.tables": "[]",
    "penstock.origins": "[]",
}


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({}, "format version 0"),
        ({**GOOD, "penstock.format": "2"}, "format version 2"),
        ({**GOOD, "penstock.format": "x"}, "not a change log segment"),
        ({"penstock.format": "1"}, "holds changes as ''"),
        ({**GOOD, "penstock.encoding": "pgoutput/2 binary"}, "changes as 'pgoutput/2 binary'"),
        ({k: GOOD[k] for k in list(GOOD)[:2]}, "not a change log segment"),
        ({**GOOD, "penstock.tables": "["}, "not a change log segment"),
        ({**GOOD, "penstock.tables": "[1]"}, "not a change log segment"),
        ({**GOOD, "penstock.tables": '[{"oid": 1}]'}, "not a change log segment"),
    ],
)
def test_other_arrow_files_are_refused(metadata: dict[str, str], reason: str) -> None:
    data = arrow_file(SCHEMA.with_metadata(metadata), [SEGMENT.rows])
    with pytest.raises(CorruptSegment, match=reason):
        decode(data, checksum=checksum(data))


def test_a_file_without_rows_or_with_other_columns_is_refused() -> None:
    for schema, batches in (
        (SCHEMA, []),
        (pa.schema([("x", pa.int64())]), [pa.record_batch({"x": [1, 2, 3]})]),
    ):
        data = arrow_file(schema.with_metadata(GOOD), batches)
        with pytest.raises(CorruptSegment):
            decode(data, checksum=checksum(data))


def test_a_file_under_a_wrong_name_is_refused() -> None:
    with pytest.raises(CorruptSegment, match="holds 3 rows where its name says 4"):
        decode(DATA, rows=4)


@pytest.mark.parametrize("size", [0, 1, DATA.size // 2, DATA.size - 1])
def test_a_torn_file_on_disk_is_noticed(tmp_path: Path, size: int) -> None:
    log = ChangeLog(str(tmp_path))
    name = LogWriter(log).publish(SEGMENT, START, is_open=False)
    path = Path(log.segments.full(str(name)))
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptSegment, match=str(path)):
        log.read(str(name))


def test_what_is_in_the_file_is_what_the_format_says() -> None:
    with pa.ipc.open_file(pa.BufferReader(DATA)) as reader:
        metadata = reader.schema.metadata
    assert metadata[b"penstock.format"] == b"1"
    assert metadata[b"penstock.encoding"] == b"pgoutput/1 text"
    assert json.loads(metadata[b"penstock.tables"]) == [t.to_json() for t in SEGMENT.tables]
    assert json.loads(metadata[b"penstock.origins"]) == ["elsewhere"]


def test_definitions_are_placed_side_by_side() -> None:
    a, b, c = (describe(versions[0]) for versions in VERSIONS)
    tables = [a, b, c]
    assert place(tables, [b]) == 1
    assert place(tables, [b, c]) == 1
    assert tables == [a, b, c]
    assert place(tables, [c, a]) == 3
    assert place(tables, [c, a]) == 3
    assert tables == [a, b, c, c, a]
    assert place(tables, []) == -1
