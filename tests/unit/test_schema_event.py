"""Schema changes as lines of JSON, and where ``stdout`` and ``files`` put them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import failpoints
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Rows, SchemaChange
from penstock.destination.encode.schema_event import schema_events
from penstock.destination.files.destination import FilesDestination
from penstock.destination.files.folding import fold
from penstock.destination.files.options import FilesOptions
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.model.errors import Fenced
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table

BIGINT = TypeName("pg_catalog", "bigint")
ITEMS = TableDefinition(
    oid=10,
    schema="public",
    name="items",
    replica_identity="d",
    columns=(ColumnDefinition(1, "id", BIGINT, not_null=True),),
    primary_key=("id",),
)
PRICE = ColumnDefinition(3, "préis", TypeName("pg_catalog", "numeric", "(12,2)"), default="0.00")
PRICED = replace(ITEMS, columns=(*ITEMS.columns, PRICE))
POSITION = Position(0x16_B374_1000, 3)
MICROS = 1_767_323_045_678_901
ADDED = SchemaChange(POSITION, MICROS, "ALTER TABLE", (TableChange(ITEMS, PRICED),))
ROWS = table("items", Column("id", "int8", key=True))


def lines(*changes: SchemaChange) -> list[bytes]:
    return [line for change in changes for _, line in schema_events(change)]


def test_a_change_of_a_table_says_all_that_a_reader_needs() -> None:
    (line,) = lines(ADDED)
    assert line.endswith(b"}\n")
    assert "préis".encode() in line
    assert json.loads(line) == {
        "format": 1,
        "op": "schema",
        "schema": "public",
        "table": "items",
        "table_id": 10,
        "position": {"commit_lsn": "16/B3741000", "ordinal": 3},
        "commit_time": "2026-01-02T03:04:05.678901Z",
        "command": "ALTER TABLE",
        "rewrite": False,
        "changes": ["column préis numeric(12,2) added (default 0.00)"],
        "columns": [
            {"id": 1, "name": "id", "type": "bigint", "not_null": True, "default": None},
            {
                "id": 3,
                "name": "préis",
                "type": "numeric(12,2)",
                "not_null": False,
                "default": "0.00",
            },
        ],
        "primary_key": ["id"],
    }


def test_a_table_that_is_gone_has_its_old_name_and_no_columns() -> None:
    (line,) = lines(replace(ADDED, tag="DROP TABLE", tables=(TableChange(ITEMS, None),)))
    event = json.loads(line)
    assert (event["schema"], event["table"], event["table_id"]) == ("public", "items", 10)
    assert event["changes"] == ["table public.items dropped"]
    assert (event["columns"], event["primary_key"]) == (None, None)


def test_a_table_that_is_renamed_has_its_new_name() -> None:
    renamed = replace(ITEMS, schema="shop", name="goods")
    (line,) = lines(replace(ADDED, tables=(TableChange(ITEMS, renamed),)))
    event = json.loads(line)
    assert (event["schema"], event["table"]) == ("shop", "goods")
    assert event["changes"] == ["table public.items renamed to shop.goods"]


def test_a_rewrite_is_told_as_such() -> None:
    (line,) = lines(replace(ADDED, tables=(TableChange(ITEMS, ITEMS, is_rewrite=True),)))
    event = json.loads(line)
    assert event["rewrite"] is True
    assert event["changes"] == ["rows rewritten"]


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (TypeName("pg_catalog", "timestamp", "(3) with time zone"), "timestamp(3) with time zone"),
        (TypeName("pg_catalog", "numeric", "(12,2)", is_array=True), "numeric(12,2)[]"),
        (TypeName("public", "mood"), "public.mood"),
        (TypeName("shop", "mood", is_array=True), "shop.mood[]"),
        (TypeName("public", "vector", "(3)", extension="vector"), "public.vector(3)"),
    ],
)
def test_types_are_written_as_sql_has_them(kind: TypeName, shown: str) -> None:
    changed = replace(ITEMS, columns=(ColumnDefinition(1, "id", kind),))
    (line,) = lines(replace(ADDED, tables=(TableChange(ITEMS, changed),)))
    (column,) = json.loads(line)["columns"]
    assert column["type"] == shown


def test_each_table_of_a_statement_has_a_line() -> None:
    other = replace(ITEMS, oid=11, name="parts")
    change = replace(ADDED, tables=(*ADDED.tables, TableChange(None, other)))
    told = list(schema_events(change))
    assert [change.oid for change, _ in told] == [10, 11]
    assert [json.loads(line)["table"] for _, line in told] == ["items", "parts"]
    assert list(schema_events(replace(ADDED, tables=()))) == []


@given(st.integers(946_684_800_000_000, 4_102_444_800_000_000))
def test_no_microsecond_of_a_commit_is_lost(micros: int) -> None:
    """From 2000 to 2100."""
    committed = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    (line,) = lines(replace(ADDED, commit_micros=micros))
    told = json.loads(line)["commit_time"]
    assert datetime.fromisoformat(told) == committed
    assert len(told) == len("2026-01-02T03:04:05.678901Z")


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1))
def test_any_name_makes_one_line(name: str) -> None:
    renamed = replace(ITEMS, name=name)
    (line,) = lines(replace(ADDED, tables=(TableChange(None, renamed),)))
    assert line.count(b"\n") == 1
    assert json.loads(line)["table"] == name


# -- stdout --------------------------------------------------------------------------------------


def test_stdout_prints_rows_and_changes_in_their_order(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    dropped = replace(ADDED, position=Position(POSITION.commit_lsn, 5), tag="DROP TABLE")
    destination = StdoutDestination(StdoutOptions(), "shop")
    destination.commit_sections(
        [Rows((b"a\n", b"b\n")), ADDED, dropped, Rows((b"c\n",))], Watermarks(Frontier(1, 2))
    )
    (first,), (second,) = lines(ADDED), lines(dropped)
    assert capfdbinary.readouterr().out == b"a\nb\n" + first + second + b"c\n"


# -- files ---------------------------------------------------------------------------------------


def opened(path: Path) -> FilesDestination:
    options = FilesOptions.model_validate({"path": str(path), "format": "ndjson"})
    destination = FilesDestination(options, "shop")
    destination.open()
    return destination


def inserted(builder: ChangeBuilder, number: int) -> ChangeSet:
    with builder.transaction():
        builder.insert(ROWS, str(number))
    return builder.cut()


def events(path: Path) -> dict[str, bytes]:
    """The definitions that rows were written under lie there as well, named by their hash."""
    folder = path / "_penstock" / "shop" / "schemas"
    return {file.name: file.read_bytes() for file in sorted(folder.glob("*-*"))}


def ids(path: Path) -> list[str]:
    return sorted(str(row[0]) for row in fold(path, "shop", "public", "items").rows.elements())


def commit(destination: FilesDestination, builder: ChangeBuilder, *numbers: int) -> None:
    """A transaction with rows on both sides of a change."""
    sections: list[SchemaChange | Rows] = [
        Rows((destination.section_writer([]).write([inserted(builder, number)]),))
        for number in numbers
    ]
    destination.commit_sections([sections[0], ADDED, *sections[1:]], Watermarks(builder.frontier))


def names(positions: Sequence[Position]) -> list[str]:
    return [f"{p.commit_lsn:016X}{p.ordinal:08X}-10.json" for p in positions]


def test_files_keep_a_change_beside_the_rows(tmp_path: Path) -> None:
    destination, builder = opened(tmp_path), ChangeBuilder()
    commit(destination, builder, 1, 2)
    assert destination.committed() == Watermarks(builder.frontier)
    assert ids(tmp_path) == ["1", "2"]
    assert events(tmp_path) == {"00000016B374100000000003-10.json": lines(ADDED)[0]}


def test_files_of_changes_sort_by_position(tmp_path: Path) -> None:
    positions = [Position(0x9, 4), Position(0x9, 16), Position(0x10, 0), Position(0xA_0000_0000, 1)]
    changes = [replace(ADDED, position=position) for position in positions]
    opened(tmp_path).commit_sections(changes, Watermarks(Frontier(0xA_0000_0000, 0xA_0000_0008)))
    assert list(events(tmp_path)) == names(positions)
    assert [json.loads(line)["position"]["ordinal"] for line in events(tmp_path).values()] == [
        4,
        16,
        0,
        1,
    ]


def crashed(*_commit: object) -> None:
    raise RuntimeError("crashed")


def test_a_change_that_is_brought_again_after_a_crash_stands_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = opened(tmp_path)
    before = driver.committed()
    with monkeypatch.context() as crash:
        # The event is written, the batch is not committed.
        crash.setattr(driver, "commit", crashed)
        with pytest.raises(RuntimeError, match="crashed"):
            driver.commit_sections([ADDED], Watermarks(Frontier(8, 9)))
    assert driver.committed() == before
    (tmp_path / "_penstock" / "shop" / "schemas" / ".tmp-left").write_bytes(b"half")

    driver = opened(tmp_path)
    monkeypatch.setitem(failpoints._points, "files.manifest_written", ("error", 1))
    with pytest.raises(RuntimeError, match="manifest_written"):
        driver.commit_sections([ADDED], Watermarks(Frontier(8, 9)))
    driver = opened(tmp_path)
    assert driver.committed() == Watermarks(Frontier(8, 9))
    assert list(events(tmp_path).values()) == lines(ADDED)


def test_a_driver_that_was_fenced_tells_of_no_change(tmp_path: Path) -> None:
    slept = opened(tmp_path)
    opened(tmp_path)
    with pytest.raises(Fenced):
        slept.commit_sections([ADDED], Watermarks(Frontier(8, 9)))
    assert events(tmp_path) == {}
