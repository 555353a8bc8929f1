"""What stands in the Parquet files, read by pyarrow alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from penstock.destination.files.committed_files import list_files
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.options import FilesOptions
from penstock.model.errors import DecodeError
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table

DAY_MICROS = 86_400_000_000


def deliver(builder: ChangeBuilder, path: Path, **options: Any) -> FilesDestination:
    destination = FilesDestination(FilesOptions(path=str(path), **options), "shop")
    destination.open()
    changes = builder.cut()
    receipt = destination.writer().write([changes])
    destination.commit([receipt], Watermarks(builder.frontier))
    return destination


def read(path: Path, folder: str) -> pa.Table:
    return pa.concat_tables(
        pq.ParquetFile(file).read() for file in list_files(path, "shop", folder)
    )


def test_types_that_parquet_and_spark_hold(tmp_path: Path) -> None:
    uid = "00000000-0000-0000-0000-00000000000a"
    columns: dict[str, tuple[str, str, Any]] = {
        "id": ("int8", "9007199254740993", 9007199254740993),
        "ok": ("bool", "t", True),
        "ratio": ("float8", "1.5", 1.5),
        "d": ("date", "2026-01-02", date(2026, 1, 2)),
        "at": ("timestamptz", "2026-01-02 03:04:05+00", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
        "raw": ("bytea", "\\x00ff", b"\x00\xff"),
        "tags": ("_text", '{a,"b c",NULL}', ["a", "b c", None]),
        "any": ("numeric", "1.50", "1.50"),
        "uid": ("uuid", uid, uid),
        "uids": ("_uuid", f"{{{uid}}}", [uid]),
        "span": ("interval", "1 mon", "1 mon"),
        "spans": ("_interval", '{"1 mon",01:00:00}', ["1 mon", "01:00:00"]),
        "clock": ("time", "24:00:00", "24:00:00"),
        "doc": ("jsonb", '{"a": 1}', '{"a": 1}'),
    }
    wide = table("wide", *(Column(name, kind[0]) for name, kind in columns.items()))
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(wide, *(kind[1] for kind in columns.values()))
        builder.insert(wide, *[None] * len(columns))
    deliver(builder, tmp_path)
    data = read(tmp_path, "public.wide")
    first, second = data.to_pylist()
    assert {name: first[name] for name in columns} == {n: kind[2] for n, kind in columns.items()}
    assert not any(second[name] for name in columns)
    assert first["_raw"] == second["_raw"] == []
    assert data.schema.field("span").metadata[b"postgres.type"] == b"interval"


def test_decimals_up_to_what_spark_reads(tmp_path: Path) -> None:
    modifiers = {"small": (12, 2), "most": (38, 0), "beyond": (39, 0)}
    money = table(
        "money",
        *(Column(n, "numeric", typmod=(p << 16 | s) + 4) for n, (p, s) in modifiers.items()),
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(money, "1.50", "9" * 38, "9" * 39)
        builder.insert(money, "NaN", None, "NaN")
    deliver(builder, tmp_path)
    first, second = read(tmp_path, "public.money").to_pylist()
    assert first["small"] == Decimal("1.50")
    assert first["most"] == Decimal("9" * 38)
    assert first["beyond"] == "9" * 39
    assert (second["small"], second["beyond"], second["_raw"]) == (None, "NaN", [("small", "NaN")])


def test_what_arrow_cannot_hold_is_in_raw_as_text(tmp_path: Path) -> None:
    odd = table(
        "odd", Column("id", "int8", key=True), Column("at", "timestamptz"), Column("a", "_int4")
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(odd, "1", "infinity", "{{1,2},{3,4}}")
        builder.insert(odd, "2", "2026-01-02 03:04:05+00", "[0:1]={1,2}")
        builder.insert(odd, "3", "-infinity", "{1}")
        builder.insert(odd, "4", None, None)
    deliver(builder, tmp_path)
    rows = read(tmp_path, "public.odd").to_pylist()
    assert [row["_raw"] for row in rows] == [
        [("at", "infinity"), ("a", "{{1,2},{3,4}}")],
        [("a", "[0:1]={1,2}")],
        [("at", "-infinity")],
        [],
    ]
    assert [row["at"] is None for row in rows] == [True, False, True, True]
    assert [row["a"] for row in rows] == [None, None, [1], None]


def test_stamps_unset_and_old(tmp_path: Path) -> None:
    items = table("items", Column("id", "int8", key=True), Column("name", "text"))
    builder = ChangeBuilder(first_lsn=0x1_0000_0000)
    with builder.transaction():
        builder.insert(items, "1", "a")
        builder.update(items, "2", UNSET, key=["1", None])
        builder.delete(items, key=["2", None])
        builder.truncate(items)
    deliver(builder, tmp_path)
    rows = read(tmp_path, "public.items").to_pylist()
    version = rows[0]["_schema_version"]
    time = datetime(2026, 1, 2, 3, 4, 6, 678901, tzinfo=UTC)
    common = {
        "_commit_lsn": 0x1_0000_1000,
        "_xid": 701,
        "_commit_ts": time,
        "_raw": [],
        "_schema_version": version,
    }
    ops: list[dict[str, Any]] = [
        {"_op": "insert", "id": 1, "name": "a", "_unset": [], "_old": None},
        {"_op": "update", "id": 2, "name": None, "_unset": ["name"], "_old": [("id", "1")]},
        {"_op": "delete", "id": 2, "name": None, "_unset": [], "_old": None},
        {"_op": "truncate", "id": None, "name": None, "_unset": [], "_old": None},
    ]
    for number, (row, op) in enumerate(zip(rows, ops, strict=True)):
        lsn = row.pop("_lsn")
        assert 0x1_0000_0000 < lsn < 0x1_0000_1000
        assert row == {**common, **op, "_ordinal": number}
    assert (tmp_path / f"_penstock/shop/schemas/{version}.json").exists()


def test_full_old_rows_of_updates(tmp_path: Path) -> None:
    full = table("full", Column("a", "int4"), Column("b", "text"), identity="f")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(full, "2", UNSET, full=["1", "long"])
        builder.insert(full, "3", None)
        builder.update(full, "4", "x", full=["3", None])
    deliver(builder, tmp_path)
    rows = read(tmp_path, "public.full").to_pylist()
    assert [row["_old"] for row in rows] == [
        [("a", "1"), ("b", "long")],
        None,
        [("a", "3"), ("b", None)],
    ]
    assert (rows[0]["b"], rows[0]["_unset"]) == ("long", [])


def test_columns_with_our_names_step_aside(tmp_path: Path) -> None:
    clash = table(
        "clash",
        Column("_op", "text"),
        Column("_OLD", "text"),
        Column("_op_", "text"),
        Column("commit_date", "text"),
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(clash, "1", "2", "3", "4")
    deliver(builder, tmp_path)
    data = read(tmp_path, "public.clash")
    (row,) = data.to_pylist()
    assert row["_op"] == "insert"
    stored = {
        field.metadata[b"postgres.column"].decode(): row[field.name]
        for field in data.schema
        if field.metadata and b"postgres.column" in field.metadata
    }
    assert stored == {"_op": "1", "_OLD": "2", "_op_": "3", "commit_date": "4"}
    lowered = [name.lower() for name in data.schema.names]
    assert len(set(lowered)) == len(lowered)


def test_rows_go_to_the_day_of_their_commit(tmp_path: Path) -> None:
    items = table("items", Column("id", "int8", key=True))
    builder = ChangeBuilder()
    builder.micros = 20_000 * DAY_MICROS - 1_500_000
    for number in range(3):
        with builder.transaction():
            builder.insert(items, str(number))
    deliver(builder, tmp_path)
    data = ds.dataset(tmp_path / "public.items", partitioning="hive").to_table().to_pylist()
    days = {row["id"]: row["commit_date"] for row in data}
    assert days == {0: "2024-10-03", 1: "2024-10-04", 2: "2024-10-04"}


def test_a_malformed_value_names_its_column(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(table("items", Column("id", "int8", key=True)), "one")
    with pytest.raises(DecodeError, match=r"table public\.items, column id: 'one'"):
        deliver(builder, tmp_path)
    assert list(tmp_path.glob("_penstock/shop/staging/*")) == []


def test_messages(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.message("p", b"\xff\x00")
    builder.message("q", b"", transactional=False)
    deliver(builder, tmp_path)
    rows = read(tmp_path, "_messages").to_pylist()
    found = [(r["prefix"], r["content"], r["transactional"], r["_xid"], r["_op"]) for r in rows]
    assert sorted(found) == [
        ("p", b"\xff\x00", True, 701, "message"),
        ("q", b"", False, None, "message"),
    ]


@pytest.mark.parametrize(
    ("compression", "codec"), [("zstd", "ZSTD"), ("snappy", "SNAPPY"), ("none", "UNCOMPRESSED")]
)
def test_compression(tmp_path: Path, compression: str, codec: str) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(table("items", Column("id", "int8", key=True)), "1")
    deliver(builder, tmp_path, compression=compression)
    (file,) = list_files(tmp_path, "shop")
    assert pq.ParquetFile(file).metadata.row_group(0).column(0).compression == codec
